//! Huge pages for DPDK and guests' memory: reserved while measuring, then restored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const COUNT: &str = "/proc/sys/vm/nr_hugepages";

/// The system's previous number of 2 MB pages.
#[derive(Clone, Debug)]
pub struct Pages {
    before: Option<u64>,
    restored: Arc<AtomicBool>,
}

impl Pages {
    /// Reserves at least `count` pages. Without the privilege nothing changes; benchmarks that need pages report it.
    pub fn reserve(count: u64) -> Pages {
        let now = read();
        let changed =
            now.filter(|now| *now < count).filter(|_| std::fs::write(COUNT, count.to_string()).is_ok());
        Pages { before: changed, restored: Arc::default() }
    }

    /// Releases the added pages, those in use as soon as they are free.
    pub fn restore(&self) {
        if let Some(before) = self.before
            && !self.restored.swap(true, Ordering::Relaxed)
            && let Err(error) = std::fs::write(COUNT, before.to_string())
        {
            eprintln!("ringway-bench: {COUNT} can't be set back to {before}: {error}");
        }
    }
}

/// Free pages of 2 MB.
pub fn free() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn read() -> Option<u64> {
    std::fs::read_to_string(COUNT).ok()?.trim().parse().ok()
}
