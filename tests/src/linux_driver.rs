//! Our Linux driver for emulated cards, `drivers/linux`, built for the kernel of test guests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Why there is no driver.
#[derive(Debug)]
pub enum NoDriver {
    /// The kernel's headers are not installed.
    Headers(String),
    /// The driver does not compile, or not without a warning.
    Build(String),
}

impl std::fmt::Display for NoDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoDriver::Headers(release) => {
                write!(f, "/usr/src/linux-headers-{release} is missing (package linux-headers-{release})")
            }
            NoDriver::Build(errors) => write!(f, "our driver can't be built: {errors}"),
        }
    }
}

/// Builds the driver in `folder` for the kernel with these `modules`; returns the module.
///
/// # Errors
/// The headers are missing, or the build fails.
pub fn build(folder: &Path, modules: &Path) -> Result<PathBuf, NoDriver> {
    let release = modules.file_name().unwrap_or_default().to_string_lossy();
    let headers = PathBuf::from(format!("/usr/src/linux-headers-{release}"));
    if !headers.is_dir() {
        return Err(NoDriver::Headers(release.into_owned()));
    }
    let failed = |error: std::io::Error| NoDriver::Build(error.to_string());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../drivers/linux");
    for name in ["Makefile", "ringway_e1000.c"] {
        std::fs::copy(source.join(name), folder.join(name)).map_err(failed)?;
    }
    let mut make = Command::new("make");
    let made =
        make.arg(format!("KERNEL={}", headers.display())).current_dir(folder).output().map_err(failed)?;
    let errors = String::from_utf8_lossy(&made.stderr).into_owned();
    if !made.status.success() || errors.contains("warning:") {
        return Err(NoDriver::Build(errors));
    }
    Ok(folder.join("ringway_e1000.ko"))
}
