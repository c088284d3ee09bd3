//! QEMU versions and kernels suitable for guests behind an IOMMU, and for guests on emulated cards.
use crate::qtest::has_device;
use ringway_linux_guests::image;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first suitable version of QEMU: before 8.1 it may not forward unmappings, and before 8 its guests crash it.
const LEAST: u32 = 9;

/// A QEMU for guests behind an IOMMU.
#[derive(Debug, Clone)]
pub struct Fit {
    /// The program, if it is not the installed one.
    pub program: Option<PathBuf>,
}

/// The installed QEMU if it is suitable, else a newer one fetched by a script; `None` if none is available.
pub fn fit() -> Option<Fit> {
    if installed().is_some_and(|version| version >= LEAST) {
        return Some(Fit { program: None });
    }
    let [program] = brought("newer-qemu.sh")?;
    Some(Fit { program: Some(program) })
}

/// A QEMU that attaches emulated cards over vfio-user: the installed one if it does, else a newer one fetched by a
/// script; `None` if none is available.
pub fn with_cards() -> Option<PathBuf> {
    let attaches = |program: &PathBuf| has_device(program, "vfio-user-pci");
    let installed = image::program("qemu-system-x86_64").filter(attaches);
    installed.or_else(|| brought("newer-qemu.sh").map(|[program]| program).filter(attaches))
}

/// The major version of the installed QEMU.
fn installed() -> Option<u32> {
    let output = Command::new("qemu-system-x86_64").arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split("version ").nth(1)?.split('.').next()?.parse().ok()
}

/// A kernel with a virtio-iommu driver, and the folder of its modules; `None` if none is available.
pub fn kernel_with_virtio_iommu() -> Option<[PathBuf; 2]> {
    brought("newer-kernel.sh")
}

/// The paths printed by a script of the project, one per line, after fetching the files.
fn brought<const PATHS: usize>(script: &str) -> Option<[PathBuf; PATHS]> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(script);
    let output = Command::new(script).stdin(Stdio::null()).output().ok()?;
    crate::say(String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths: Vec<PathBuf> = text.lines().map(PathBuf::from).filter(|path| path.exists()).collect();
    paths.try_into().ok().filter(|_| output.status.success())
}
