//! A thread's work between turns: polling and sleeping.
use super::surroundings::wait_also;
use ringway_click::{Router, Turn};
use std::time::Duration;

/// How often a busy router polls its descriptors, in nanoseconds of the router's time; in a simulation, whose time
/// may stand still, also after a number of turns.
const BUSY: u64 = 200_000;
const TURNS: u32 = 4096;

/// Time of the last poll.
#[derive(Default)]
pub(in crate::click) struct Pace {
    looked: u64,
    turns: u32,
}

impl Pace {
    /// Polls descriptors after a turn, if it is time; if there is nothing to do, sleeps until there is, or
    /// until the descriptor `also` is readable.
    pub(in crate::click) fn rest(&mut self, router: &mut Router, turn: Turn, also: Option<i32>) {
        let most = match turn {
            Turn::Stopped => return,
            Turn::Busy => {
                self.turns = self.turns.wrapping_add(1);
                let now = router.turn_began();
                if now.abs_diff(self.looked) < BUSY && !self.turns.is_multiple_of(TURNS) {
                    return;
                }
                self.looked = now;
                Some(Duration::ZERO)
            }
            Turn::IdleUntil(when) => {
                let now = router.clock().steady();
                Some(Duration::from_nanos(router.clock().machine_time(when.saturating_sub(now))))
            }
            Turn::Idle => None,
        };
        wait_also(router, most, also);
    }
}
