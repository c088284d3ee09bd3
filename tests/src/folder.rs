//! A test's folder.
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that is removed with its contents; if the test failed, it stays, and its path is printed.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder. Its path is short: a socket's path has at most 107 bytes.
    pub fn new(name: &str) -> std::io::Result<Folder> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rw-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        // Guests with access to it run as separate users.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o1777))?;
        Ok(Folder(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("logs are in {}", self.0.display());
        } else {
            // Leftovers are harmless.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
