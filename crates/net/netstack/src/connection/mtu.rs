//! Packetization layer path MTU discovery (RFC 4821), with Linux's settings: larger segments are tried, and
//! smaller ones used if none passes, so that it works although ICMP messages are lost.

use super::{Connection, Context};
use crate::codec::{Bound, STREAM, fields};
use crate::congestion::State as CaState;
use crate::settings::Settings;

/// Full segments that must follow a probe, so that its loss is detected without a timeout.
const FOLLOWING: u64 = 4;

/// The search for the largest segment that the path carries. Sizes are payload without TCP options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MtuSearch {
    enabled: bool,
    /// Carried; too large or not tried.
    low: u64,
    high: u64,
    probe: Option<MtuProbe>,
    /// When the search begins again from the path's size.
    again_at: u64,
}

/// A segment that is larger than the others.
#[derive(Clone, Copy, Debug)]
struct MtuProbe {
    start: u64,
    end: u64,
    size: u64,
    is_lost: bool,
}

impl MtuSearch {
    /// The search of a new connection.
    pub(super) fn new(settings: &Settings, path_mss: u64) -> MtuSearch {
        let enabled = settings.tcp_mtu_probing >= 2;
        let low = settings.tcp_base_mss.min(path_mss);
        MtuSearch { enabled, low, high: path_mss, ..MtuSearch::default() }
    }

    /// The largest segment to use.
    pub(super) fn limit(&self) -> u64 {
        if self.enabled { self.low } else { u64::MAX }
    }
}

impl Connection {
    /// The payload of a probe, if one is to be sent now; `left` bytes wait, of which `usable` fit into the peer's
    /// window and `quota` into the congestion window.
    pub(super) fn mtu_probe(&mut self, cx: &Context<'_>, left: u64, usable: u64, quota: u64) -> Option<u64> {
        if !self.mtu.enabled || self.mtu.probe.is_some() || self.recovery.state != CaState::Open {
            return None;
        }
        let most = self.path_mss.min(self.peer_mss);
        if cx.now >= self.mtu.again_at && self.mtu.again_at > 0 {
            (self.mtu.high, self.mtu.again_at) = (most, 0);
        }
        let (low, high) = (self.mtu.low, self.mtu.high.min(most));
        if high < low + cx.settings.tcp_probe_threshold {
            if self.mtu.again_at == 0 {
                self.mtu.again_at = cx.now + cx.settings.tcp_probe_interval;
            }
            return None;
        }
        let payload = (low + high).div_ceil(2) - (low - self.mss.min(low));
        let enough = payload + FOLLOWING * self.mss;
        (left >= enough && usable >= enough && quota >= payload).then_some(payload)
    }

    /// A probe was sent.
    pub(super) fn mtu_probe_sent(&mut self, start: u64, end: u64) {
        let size = end - start + (self.mtu.low - self.mss.min(self.mtu.low));
        self.mtu.probe = Some(MtuProbe { start, end, size, is_lost: false });
    }

    /// The cumulative acknowledgment moved: a probe that was not lost shows what the path carries.
    pub(super) fn mtu_acknowledged(&mut self) {
        let Some(probe) = self.mtu.probe.filter(|probe| self.una >= probe.end) else { return };
        self.mtu.probe = None;
        if !probe.is_lost {
            self.mtu.low = probe.size;
            self.set_mss();
            self.update_window();
        }
    }

    /// Whether nothing but a probe is lost: that shows its size, not congestion (RFC 4821, 7.6.2).
    pub(super) fn is_only_probe_lost(&mut self) -> bool {
        let Some(first) = self.scoreboard.first_lost() else { return false };
        let lost = self.scoreboard.lost_bytes;
        let Some(probe) = &mut self.mtu.probe else { return false };
        if first.start < probe.start || first.start + lost > probe.end {
            return false;
        }
        probe.is_lost = true;
        self.mtu.high = self.mtu.high.min(probe.size - 1);
        true
    }

    /// A retransmission timeout: repeated ones mean that the path carries less (RFC 4821, 7.7).
    pub(super) fn mtu_timeout(&mut self, settings: &Settings) {
        if let Some(probe) = self.mtu.probe.take() {
            self.mtu.high = self.mtu.high.min(probe.size - 1);
        }
        if settings.tcp_mtu_probing == 0 || self.rtt.backoff < settings.tcp_retries1 {
            return;
        }
        if self.mtu.enabled {
            self.mtu.low = (self.mtu.low / 2).max(settings.tcp_mtu_probe_floor);
        }
        self.mtu.enabled = true;
        self.set_mss();
        self.update_window();
    }
}

fields!(MtuSearch {
    enabled: Bound::Any,
    low: Bound::Most(1 << 16),
    high: Bound::Most(1 << 16),
    probe: Bound::Any,
    again_at: Bound::Deadline,
});
fields!(MtuProbe { start: STREAM, end: STREAM, size: Bound::Positive(1 << 17), is_lost: Bound::Any });
