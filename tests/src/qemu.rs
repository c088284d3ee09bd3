//! QEMU and kernels that are fit for guests behind an IOMMU.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The least version of QEMU that passes on all that a guest takes back, and whose guests live.
const LEAST: u32 = 9;

/// A QEMU for guests behind an IOMMU.
#[derive(Debug, Clone)]
pub struct Fit {
    /// Its program, if it is not the one that is installed.
    pub program: Option<PathBuf>,
}

/// The one that is installed if that does, else a newer one that a script brings. Before 8.1 it may keep to itself what
/// a guest takes back, and before 8 its own guests crash it; so `None` where there is no newer to be had.
pub fn fit() -> Option<Fit> {
    if installed().is_some_and(|version| version >= LEAST) {
        return Some(Fit { program: None });
    }
    let [program] = brought("newer-qemu.sh")?;
    Some(Fit { program: Some(program) })
}

/// The major version of the QEMU that is installed.
fn installed() -> Option<u32> {
    let output = Command::new("qemu-system-x86_64").arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split("version ").nth(1)?.split('.').next()?.parse().ok()
}

/// A kernel that has a driver for virtio's IOMMU, and the folder of its modules; `None` where there is none to be had.
pub fn kernel_with_virtio_iommu() -> Option<[PathBuf; 2]> {
    brought("newer-kernel.sh")
}

/// The paths that a script of the project prints, a line each, once it has brought what is there.
fn brought<const PATHS: usize>(script: &str) -> Option<[PathBuf; PATHS]> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(script);
    let output = Command::new(script).stdin(Stdio::null()).output().ok()?;
    crate::say(String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths: Vec<PathBuf> = text.lines().map(PathBuf::from).filter(|path| path.exists()).collect();
    paths.try_into().ok().filter(|_| output.status.success())
}
