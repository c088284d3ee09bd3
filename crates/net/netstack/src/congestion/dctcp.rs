//! DCTCP (RFC 8257): reduces the window by the fraction of marked bytes.

use super::{Congestion, RateSample, Reno, State, Window};
use crate::codec::{BYTES, Bound, Field, STREAM, fields};
use alloc::vec::Vec;

/// Fractions are in units of 1/1024; the gain `g` is 1/16 (RFC 8257, 4.2).
const UNIT: u64 = 1024;
const GAIN_SHIFT: u32 = 4;

/// The controller.
#[derive(Clone, Copy, Debug)]
pub struct Dctcp {
    /// Estimate of the marked fraction.
    alpha: u64,
    /// Total of delivered bytes at the end of this observation window.
    window_end: u64,
    acked: u64,
    marked: u64,
    /// The window grows, and shrinks after losses, as Reno's (RFC 8257, 3.5).
    reno: Reno,
}

impl Default for Dctcp {
    fn default() -> Dctcp {
        Dctcp { alpha: UNIT, window_end: 0, acked: 0, marked: 0, reno: Reno::default() }
    }
}

impl Congestion for Dctcp {
    fn name(&self) -> &'static str {
        "dctcp"
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.put(to);
    }

    fn ssthresh(&mut self, _now: u64, window: &Window) -> u64 {
        self.reno = Reno::default();
        // RFC 8257, 3.3, step 7.
        (window.cwnd - window.cwnd * self.alpha / (2 * UNIT)).max(2 * window.mss)
    }

    fn on_every_ack(&mut self, _now: u64, window: &mut Window, sample: &RateSample, ece: bool) {
        self.acked += sample.acked_sacked;
        self.marked += if ece { sample.acked_sacked } else { 0 };
        if window.delivered < self.window_end || self.acked == 0 {
            return;
        }
        let fraction = self.marked * UNIT / self.acked;
        // A shift alone would never bring a small estimate to 0.
        let decay = (self.alpha >> GAIN_SHIFT).max(u64::from(self.alpha > 0));
        self.alpha = (self.alpha - decay + (fraction >> GAIN_SHIFT)).min(UNIT);
        (self.acked, self.marked) = (0, 0);
        self.window_end = window.delivered + window.in_flight;
    }

    fn on_ack(&mut self, now: u64, window: &mut Window, sample: &RateSample) {
        self.reno.on_ack(now, window, sample);
    }

    fn on_state(&mut self, now: u64, window: &mut Window, new: State) {
        if new == State::Recovery {
            window.ssthresh = self.reno.ssthresh(now, window);
        }
    }

    fn wants_ecn(&self) -> bool {
        true
    }
}

fields!(Dctcp {
    alpha: Bound::Most(UNIT),
    window_end: STREAM,
    acked: BYTES,
    marked: BYTES,
    reno: Bound::Any,
});

#[cfg(test)]
mod tests {
    use super::super::tests::window;
    use super::*;

    #[test]
    fn the_reduction_follows_the_marked_fraction() {
        let mut dctcp = Dctcp::default();
        let mut window = window(100_000);
        let ack = RateSample::acked(100_000);
        for _ in 0..200 {
            window.delivered += 100_000;
            dctcp.on_every_ack(0, &mut window, &ack, false);
        }
        assert_eq!((dctcp.alpha, dctcp.ssthresh(0, &window)), (0, 100_000));
        for _ in 0..200 {
            window.delivered += 100_000;
            dctcp.on_every_ack(0, &mut window, &ack, true);
        }
        let halved = dctcp.ssthresh(0, &window);
        assert!((50_000..52_000).contains(&halved), "{halved}");
    }
}
