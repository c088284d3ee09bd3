//! Calls about time.

use super::abi::{CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCKS, Errno, TIMER_ABSTIME, number};
use super::{Calls, Reply};
use core::time::Duration;
use ringway_tiny::Machine;

/// `times` counts so many of these in a second.
const TICKS: u128 = 100;
const NANOSECONDS: u64 = 1_000_000_000;
const MICROSECONDS: u64 = 1_000_000;

impl<M: Machine> Calls<M> {
    pub(super) fn time(&mut self, number: u64, [a, b, c, _]: [u64; 4]) -> Reply {
        let since_1970 = self.program.since_1970();
        match number {
            number::TIME => {
                if a != 0 {
                    self.ram.write(a, &since_1970.as_secs().to_le_bytes())?;
                }
                Ok(since_1970.as_secs())
            }
            number::GETTIMEOFDAY => {
                if a != 0 {
                    self.ram.write_pair(a, [since_1970.as_secs(), since_1970.subsec_micros().into()])?;
                }
                if b != 0 {
                    self.ram.clear(b, 8)?;
                }
                Ok(0)
            }
            number::CLOCK_GETTIME => {
                let now = self.clock(a)?;
                Ok(self.ram.write_pair(b, [now.as_secs(), now.subsec_nanos().into()]).map(|()| 0)?)
            }
            number::TIMES => {
                // All time is the program's.
                let ticks = (self.program.now().as_nanos() * TICKS / u128::from(NANOSECONDS)) as u64;
                if a != 0 {
                    self.ram.clear(a, 32)?;
                    self.ram.write(a, &ticks.to_le_bytes())?;
                }
                Ok(ticks)
            }
            number::NANOSLEEP => self.sleep(a, None),
            _ => {
                let is_absolute = b & TIMER_ABSTIME != 0;
                let now = self.clock(a)?;
                self.sleep(c, is_absolute.then_some(now))
            }
        }
    }

    /// What a clock shows.
    fn clock(&self, clock: u64) -> Result<Duration, Errno> {
        match u64::from(clock as u32) {
            CLOCK_REALTIME | CLOCK_REALTIME_COARSE => Ok(self.program.since_1970()),
            clock if clock < CLOCKS => Ok(self.program.now()),
            _ => Err(Errno::Invalid),
        }
    }

    /// Sleeps for a time, or until one that comes after `since`.
    fn sleep(&mut self, at: u64, since: Option<Duration>) -> Reply {
        let time = self.timespec(at)?;
        let program = self.program.clone();
        self.block_on(program.sleep(time.saturating_sub(since.unwrap_or_default())))?;
        Ok(0)
    }

    /// Reads a time with nanoseconds.
    pub(super) fn timespec(&self, at: u64) -> Result<Duration, Errno> {
        self.time_at(at, NANOSECONDS)
    }

    /// Reads a time with microseconds.
    pub(super) fn timeval(&self, at: u64) -> Result<Duration, Errno> {
        self.time_at(at, MICROSECONDS)
    }

    fn time_at(&self, at: u64, unit: u64) -> Result<Duration, Errno> {
        let [seconds, part] = self.ram.pair(at)?;
        if part >= unit || i64::try_from(seconds).is_err() {
            return Err(Errno::Invalid);
        }
        Ok(Duration::new(seconds, (part * (NANOSECONDS / unit)) as u32))
    }
}
