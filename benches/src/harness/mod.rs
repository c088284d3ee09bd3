//! The building blocks of benchmarks: a fabric in this process, and the peers of its ports.

pub mod bare;
pub mod clock;
pub mod fabric;
pub mod fan;
pub mod front;
pub mod guest;
pub mod mapper;
pub mod memory;
pub mod monitor;
pub mod program;
pub mod returner;
pub mod sequence;
pub mod single_guest;
pub mod stream;

use hdrhistogram::Histogram;
use rustix::thread::CpuSet;
use std::time::{Duration, Instant};

/// The core of the worker, or of its substitute.
pub const WORKER: usize = 0;
/// The core of the load.
pub const LOAD: usize = 1;

/// Pins this thread to a core until dropped. Threads and processes started in the meantime inherit the pinning.
pub struct Pinned(CpuSet);

impl Pinned {
    /// Pins this thread to `core`.
    pub fn to(core: usize) -> Result<Pinned, crate::Failure> {
        let before = rustix::thread::sched_getaffinity(None)?;
        ringway_host::pin(core)?;
        Ok(Pinned(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The previous set is valid.
        let _ = rustix::thread::sched_setaffinity(None, &self.0);
    }
}

/// Fails unless there are two cores, one for the load and one for the measured work.
pub fn two_cores() -> Result<(), crate::Failure> {
    let cores = ringway_host::allowed_cores()?;
    if [WORKER, LOAD].iter().all(|core| cores.contains(core)) {
        return Ok(());
    }
    Err("needs cores 0 and 1: one for what is measured, one for its load".into())
}

/// p50 and p99 of `each` within `time`, in microseconds, and its rate in thousands a second.
pub fn times(
    time: Duration,
    mut each: impl FnMut() -> Result<(), crate::Failure>,
) -> Result<[f64; 3], crate::Failure> {
    let mut times = Histogram::<u64>::new_with_max(10_000_000_000, 3)?;
    let begin = Instant::now();
    while begin.elapsed() < time {
        let before = Instant::now();
        each()?;
        times.saturating_record(before.elapsed().as_nanos() as u64);
    }
    let [p50, p99] = [0.5, 0.99].map(|part| times.value_at_quantile(part) as f64 / 1e3);
    Ok([p50, p99, times.len() as f64 / 1e3 / begin.elapsed().as_secs_f64()])
}
