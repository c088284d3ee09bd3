//! The building blocks of benchmarks: a fabric in this process, and the peers of its ports.

pub mod bare;
pub mod fabric;
pub mod fan;
pub mod front;
pub mod guest;
pub mod mapper;
pub mod memory;
pub mod monitor;
pub mod passing;
pub mod program;
pub mod returner;
pub mod sequence;
pub mod stream;

use rustix::thread::CpuSet;

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
