//! Acknowledgments and loss recovery: RACK-TLP (RFC 8985), PRR (RFC 6937), F-RTO (RFC 5682), and undoing
//! reductions that turned out to be unnecessary. The states are Linux's `TCP_CA_*`.

use super::input::Segment;
use super::rate::RateSample;
use super::scoreboard::{Fate, Record};
use super::timers::Kind;
use super::{Connection, Context, State};
use crate::codec::{BYTES, BYTES_OR_NONE, Bound, SPAN, STREAM, fields};
use crate::congestion::State as CaState;
use crate::memory::Supply;
use crate::settings::MS;
use ringway_wire::tcp::Flags;

/// Duplicate acknowledgments that mean a loss (RFC 5681, 3.2).
pub(super) const DUP_THRESH: u64 = 3;
/// Limit of the reordering metric (Linux's `tcp_max_reordering`).
const MAX_REORDERING: u64 = 300;

/// More than any window.
const LARGEST: u128 = 1 << 40;

/// RACK's state (RFC 8985, 6).
#[derive(Clone, Copy, Debug, Default)]
struct Rack {
    /// When the newest delivered segment was sent, and where it ends.
    sent_at: u64,
    end: u64,
    rtt: u64,
    /// The highest delivered offset.
    fack: u64,
    /// The lowest start of a segment that the last acknowledgment showed to be delivered after later ones; 0: none.
    lowest: u64,
    reordering_seen: bool,
    /// The reordering window in quarters of the minimum round-trip time.
    steps: u64,
    /// Recoveries for which a larger window is kept.
    persist: u32,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recovery {
    pub state: CaState,
    /// `nxt` when recovery began; it ends when this is acknowledged.
    pub high_seq: u64,
    /// Consecutive duplicate acknowledgments, without SACK, and the bytes that they stand for.
    pub dupacks: u64,
    pub dup_bytes: u64,
    rack: Rack,
    prior_ssthresh: u64,
    prr_delivered: u64,
    pub prr_out: u64,
    /// Recovery may be undone while this is set: `una` when it began.
    undo_marker: Option<u64>,
    /// Bytes of the stream retransmitted since then and not reported as duplicates.
    undo_retrans: i64,
    /// Timestamp of the first retransmission.
    retrans_stamp: Option<u32>,
    frto: bool,
    /// F-RTO: new data was sent after the first acknowledgment; `nxt` before.
    frto_high: Option<u64>,
    /// `nxt` when a tail loss probe was sent, and whether it was a retransmission.
    pub tail_probe: Option<(u64, bool)>,
    pub tail_probe_sent: bool,
    pub last_rate: LastRate,
    /// The timestamp that the peer echoed last.
    echo: u32,
}

/// What is told of the last delivery-rate sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastRate {
    pub delivered: u64,
    pub interval: u64,
    pub is_app_limited: bool,
}

/// What one acknowledgment changed.
#[derive(Clone, Copy, Debug, Default)]
struct Acked {
    advanced: bool,
    sample: RateSample,
    /// Round-trip time of a segment that was sent once.
    rtt: Option<u64>,
    /// A segment that was sent once was delivered.
    original: bool,
    dsack: bool,
    ece: bool,
    duplicate: bool,
}

