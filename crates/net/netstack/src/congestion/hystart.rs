//! HyStart++ (RFC 9406): ends the initial slow start when round-trip times grow, before packets are lost.

use super::{RateSample, Window};
use crate::codec::{BYTES, Bound, COUNT, SPAN_OR_NONE, STREAM, fields};
use crate::settings::MS;

/// Bounds of the growth that ends slow start, and the share of the last round's minimum that it is between them
/// (RFC 9406, 4.3).
const MIN_RTT_THRESH: u64 = 4 * MS;
const MAX_RTT_THRESH: u64 = 16 * MS;
const MIN_RTT_DIVISOR: u64 = 8;
/// Samples of a round before its minimum counts.
const N_RTT_SAMPLE: u32 = 8;
/// By how much conservative slow start grows less.
const CSS_GROWTH_DIVISOR: u64 = 4;
/// Rounds of conservative slow start.
const CSS_ROUNDS: u32 = 5;

/// Conservative slow start: the round-trip time before it, and rounds that are left.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    baseline: u64,
    rounds: u32,
}

/// The state of the initial slow start.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// `delivered` at the end of the round.
    round_end: u64,
    last_min: u64,
    current_min: u64,
    samples: u32,
    /// In conservative slow start: the minimum that began it, and rounds left.
    conservative: Option<Conservative>,
    /// Acknowledged bytes of conservative slow start that the window has not grown by yet.
    rest: u64,
}

impl Default for HyStart {
    fn default() -> HyStart {
        let none = u64::MAX;
        HyStart { round_end: 0, last_min: none, current_min: none, samples: 0, conservative: None, rest: 0 }
    }
}

impl HyStart {
    /// Grows the window by acknowledged bytes; returns those beyond slow start.
    pub(super) fn slow_start(&mut self, window: &mut Window, sample: &RateSample) -> u64 {
        // RFC 9406, 4.3: only the initial slow start.
        if window.ssthresh != u64::MAX {
            return window.slow_start(sample.acked_sacked);
        }
        if let Some(rtt) = sample.rtt {
            self.current_min = self.current_min.min(rtt);
            self.samples += 1;
        }
        let grown = match self.conservative {
            None => sample.acked_sacked,
            Some(_) => {
                let total = self.rest + sample.acked_sacked;
                self.rest = total % CSS_GROWTH_DIVISOR;
                total / CSS_GROWTH_DIVISOR
            }
        };
        window.cwnd += grown;
        self.compare();
        if window.delivered >= self.round_end {
            self.end_round(window);
        }
        0
    }

    /// Enters or leaves conservative slow start.
    fn compare(&mut self) {
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match self.conservative {
            None if self.last_min != u64::MAX => {
                let growth = (self.last_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if self.current_min >= self.last_min + growth {
                    self.conservative = Some(Conservative { baseline: self.current_min, rounds: CSS_ROUNDS });
                }
            }
            // The growth was temporary.
            Some(Conservative { baseline, .. }) if self.current_min < baseline => self.conservative = None,
            _ => {}
        }
    }

    fn end_round(&mut self, window: &mut Window) {
        if let Some(conservative) = &mut self.conservative {
            conservative.rounds -= 1;
            if conservative.rounds == 0 {
                (window.ssthresh, self.conservative) = (window.cwnd, None);
            }
        }
        (self.last_min, self.current_min, self.samples) = (self.current_min, u64::MAX, 0);
        self.round_end = window.delivered + window.in_flight;
    }
}

fields!(Conservative { baseline: SPAN_OR_NONE, rounds: Bound::Positive(CSS_ROUNDS as u64) });
fields!(HyStart {
    round_end: STREAM,
    last_min: SPAN_OR_NONE,
    current_min: SPAN_OR_NONE,
    samples: COUNT,
    conservative: Bound::Any,
    rest: BYTES,
});

#[cfg(test)]
mod tests {
    use super::super::tests::window;
    use super::*;
    use crate::codec::{Field, Reader};
    use alloc::vec::Vec;

    /// Acknowledges every segment of a round after `rtt`, while the window is always full.
    fn round(hystart: &mut HyStart, window: &mut Window, rtt: u64) {
        let end = hystart.round_end;
        while hystart.round_end == end {
            window.delivered += window.mss;
            window.in_flight = window.cwnd - window.mss;
            let mut sample = RateSample::acked(window.mss);
            sample.rtt = Some(rtt);
            assert_eq!(hystart.slow_start(window, &sample), 0);
        }
    }

    #[test]
    fn growing_round_trip_times_end_slow_start_after_five_rounds() {
        let (mut hystart, mut window) = (HyStart::default(), window(10_000));
        (0..3).for_each(|_| round(&mut hystart, &mut window, 100 * MS));
        let (before, acked) = (window.cwnd, hystart.round_end - window.delivered);
        round(&mut hystart, &mut window, 113 * MS);
        // The first eight samples still grow it by all they acknowledge.
        assert_eq!((window.cwnd, window.ssthresh), (before + 8000 + (acked - 8000) / 4, u64::MAX));
        for _ in 0..4 {
            assert_eq!(window.ssthresh, u64::MAX);
            round(&mut hystart, &mut window, 115 * MS);
        }
        assert_eq!(window.ssthresh, window.cwnd);
        // A connection moves after that as before.
        let mut bytes = Vec::new();
        hystart.put(&mut bytes);
        assert!(HyStart::take(&mut Reader::new(&bytes, 0), Bound::Any).is_some());
    }

    #[test]
    fn slow_start_goes_on_if_the_growth_was_temporary() {
        let (mut hystart, mut window) = (HyStart::default(), window(10_000));
        (0..3).for_each(|_| round(&mut hystart, &mut window, 100 * MS));
        round(&mut hystart, &mut window, 120 * MS);
        assert!(hystart.conservative.is_some());
        round(&mut hystart, &mut window, 101 * MS);
        assert!(hystart.conservative.is_none());
        let (before, acked) = (window.cwnd, hystart.round_end - window.delivered);
        round(&mut hystart, &mut window, 101 * MS);
        assert_eq!((window.cwnd, window.ssthresh), (before + acked, u64::MAX));
    }
}
