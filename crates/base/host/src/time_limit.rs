//! Limits of our threads' time used by one peer.

use crate::clock::Clock;
use crate::thread::thread_cpu;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A peer may use 1/SHARE of the time.
const SHARE: u64 = 16;
/// Nanoseconds that it may use beyond its share.
const LIMIT: u64 = 10_000_000;
/// Nanoseconds after which a wake-up counts as slow.
const WAKE: u64 = 1_000_000;
/// Number of consecutive slow wake-ups that is too many.
const WAKES: u32 = 3;
/// Nanoseconds after which a thread's CPU time is read again; a wake-up may be measured as that much shorter. Reading
/// it is a system call, and most wake-ups are shorter than a sample.
const SAMPLE: u64 = WAKE / 4;
/// Minimum time in nanoseconds during which wake-ups are measured exactly after one that seemed slow.
const SUSPECT: u64 = 1_000_000_000;

/// Whether slow wake-ups count.
static WAKES_COUNT: AtomicBool = AtomicBool::new(true);

/// From now on, no peer of this process is given up since waking it is slow. For a program of which a tool traces each
/// access to memory, so that all is slow: not for one whose peers are not trusted.
pub fn permit_slow_wakes() {
    WAKES_COUNT.store(false, Relaxed);
}

thread_local! {
    /// The thread's CPU time, and when it was read.
    static SAMPLED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Time that a peer costs our threads by slowing down accesses to its memory, or its wake-ups. The debt
/// decreases as time passes.
///
/// Attack: freeing shared memory while we use it, so that an access blocks for seconds; hundreds of thousands
/// of epoll instances that watch the peer's eventfd. If several threads charge concurrently and one charge is
/// lost, it is made up by the next.
pub struct Budget {
    owed: AtomicU64,
    at: AtomicU64,
    wakes: AtomicU32,
    suspect_until: AtomicU64,
    is_spent: AtomicBool,
    /// Number of threads that signal its eventfds.
    helpers: Arc<AtomicUsize>,
    clock: Clock,
    alarm: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("owed", &self.owed).field("is_spent", &self.is_spent).finish()
    }
}

impl Budget {
    /// A peer's budget; `alarm` is called on the charging thread when the budget is exceeded. It must not
    /// block.
    pub fn new(alarm: impl Fn() + Send + Sync + 'static) -> Budget {
        Budget {
            owed: AtomicU64::new(0),
            at: AtomicU64::new(0),
            wakes: AtomicU32::new(0),
            suspect_until: AtomicU64::new(0),
            is_spent: AtomicBool::new(false),
            helpers: Arc::default(),
            clock: Clock::new(),
            alarm: Box::new(alarm),
        }
    }

    /// Number of threads that signal eventfds of the peer, and of earlier ones.
    pub(crate) fn helpers(&self) -> &Arc<AtomicUsize> {
        &self.helpers
    }

