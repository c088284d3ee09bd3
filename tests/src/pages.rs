//! Huge pages for a test.
use std::path::PathBuf;

/// Huge pages reserved on the host; released when dropped.
pub struct Pages {
    file: PathBuf,
    count: u64,
}

impl Pages {
    /// Reserves `count` pages of `kilobytes` each (2048 or 1048576); `None` if the host has too few, or
    /// permission is missing.
    pub fn take(kilobytes: u64, count: u64) -> Option<Pages> {
        let file = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kilobytes}kB/nr_hugepages"));
        let mut pages = Pages { file, count: 0 };
        let before = pages.number()?;
        pages.set(before + count)?;
        // The kernel may reserve fewer.
        pages.count = pages.number()?.saturating_sub(before);
        (pages.count == count).then_some(pages)
    }

    fn number(&self) -> Option<u64> {
        std::fs::read_to_string(&self.file).ok()?.trim().parse().ok()
    }

    fn set(&self, number: u64) -> Option<()> {
        std::fs::write(&self.file, number.to_string()).ok()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(now) = self.number() {
            // Pages in use stay reserved.
            let _ = self.set(now.saturating_sub(self.count));
        }
    }
}
