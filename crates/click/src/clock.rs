//! Time: the machine's or a simulation's.
use alloc::boxed::Box;
use core::fmt;

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
/// When a simulation begins: this many nanoseconds after 1970.
pub const SIMULATION_START: u64 = 1_000_000_000 * SECOND;

/// The machine's time.
pub trait Time {
    /// Nanoseconds since 1970.
    fn wall(&mut self) -> u64;
    /// Nanoseconds since some moment; never goes back.
    fn steady(&mut self) -> u64;
}

/// The clock of a router.
pub enum Clock {
    /// Simulated: it moves on by one nanosecond each time someone asks, as Click's does, and jumps to the next timer
    /// when there is nothing to do. The number is the time, in nanoseconds since 1970.
    Simulated(u64),
    /// The machine's.
    Real(Box<dyn Time>),
}

impl Clock {
    /// A simulation's clock at its start.
    pub fn simulated() -> Self {
        Self::Simulated(SIMULATION_START)
    }

    /// Nanoseconds since 1970.
    #[inline]
    pub fn wall(&mut self) -> u64 {
        match self {
            Self::Simulated(now) => {
                *now += 1;
                *now - 1
            }
            Self::Real(time) => time.wall(),
        }
    }

    /// Nanoseconds that never go back.
    #[inline]
    pub fn steady(&mut self) -> u64 {
        match self {
            Self::Simulated(_) => self.wall(),
            Self::Real(time) => time.steady(),
        }
    }

    /// The same, without moving a simulation on.
    pub(crate) fn glance(&mut self) -> u64 {
        match self {
            Self::Simulated(now) => *now,
            Self::Real(time) => time.steady(),
        }
    }

    /// Whether time is simulated.
    pub fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }

    /// Moves a simulation on to `until`; never back.
    pub(crate) fn jump(&mut self, until: u64) {
        if let Self::Simulated(now) = self {
            *now = (*now).max(until);
        }
    }
}

/// Nanoseconds, printed as Click prints times: seconds, a point, nine digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / SECOND, self.0 % SECOND)
    }
}
