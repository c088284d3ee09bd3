//! Time by the CPU's time stamp counter.

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A counter of ticks as a clock.
#[derive(Clone, Copy, Debug)]
pub struct GuestTime {
    read: fn() -> u64,
    /// Nanoseconds of a tick, times 2^32.
    scale: u64,
    /// The counter at the start, and the time since 1970 then.
    start: u64,
    wall: u64,
}

impl GuestTime {
    /// A clock of `hz` ticks a second, which shows `wall` when the counter shows `start`.
    pub fn new(read: fn() -> u64, hz: u64, start: u64, wall: u64) -> GuestTime {
        GuestTime { read, scale: (SECOND << 32) / hz.max(2), start, wall }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now(&self) -> u64 {
        let ticks = (self.read)().saturating_sub(self.start);
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }

    /// Nanoseconds since 1970.
    pub fn since_1970(&self) -> u64 {
        self.wall.saturating_add(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        let time = GuestTime::new(|| 2_600_000_000 * 3600 + 13, 2_600_000_000, 13, 7);
        let hour = 3600 * SECOND;
        // Less than a microsecond in ten minutes.
        assert!(time.now().abs_diff(hour) < 6000, "{}", time.now());
        assert_eq!(time.since_1970(), time.now() + 7);
        assert_eq!(GuestTime::new(|| 5, 1000, 9, 0).now(), 0, "never before the start");
    }
}
