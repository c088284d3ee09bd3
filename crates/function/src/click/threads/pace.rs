//! What a thread does between turns.
use crate::click::surroundings::wait_also;
use ringway_click::{Router, Turn};
use std::time::{Duration, Instant};

/// How often a router that always has something to do is asked about its descriptors.
const BUSY: Duration = Duration::from_micros(200);

/// When descriptors were last looked at.
pub(super) struct Pace {
    looked: Instant,
    turns: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { looked: Instant::now(), turns: 0 }
    }
}

impl Pace {
    /// Looks at descriptors after a turn, if it is time; sleeps if there is nothing to do, until there is or the
    /// descriptor `also` can be read.
    pub(super) fn rest(&mut self, router: &mut Router, turn: Turn, also: i32) {
        let most = match turn {
            Turn::Stopped => return,
            Turn::Busy => {
                // Reading the clock costs more than a turn that does nothing.
                self.turns = self.turns.wrapping_add(1);
                if !self.turns.is_multiple_of(16) || self.looked.elapsed() <= BUSY {
                    return;
                }
                self.looked = Instant::now();
                Some(Duration::ZERO)
            }
            Turn::IdleUntil(when) => {
                let now = router.clock().steady();
                Some(Duration::from_nanos(router.clock().machine_time(when.saturating_sub(now))))
            }
            Turn::Idle => None,
        };
        wait_also(router, most, Some(also));
    }
}
