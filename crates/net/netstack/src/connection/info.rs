//! Figures of a connection, with the names of Linux's `struct tcp_info`.

use super::limits::Limit;
use super::recovery::DUP_THRESH;
use super::{Connection, FIRST, State};
use crate::congestion::State as CaState;
use crate::demux::Tuple;
use crate::trace::{Trace, TracePoint};
use alloc::boxed::Box;

/// What `TCP_INFO` returns. Times are in nanoseconds, windows and losses in segments, rates in bytes a second.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Linux's")]
pub struct TcpInfo {
    pub tcpi_state: State,
    pub tcpi_ca_state: CaState,
    pub tcpi_retransmits: u32,
    pub tcpi_probes: u32,
    pub tcpi_backoff: u32,
    pub tcpi_options_timestamps: bool,
    pub tcpi_options_sack: bool,
    pub tcpi_options_ecn: bool,
    pub tcpi_options_ecn_seen: bool,
    pub tcpi_options_syn_data: bool,
    pub tcpi_snd_wscale: u8,
    pub tcpi_rcv_wscale: u8,
    pub tcpi_rto: u64,
    pub tcpi_ato: u64,
    pub tcpi_snd_mss: u64,
    pub tcpi_rcv_mss: u64,
    pub tcpi_unacked: u64,
    pub tcpi_sacked: u64,
    pub tcpi_lost: u64,
    pub tcpi_retrans: u64,
    pub tcpi_last_data_sent: u64,
    pub tcpi_last_data_recv: u64,
    pub tcpi_last_ack_recv: u64,
    pub tcpi_pmtu: u64,
    pub tcpi_rcv_ssthresh: u64,
    pub tcpi_rtt: u64,
    pub tcpi_rttvar: u64,
    pub tcpi_min_rtt: u64,
    pub tcpi_snd_ssthresh: u64,
    pub tcpi_snd_cwnd: u64,
    pub tcpi_advmss: u64,
    pub tcpi_rcv_rtt: u64,
    pub tcpi_rcv_space: u64,
    pub tcpi_total_retrans: u64,
    pub tcpi_pacing_rate: u64,
    pub tcpi_max_pacing_rate: u64,
    pub tcpi_delivery_rate: u64,
    pub tcpi_delivery_rate_app_limited: bool,
    pub tcpi_bytes_acked: u64,
    pub tcpi_bytes_received: u64,
    pub tcpi_bytes_sent: u64,
    pub tcpi_bytes_retrans: u64,
    pub tcpi_segs_out: u64,
    pub tcpi_segs_in: u64,
    pub tcpi_data_segs_in: u64,
    pub tcpi_data_segs_out: u64,
    pub tcpi_notsent_bytes: u64,
    pub tcpi_delivered: u64,
    pub tcpi_delivered_ce: u64,
    pub tcpi_dsack_dups: u64,
    pub tcpi_reord_seen: u64,
    pub tcpi_rcv_ooopack: u64,
    pub tcpi_snd_wnd: u64,
    pub tcpi_rcv_wnd: u64,
    pub tcpi_total_rto: u64,
    pub tcpi_total_rto_recoveries: u64,
    pub tcpi_total_rto_time: u64,
    pub tcpi_reordering: u64,
    pub tcpi_busy_time: u64,
    pub tcpi_rwnd_limited: u64,
    pub tcpi_sndbuf_limited: u64,
}

impl Connection {
    /// Delivered segments as Linux counts: a SYN is one, with its data or without.
    fn delivered_segments(&self) -> u64 {
        let bytes = self.rate.delivered;
        let with_data = self.fast_open.is_syn_data_acked && !self.fast_open.is_accepted;
        let syn = if with_data { self.fast_open.syn_data_end - FIRST } else { 1 };
        u64::from(bytes > 0) + bytes.saturating_sub(syn).div_ceil(self.mss)
    }

    /// Lost bytes as Linux counts: also those that were sent again, until they are acknowledged.
    fn lost_bytes(&self) -> u64 {
        let probe = self.recovery.tail_probe.is_some_and(|(_, retransmitted)| retransmitted);
        let again = self.scoreboard.retransmitted.saturating_sub(if probe { self.mss } else { 0 });
        self.scoreboard.lost_bytes + again
    }

