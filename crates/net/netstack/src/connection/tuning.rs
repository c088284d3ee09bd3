//! Moderation of the receive buffer (Linux's `tcp_moderate_rcvbuf`): it grows with the rate of the connection.

use super::{Connection, Context};
use crate::codec::{BYTES, Bound, SPAN, fields};
use crate::memory::Supply;

/// What was received and read in the last round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tuning {
    /// The receiver's estimate of the round-trip time.
    pub rtt: u64,
    /// Since when bytes are counted that the program reads; most in a round trip.
    pub since: u64,
    pub copied: u64,
    /// When a round trip was over while the program had more to read; 0: it has read all.
    pub over: u64,
    pub space: u64,
    /// Since when received bytes are counted.
    pub arrived_since: u64,
    pub arrived: u64,
}

/// The size of a buffer for a program that read `copied` bytes in a round trip, and `space` in an earlier one: twice
/// of that, and of its growth in the next two. Attack: a peer chooses how long its round trips seem, and so how much
/// is read in one.
fn wanted(copied: u64, space: u64, mss: u64) -> u64 {
    let now = 2 * u128::from(copied) + 16 * u128::from(mss);
    let growing = u128::from(copied.saturating_sub(space));
    let wanted = now.saturating_add((2 * now).saturating_mul(growing) / u128::from(space.max(1)));
    u64::try_from(wanted).unwrap_or(u64::MAX)
}

impl Connection {
    fn receiver_rtt(&self) -> u64 {
        if self.tuning.rtt > 0 { self.tuning.rtt } else { self.rtt.srtt }
    }

    fn grow_to(&mut self, cx: &Context<'_>, wanted: u64) {
        if cx.settings.tcp_moderate_rcvbuf && cx.memory.supply() == Supply::Free {
            // Announced windows are rounded up; with that they are not larger than the setting either.
            let most = cx.settings.tcp_rmem[2].saturating_sub((1 << self.rcv_wscale) - 1) as u64;
            self.rcvbuf = self.rcvbuf.max(wanted.min(most) as usize);
        }
    }

    /// The program read bytes. Lets the buffer grow to twice of what it reads in a round trip (dynamic right-sizing).
    pub(super) fn moderate(&mut self, cx: &Context<'_>, count: u64) {
        let now = cx.now;
        self.tuning.copied += count;
        let rtt = self.receiver_rtt();
        if rtt == 0 || now - self.tuning.since < rtt {
            return;
        }
        // A program that reads what a hole held back, piece by piece, will have read it in a moment: without that, the
        // first piece would count for the round trip, and the window stay small. One that is slow is given a round trip
        // more, and its rate counts.
        if self.receiving.readable() > 0 {
            if self.tuning.over == 0 {
                self.tuning.over = now;
            }
            if now - self.tuning.over < rtt {
                return;
            }
        }
        let more = if self.tuning.over == 0 { 0 } else { now - self.tuning.over };
        let copied = (u128::from(self.tuning.copied) * u128::from(rtt) / u128::from(rtt + more)) as u64;
        if copied > self.tuning.space {
            self.grow_to(cx, wanted(copied, self.tuning.space, self.rcv_mss));
            self.tuning.space = copied;
        }
        (self.tuning.since, self.tuning.copied, self.tuning.over) = (now, 0, 0);
    }

    /// Bytes arrived. While some are missing, the program can't read those after them, so that what it reads tells too
    /// little: the window must hold them until the missing ones were sent again, a round trip or more, and what arrives
    /// meanwhile. Attack: a peer that leaves a hole makes the buffer grow to `tcp_rmem[2]`, as one that is fast does,
    /// but only with as many bytes.
    pub(super) fn moderate_holes(&mut self, cx: &Context<'_>, count: u64) {
        let now = cx.now;
        self.tuning.arrived += count;
        let rtt = self.receiver_rtt();
        if rtt == 0 || now - self.tuning.arrived_since < rtt {
            return;
        }
        // The peer had nothing to send, and the program has read all: what arrives now begins a round trip. Else the
        // one that is counted would end with the first of these bytes. The handshake's counts.
        let is_first = self.receiving.readable() as u64 <= count && !self.receiving.has_holes();
        if is_first && self.tuning.arrived_since > 0 && now - self.tuning.arrived_since >= 2 * rtt {
            (self.tuning.since, self.tuning.copied) = (now, 0);
        }
        let held = self.receiving.held();
        // Not if it is the program that does not read.
        if held > self.receiving.readable() as u64 {
            self.grow_to(cx, held + 2 * self.tuning.arrived + 16 * self.rcv_mss);
        }
        (self.tuning.arrived_since, self.tuning.arrived) = (now, 0);
    }
}

fields!(Tuning {
    rtt: SPAN,
    since: Bound::Past,
    copied: BYTES,
    over: Bound::Past,
    space: BYTES,
    arrived_since: Bound::Past,
    arrived: BYTES,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_grows_with_what_is_read() {
        assert_eq!(wanted(10_000, 10_000, 1000), 36_000);
        // Twice as much as in the last round trip.
        assert_eq!(wanted(20_000, 10_000, 1000), 56_000 * 3);
    }

    #[test]
    fn a_round_trip_of_minutes_does_not_overflow() {
        assert_eq!(wanted(1 << 40, 0, 1460), u64::MAX);
        assert_eq!(wanted(u64::MAX, 1, 1460), u64::MAX);
        assert_eq!(wanted(u64::MAX / 2, u64::MAX / 2, 0), u64::MAX - 1);
    }
}
