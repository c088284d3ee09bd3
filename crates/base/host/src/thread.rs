//! Threads and CPU affinity.

use crate::error::{HostError, Named};
use rustix::thread::CpuSet;
use std::thread::JoinHandle;

/// Starts a thread, pinned to a core if given.
pub fn spawn<T: Send + 'static>(
    name: &str,
    core: Option<usize>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, HostError> {
    if let Some(core) = core {
        check(core)?;
    }
    let builder = std::thread::Builder::new().name(name.into());
    let run = move || {
        if let Some(core) = core {
            // Checked above; if the core went offline since, the thread is not pinned.
            let _ = pin(core);
        }
        work()
    };
    builder.spawn(run).named("starting a thread")
}

fn check(core: usize) -> Result<(), HostError> {
    let known = allowed_cores()?.contains(&core);
    if known { Ok(()) } else { Err(HostError::NoCore { core, allowed: allowed_cores()? }) }
}

/// Keeps the calling thread on one core.
pub fn pin(core: usize) -> Result<(), HostError> {
    check(core)?;
    let mut set = CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).named("pinning a thread")
}

/// Keeps the calling thread on those of `cores` that it may run on, if there are any.
pub(crate) fn pin_within(cores: &[usize]) -> Result<(), HostError> {
    let mut set = CpuSet::new();
    allowed_cores()?.into_iter().filter(|core| cores.contains(core)).for_each(|core| set.set(core));
    if set.count() == 0 {
        return Ok(());
    }
    rustix::thread::sched_setaffinity(None, &set).named("pinning a thread")
}

/// The cores that this process may run on.
pub fn allowed_cores() -> Result<Vec<usize>, HostError> {
    let set = rustix::thread::sched_getaffinity(None).named("reading the allowed cores")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_cpu() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// An unpredictable number.
pub fn random() -> Result<u64, HostError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).named("getrandom")?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_on_its_core() {
        let core = *allowed_cores().unwrap().last().unwrap();
        let thread = spawn("pinned", Some(core), || allowed_cores().unwrap()).unwrap();
        assert_eq!(thread.join().unwrap(), [core]);
        assert!(matches!(spawn("nowhere", Some(100_000), || ()), Err(HostError::NoCore { .. })));
        let within = spawn("within", None, move || {
            let before = allowed_cores().unwrap();
            pin_within(&[100_000]).unwrap();
            assert_eq!(allowed_cores().unwrap(), before);
            pin_within(&[core, 100_000]).unwrap();
            allowed_cores().unwrap()
        });
        assert_eq!(within.unwrap().join().unwrap(), [core]);
    }
}
