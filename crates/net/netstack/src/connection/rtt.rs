//! The retransmission timeout (RFC 6298) and the minimum round-trip time.

use crate::codec::{Bound, SPAN, SPAN_OR_NONE, fields};
use crate::minmax::MinMax;
use crate::settings::{MS, SECOND};

/// The timeout before the first sample (RFC 6298, 2.1).
pub(crate) const TCP_TIMEOUT_INIT: u64 = SECOND;
/// The largest timeout.
pub(crate) const TCP_RTO_MAX: u64 = 120 * SECOND;
/// How long a minimum counts (Linux's `tcp_min_rtt_wlen`).
const MIN_RTT_WINDOW: u64 = 300 * SECOND;

/// Round-trip times in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    /// Smoothed; 0 before the first sample.
    pub srtt: u64,
    pub rttvar: u64,
    /// The last sample.
    pub latest: u64,
    min: MinMax,
    /// The timeout without back-off.
    base: u64,
    /// Number of doublings.
    pub backoff: u32,
}

impl Default for Rtt {
    fn default() -> Rtt {
        let mut min = MinMax::default();
        min.reset(0, u64::MAX);
        Rtt { srtt: 0, rttvar: 0, latest: 0, min, base: TCP_TIMEOUT_INIT, backoff: 0 }
    }
}

impl Rtt {
    /// Adds a sample, which is not of a retransmitted segment (Karn's algorithm). `rto_min` is a lower bound
    /// of the variance's part, as in Linux: so a peer that delays its acknowledgments causes no timeouts.
    pub(crate) fn sample(&mut self, now: u64, rtt: u64, rto_min: u64) {
        let rtt = rtt.max(1);
        self.latest = rtt;
        if self.min.get() == u64::MAX {
            self.min.reset(now, rtt);
        }
        self.min.min(MIN_RTT_WINDOW, now, rtt);
        if self.srtt == 0 {
            (self.srtt, self.rttvar) = (rtt, rtt / 2);
        } else {
            self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4;
            self.srtt = (7 * self.srtt + rtt) / 8;
        }
        self.base = (self.srtt + (4 * self.rttvar).max(rto_min)).min(TCP_RTO_MAX);
    }

    /// The minimum; `None` before the first sample.
    pub(crate) fn min(&self) -> Option<u64> {
        Some(self.min.get()).filter(|&min| min != u64::MAX)
    }

    /// The timeout, with back-off.
    pub(crate) fn rto(&self) -> u64 {
        (self.base << self.backoff.min(16)).min(TCP_RTO_MAX)
    }

    /// Doubles the timeout (RFC 6298, 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(64);
    }

    /// After a handshake with a retransmitted SYN (RFC 6298, 5.7).
    pub(crate) fn set_fallback(&mut self) {
        if self.srtt == 0 {
            self.base = 3 * SECOND;
        }
    }

    /// The timeout of a tail loss probe (RFC 8985, 7.2).
    pub(crate) fn probe_timeout(&self, one_segment: bool) -> u64 {
        if self.srtt == 0 {
            return TCP_TIMEOUT_INIT;
        }
        // A peer may delay the acknowledgment of a single segment.
        2 * self.srtt + if one_segment { 200 * MS } else { 2 * MS }
    }
}

fields!(Rtt {
    srtt: SPAN,
    rttvar: SPAN,
    latest: SPAN,
    min: SPAN_OR_NONE,
    base: Bound::Positive(TCP_RTO_MAX),
    backoff: Bound::Most(64),
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_and_the_next() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(), SECOND);
        rtt.sample(0, 100 * MS, 0);
        assert_eq!((rtt.srtt, rtt.rto()), (100 * MS, 300 * MS));
        rtt.sample(1, 180 * MS, 0);
        assert_eq!((rtt.srtt, rtt.rttvar), (110 * MS, 57_500_000));
        rtt.back_off();
        assert_eq!((rtt.rto(), rtt.min()), (2 * (110 * MS + 230 * MS), Some(100 * MS)));
    }
}
