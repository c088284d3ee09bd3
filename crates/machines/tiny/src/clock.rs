//! Time by the CPU's time stamp counter.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Seconds without a look at the clock after which the machine was stopped: it was suspended, or resumes from a
/// snapshot. A guest that runs looks at least once a second.
const STILL: u64 = 4;

/// A counter of ticks as two clocks, as Linux has them. CLOCK_MONOTONIC counts the time that the machine runs: one that
/// stood still, however long, goes on as if a second had passed, and no timer is hours late. CLOCK_REALTIME counts all
/// time.
#[derive(Clone, Copy, Debug)]
pub struct GuestTime {
    read: fn() -> u64,
    hz: u64,
    /// Nanoseconds of a tick, times 2^32.
    scale: u64,
    /// The counter at the start, and the time since 1970 then.
    start: u64,
    wall: u64,
    /// What copies share. A machine has one clock, which stays.
    run: &'static Run,
}

/// The time that the machine ran, in ticks.
#[derive(Debug, Default)]
struct Run {
    /// The counter at the last look, since the start.
    last: AtomicU64,
    ticks: AtomicU64,
}

impl GuestTime {
    /// A clock of `hz` ticks a second, which shows `wall` when the counter shows `start`.
    pub fn new(read: fn() -> u64, hz: u64, start: u64, wall: u64) -> GuestTime {
        let hz = hz.max(2);
        let run = Box::leak(Box::default());
        GuestTime { read, hz, scale: (SECOND << 32) / hz, start, wall, run }
    }

    #[inline]
    fn nanoseconds(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }

    /// Ticks since the start.
    #[inline]
    fn passed(&self) -> u64 {
        (self.read)().saturating_sub(self.start)
    }

    /// Nanoseconds since the start that the machine ran.
    #[inline]
    pub fn now(&self) -> u64 {
        let Run { last, ticks } = self.run;
        let passed = self.passed();
        // A counter that goes back is taken as stopped.
        let step = passed.saturating_sub(last.load(Relaxed));
        let step = if step > STILL.saturating_mul(self.hz) { self.hz } else { step };
        let ran = ticks.load(Relaxed) + step;
        last.store(passed, Relaxed);
        ticks.store(ran, Relaxed);
        self.nanoseconds(ran)
    }

    /// Nanoseconds since 1970.
    pub fn since_1970(&self) -> u64 {
        self.wall.saturating_add(self.nanoseconds(self.passed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const HZ: u64 = 2_600_000_000;

    std::thread_local! {
        static COUNTER: Cell<u64> = const { Cell::new(0) };
    }

    fn counter() -> u64 {
        COUNTER.get()
    }

    fn pass(seconds: u64) {
        COUNTER.set(COUNTER.get() + seconds * HZ);
    }

    #[test]
    fn ticks_become_nanoseconds() {
        COUNTER.set(13);
        let time = GuestTime::new(counter, HZ, 13, 7);
        (0..3600).for_each(|_| {
            pass(1);
            time.now();
        });
        let hour = 3600 * SECOND;
        // Less than a microsecond in ten minutes.
        assert!(time.now().abs_diff(hour) < 6000, "{}", time.now());
        assert_eq!(time.since_1970(), time.now() + 7);
        assert_eq!(GuestTime::new(|| 5, 1000, 9, 0).now(), 0, "never before the start");
    }

    #[test]
    fn a_machine_that_stood_still_for_hours_goes_on_where_it_was() {
        COUNTER.set(0);
        let time = GuestTime::new(counter, HZ, 0, 1000 * SECOND);
        pass(3);
        let before = time.now();
        // Slow, but not suspended.
        pass(STILL);
        let slow = time.now();
        assert!((slow - before).abs_diff(STILL * SECOND) < 100, "{before} {slow}");
        pass(7 * 3600);
        let (after, wall) = (time.now(), time.since_1970());
        assert!((after - slow).abs_diff(SECOND) < 100, "{slow} {after}");
        let copy = time;
        assert_eq!(copy.now(), after, "copies are the same clock");
        let all = (1000 + 3 + STILL + 7 * 3600) * SECOND;
        assert!(wall.abs_diff(all) < 100_000, "{wall}: CLOCK_REALTIME counts all time");
        COUNTER.set(COUNTER.get() - HZ);
        assert_eq!(time.now(), after, "never back");
        pass(1);
        assert!((time.now() - after).abs_diff(SECOND) < 100);
    }
}
