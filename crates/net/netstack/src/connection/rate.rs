//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation-02).

use crate::codec::{BYTES, Bound, STREAM, fields};

/// The state of a connection when a segment was sent: what a later sample is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// When the segment was sent.
    pub sent_at: u64,
    /// When the first segment of the flight was sent.
    pub first_sent_at: u64,
    /// `C.delivered`, and when it changed last.
    pub delivered: u64,
    pub delivered_at: u64,
    pub app_limited: bool,
    /// Bytes in flight, this segment included, and `C.lost`.
    pub in_flight: u64,
    pub lost: u64,
}

/// `C`: counters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// Bytes delivered.
    pub delivered: u64,
    pub delivered_at: u64,
    pub first_sent_at: u64,
    /// Delivered bytes up to which samples are limited by the application; 0: they are not.
    pub app_limited: u64,
    /// Bytes delivered with CE marks.
    pub delivered_ce: u64,
    /// Bytes marked lost.
    pub lost: u64,
}

/// A sample, made by one acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSample {
    /// Bytes delivered over `interval`; 0 if there is no sample.
    pub delivered: u64,
    /// Its length in nanoseconds; 0 if there is no sample.
    pub interval: u64,
    /// Bytes that were delivered when the newest acknowledged segment was sent.
    pub prior_delivered: u64,
    /// Round-trip time of the newest segment, if it was sent once.
    pub rtt: Option<u64>,
    /// Whether the application limited the rate.
    pub is_app_limited: bool,
    /// Bytes newly acknowledged or selectively acknowledged by this acknowledgment.
    pub acked_sacked: u64,
    /// Bytes newly marked lost by this acknowledgment.
    pub losses: u64,
    /// Bytes in flight before this acknowledgment.
    pub prior_in_flight: u64,
    /// Bytes of this acknowledgment that were CE-marked, as the peer echoes.
    pub delivered_ce: u64,
    /// Bytes that were in flight when the newest acknowledged segment was sent, itself included.
    pub tx_in_flight: u64,
    /// Bytes marked lost since then.
    pub lost: u64,
    prior_at: u64,
    prior_lost: u64,
    send_interval: u64,
    newest: Option<(u64, u64)>,
}

impl RateSample {
    /// A sample of `bytes` newly acknowledged bytes, for tests.
    #[cfg(test)]
    pub(crate) fn acked(bytes: u64) -> RateSample {
        RateSample { acked_sacked: bytes, ..RateSample::default() }
    }
}

impl Rate {
    /// The stamp of a segment that is sent now.
    pub(crate) fn stamp(&mut self, now: u64, in_flight: u64, nothing_in_flight: bool) -> Stamp {
        if nothing_in_flight {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        Stamp {
            sent_at: now,
            first_sent_at: self.first_sent_at,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            app_limited: self.app_limited != 0,
            in_flight,
            lost: self.lost,
        }
    }

    /// Counts a delivered segment, which ends at `end`.
    pub(crate) fn delivered(
        &mut self,
        now: u64,
        stamp: &Stamp,
        bytes: u64,
        end: u64,
        sample: &mut RateSample,
    ) {
        self.delivered += bytes;
        self.delivered_at = now;
        sample.acked_sacked += bytes;
        if sample.newest.is_none_or(|newest| (stamp.sent_at, end) > newest) {
            sample.newest = Some((stamp.sent_at, end));
            sample.prior_delivered = stamp.delivered;
            sample.prior_at = stamp.delivered_at;
            (sample.tx_in_flight, sample.prior_lost) = (stamp.in_flight, stamp.lost);
            sample.is_app_limited = stamp.app_limited;
            sample.send_interval = stamp.sent_at.saturating_sub(stamp.first_sent_at);
            self.first_sent_at = stamp.sent_at;
        }
    }

    /// Finishes a sample. Intervals below the minimum round-trip time are errors of measurement, and so are those that
    /// begin before the end of a standstill.
    pub(crate) fn finish(&mut self, sample: &mut RateSample, min_rtt: Option<u64>, resumed_at: u64) {
        if self.app_limited != 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        if sample.newest.is_none() {
            return;
        }
        sample.lost = self.lost - sample.prior_lost;
        let acked = self.delivered_at.saturating_sub(sample.prior_at);
        let interval = sample.send_interval.max(acked);
        if interval > 0 && interval >= min_rtt.unwrap_or(0) && sample.prior_at >= resumed_at {
            sample.delivered = self.delivered - sample.prior_delivered;
            sample.interval = interval;
        }
    }
}

fields!(Stamp {
    sent_at: Bound::Past,
    first_sent_at: Bound::Past,
    delivered: STREAM,
    delivered_at: Bound::Past,
    app_limited: Bound::Any,
    in_flight: BYTES,
    lost: STREAM,
});
fields!(Rate {
    delivered: STREAM,
    delivered_at: Bound::Past,
    first_sent_at: Bound::Past,
    app_limited: STREAM,
    delivered_ce: STREAM,
    lost: STREAM,
});
