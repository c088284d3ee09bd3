//! Time: monotonic nanoseconds, and the processor's ticks.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

/// Nanoseconds since 1970, by the clock of the machine; 0 for times before.
#[inline]
pub fn since_1970() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}

/// Converts the processor's tick counter to nanoseconds of CLOCK_MONOTONIC: cheaper than a system call, with
/// an error of some millionths, and the same for all threads. If ticks are not reliable, reads
/// CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    tick: u64,
    nanoseconds: u64,
    /// Nanoseconds per tick, times 2^32; 0 to call the kernel.
    rate: u64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

/// The clock of this process.
static CLOCK: OnceLock<Clock> = OnceLock::new();
/// Ticks and nanoseconds where its measurement began.
static BEGIN: OnceLock<(u64, u64)> = OnceLock::new();

impl Clock {
    /// The clock. The first in a process takes some milliseconds to measure the ticks.
    pub fn new() -> Clock {
        *CLOCK.get_or_init(Clock::measure)
    }

    /// Begins to measure the ticks, for a [`Clock::new`] later on, which then takes less time.
    pub fn begin() {
        BEGIN.get_or_init(pair);
    }

    /// Makes the clock one that asks the kernel, unless there is one: for a process that seldom reads it, and that
    /// starts in less time than the measurement takes.
    pub(crate) fn ask_kernel() {
        CLOCK.get_or_init(Clock::unmeasured);
    }

    fn unmeasured() -> Clock {
        let (tick, nanoseconds) = pair();
        Clock { tick, nanoseconds, rate: 0 }
    }

    fn measure() -> Clock {
        let (tick, nanoseconds) = *BEGIN.get_or_init(pair);
        if !are_ticks_steady() {
            return Clock { tick, nanoseconds, rate: 0 };
        }
        loop {
            let (later, now) = pair();
            let (ticks, passed) = (later.saturating_sub(tick), now - nanoseconds);
            if passed >= MEASURED && ticks > 0 {
                let rate = ((u128::from(passed) << 32) / u128::from(ticks)) as u64;
                return Clock { tick, nanoseconds, rate };
            }
            std::hint::spin_loop();
        }
    }

    /// The clock as numbers, for [`Clock::from_parts`] of another process.
    pub fn to_parts(self) -> [u64; 3] {
        [self.tick, self.nanoseconds, self.rate]
    }

    /// The clock of another process: clocks that were measured apart differ by some millionths of their time.
    pub const fn from_parts([tick, nanoseconds, rate]: [u64; 3]) -> Clock {
        Clock { tick, nanoseconds, rate }
    }

    /// Nanoseconds since some moment before this process started.
    #[inline]
    pub fn now(&self) -> u64 {
        if self.rate == 0 {
            return monotonic();
        }
        // Another core's ticks may be slightly behind the clock's initial value.
        let ticks = ticks().saturating_sub(self.tick);
        self.nanoseconds + ((u128::from(ticks) * u128::from(self.rate)) >> 32) as u64
    }
}

/// Duration of the measurement in nanoseconds.
const MEASURED: u64 = 5_000_000;

fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Ticks and nanoseconds at one moment: the fastest of several attempts.
fn pair() -> (u64, u64) {
    let tries = (0..16).map(|_| {
        let (before, now, after) = (ticks(), monotonic(), ticks());
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), now)
    });
    let (_, tick, now) = tries.min_by_key(|(took, ..)| *took).unwrap_or((0, ticks(), monotonic()));
    (tick, now)
}

/// Whether the tick rate is constant in all processor states and the same on every core, also according to
/// the kernel.
pub(crate) fn are_ticks_steady() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        // Invariant TSC: leaf 0x8000_0007, EDX bit 8.
        let invariant = __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 0x100 != 0;
        let source =
            std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        // In a guest the kernel may use another clock source, so only the processor's flag counts.
        invariant
            && source.map_or(true, |source| {
                matches!(source.trim(), "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page")
            })
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Ticks of the processor's time stamp counter; without a fixed rate on architectures other than x86-64.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading the counter touches no memory, and every x86-64 processor has it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    monotonic()
}

/// Ticks per second, measured over some milliseconds.
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

    #[test]
    fn the_clock_agrees_with_the_kernel() {
        let clock = Clock::new();
        let (ours, theirs) = (clock.now(), monotonic());
        // Less than a minute passes between the two readings.
        assert!(ours.abs_diff(theirs) < 60_000_000_000);
        let slow = Clock::unmeasured();
        let (first, second) = (monotonic(), slow.now());
        assert!(second >= first);
    }
}