impl Connection {
    /// The acknowledgment field and SACK blocks of a segment. `false`: the segment is not processed further.
    pub(super) fn acknowledged(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) -> bool {
        let ack = self.offset(segment.ack);
        if ack > self.nxt || ack + self.max_wnd.max(1) < self.una {
            // RFC 5961, 5.2.
            self.challenge(cx);
            return false;
        }
        self.hold.more_follows = false;
        self.counts.last_ack_received = cx.now;
        let mut acked = Acked::default();
        acked.sample.prior_in_flight = self.in_flight();
        acked.ece = self.ecn.ok && segment.flags.has(Flags::ECE) && !segment.flags.has(Flags::SYN);
        let grew = self.update_send_window(segment, ack);
        let lost_before = self.rate.lost;
        self.recovery.echo = segment.options.timestamps.map_or(0, |(_, ecr)| ecr);
        if self.sack_ok {
            self.process_sack(cx, segment, ack, &mut acked);
        }
        if ack > self.una {
            self.advance(cx, ack, &mut acked);
        }
        if self.scoreboard.is_empty() && !acked.advanced && acked.sample.acked_sacked == 0 {
            // Nothing was outstanding.
            self.finish_tail_probe(cx, ack, &acked);
            return true;
        }
        let outstanding = self.una < self.nxt;
        acked.duplicate = !acked.advanced && segment.payload.is_empty() && !grew && outstanding;
        self.sample_rtt(cx, segment, &acked);
        // What a SYN-ACK does not acknowledge is sent again anyway, and need not be lost: the server may ignore it, or
        // the path be too narrow.
        if !segment.flags.has(Flags::SYN) {
            self.detect_loss(cx);
        }
        self.react(cx, &mut acked);
        acked.sample.losses = self.rate.lost - lost_before;
        self.finish_tail_probe(cx, ack, &acked);
        self.control_congestion(cx, &mut acked);
        self.set_timers(cx, &acked);
        self.trace(cx.now);
        true
    }

    /// RFC 9293, 3.10.7.4: the window of the newest segment counts, and as in Linux that of one whose acknowledgment is
    /// newer, though its bytes are sent again: otherwise the old window would begin at the new acknowledgment, and more
    /// would be sent than the peer has room for. Whether it changed.
    fn update_send_window(&mut self, segment: &Segment<'_>, ack: u64) -> bool {
        let seq = self.peer_offset(segment.seq);
        let older = seq < self.wl1 || (seq == self.wl1 && ack < self.wl2);
        if ack < self.una || (ack == self.una && older) {
            return false;
        }
        let shift = if segment.flags.has(Flags::SYN) { 0 } else { self.snd_wscale };
        let wnd = u64::from(segment.window) << shift;
        let changed = wnd != self.snd_wnd;
        (self.snd_wnd, self.wl1, self.wl2) = (wnd, seq, ack);
        self.max_wnd = self.max_wnd.max(wnd);
        // An answer, whether the window is open or not: the peer is alive.
        self.timers.probes = 0;
        if self.una == self.nxt {
            // With a user timeout, bytes must not wait for a closed window forever (RFC 5482).
            if wnd > 0 || self.sending.end() <= self.nxt {
                self.timers.unanswered_since = None;
            }
            if wnd > 0 && matches!(self.timers.retransmit, Some((Kind::Window, _))) {
                self.timers.retransmit = None;
                self.rtt.backoff = 0;
            }
        }
        changed
    }

    /// A segment that was sent once was delivered after later ones: how far apart they are, as Linux counts it.
    fn note_reordering(&mut self) {
        let bytes_end = self.sending.end();
        let Recovery { state, undo_marker, rack, .. } = &mut self.recovery;
        let lowest = core::mem::take(&mut rack.lowest);
        // After a timeout everything is lost, so nothing can be told from the order.
        if lowest > 0 && (*state != CaState::Loss || undo_marker.is_some()) {
            let bytes = rack.fack.min(bytes_end).saturating_sub(lowest);
            let distance = bytes.div_ceil(self.mss).min(MAX_REORDERING);
            self.counts.reordering = self.counts.reordering.max(distance);
            self.counts.reord_seen += 1;
        }
    }