    /// Whether the budget is exceeded.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.is_spent.load(Relaxed)
    }

    /// The debt in nanoseconds.
    fn owed(&self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.at.load(Relaxed));
        self.owed.load(Relaxed).saturating_sub(passed / SHARE)
    }

    /// Nanoseconds until nothing is owed.
    pub fn rest(&self, now: u64) -> u64 {
        self.owed(now).saturating_mul(SHARE)
    }

    /// Call when a new peer connects. The debt remains.
    pub fn renew(&self) {
        self.is_spent.store(false, Relaxed);
    }

    /// Charges `time` nanoseconds, up to `now`, for which the peer blocked a thread.
    pub fn charge(&self, now: u64, time: u64) {
        if self.add(now, time) >= LIMIT {
            self.spend();
        }
    }

    fn add(&self, now: u64, time: u64) -> u64 {
        let before = self.owed(now);
        if before == 0 {
            self.wakes.store(0, Relaxed);
        }
        let owed = before.saturating_add(time);
        self.owed.store(owed, Relaxed);
        self.at.store(now, Relaxed);
        owed
    }

    fn spend(&self) {
        if !self.is_spent.swap(true, Relaxed) {
            (self.alarm)();
        }
    }

    /// Runs `wake`, which wakes the peer, and charges its duration. Once the budget is exceeded, `wake` is
    /// not called any more.
    #[inline]
    pub fn wake(&self, wake: impl FnOnce()) {
        if self.is_spent() {
            return;
        }
        let began = self.clock.now();
        if began < self.suspect_until.load(Relaxed) {
            return self.wake_closely(began, wake);
        }
        wake();
        let took = self.clock.now().saturating_sub(began);
        if took > WAKE {
            // The thread may have been preempted. From the next wake-up on, its own CPU time is measured.
            self.suspect(began, took);
        }
    }

    /// As `wake`, measured in the thread's own time, which excludes preemption.
    #[cold]
    fn wake_closely(&self, began: u64, wake: impl FnOnce()) {
        let (mut cpu, mut at) = SAMPLED.get();
        if began.saturating_sub(at) > SAMPLE {
            (cpu, at) = (thread_cpu(), began);
            SAMPLED.set((cpu, at));
        }
        wake();
        if self.clock.now().saturating_sub(began) <= WAKE {
            return;
        }
        // At most the time between the sample and this wake-up was used before it.
        let took = thread_cpu().saturating_sub(cpu).saturating_sub(began - at);
        if took > WAKE {
            let now = self.clock.now();
            self.suspect(now, took);
            self.count_wake(now, took);
        }
    }

    fn count_wake(&self, now: u64, took: u64) {
        self.add(now, took);
        if self.wakes.fetch_add(1, Relaxed) + 1 >= WAKES {
            self.spend();
        }
    }

    #[cold]
    fn suspect(&self, now: u64, took: u64) {
        if !WAKES_COUNT.load(Relaxed) {
            return;
        }
        self.suspect_until.store(now.saturating_add(took.saturating_mul(SHARE).max(SUSPECT)), Relaxed);
    }
}

impl Default for Budget {
    /// A budget without an alarm.
    fn default() -> Budget {
        Budget::new(|| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoll, EventFd, Signal};
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn debt_decreases_by_a_sixteenth_of_the_elapsed_time() {
        let budget = Budget::default();
        let mut now = 1;
        for _ in 0..1000 {
            budget.charge(now, LIMIT / 2);
            now += LIMIT / 2 * SHARE;
        }
        assert!(!budget.is_spent());
        budget.charge(now, LIMIT / 2);
        budget.charge(now, LIMIT / 2);
        assert!(budget.is_spent());
        assert_eq!(budget.rest(now), LIMIT * SHARE);
        assert_eq!(budget.rest(now + LIMIT * SHARE), 0);
        budget.renew();
        budget.charge(now + LIMIT * SHARE / 2, LIMIT / 2);
        assert!(budget.is_spent(), "the next peer has what is left");
    }

    #[test]
    fn only_consecutive_slow_wake_ups_exceed_the_budget() {
        let budget = Budget::default();
        for round in 0..100 {
            budget.count_wake(1 + round * 2 * WAKE * SHARE, 2 * WAKE);
        }
        assert!(!budget.is_spent());
        let now = 1000 * WAKE * SHARE;
        (1..WAKES).for_each(|_| budget.count_wake(now, WAKE));
        assert!(!budget.is_spent());
        budget.count_wake(now, WAKE);
        assert!(budget.is_spent());
        budget.wake(|| panic!("nobody is woken any more"));
    }

    #[test]
    fn preemption_is_not_charged() {
        let budget = Budget::default();
        (0..20).for_each(|_| budget.wake(|| std::thread::sleep(Duration::from_micros(1500))));
        assert!(!budget.is_spent());
    }

    /// Attack: an eventfd that many epoll instances watch under many numbers.
    #[test]
    fn an_eventfd_with_thousands_of_watchers_is_signalled_only_a_few_times() {
        let event = EventFd::new().unwrap();
        let copies: Vec<_> = (0..200).map(|_| event.as_fd().try_clone_to_owned().unwrap()).collect();
        let watchers: Vec<_> = (0..200).map(|_| Epoll::new().unwrap()).collect();
        for watcher in &watchers {
            copies.iter().for_each(|copy| watcher.add_edge(copy.as_fd(), 0).unwrap());
        }
        let budget = Arc::new(Budget::default());
        let fd = Arc::new(event.as_fd().try_clone_to_owned().unwrap());
        let signal = Signal::charged_to(fd, &budget).unwrap();
        let signals = (0..1000).take_while(|_| {
            signal.send();
            !budget.is_spent()
        });
        assert!(signals.count() <= WAKES as usize, "one to suspect it, the others to be sure");
    }
}
