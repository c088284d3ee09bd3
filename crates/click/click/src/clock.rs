//! Time: the machine's or a simulation's.
use alloc::boxed::Box;
use core::fmt;

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
/// How much overdue work is caught up, in nanoseconds: work that is later than this, because the process, its guest or
/// its machine stood still or the clock jumped, is done once, now.
pub const BEHIND: u64 = SECOND;
/// Time without a look at the clock, in nanoseconds, after which the program stood still: its process was stopped, its
/// function suspended, or its machine was. A program that runs looks at least once in [`LOOK`].
pub const STILL: u64 = 4 * SECOND;
/// How long a program may sleep before it looks at the clock again, in nanoseconds.
pub const LOOK: u64 = SECOND;
/// When a simulation begins: this many nanoseconds after 1970.
pub const SIMULATION_START: u64 = 1_000_000_000 * SECOND;

/// The machine's time.
pub trait Time {
    /// Nanoseconds since 1970.
    fn wall(&mut self) -> u64;
    /// Monotonic nanoseconds since an arbitrary time.
    fn steady(&mut self) -> u64;
    /// Another handle to the same time.
    fn fork(&self) -> Box<dyn Time>;
}

/// The time for which a program ran. Timers and the ages of flows and addresses in tables follow it: a program that
/// stood still, however long, goes on where it was.
#[derive(Clone, Debug, Default)]
pub struct RunTime {
    /// The clock at the last look.
    last: u64,
    /// The standstills.
    lost: u64,
}

impl RunTime {
    /// The time for which the program ran when a clock that always runs shows `now`.
    pub fn at(&mut self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.last);
        if passed > STILL {
            self.lost += passed;
        }
        self.last = self.last.max(now);
        self.last - self.lost
    }
}

/// Time that passes faster or slower than the machine's.
pub struct Warped {
    time: Box<dyn Time>,
    speed: f64,
    /// The system's clocks at the start.
    since: Moment,
    /// The displayed times at the start.
    shown: Moment,
}

#[derive(Clone, Copy)]
struct Moment {
    wall: u64,
    steady: u64,
}

impl Warped {
    fn scaled(&self, passed: u64) -> u64 {
        (passed as f64 * self.speed) as u64
    }

    fn wall(&mut self) -> u64 {
        let passed = self.time.wall().saturating_sub(self.since.wall);
        self.shown.wall.saturating_add(self.scaled(passed))
    }

    fn steady(&mut self) -> u64 {
        let passed = self.time.steady().saturating_sub(self.since.steady);
        self.shown.steady.saturating_add(self.scaled(passed))
    }
}