    fn process_sack(&mut self, cx: &Context<'_>, segment: &Segment<'_>, ack: u64, acked: &mut Acked) {
        let blocks = &segment.options.sack;
        let offsets = |&(start, end): &(u32, u32)| (self.offset(start), self.offset(end));
        let list: arrayvec::ArrayVec<(u64, u64), 4> = blocks.iter().map(offsets).collect();
        for (number, &(start, end)) in list.iter().enumerate() {
            // RFC 2883, 4: a first block below the acknowledgment, or within the second, reports a duplicate.
            let inside = list.get(1).is_some_and(|second| start >= second.0 && end <= second.1);
            // Some receivers report the bytes of a segment without its FIN.
            let before_fin = end == self.sending.end() && end < self.nxt;
            if number == 0 && start < end && (end <= ack || (start < ack && !inside) || inside) {
                acked.dsack = true;
                self.note_dsack(self.stream_bytes(start, end));
                continue;
            }
            // Attack: blocks outside what is outstanding, or with exchanged ends.
            if start >= end || start < self.una || end > self.nxt {
                continue;
            }
            let Connection { scoreboard, rate, recovery, .. } = self;
            if before_fin {
                scoreboard.split(end);
            }
            scoreboard.sack(start, end, self.mss, |record| {
                deliver(recovery, rate, cx, &record, acked);
            });
        }
        self.note_reordering();
    }

    /// How many bytes of the stream are between two offsets, without SYN and FIN: some receivers report a segment that
    /// arrived twice with its FIN, others without.
    pub(super) fn stream_bytes(&self, start: u64, end: u64) -> u64 {
        end.min(self.sending.end()).saturating_sub(start.max(1))
    }

    fn note_dsack(&mut self, bytes: u64) {
        self.recovery.undo_retrans -= bytes as i64;
        // RFC 8985, 6.2.2: a duplicate means that the window was too short.
        let rack = &mut self.recovery.rack;
        rack.steps = (rack.steps.max(1) + 1).min(64);
        rack.persist = 16;
    }

    /// The cumulative acknowledgment moves forward.
    fn advance(&mut self, cx: &mut Context<'_>, ack: u64, acked: &mut Acked) {
        let Connection { scoreboard, rate, recovery, .. } = self;
        scoreboard.acknowledge(ack, |record| {
            if record.fate != Fate::Sacked {
                deliver(recovery, rate, cx, &record, acked);
            }
        });
        self.note_reordering();
        self.counts.bytes_acked += ack - self.una;
        acked.advanced = true;
        self.una = ack;
        self.mtu_acknowledged();
        self.sending.acknowledge(ack);
        self.rtt.backoff = 0;
        if self.counts.rto_since > 0 {
            self.counts.rto_time += cx.now.saturating_sub(self.counts.rto_since);
            self.counts.rto_since = 0;
        }
        self.timers.unanswered_since = None;
        if self.send_room() >= self.sndbuf / 3 {
            self.ready.writable = true;
            self.limits.wants_room = false;
        }
    }

    fn sample_rtt(&mut self, cx: &Context<'_>, segment: &Segment<'_>, acked: &Acked) {
        let mut rtt = acked.rtt;
        // A retransmitted segment can be timed by its timestamp (RFC 7323, 4.1).
        if let (None, true, Some((_, ecr))) = (rtt, acked.advanced && self.ts_ok, segment.options.timestamps)
        {
            let age = self.timestamp(cx.now).wrapping_sub(ecr);
            let measured = u64::from(age).max(1) * MS;
            let spans = cx.now.saturating_sub(measured) < cx.standstill.end;
            rtt = (ecr != 0 && age < 1 << 20 && !spans).then_some(measured);
        }
        if let Some(rtt) = rtt {
            self.rtt.sample(cx.now, rtt, cx.settings.tcp_rto_min);
        }
    }

    /// RACK (RFC 8985, 6.2): a segment is lost if one sent sufficiently later was delivered.
    fn detect_loss(&mut self, cx: &Context<'_>) {
        if !self.sack_ok {
            return;
        }
        let reordering_time = self.recovery.rack.rtt + self.reordering_window();
        let newest = (self.recovery.rack.sent_at, self.recovery.rack.end);
        // Attack: with a long reordering window, a peer that leaves holes would have all of them looked at for each
        // acknowledgment. Only those that are lost now are, once, and the last one.
        while let Some(first) = self.scoreboard.oldest()
            && (first.stamp.sent_at, first.end) < newest
            && first.stamp.sent_at + reordering_time <= cx.now
        {
            self.scoreboard.mark(first.start, Fate::Lost);
            self.rate.lost += first.len();
        }
        if let Some(last) = self.scoreboard.newest_before(newest) {
            self.timers.retransmit = Some((Kind::Reordering, last.stamp.sent_at + reordering_time));
        }
    }

