//! A segment arrives (RFC 9293, 3.10.7).

use super::options::Options;
use super::payload::Payload;
use super::{Connection, ConnectionError, Context, FIRST, State};
use crate::memory::Supply;
use crate::settings::{MS, SECOND};
use ringway_wire::tcp::Flags;

/// Time after which a timestamp is no longer compared (RFC 7323, 5.5).
const PAWS_LIMIT: u64 = 24 * 24 * 3600 * SECOND;

/// A received segment, its checksum verified.
#[derive(Clone, Debug)]
pub(crate) struct Segment<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub window: u16,
    pub options: Options,
    pub payload: Payload<'a>,
    /// Whether the packet has an ECN codepoint, and whether that is CE.
    pub ect: bool,
    pub ce: bool,
}

/// A reset to answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub seq: u32,
    /// The acknowledgment number, if the reset has one.
    pub ack: Option<u32>,
    /// The timestamps of a connection that has them (RFC 7323, 3.2).
    pub timestamps: Option<(u32, u32)>,
}

impl Segment<'_> {
    /// Its length in the sequence space.
    pub(crate) fn len(&self) -> u32 {
        let controls = u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN));
        self.payload.len() as u32 + controls
    }

    /// The reset that answers a segment without a connection (RFC 9293, 3.10.7.1).
    pub(crate) fn reset(&self) -> Option<Reset> {
        if self.flags.has(Flags::RST) {
            return None;
        }
        Some(if self.flags.has(Flags::ACK) {
            Reset { seq: self.ack, ack: None, timestamps: None }
        } else {
            Reset { seq: 0, ack: Some(self.seq.wrapping_add(self.len())), timestamps: None }
        })
    }
}

impl Connection {
    /// Processes a segment; returns the reset to answer with.
    pub(crate) fn segment(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) -> Option<Reset> {
        self.skip_standstill(cx);
        self.counts.segs_in += 1;
        self.counts.data_segs_in += u64::from(!segment.payload.is_empty());
        self.ecn.seen |= segment.ect;
        match self.state {
            State::Closed => return segment.reset(),
            State::SynSent => return self.segment_in_syn_sent(cx, segment),
            _ => {}
        }
        if self.is_answer_to_crossing(segment) {
            self.establish(cx, segment);
            self.acknowledged(cx, segment);
            self.ack_now = true;
            return None;
        }
        if !self.is_acceptable(cx, segment) {
            return None;
        }
        if segment.flags.has(Flags::RST) {
            self.reset(cx, segment);
            return None;
        }
        if segment.flags.has(Flags::SYN) {
            // RFC 5961, 4.2.
            self.challenge(cx);
            return None;
        }
        if !segment.flags.has(Flags::ACK) {
            return None;
        }
        if self.state == State::SynReceived {
            let ack = self.offset(segment.ack);
            if ack <= self.una || ack > self.nxt {
                return segment.reset();
            }
            self.establish(cx, segment);
        }
        if !self.acknowledged(cx, segment) {
            return None;
        }
        self.remember_timestamp(cx.now, segment);
        self.after_own_fin(cx);
        if self.is_unread(segment) {
            self.end_with(None);
            return segment.reset();
        }
        if self.state != State::Closed {
            self.receive(cx, segment);
        }
        self.rearm_keepalive(cx);
        None
    }

    /// Whether it has new bytes that no program will read, since the socket was closed (RFC 1122, 4.2.2.13).
    fn is_unread(&self, segment: &Segment<'_>) -> bool {
        let end = self.peer_offset(segment.seq) + segment.payload.len() as u64;
        let closed = !self.owned && matches!(self.state, State::FinWait1 | State::FinWait2);
        closed && !segment.payload.is_empty() && end > self.receiving.next()
    }

    /// Whether both SYNs crossed, and this is the peer's SYN-ACK (RFC 9293, 3.5, figure 8).
    fn is_answer_to_crossing(&self, segment: &Segment<'_>) -> bool {
        let ack = self.offset(segment.ack);
        self.state == State::SynReceived
            && self.listener.is_none()
            && segment.flags.has(Flags::SYN)
            && segment.flags.has(Flags::ACK)
            && !segment.flags.has(Flags::RST)
            && self.peer_offset(segment.seq) == FIRST
            && ack > self.una
            && ack <= self.nxt
    }

