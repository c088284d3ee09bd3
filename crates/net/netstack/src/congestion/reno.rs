//! Reno (RFC 5681, 3.1), counting bytes (RFC 3465).

use super::{Congestion, RateSample, Window};
use crate::codec::{BYTES, Field, fields};
use alloc::vec::Vec;

/// The controller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reno {
    /// Bytes acknowledged since the window grew last.
    acked: u64,
}

impl Congestion for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.put(to);
    }

    fn ssthresh(&mut self, _now: u64, window: &Window) -> u64 {
        self.acked = 0;
        (window.cwnd / 2).max(2 * window.mss)
    }

    fn on_ack(&mut self, _now: u64, window: &mut Window, sample: &RateSample) {
        if !window.cwnd_limited {
            return;
        }
        let mut acked = sample.acked_sacked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
        }
        self.acked += acked;
        while self.acked >= window.cwnd {
            self.acked -= window.cwnd;
            window.cwnd += window.mss;
        }
    }
}

fields!(Reno { acked: BYTES });

#[cfg(test)]
mod tests {
    use super::super::tests::window;
    use super::*;

    #[test]
    fn a_window_grows_by_a_segment_a_round() {
        let mut window = window(10_000);
        window.ssthresh = 10_000;
        let mut reno = Reno::default();
        for _ in 0..10 {
            reno.on_ack(0, &mut window, &RateSample::acked(1000));
        }
        assert_eq!((window.cwnd, reno.ssthresh(0, &window)), (11_000, 5500));
    }
}
