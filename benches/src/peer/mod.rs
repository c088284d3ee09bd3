//! The peers that Ringway is compared with.

pub mod net;
pub mod relay;
pub mod testpmd;

use std::path::PathBuf;

/// A program of this host, or the reason to leave something out.
pub fn program(name: &str) -> Result<PathBuf, crate::Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(usual);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()));
    found.ok_or_else(|| format!("{name} is not installed").into())
}
