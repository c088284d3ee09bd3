//! Huge pages for a test.
use std::path::PathBuf;

/// Huge pages taken from the host; given back with this.
pub struct Pages {
    file: PathBuf,
    count: u64,
}

impl Pages {
    /// Takes `count` pages of `kilobytes` each (2048 or 1048576); none if the host has not so many, or we may not.
    pub fn take(kilobytes: u64, count: u64) -> Option<Pages> {
        let file = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kilobytes}kB/nr_hugepages"));
        let mut pages = Pages { file, count: 0 };
        let before = pages.number()?;
        pages.set(before + count)?;
        // The kernel gives what it has.
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
            // What can't be given back stays the host's.
            let _ = self.set(now.saturating_sub(self.count));
        }
    }
}