    fn reordering_window(&self) -> u64 {
        let rack = &self.recovery.rack;
        let many = self.scoreboard.sacked_bytes >= DUP_THRESH * self.mss;
        if !rack.reordering_seen && (self.recovery.state >= CaState::Recovery || many) {
            return 0;
        }
        let min = self.rtt.min().unwrap_or(self.rtt.srtt);
        (min / 4 * rack.steps.max(1)).min(self.rtt.srtt)
    }

    pub(super) fn reordering_ends(&mut self, cx: &mut Context<'_>) {
        self.detect_loss(cx);
        let reduced = self.recovery.state >= CaState::Recovery;
        if self.scoreboard.lost_bytes > 0 && !reduced && !self.is_only_probe_lost() {
            self.enter_recovery(cx);
            if !self.control.controls_cwnd() {
                // RFC 6937, 3: no acknowledgment says that more has left the network.
                self.update_window();
                self.recovery.prr_delivered += self.mss;
                self.window.cwnd = self.window.in_flight + self.mss;
            }
        }
        if self.timers.retransmit.is_none() {
            self.arm_retransmission(cx.now);
        }
    }

    /// Changes the state of recovery.
    fn react(&mut self, cx: &mut Context<'_>, acked: &mut Acked) {
        if !self.sack_ok {
            self.count_duplicates(acked);
        }
        if acked.ece {
            self.recovery.undo_marker = None;
        }
        if self.recovery.state >= CaState::Cwr && self.una >= self.recovery.high_seq {
            self.leave_reduction(cx, acked);
        }
        match self.recovery.state {
            CaState::Recovery => {
                // While retransmissions are in flight, an old echo may be that of one before them.
                let settled = acked.advanced && self.scoreboard.retransmitted == 0;
                if self.may_undo(acked) && (acked.dsack || settled) {
                    self.undo(cx, true);
                    self.set_ca_state(cx.now, CaState::Open);
                } else if acked.advanced && !self.sack_ok {
                    self.lose_first();
                }
            }
            CaState::Loss => self.process_loss(cx, acked),
            CaState::Open | CaState::Disorder | CaState::Cwr => {
                if acked.dsack && self.recovery.state == CaState::Disorder && self.may_undo(acked) {
                    self.undo(cx, true);
                }
                if self.scoreboard.lost_bytes > 0 && !self.is_only_probe_lost() {
                    self.enter_recovery(cx);
                } else if self.recovery.state != CaState::Cwr {
                    let disorder = self.scoreboard.sacked_bytes > 0
                        || self.scoreboard.retransmitted > 0
                        || self.recovery.dup_bytes > 0;
                    self.set_ca_state(cx.now, if disorder { CaState::Disorder } else { CaState::Open });
                }
            }
        }
        if acked.ece && self.recovery.state < CaState::Cwr {
            self.reduce(cx, CaState::Cwr);
            self.ecn.queue_cwr = true;
        }
    }

    /// NewReno's duplicate acknowledgments (RFC 6582), for peers without SACK. Each stands for a segment that left the
    /// network, which is counted as delivered, and not again when it is acknowledged.
    fn count_duplicates(&mut self, acked: &mut Acked) {
        // Attack: more duplicates than segments after the missing one.
        let most = (self.nxt - self.una).saturating_sub(self.mss);
        if acked.advanced {
            // The segment that filled the hole was not counted.
            let again = self.recovery.dup_bytes.min(acked.sample.acked_sacked.saturating_sub(self.mss));
            acked.sample.acked_sacked -= again;
            self.rate.delivered -= again;
            self.recovery.dup_bytes = (self.recovery.dup_bytes - again).min(most);
            self.recovery.dupacks = 0;
        } else if acked.duplicate {
            let bytes = self.mss.min(most.saturating_sub(self.recovery.dup_bytes));
            acked.sample.acked_sacked += bytes;
            self.rate.delivered += bytes;
            self.recovery.dup_bytes += bytes;
            self.recovery.dupacks += 1;
            if self.recovery.dupacks == DUP_THRESH && self.recovery.state < CaState::Recovery {
                self.lose_first();
            }
        }
    }

