//! Time: nanoseconds that never go back, and the processor's ticks.

use std::time::Instant;

/// Nanoseconds of CLOCK_MONOTONIC, by a call that stays in user space.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// The clock.
    pub fn new() -> Clock {
        Clock
    }

    /// Nanoseconds since some moment before this process began.
    #[inline]
    pub fn now(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

/// Ticks of the processor's time stamp counter; of no fixed rate elsewhere than on x86-64.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading the counter touches no memory, and every x86-64 processor has it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    Clock.now()
}

/// Ticks a second, measured over some milliseconds.
pub fn ticks_per_second() -> f64 {
    let (start, first) = (Instant::now(), ticks());
    while start.elapsed().as_millis() < 20 {
        std::hint::spin_loop();
    }
    (ticks() - first) as f64 / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let clock = Clock::new();
        let times: Vec<u64> = (0..1000).map(|_| clock.now()).collect();
        assert!(times.is_sorted() && times[0] > 0);
        assert!(ticks_per_second() > 1e6);
    }
}
