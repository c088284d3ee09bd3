//! Moderation of the receive buffer (Linux's `tcp_moderate_rcvbuf`): it grows with the rate of the connection.

use super::Connection;
use crate::settings::Settings;

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

impl Connection {
    fn receiver_rtt(&self) -> u64 {
        if self.tuning.rtt > 0 { self.tuning.rtt } else { self.rtt.srtt }
    }

    fn grow_to(&mut self, wanted: u64, settings: &Settings) {
        if settings.tcp_moderate_rcvbuf {
            let most = settings.tcp_rmem[2] as u64;
            self.rcvbuf = self.rcvbuf.max(wanted.min(most) as usize);
        }
    }

    /// The program read bytes. Lets the buffer grow to twice of what it reads in a round trip (dynamic right-sizing).
    pub(super) fn moderate(&mut self, now: u64, count: u64, settings: &Settings) {
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
            let growing = copied.saturating_sub(self.tuning.space);
            let wanted = 2 * copied + 16 * self.rcv_mss;
            let wanted = wanted + 2 * wanted * growing / self.tuning.space.max(1);
            self.grow_to(wanted, settings);
            self.tuning.space = copied;
        }
        (self.tuning.since, self.tuning.copied, self.tuning.over) = (now, 0, 0);
    }

    /// Bytes arrived. While some are missing, the program can't read those after them, so that what it reads tells too
    /// little: the window must hold them until the missing ones were sent again, a round trip or more, and what arrives
    /// meanwhile. Attack: a peer that leaves a hole makes the buffer grow to `tcp_rmem[2]`, as one that is fast does.
    pub(super) fn moderate_holes(&mut self, now: u64, count: u64, settings: &Settings) {
        self.tuning.arrived += count;
        let rtt = self.receiver_rtt();
        if rtt == 0 || now - self.tuning.arrived_since < rtt {
            return;
        }
        let held = self.receiving.held();
        // Not if it is the program that does not read.
        if held > self.receiving.readable() as u64 {
            self.grow_to(held + 2 * self.tuning.arrived + 16 * self.rcv_mss, settings);
        }
        (self.tuning.arrived_since, self.tuning.arrived) = (now, 0);
    }
}