    fn segment_in_syn_sent(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) -> Option<Reset> {
        let acked = segment.flags.has(Flags::ACK);
        let ack = self.offset(segment.ack);
        if acked && (ack <= FIRST || ack > self.nxt) {
            return segment.reset();
        }
        if acked && self.echoes_wrong_time(cx.now, segment) {
            return segment.reset();
        }
        if segment.flags.has(Flags::RST) {
            if acked {
                self.end_with(Some(ConnectionError::Refused));
            }
            return None;
        }
        if !segment.flags.has(Flags::SYN) {
            return None;
        }
        self.negotiate(cx.now, segment.seq, &segment.options);
        self.ecn.ok &= segment.flags.has(Flags::ECE) && !(acked && segment.flags.has(Flags::CWR));
        if acked {
            self.establish(cx, segment);
            self.acknowledged(cx, segment);
            self.fast_open_answered(segment);
            self.ack_now = true;
        } else {
            // A simultaneous open (RFC 9293, 3.5): the SYN is sent again, with an acknowledgment.
            self.state = State::SynReceived;
            self.scoreboard.clear();
            self.nxt = FIRST;
            self.snd_wnd = u64::from(segment.window);
        }
        self.receive(cx, segment);
        None
    }

    /// Whether a SYN-ACK echoes a timestamp that no SYN had, as Linux checks: it answers an older connection.
    fn echoes_wrong_time(&self, now: u64, segment: &Segment<'_>) -> bool {
        let echo = segment.options.timestamps.filter(|(_, ecr)| self.ts_ok && *ecr != 0);
        let Some((_, ecr)) = echo else { return false };
        let now = self.timestamp(now);
        now.wrapping_sub(ecr) > now.wrapping_sub(self.timers.opened)
    }

    /// The handshake is complete.
    fn establish(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        self.state = if self.fin_queued { State::FinWait1 } else { State::Established };
        let shift = if segment.flags.has(Flags::SYN) { 0 } else { self.snd_wscale };
        self.snd_wnd = u64::from(segment.window) << shift;
        (self.max_wnd, self.wl1) = (self.snd_wnd, self.peer_offset(segment.seq));
        (self.wl2, self.rcv_adv) = (self.una, self.rcv_adv.max(self.rcv_nxt()));
        if self.counts.retrans > 0 {
            self.rtt.set_fallback();
        }
        self.rtt.backoff = 0;
        self.timers.retransmit = None;
        self.last_received_at = cx.now;
        self.rearm_keepalive(cx);
        self.update_window();
        self.control.init(cx.now, &mut self.window);
        self.ready.writable = true;
    }

    /// Whether the segment is in the window and not an old duplicate (RFC 9293 3.10.7.4, RFC 7323 5.3). If
    /// not, it is answered with an acknowledgment.
    fn is_acceptable(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) -> bool {
        let start = self.peer_offset(segment.seq);
        let end = start + u64::from(segment.len());
        let nxt = self.rcv_nxt();
        let rst = segment.flags.has(Flags::RST);
        let old = self.fails_paws(cx.now, segment) && !rst;
        let room = self.rcv_adv.max(nxt) - nxt;
        let in_window = match (end > start, room > 0) {
            (false, false) => start == nxt,
            (false, true) => start >= nxt && start < nxt + room,
            (true, false) => false,
            (true, true) => start < nxt + room && end > nxt,
        };
        // A FIN that comes again in TIME-WAIT, and a reset at the window's edge, are handled as in the window.
        if !old && (in_window || (rst && start == nxt)) {
            return true;
        }
        if rst {
            return false;
        }
        if self.state == State::SynReceived && segment.flags.has(Flags::SYN) && start == FIRST {
            // The SYN-ACK was lost.
            self.timers.resend_syn = true;
            return false;
        }
        if end > start && end <= nxt {
            self.dsack = Some((start, end));
            (self.quick_acks, self.is_interactive) = (16, false);
        }
        // With a closed window, acknowledgments are still valid (RFC 9293, 3.10.7.4).
        if !old && room == 0 && start == nxt && segment.flags.has(Flags::ACK) && self.is_synchronized() {
            self.acknowledged(cx, segment);
        }
        if self.state == State::TimeWait && segment.flags.has(Flags::FIN) {
            self.timers.time_wait = Some(cx.now + cx.settings.tcp_fin_timeout);
        }
        self.ack_now |= end > start || start != nxt || room > 0;
        // Attack: old segments that are answered, by a peer that answers too, never end; see `Challenges`.
        self.ack_now &= cx.challenges.permit(cx.now, cx.settings.tcp_challenge_ack_limit);
        false
    }

