//! What the versions of BBR share: gains in units of 1/256, rates in bytes a second, and the pacing rate. The
//! constants are those of Linux's `net/ipv4/tcp_bbr.c`; google/bbr's has the same, except for `bbr_min_tso_rate`.

use super::Window;
use crate::codec::{Bound, fields};
use crate::settings::{MS, SECOND};

/// A gain of 1 (`BBR_UNIT`).
pub(super) const UNIT: u64 = 256;
/// The pacing rate is one percent less than the estimate, so that queues drain
/// (`bbr_pacing_margin_percent`).
const MARGIN: u64 = 1;

/// Sets the pacing rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    /// The gain before there are bandwidth samples.
    initial_gain: u64,
    has_seen_rtt: bool,
}

impl Pacing {
    pub(super) fn new(initial_gain: u64) -> Pacing {
        Pacing { initial_gain, has_seen_rtt: false }
    }

    /// The rate for an estimate of the bandwidth. Until the pipe is `full`, it only grows.
    pub(super) fn set(&mut self, window: &mut Window, bandwidth: u64, gain: u64, full: bool) {
        if !self.has_seen_rtt && window.srtt > 0 {
            self.init(window);
        }
        let paced = u128::from(bandwidth) * u128::from(gain * (100 - MARGIN));
        let paced = (paced / u128::from(UNIT * 100)) as u64;
        if full || paced > window.pacing_rate {
            window.pacing_rate = paced.min(window.max_pacing_rate);
        }
    }

    /// The rate before there are samples: the window in a round trip, or in a millisecond
    /// (`bbr_init_pacing_rate_from_rtt`).
    pub(super) fn init(&mut self, window: &mut Window) {
        self.has_seen_rtt |= window.srtt > 0;
        let rtt = if window.srtt > 0 { window.srtt } else { MS };
        let paced = u128::from(rate(window.cwnd, rtt)) * u128::from(self.initial_gain) / u128::from(UNIT);
        window.pacing_rate = (paced as u64).min(window.max_pacing_rate);
    }
}

/// Least number of segments of a frame with pending segmentation: one below 1.2 Mb/s (Linux's `bbr_min_tso_rate`).
pub(super) fn min_tso_segs(window: &Window) -> u64 {
    if window.pacing_rate < 150_000 { 1 } else { 2 }
}

/// More than any path carries, in bytes a second: products of a rate with a time or a gain don't overflow.
const FASTEST: u128 = 1 << 50;

/// Bytes a second.
pub(super) fn rate(bytes: u64, time: u64) -> u64 {
    (u128::from(bytes) * u128::from(SECOND) / u128::from(time.max(1))).min(FASTEST) as u64
}

fields!(Pacing { initial_gain: Bound::Most(16 * UNIT), has_seen_rtt: Bound::Any });