    /// Marks the first segment lost.
    fn lose_first(&mut self) {
        let Some(first) = self.scoreboard.first().filter(|first| first.fate == Fate::InFlight) else {
            return;
        };
        if self.bytes_of(&first) > self.mss {
            self.scoreboard.split(first.start + self.mss);
        }
        let before = self.scoreboard.lost_bytes;
        self.scoreboard.mark(first.start, Fate::Lost);
        self.rate.lost += self.scoreboard.lost_bytes - before;
    }

    /// Everything up to `high_seq` was acknowledged.
    fn leave_reduction(&mut self, cx: &mut Context<'_>, acked: &Acked) {
        let state = self.recovery.state;
        if matches!(state, CaState::Loss | CaState::Recovery) && self.may_undo(acked) {
            self.undo(cx, true);
        } else if matches!(state, CaState::Cwr | CaState::Recovery) {
            if self.una == self.recovery.high_seq && state == CaState::Cwr && self.una < self.nxt {
                return;
            }
            if !self.control.controls_cwnd() {
                // RFC 6937, 3: at the end of recovery.
                self.window.cwnd = self.window.ssthresh;
            }
        }
        self.recovery.frto = false;
        (self.recovery.dupacks, self.recovery.dup_bytes) = (0, 0);
        let rack = &mut self.recovery.rack;
        rack.persist = rack.persist.saturating_sub(1);
        if rack.persist == 0 {
            rack.steps = 1;
        }
        self.set_ca_state(cx.now, CaState::Open);
        self.recovery.undo_marker = None;
        self.forget_retransmissions();
    }

    fn enter_recovery(&mut self, cx: &mut Context<'_>) {
        if self.recovery.state < CaState::Cwr {
            self.reduce(cx, CaState::Recovery);
        } else {
            self.recovery.high_seq = self.nxt;
            self.begin_undo();
            self.set_ca_state(cx.now, CaState::Recovery);
        }
        self.recovery.tail_probe = None;
    }

    /// Begins a reduction (RFC 6937, 3).
    fn reduce(&mut self, cx: &mut Context<'_>, state: CaState) {
        self.recovery.prior_ssthresh = self.window.ssthresh;
        self.begin_undo();
        self.update_window();
        self.window.prior_cwnd = self.window.cwnd;
        (self.recovery.prr_delivered, self.recovery.prr_out) = (0, 0);
        self.recovery.high_seq = self.nxt;
        self.window.ssthresh = self.control.ssthresh(cx.now, &self.window);
        self.set_ca_state(cx.now, state);
    }

    fn begin_undo(&mut self) {
        self.recovery.undo_marker = Some(self.una);
        let last = self.scoreboard.last().filter(|last| last.retransmitted && last.fate == Fate::InFlight);
        let fin = u64::from(last.is_some_and(|last| last.end > self.sending.end()));
        self.recovery.undo_retrans = (self.scoreboard.retransmitted - fin) as i64;
        self.forget_retransmissions();
    }

    /// Forgets when retransmissions began, unless some are in flight.
    fn forget_retransmissions(&mut self) {
        if self.scoreboard.retransmitted == 0 {
            self.recovery.retrans_stamp = None;
        }
    }