    fn fails_paws(&self, now: u64, segment: &Segment<'_>) -> bool {
        let Some((val, _)) = segment.options.timestamps.filter(|_| self.ts_ok) else { return false };
        (val.wrapping_sub(self.ts_recent) as i32) < 0 && now - self.ts_recent_at < PAWS_LIMIT
    }

    /// Stores the timestamp to echo (RFC 7323, 4.3).
    fn remember_timestamp(&mut self, now: u64, segment: &Segment<'_>) {
        let Some((val, _)) = segment.options.timestamps.filter(|_| self.ts_ok) else { return };
        let start = self.peer_offset(segment.seq);
        if start <= self.last_ack_sent.max(FIRST) && (val.wrapping_sub(self.ts_recent) as i32) >= 0 {
            (self.ts_recent, self.ts_recent_at) = (val, now);
        }
    }

    /// A reset in the window: it counts only with the expected sequence number (RFC 5961, 3.2).
    fn reset(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        if self.peer_offset(segment.seq) != self.rcv_nxt() {
            return self.challenge(cx);
        }
        let error = match self.state {
            State::SynReceived if !self.fast_open.is_accepted => Some(ConnectionError::Refused),
            State::TimeWait | State::LastAck | State::Closing => None,
            _ => Some(ConnectionError::Reset),
        };
        self.end_with(error);
    }

    /// Acknowledges what was received, so that a real peer that lost its state can reset the connection.
    pub(super) fn challenge(&mut self, cx: &mut Context<'_>) {
        if cx.challenges.permit(cx.now, cx.settings.tcp_challenge_ack_limit) {
            self.ack_now = true;
        }
    }

