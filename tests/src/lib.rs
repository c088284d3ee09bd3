//! A testbed: a fabric of its own in a folder of its own, with real guests and DPDK on its ports.
//!
//! Everything it starts ends with it; nothing of it collides with another that runs beside it.
pub mod bridge;
pub mod dpdk;
pub mod fabric;
pub mod folder;
pub mod moving;
pub mod numbered;
pub mod pages;
pub mod plugging;
pub mod qemu;
pub mod qmp;
pub mod sleeper;
pub mod talk;
pub mod traffic;
pub mod vfio;

use std::io::Write;
use std::time::{Duration, Instant};

/// Waits until `holds` does, looking every few milliseconds; false when it did not within `bound`.
pub fn eventually(bound: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + bound;
    while !holds() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// How often a test does again what may go wrong only sometimes: `few` times, or as `RINGWAY_ROUNDS` says in a long
/// run.
pub fn rounds(few: usize) -> usize {
    std::env::var("RINGWAY_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(few)
}

/// Says something beside the results of tests, also when the test that says it passes.
pub fn say(text: &str) {
    if !text.is_empty() {
        // Nobody may listen.
        let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
    }
}