/// The clock of a router.
pub enum Clock {
    /// Simulated: advances by one nanosecond with each query, as in Click, and jumps to the next timer when
    /// there is nothing to do. The value is the time in nanoseconds since 1970.
    Simulated(u64),
    /// The machine's.
    Real(Box<dyn Time>),
    /// The machine's, faster or slower.
    Warped(Box<Warped>),
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
            Self::Warped(time) => time.wall(),
        }
    }

    /// Nanoseconds that never go back.
    #[inline]
    pub fn steady(&mut self) -> u64 {
        match self {
            Self::Simulated(_) => self.wall(),
            Self::Real(time) => time.steady(),
            Self::Warped(time) => time.steady(),
        }
    }

    /// Nanoseconds that never go back, without advancing a simulation.
    pub(crate) fn glance(&mut self) -> u64 {
        match self {
            Self::Simulated(now) => *now,
            _ => self.steady(),
        }
    }

    /// Another clock with the same time.
    pub fn fork(&self) -> Self {
        match self {
            Self::Simulated(now) => Self::Simulated(*now),
            Self::Real(time) => Self::Real(time.fork()),
            Self::Warped(own) => Self::Warped(Box::new(Warped { time: own.time.fork(), ..**own })),
        }
    }

    /// The speed of time, normally 1; `None` if it is simulated.
    pub fn speed(&self) -> Option<f64> {
        match self {
            Self::Simulated(_) => None,
            Self::Real(_) => Some(1.0),
            Self::Warped(time) => Some(time.speed),
        }
    }

    /// Sets the speed of time from now on; no effect on a simulation.
    pub(crate) fn set_speed(&mut self, speed: f64) {
        if self.is_simulated() {
            return;
        }
        let shown = Moment { wall: self.wall(), steady: self.steady() };
        let mut time = match self {
            Self::Simulated(_) => return,
            Self::Real(time) => time.fork(),
            Self::Warped(own) => own.time.fork(),
        };
        let since = Moment { wall: time.wall(), steady: time.steady() };
        *self = Self::Warped(Box::new(Warped { time, speed, since, shown }));
    }

    /// Converts a duration of this clock to the machine's time.
    pub fn machine_time(&self, nanoseconds: u64) -> u64 {
        match self {
            Self::Warped(time) => (nanoseconds as f64 / time.speed) as u64,
            _ => nanoseconds,
        }
    }

    /// Whether time is simulated.
    pub fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }

    /// Advances a simulation to `until`; never backwards.
    pub(crate) fn jump(&mut self, until: u64) {
        if let Self::Simulated(now) = self {
            *now = (*now).max(until);
        }
    }
}

/// Nanoseconds, printed as Click prints times: seconds, a point, and six digits, or nine if necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.0 / SECOND, self.0 % SECOND);
        match rest % 1000 {
            0 => write!(f, "{seconds}.{:06}", rest / 1000),
            _ => write!(f, "{seconds}.{rest:09}"),
        }
    }
}

/// Nanoseconds, printed as Click prints lengths of time: below a second as a whole number of the largest unit that
/// is exact, `ms`, `us` or `ns`; otherwise as a [`Timestamp`] with `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(pub u64);

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.0;
        match time {
            SECOND.. => write!(f, "{}s", Timestamp(time)),
            _ if time.is_multiple_of(1_000_000) => write!(f, "{}ms", time / 1_000_000),
            _ if time.is_multiple_of(1_000) => write!(f, "{}us", time / 1_000),
            _ => write!(f, "{time}ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use core::cell::Cell;

    struct Hand(Rc<Cell<u64>>);

    impl Time for Hand {
        fn wall(&mut self) -> u64 {
            self.0.get() + SIMULATION_START
        }

        fn steady(&mut self) -> u64 {
            self.0.get()
        }

        fn fork(&self) -> Box<dyn Time> {
            Box::new(Self(self.0.clone()))
        }
    }

    #[test]
    fn a_program_that_stood_still_goes_on_where_it_was() {
        let mut run = RunTime::default();
        let mut times = [0, 1, 4, 8, 9 + 3600, 10 + 3600, 9 + 3600, 11 + 7200, 15 + 7200]
            .map(|seconds: u64| run.at(seconds * SECOND) / SECOND)
            .into_iter();
        let mut next = || times.next().unwrap();
        assert_eq!([(); 4].map(|()| next()), [0, 1, 4, 8], "slow, but not stopped");
        assert_eq!([(); 5].map(|()| next()), [8, 9, 9, 9, 13], "never back");
    }

    #[test]
    fn a_warped_clock_does_not_jump() {
        let hand = Rc::new(Cell::new(100));
        let mut clock = Clock::Real(Box::new(Hand(hand.clone())));
        clock.set_speed(2.0);
        assert_eq!(clock.steady(), 100);
        hand.set(150);
        assert_eq!((clock.steady(), clock.wall()), (200, SIMULATION_START + 200));
        assert_eq!(clock.machine_time(100), 50);
        let mut other = clock.fork();
        clock.set_speed(0.5);
        hand.set(250);
        assert_eq!((clock.steady(), other.steady()), (250, 400));
        assert_eq!(clock.speed(), Some(0.5));
    }
}
