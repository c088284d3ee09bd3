//! A testbed: a fabric in a separate folder, with real guests and DPDK on its ports.
//!
//! Everything that it starts ends with it, and does not conflict with concurrent testbeds.
pub mod arping;
pub mod bridge;
pub mod c_library;
pub mod card;
pub mod columns;
pub mod dpdk;
pub mod e1000;
pub mod fabric;
pub mod folder;
pub mod linux_driver;
pub mod moving;
pub mod numbered;
pub mod pages;
pub mod plugging;
pub mod qemu;
pub mod qmp;
pub mod qtest;
pub mod returned;
pub mod sleeper;
pub mod talk;
pub mod traffic;
pub mod tshark;
pub mod vfio;

use std::io::Write;
use std::time::{Duration, Instant};

/// Polls every few milliseconds until `holds` returns true; false if it does not within `bound`.
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

/// Number of repetitions of a test that may fail only sometimes: `few`, or `RINGWAY_ROUNDS` in a long run.
pub fn rounds(few: usize) -> usize {
    std::env::var("RINGWAY_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(few)
}

/// Prints a line even if the test passes.
pub fn say(text: &str) {
    if !text.is_empty() {
        // Standard error may be closed.
        let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
    }
}