    /// After a timeout: slow start from one segment (RFC 5681, 3.1).
    pub(super) fn enter_loss(&mut self, cx: &mut Context<'_>) {
        let again = self.recovery.state == CaState::Loss && self.una < self.recovery.high_seq;
        if !again {
            self.recovery.prior_ssthresh = self.window.ssthresh;
            self.update_window();
            self.window.prior_cwnd = self.window.cwnd;
            self.window.ssthresh = self.control.ssthresh(cx.now, &self.window);
            self.begin_undo();
        }
        let reneged = self.scoreboard.first().is_some_and(|first| first.fate == Fate::Sacked);
        self.recovery.frto = cx.settings.tcp_frto && self.sack_ok && !again && !reneged;
        self.recovery.frto_high = None;
        self.rate.lost += self.scoreboard.lose_all(reneged);
        (self.recovery.dupacks, self.recovery.dup_bytes) = (0, 0);
        self.recovery.high_seq = self.nxt;
        self.recovery.tail_probe = None;
        self.recovery.tail_probe_sent = false;
        self.set_ca_state(cx.now, CaState::Loss);
        self.window.cwnd = self.mss;
        self.release_at = self.release_at.min(cx.now);
    }

    /// The segments in flight are too large for the path, so they are lost; this is not congestion (RFC 1191, 6.5).
    pub(super) fn resend_smaller(&mut self, now: u64) {
        self.rate.lost += self.scoreboard.lose_all(false);
        self.recovery.frto = false;
        self.recovery.undo_marker = None;
        self.recovery.high_seq = self.nxt;
        self.set_ca_state(now, CaState::Loss);
    }

    /// F-RTO with SACK (RFC 5682, 3.1).
    fn process_loss(&mut self, cx: &mut Context<'_>, acked: &mut Acked) {
        if acked.dsack && self.may_undo(acked) {
            self.undo(cx, true);
            return self.set_ca_state(cx.now, CaState::Open);
        }
        if !self.recovery.frto {
            return;
        }
        if acked.original {
            // Bytes that were sent once arrived after the timeout: it was spurious.
            self.undo(cx, true);
            self.recovery.frto = false;
            self.recovery.high_seq = self.una;
            return self.set_ca_state(cx.now, CaState::Open);
        }
        match self.recovery.frto_high {
            None if acked.advanced && self.nxt < self.end() => self.recovery.frto_high = Some(self.nxt),
            Some(high) if !acked.advanced || self.una > high => self.recovery.frto = false,
            None => self.recovery.frto = false,
            Some(_) => {}
        }
    }

    /// Whether F-RTO sends new data now, not retransmissions.
    pub(super) fn sends_new_data_first(&self) -> bool {
        self.recovery.frto && self.recovery.frto_high.is_some_and(|high| self.nxt < high + 2 * self.mss)
    }

    /// Whether every retransmission was unnecessary: all were reported as duplicates, or what is acknowledged
    /// was sent before the first of them (RFC 3522).
    fn may_undo(&self, acked: &Acked) -> bool {
        let recovery = &self.recovery;
        recovery.undo_marker.is_some()
            && recovery.retrans_stamp.is_some()
            && ((acked.dsack && recovery.undo_retrans <= 0) || self.is_echo_older())
    }

    fn is_echo_older(&self) -> bool {
        let Some(stamp) = self.recovery.retrans_stamp.filter(|_| self.ts_ok) else { return false };
        (self.recovery.echo.wrapping_sub(stamp) as i32) < 0
    }

    fn undo(&mut self, cx: &Context<'_>, found: bool) {
        self.window.cwnd = self.control.undo_cwnd(&self.window);
        self.window.ssthresh = self.window.ssthresh.max(self.recovery.prior_ssthresh);
        self.recovery.undo_marker = None;
        self.forget_retransmissions();
        if found {
            self.scoreboard.find_all();
        }
        self.release_at = self.release_at.min(cx.now);
    }