    /// Changes of state once the own FIN is acknowledged.
    fn after_own_fin(&mut self, cx: &mut Context<'_>) {
        if !self.fin_queued || self.una < self.end() {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if !self.owned {
                    self.timers.time_wait = Some(cx.now + cx.settings.tcp_fin_timeout);
                }
            }
            State::Closing => self.wait(cx),
            State::LastAck => self.end_with(None),
            _ => {}
        }
    }

    /// Enters TIME-WAIT.
    fn wait(&mut self, cx: &mut Context<'_>) {
        self.state = State::TimeWait;
        self.timers.clear();
        self.timers.time_wait = Some(cx.now + cx.settings.tcp_fin_timeout);
    }

    /// The segment's bytes and its FIN.
    pub(super) fn receive(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        let syn = u64::from(segment.flags.has(Flags::SYN));
        let start = self.peer_offset(segment.seq) + syn;
        let end = start + segment.payload.len() as u64;
        let has_fin = segment.flags.has(Flags::FIN);
        if segment.payload.is_empty() && !has_fin {
            return;
        }
        // After its FIN a peer has nothing to send.
        if self.fin.is_some_and(|fin| end > fin) || self.is_past_reading() {
            self.ack_now = true;
            return;
        }
        self.note_congestion(cx, segment);
        self.measure_peer(cx.now, segment);
        let limit = self.rcv_adv.max(start);
        let kept = self.kept(cx, start, (limit - start).min(segment.payload.len() as u64));
        let before = self.receiving.next();
        let placed = self.receiving.place(start, segment.payload.cut(kept as usize));
        cx.memory.copied += placed.copied;
        if let Some(range) = placed.duplicate {
            self.dsack = Some(range);
            self.counts.dsack_dups += 1;
        }
        self.moderate_holes(cx, kept);
        self.last_received_at = cx.now;
        self.counts.bytes_received += placed.in_order;
        self.ready.readable |= placed.in_order > 0;
        let whole = kept == segment.payload.len() as u64;
        if has_fin && whole && self.fin.is_none() && end >= self.receiving.next() {
            self.fin = Some(end);
        }
        self.counts.rcv_ooopack = self.counts.rcv_ooopack.wrapping_add(u32::from(start > before && kept > 0));
        let in_order = start <= before && placed.duplicate.is_none() && !placed.filled;
        if !in_order || !whole || self.receiving.has_holes() {
            self.ack_now = true;
        }
        if self.fin == Some(self.receiving.next()) {
            return self.peer_is_done(cx);
        }
        self.schedule_ack(cx);
    }

    /// How many of `len` bytes from `start` on are stored: if there is no more memory, those that the buffer has some
    /// for. Attack: peers that fill the windows that were announced while there was memory.
    fn kept(&self, cx: &mut Context<'_>, start: u64, len: u64) -> u64 {
        if cx.memory.supply() != Supply::Full {
            return len;
        }
        let kept = len.min(self.receiving.edge(cx.settings.tcp_rmem[0]).saturating_sub(start));
        cx.memory.dropped += u64::from(kept < len);
        kept
    }

    /// Whether bytes can't reach the program any more.
    fn is_past_reading(&self) -> bool {
        matches!(self.state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait)
    }

    /// Every byte up to the FIN has arrived.
    fn peer_is_done(&mut self, cx: &mut Context<'_>) {
        (self.ack_now, self.ready.readable) = (true, true);
        match self.state {
            State::Established | State::SynReceived => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.wait(cx),
            _ => {}
        }
    }

    /// Acknowledges every second full segment at once, others after a delay (RFC 9293, 3.8.6.3).
    fn schedule_ack(&mut self, cx: &mut Context<'_>) {
        let unacked = self.rcv_nxt().saturating_sub(self.last_ack_sent);
        if self.ack_now {
            return;
        }
        if unacked >= 2 * self.rcv_mss || (self.quick_acks > 0 && !self.is_interactive) {
            self.quick_acks = self.quick_acks.saturating_sub(1);
            self.ack_now = true;
        } else if self.timers.delayed_ack.is_none() {
            self.timers.delayed_ack = Some(cx.now + self.delayed_ack_time());
        }
    }

    /// Linux's range, 40 to 200 ms; RFC 9293 permits up to 500 ms.
    pub(super) fn delayed_ack_time(&self) -> u64 {
        (self.rtt.srtt / 2).clamp(40 * MS, 200 * MS)
    }

    /// CE marks (RFC 3168, 6.1.3; RFC 8257, 3.2).
    fn note_congestion(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        if !self.ecn.ok {
            return;
        }
        if self.control.wants_ecn() {
            if segment.ce != self.ecn.last_ce {
                // What came before is acknowledged with the echo of its own marks.
                if self.timers.delayed_ack.is_some() || self.ack_now {
                    self.timers.early_ack = Some((self.rcv_nxt(), self.ecn.last_ce));
                }
                (self.ecn.last_ce, self.ack_now) = (segment.ce, true);
            }
            self.ecn.demand_cwr = segment.ce;
        } else {
            if segment.flags.has(Flags::CWR) {
                self.ecn.demand_cwr = false;
            }
            if segment.ce {
                self.ecn.demand_cwr = true;
                self.quick_acks = self.quick_acks.max(2);
            }
        }
        let _ = cx;
    }

    /// Estimates the peer's segment size and, from echoed timestamps, the receiver's round-trip time.
    fn measure_peer(&mut self, now: u64, segment: &Segment<'_>) {
        let len = segment.payload.len() as u64;
        let full = self.mss.max(DEFAULT_RCV_MSS);
        if len >= self.rcv_mss || self.rcv_mss > full {
            self.rcv_mss = len.clamp(DEFAULT_RCV_MSS, full);
        }
        let Some((_, ecr)) = segment.options.timestamps.filter(|_| self.ts_ok && len >= self.rcv_mss) else {
            return;
        };
        let age = u64::from(self.timestamp(now).wrapping_sub(ecr)).max(1) * MS;
        if age < 60 * SECOND {
            let old = self.tuning.rtt;
            self.tuning.rtt = if old == 0 { age } else { age.min((7 * old + age) / 8) };
        }
    }
}

/// Smallest estimate of the peer's segment size.
const DEFAULT_RCV_MSS: u64 = 536;
