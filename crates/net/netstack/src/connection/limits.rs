//! What limits the rate of a connection, and for how long (Linux's `tcp_chrono`).

use super::Connection;
use crate::codec::{Bound, STREAM, fields, variants};

/// What a connection waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The program has nothing to send.
    #[default]
    Nothing,
    /// The network: acknowledgments, the congestion window, pacing.
    Network,
    /// The peer's window.
    Receiver,
    /// All was sent, and the program waits for room in the send buffer.
    SendBuffer,
}

/// Time spent with each limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    now: Limit,
    since: u64,
    times: [u64; 3],
    /// The peer's window holds back data.
    pub window_full: bool,
    /// A program's bytes had no room.
    pub wants_room: bool,
}

impl Limits {
    /// Nanoseconds with a limit until `now`.
    pub(super) fn time(&self, limit: Limit, now: u64) -> u64 {
        let running = if self.now == limit { now.saturating_sub(self.since) } else { 0 };
        (limit as usize).checked_sub(1).map_or(0, |place| self.times[place] + running)
    }

    /// Nanoseconds in which there was something to send, or in flight.
    pub(super) fn busy(&self, now: u64) -> u64 {
        [Limit::Network, Limit::Receiver, Limit::SendBuffer].iter().map(|limit| self.time(*limit, now)).sum()
    }

    fn set(&mut self, limit: Limit, now: u64) {
        if limit == self.now {
            return;
        }
        if let Some(place) = (self.now as usize).checked_sub(1) {
            self.times[place] += now.saturating_sub(self.since);
        }
        (self.now, self.since) = (limit, now);
    }
}

impl Connection {
    /// Notes what the connection waits for now.
    pub(super) fn note_limit(&mut self, now: u64) {
        let sent = self.sending.end() <= self.nxt;
        let limit = if !self.is_synchronized() || (sent && self.una == self.nxt) {
            Limit::Nothing
        } else if self.limits.window_full && !sent {
            Limit::Receiver
        } else if self.limits.wants_room && sent && self.in_flight() < self.window.cwnd {
            Limit::SendBuffer
        } else {
            Limit::Network
        };
        self.limits.set(limit, now);
    }
}

variants!(Limit { Nothing, Network, Receiver, SendBuffer });
fields!(Limits {
    now: Bound::Any,
    since: Bound::Past,
    times: STREAM,
    window_full: Bound::Any,
    wants_room: Bound::Any,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up() {
        let mut limits = Limits::default();
        for (limit, now) in
            [(Limit::Network, 10), (Limit::Receiver, 15), (Limit::Network, 35), (Limit::Nothing, 36)]
        {
            limits.set(limit, now);
        }
        limits.set(Limit::SendBuffer, 50);
        let times = [Limit::Nothing, Limit::Network, Limit::Receiver, Limit::SendBuffer]
            .map(|limit| limits.time(limit, 53));
        assert_eq!((times, limits.busy(53)), ([0, 6, 20, 3], 29));
    }
}