    /// RFC 8985, 7.4: a probe that repaired a loss counts as one.
    fn finish_tail_probe(&mut self, cx: &mut Context<'_>, ack: u64, acked: &Acked) {
        if acked.advanced || acked.sample.acked_sacked > 0 {
            self.recovery.tail_probe_sent = false;
        }
        let Some((high, retransmitted)) = self.recovery.tail_probe.filter(|&(high, _)| ack >= high) else {
            return;
        };
        if retransmitted && ack == high && acked.advanced && !acked.dsack {
            // The probe or what it repeats: the next acknowledgment tells.
            return;
        }
        self.recovery.tail_probe = None;
        let repaired = retransmitted && !acked.dsack && ack > high;
        if repaired && self.recovery.state < CaState::Cwr {
            self.reduce(cx, CaState::Cwr);
            self.recovery.high_seq = ack;
        }
    }

    /// Sets the window: the controller's, or PRR's during a reduction.
    fn control_congestion(&mut self, cx: &mut Context<'_>, acked: &mut Acked) {
        self.rate.finish(&mut acked.sample, self.rtt.min(), cx.standstill.end);
        if acked.ece {
            acked.sample.delivered_ce = acked.sample.acked_sacked;
            self.rate.delivered_ce += acked.sample.acked_sacked;
        }
        acked.sample.rtt = acked.rtt;
        if acked.sample.interval > 0 {
            let RateSample { delivered, interval, is_app_limited, .. } = acked.sample;
            self.recovery.last_rate = LastRate { delivered, interval, is_app_limited };
        }
        self.update_window();
        self.window.cwnd_limited =
            self.usage.full || (self.window.in_slow_start() && self.window.cwnd < 2 * self.usage.most);
        self.control.on_every_ack(cx.now, &mut self.window, &acked.sample, acked.ece);
        if self.control.controls_cwnd() {
            self.control.on_ack(cx.now, &mut self.window, &acked.sample);
        } else if matches!(self.recovery.state, CaState::Cwr | CaState::Recovery) {
            self.reduce_proportionally(acked);
        } else if acked.advanced || self.recovery.state == CaState::Disorder {
            let in_order = self.recovery.state != CaState::Disorder || self.recovery.rack.reordering_seen;
            if in_order && acked.sample.acked_sacked > 0 {
                self.control.on_ack(cx.now, &mut self.window, &acked.sample);
            }
        }
        if self.window.app_limited && self.rate.app_limited == 0 {
            self.rate.app_limited = (self.rate.delivered + self.window.in_flight).max(1);
        }
        self.update_pacing_rate(cx);
        // What is selectively acknowledged or lost stays in the buffer too.
        let factor = if self.control.controls_cwnd() { 3 } else { 2 };
        let wanted = factor * self.window.cwnd + self.mss;
        if self.options.so_sndbuf == 0 && cx.memory.supply() == Supply::Free {
            self.sndbuf = self.sndbuf.max((wanted as usize).min(cx.settings.tcp_wmem[2]));
        }
    }

    /// Proportional rate reduction (RFC 6937, 3.1), with its slow-start part only while acknowledgments move
    /// forward (RFC 6937bis).
    fn reduce_proportionally(&mut self, acked: &Acked) {
        let recovery = &mut self.recovery;
        recovery.prr_delivered += acked.sample.acked_sacked;
        let in_flight = self.window.in_flight;
        let (threshold, prior) = (self.window.ssthresh, self.window.prior_cwnd.max(1));
        let send = if in_flight > threshold {
            let target = (u128::from(recovery.prr_delivered) * u128::from(threshold)).div_ceil(prior.into());
            // Attack: a connection that came from another stack with a tiny window before its reduction.
            (target.min(LARGEST) as u64).saturating_sub(recovery.prr_out)
        } else {
            let mut send = recovery.prr_delivered.saturating_sub(recovery.prr_out);
            send = send.max(acked.sample.acked_sacked);
            if acked.advanced && acked.sample.losses == 0 {
                send += self.mss;
            }
            send.min(threshold - in_flight)
        };
        // The first retransmission is always sent.
        let least = if recovery.prr_out == 0 { self.mss } else { 0 };
        self.window.cwnd = in_flight + send.max(least);
    }

