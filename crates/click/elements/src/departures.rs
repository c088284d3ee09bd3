//! When packets that are delayed by their timestamps leave.
use ringway_click::prelude::*;

/// Departure times on the steady clock. Timestamps are times of day, whose clock may be set while packets wait.
#[derive(Debug, Default)]
pub struct Departures {
    /// By how much the clock of the day was ahead of the steady one at most.
    ahead: u64,
}

impl Departures {
    /// When a packet with this timestamp leaves: as a time of day, and on the steady clock.
    pub fn of(&mut self, stamp: u64, delay: u64, cx: &mut Context<'_>) -> (u64, u64) {
        let (wall, steady) = (cx.now(), cx.steady());
        self.ahead = self.ahead.max(wall.saturating_sub(steady));
        // A timestamp that a clock gave that was then set back, so that its time would come in hours. Others in the
        // future are those of a recording.
        let is_past = stamp > wall && stamp <= steady.saturating_add(self.ahead);
        // As in Click, a timestamp in the first second counts as unset.
        let began = if stamp < SECOND || is_past { wall } else { stamp };
        let leaves = began.saturating_add(delay);
        (leaves, steady.saturating_add(leaves.saturating_sub(wall)))
    }
}
