//! Waiting until no turn can read replaced values.

use ringway_mem::{DeferredFrees, Readers, Retired, Snapshot};
use rustix::thread::CpuSet;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

// membarrier(2)
const GLOBAL: libc::c_int = 1;
const PRIVATE_EXPEDITED: libc::c_int = 8;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 16;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers only and changes no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether the kernel supports an expedited barrier.
pub(crate) fn is_expedited() -> bool {
    static EXPEDITED: OnceLock<bool> = OnceLock::new();
    *EXPEDITED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED))
}

/// Makes every thread of this process execute a full barrier.
fn barrier() {
    // The second command is slower, but supported by older kernels.
    let done = is_expedited() && membarrier(PRIVATE_EXPEDITED) || membarrier(GLOBAL);
    if !done {
        visit_cores();
    }
}

/// Runs on every core in turn. The thread that ran there was switched out, and a context switch is a full
/// barrier.
#[cold]
fn visit_cores() {
    let Ok(home) = rustix::thread::sched_getaffinity(None) else { return };
    for core in 0..CpuSet::MAX_CPU {
        let mut only = CpuSet::new();
        only.set(core);
        // A core that isn't allowed can't run threads of ours.
        let _ = rustix::thread::sched_setaffinity(None, &only);
    }
    let _ = rustix::thread::sched_setaffinity(None, &home);
}

thread_local! {
    static GRACES: Cell<u64> = const { Cell::new(0) };
}

/// Number of grace periods that this thread has waited for: the cost of a change.
pub fn graces() -> u64 {
    GRACES.get()
}

/// Waits until every turn in progress has ended. A thread within its own turn must not call this: it
/// would deadlock.
pub fn grace() {
    let deferred = DeferredFrees::take();
    grace_of(Readers::ALL);
    // SAFETY: since they were taken every thread ran a barrier, and the turns then under way have passed.
    unsafe { deferred.free() };
}

/// Waits for the turns of some threads only.
fn grace_of(readers: Readers) {
    GRACES.set(GRACES.get() + 1);
    barrier();
    let snapshot = Snapshot::take(readers);
    let mut round = 0_u32;
    while !snapshot.passed() {
        round += 1;
        if round < 1000 {
            std::hint::spin_loop();
        } else if round < 1100 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Waits until a replaced value is no longer read, and returns it.
pub fn reclaim<T>(retired: Retired<T>) -> Arc<T> {
    grace_of(retired.readers());
    // SAFETY: since the replacement every thread ran a barrier, and its readers' turns then under way have passed.
    unsafe { retired.into_inner() }
}

/// As [`reclaim`], once for all of them, and drops them.
pub fn reclaim_all<T>(retired: Vec<Retired<T>>) {
    if !retired.is_empty() {
        reclaim_after(Readers::default(), retired);
    }
}

/// As [`reclaim_all`], also after the turns of `readers`.
pub fn reclaim_after<T>(readers: Readers, retired: Vec<Retired<T>>) {
    grace_of(retired.iter().fold(readers, |all, one| all.with(one.readers())));
    for one in retired {
        // SAFETY: since the replacement every thread ran a barrier, and its readers' turns then under way have passed.
        drop(unsafe { one.into_inner() });
    }
}

/// The turns of all threads that were in progress at one moment.
#[derive(Debug)]
pub struct TurnsInProgress(Snapshot);

impl TurnsInProgress {
    /// The turns in progress now, which may still read values that were replaced before.
    pub fn now() -> TurnsInProgress {
        barrier();
        TurnsInProgress(Snapshot::take(Readers::ALL))
    }

    /// Whether all of them have ended.
    pub fn have_ended(&self) -> bool {
        self.0.passed()
    }
}

/// Frees deferred values without waiting for turns.
#[derive(Debug, Default)]
pub struct DeferredReclaim(Option<(DeferredFrees, Snapshot)>);

impl DeferredReclaim {
    /// Frees what the last call found, if those turns have ended, and looks for more.
    pub fn free(&mut self) {
        if self.0.as_ref().is_some_and(|(_, snapshot)| !snapshot.passed()) {
            return;
        }
        if let Some((deferred, _)) = self.0.take() {
            // SAFETY: since they were taken every thread ran a barrier, and the turns then under way have passed.
            unsafe { deferred.free() };
        }
        let deferred = DeferredFrees::take();
        if !deferred.is_empty() {
            barrier();
            self.0 = Some((deferred, Snapshot::take(Readers::ALL)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_mem::{Published, Reader};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    struct Loud(Arc<AtomicU64>, [u64; 64]);

    impl Drop for Loud {
        fn drop(&mut self) {
            self.1 = [0; 64];
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_reader_never_sees_freed_values() {
        let freed = Arc::new(AtomicU64::new(0));
        let published = Published::new(Arc::new(Loud(freed.clone(), [1; 64])));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut reader = Reader::register().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let turn = reader.turn(0);
                    let value = published.read(&turn);
                    assert!(value.1.iter().all(|&word| word == value.1[0] && word != 0));
                }
            });
            for round in 2..200 {
                drop(reclaim(published.replace(Arc::new(Loud(freed.clone(), [round; 64])))));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(freed.load(Ordering::SeqCst), 198);
    }

    #[test]
    fn a_value_read_in_a_turn_outlives_its_cell() {
        let freed = Arc::new(AtomicU64::new(0));
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(0);
        let published = Published::new(Arc::new(Loud(freed.clone(), [7; 64])));
        let value = published.read(&turn);
        drop(published);
        assert_eq!((value.1, freed.load(Ordering::SeqCst)), ([7; 64], 0));
        reader.rest();
        // Another test's grace period may be freeing them.
        while freed.load(Ordering::SeqCst) == 0 {
            grace();
        }
    }

    #[test]
    fn visiting_every_core_restores_the_affinity() {
        let before = crate::thread::allowed_cores().unwrap();
        visit_cores();
        assert_eq!(crate::thread::allowed_cores().unwrap(), before);
    }

    #[test]
    fn only_readers_of_a_value_are_waited_for() {
        let freed = Arc::new(AtomicU64::new(0));
        let loud = || Arc::new(Loud(freed.clone(), [1; 64]));
        let (read, other) = (Published::new(loud()), Published::new(loud()));
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(0);
        read.read(&turn);
        reclaim_all(vec![other.replace(loud())]);
        assert_eq!(freed.load(Ordering::SeqCst), 1);
        let mut left = DeferredReclaim::default();
        read.replace(loud()).defer();
        left.free();
        left.free();
        assert_eq!(freed.load(Ordering::SeqCst), 1, "the turn goes on");
        reader.rest();
        // Another test's grace period may be freeing it.
        while freed.load(Ordering::SeqCst) == 1 {
            left.free();
        }
    }

    #[test]
    fn a_resting_reader_is_not_waited_for() {
        let mut reader = Reader::register().unwrap();
        let _ = reader.turn(0);
        reader.rest();
        grace();
    }
}