    /// Linux's rate for controllers that don't set one.
    fn update_pacing_rate(&mut self, cx: &Context<'_>) {
        if self.control.controls_cwnd() || self.rtt.srtt == 0 {
            return;
        }
        let slow_start = self.window.cwnd < self.window.ssthresh / 2;
        let ratio =
            if slow_start { cx.settings.tcp_pacing_ss_ratio } else { cx.settings.tcp_pacing_ca_ratio };
        let bytes = u128::from(self.window.cwnd.max(self.window.in_flight));
        let rate = bytes * u128::from(ratio) * 10_000_000 / u128::from(self.rtt.srtt);
        self.window.pacing_rate = (rate.min(u128::from(self.window.max_pacing_rate))) as u64;
    }

    fn set_timers(&mut self, cx: &Context<'_>, acked: &Acked) {
        if matches!(self.timers.retransmit, Some((Kind::Reordering, _))) && !self.scoreboard.is_empty() {
            return;
        }
        if self.state == State::Closed {
            return;
        }
        if acked.advanced || (self.sack_ok && acked.sample.acked_sacked > 0) {
            self.arm_probe(cx);
        }
    }

    /// A retransmission is sent, with so many bytes of the stream.
    pub(super) fn note_retransmission(&mut self, now: u64, payload: u64) {
        let stamp = self.timestamp(now);
        self.recovery.retrans_stamp.get_or_insert(stamp);
        self.recovery.undo_retrans += payload as i64;
        self.counts.retrans += payload.div_ceil(self.mss).max(1);
        self.counts.bytes_retrans += payload;
    }
}

/// Counts a record as delivered.
fn deliver(
    recovery: &mut Recovery,
    rate: &mut super::Rate,
    cx: &Context<'_>,
    record: &Record,
    acked: &mut Acked,
) {
    rate.delivered(cx.now, &record.stamp, record.len(), record.end, &mut acked.sample);
    // What was sent before a standstill may have been acknowledged at any time in it.
    let spans = record.stamp.sent_at < cx.standstill.end;
    let rtt = cx.now.saturating_sub(record.stamp.sent_at.max(cx.standstill.end));
    let rack = &mut recovery.rack;
    if !record.retransmitted {
        acked.original |= record.end <= recovery.high_seq;
        if !spans {
            acked.rtt = Some(acked.rtt.map_or(rtt, |least: u64| least.min(rtt)));
        }
        if record.end < rack.fack {
            rack.reordering_seen |= record.fate != Fate::Lost;
            rack.lowest = if rack.lowest == 0 { record.start } else { rack.lowest.min(record.start) };
        }
    } else if rtt < rack.rtt / 2 {
        // An acknowledgment of the original, not of its retransmission (RFC 8985, 6.2.1 step 2).
        return;
    }
    rack.fack = rack.fack.max(record.end);
    if (record.stamp.sent_at, record.end) > (rack.sent_at, rack.end) {
        (rack.sent_at, rack.end, rack.rtt) = (record.stamp.sent_at, record.end, rtt);
    }
}

fields!(Rack {
    sent_at: Bound::Past,
    end: STREAM,
    rtt: SPAN,
    fack: STREAM,
    lowest: STREAM,
    reordering_seen: Bound::Any,
    steps: Bound::Most(64),
    persist: Bound::Most(16),
});
fields!(Recovery {
    state: Bound::Any,
    high_seq: STREAM,
    dupacks: STREAM,
    dup_bytes: BYTES,
    rack: Bound::Any,
    prior_ssthresh: BYTES_OR_NONE,
    prr_delivered: Bound::Most(1 << 32),
    prr_out: STREAM,
    undo_marker: STREAM,
    undo_retrans: STREAM,
    retrans_stamp: Bound::Any,
    frto: Bound::Any,
    frto_high: STREAM,
    tail_probe: STREAM,
    tail_probe_sent: Bound::Any,
    last_rate: Bound::Any,
    echo: Bound::Any,
});
fields!(LastRate { delivered: STREAM, interval: Bound::Any, is_app_limited: Bound::Any });
