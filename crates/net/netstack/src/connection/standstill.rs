//! Time in which nobody called the stack: a guest that was paused, a process that was stopped, a clock that jumped. It
//! is no silence of the peer, and what spans it measures nothing.

use super::{Connection, Context};
use crate::settings::MS;

/// Lateness that a busy machine may have; it is part of what is measured.
const LEAST: u64 = 200 * MS;

/// When time was lost, and how much.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standstill {
    /// When the last one ended; 0: there was none.
    pub end: u64,
    /// Milliseconds of all; the number wraps.
    total: u32,
}

impl Standstill {
    /// The stack is called at `now`; the last call was at `before`, and a timer was due at `due`.
    pub(crate) fn observe(&mut self, before: u64, due: Option<u64>, now: u64) {
        let late = due.map_or(0, |due| now.saturating_sub(due.max(before)));
        if late >= LEAST {
            (self.end, self.total) = (now, self.total.wrapping_add((late / MS) as u32));
        }
    }
}

impl Connection {
    /// The connection belongs to this stack from now on; earlier standstills of the stack do not count for it.
    pub(super) fn join_standstills(&mut self, cx: &Context<'_>) {
        self.timers.stood_still = cx.standstill.total;
    }

    /// Moves what is measured from a time in the past by the time that was lost since the last call.
    pub(super) fn skip_standstill(&mut self, cx: &Context<'_>) {
        let lost = cx.standstill.total.wrapping_sub(self.timers.stood_still);
        if lost == 0 {
            return;
        }
        self.timers.stood_still = cx.standstill.total;
        let lost = u64::from(lost) * MS;
        if let Some(since) = &mut self.timers.unanswered_since {
            *since = since.saturating_add(lost).min(cx.now);
        }
        self.control.on_standstill(cx.now, lost);
    }
}