    pub(crate) fn info(&self, now: u64) -> TcpInfo {
        let segments = |bytes: u64| bytes.div_ceil(self.mss);
        let sent = self.sending.end().min(self.nxt);
        TcpInfo {
            tcpi_state: self.state,
            tcpi_ca_state: self.recovery.state,
            tcpi_retransmits: if self.una < self.nxt { self.rtt.backoff } else { 0 },
            tcpi_probes: self.timers.probes,
            tcpi_backoff: self.rtt.backoff,
            tcpi_options_timestamps: self.ts_ok,
            tcpi_options_sack: self.sack_ok,
            tcpi_options_ecn: self.ecn.ok,
            tcpi_options_ecn_seen: self.ecn.seen,
            tcpi_options_syn_data: self.fast_open.is_syn_data_acked,
            tcpi_snd_wscale: self.snd_wscale,
            tcpi_rcv_wscale: self.rcv_wscale,
            tcpi_rto: self.rtt.rto(),
            tcpi_ato: self.delayed_ack_time(),
            tcpi_snd_mss: self.mss,
            tcpi_rcv_mss: self.rcv_mss,
            tcpi_unacked: segments(self.nxt - self.una),
            tcpi_sacked: segments(self.scoreboard.sacked_bytes),
            tcpi_lost: segments(self.lost_bytes()),
            tcpi_retrans: segments(self.scoreboard.retransmitted),
            tcpi_last_data_sent: now.saturating_sub(self.last_sent_at),
            tcpi_last_data_recv: now.saturating_sub(self.last_received_at),
            tcpi_last_ack_recv: now.saturating_sub(self.counts.last_ack_received),
            tcpi_pmtu: self.path_mss + if self.tuple.local.is_ipv4() { 40 } else { 60 },
            tcpi_rcv_ssthresh: self.rcvbuf as u64,
            tcpi_rtt: self.rtt.srtt,
            tcpi_rttvar: self.rtt.rttvar,
            tcpi_min_rtt: self.rtt.min().unwrap_or(0),
            tcpi_snd_ssthresh: self.window.ssthresh / self.mss,
            tcpi_snd_cwnd: self.window.cwnd / self.mss,
            tcpi_advmss: self.path_mss,
            tcpi_rcv_rtt: self.tuning.rtt,
            tcpi_rcv_space: self.tuning.space,
            tcpi_total_retrans: self.counts.retrans,
            tcpi_pacing_rate: self.window.pacing_rate,
            tcpi_max_pacing_rate: self.options.so_max_pacing_rate,
            tcpi_delivery_rate: self.delivery_rate(),
            tcpi_delivery_rate_app_limited: self.recovery.last_rate.is_app_limited,
            tcpi_bytes_acked: self.counts.bytes_acked,
            tcpi_bytes_received: self.counts.bytes_received,
            tcpi_bytes_sent: self.counts.bytes_sent,
            tcpi_bytes_retrans: self.counts.bytes_retrans,
            tcpi_segs_out: self.counts.segs_out,
            tcpi_segs_in: self.counts.segs_in,
            tcpi_data_segs_in: self.counts.data_segs_in,
            tcpi_data_segs_out: self.counts.data_segs_out,
            tcpi_notsent_bytes: self.sending.end() - sent,
            tcpi_delivered: self.delivered_segments(),
            tcpi_delivered_ce: segments(self.rate.delivered_ce),
            tcpi_dsack_dups: self.counts.dsack_dups,
            tcpi_reord_seen: self.counts.reord_seen,
            tcpi_rcv_ooopack: self.counts.rcv_ooopack.into(),
            tcpi_snd_wnd: self.snd_wnd,
            tcpi_rcv_wnd: self.rcv_adv.saturating_sub(self.rcv_nxt()),
            tcpi_total_rto: self.counts.timeouts,
            tcpi_total_rto_recoveries: self.counts.rto_recoveries.into(),
            tcpi_total_rto_time: self.counts.rto_time,
            tcpi_reordering: self.counts.reordering.max(DUP_THRESH),
            tcpi_busy_time: self.limits.busy(now),
            tcpi_rwnd_limited: self.limits.time(Limit::Receiver, now),
            tcpi_sndbuf_limited: self.limits.time(Limit::SendBuffer, now),
        }
    }

    fn delivery_rate(&self) -> u64 {
        let sample = &self.recovery.last_rate;
        (u128::from(sample.delivered) * 1_000_000_000 / u128::from(sample.interval.max(1))) as u64
    }

    /// Bytes that the peer has not acknowledged, also those that were not sent yet.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.sending.end().saturating_sub(self.una)
    }

    /// The name of the congestion controller.
    pub(crate) fn controller(&self) -> &'static str {
        self.control.name()
    }

    /// The state of the congestion controller.
    pub(crate) fn mode(&self) -> &'static str {
        self.control.mode(&self.window)
    }

    /// Records the state from now on, in at most so many points; 0: no more.
    pub(crate) fn set_trace(&mut self, points: usize) {
        let Tuple { local, remote } = self.tuple;
        self.trace = (points > 0).then(|| Box::new(Trace::new(self.control.name(), local, remote, points)));
    }

    /// Adds a point to the trace, if there is one.
    pub(super) fn trace(&mut self, now: u64) {
        if self.trace.is_some() {
            self.add_trace_point(now);
        }
    }

    #[cold]
    fn add_trace_point(&mut self, time: u64) {
        let value = |value: u64| Some(value).filter(|&value| value != u64::MAX);
        let point = TracePoint {
            time,
            cwnd: self.window.cwnd,
            ssthresh: value(self.window.ssthresh),
            in_flight: self.in_flight(),
            pacing_rate: value(self.window.pacing_rate),
            delivery_rate: self.delivery_rate(),
            app_limited: self.recovery.last_rate.is_app_limited,
            rtt: self.rtt.latest,
            srtt: self.rtt.srtt,
            min_rtt: self.rtt.min().unwrap_or(0),
            delivered: self.rate.delivered,
            retransmissions: self.counts.retrans,
            timeouts: self.counts.timeouts,
            ca_state: self.recovery.state,
            mode: self.control.mode(&self.window),
        };
        if let Some(trace) = &mut self.trace {
            trace.record(point);
        }
    }
}
