//! What to send, and when (RFC 9293, 3.8).

use super::buffer::SACK_BLOCKS;
use super::options::Options;
use super::scoreboard::{Fate, Record};
use super::timers::{Kind, Probe};
use super::{Connection, Context, FIRST, State, Usage};
use crate::congestion::State as CaState;
use crate::memory::Supply;
use crate::net::{Link, Outgoing};
use crate::settings::{MS, Pacing};
use ringway_wire::tcp::Flags;

/// Payload of the largest frame with pending segmentation: 64 KB less the largest headers.
const GSO_MAX: u64 = 65_535 - 40 - 60;
/// Segments of the largest frame (`GSO_MAX_SEGS`, and what `frame` accepts).
const GSO_SEGMENTS: u64 = 255;
/// The largest window without a scale, as in a SYN (RFC 7323, 2.2).
const LARGEST_UNSCALED: u64 = 65_535;
/// Frames of one connection in a row. Other connections come next, so that none waits long.
const QUANTUM: usize = 4;

/// How sending ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is nothing more to send now.
    Done,
    /// The connection has more to send; other connections come first.
    More,
    /// The interface had no room.
    Full,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Next {
    start: u64,
    end: u64,
    again: bool,
    /// Whether it is one large segment that tries the path.
    probe: bool,
}

impl Connection {
    /// Sends what may be sent now.
    pub(crate) fn transmit(&mut self, cx: &mut Context<'_>, link: &mut Link<'_>) -> Progress {
        let progress = self.send_all(cx, link);
        self.note_limit(cx.now);
        progress
    }

    fn send_all(&mut self, cx: &mut Context<'_>, link: &mut Link<'_>) -> Progress {
        if !self.send_probe(cx, link) {
            return Progress::Full;
        }
        match self.state {
            State::Closed => return Progress::Done,
            State::SynSent | State::SynReceived => {
                let progress = self.send_syn(cx, link);
                if progress == Progress::Full || !self.fast_open.is_accepted {
                    return progress;
                }
            }
            _ => {}
        }
        self.restart_window(cx);
        for _ in 0..QUANTUM {
            let Some(next) = self.next(cx) else {
                return if self.ack_now && !self.send_ack(cx, link) {
                    Progress::Full
                } else {
                    Progress::Done
                };
            };
            if !self.send_data(cx, link, next) {
                return Progress::Full;
            }
        }
        Progress::More
    }

    /// Whether [`Connection::transmit`] would send something. May set timers.
    pub(crate) fn wants_transmit(&mut self, cx: &Context<'_>) -> bool {
        let wants = self.has_something_to_send(cx);
        self.note_limit(cx.now);
        wants
    }

    fn has_something_to_send(&mut self, cx: &Context<'_>) -> bool {
        match self.state {
            State::Closed => false,
            State::SynSent | State::SynReceived if self.nxt == FIRST || self.timers.resend_syn => true,
            State::SynSent | State::SynReceived if !self.fast_open.is_accepted => false,
            _ => self.ack_now || self.timers.probe.is_some() || self.next(cx).is_some(),
        }
    }

    fn send_syn(&mut self, cx: &mut Context<'_>, link: &mut Link<'_>) -> Progress {
        let again = self.nxt > FIRST;
        if again && !self.timers.resend_syn {
            return Progress::Done;
        }
        let answers = self.state == State::SynReceived;
        let mut flags = if answers { Flags::SYN.with(Flags::ACK) } else { Flags::SYN };
        // RFC 3168, 6.1.1.1: retransmissions go without, since some hosts drop segments with these flags.
        if self.ecn.ok && !again {
            flags = flags.with(Flags::ECE).with(if answers { Flags(0) } else { Flags::CWR });
        }
        let options = self.syn_options(cx.now, answers, again);
        let window = self.rcv_adv.saturating_sub(self.rcv_nxt()).min(65535) as u16;
        let early = if answers || again { 0 } else { self.fast_open_payload(&options) };
        let early_data = self.sending.pieces(FIRST + 1, early as usize);
        let outgoing = Outgoing {
            seq: self.wire(FIRST),
            ack: if answers { self.peer_wire(self.rcv_nxt()) } else { 0 },
            flags,
            window,
            payload: &early_data,
            ..Outgoing::default()
        };
        let sent = link.tcp(&self.tuple, &outgoing, &options);
        drop(early_data);
        if !sent {
            return Progress::Full;
        }
        self.acknowledgment_sent(options.sack.len());
        self.timers.resend_syn = false;
        let stamp = self.rate.stamp(cx.now, 1, true);
        if again {
            self.scoreboard.resent(FIRST, FIRST + 1, stamp);
            self.counts.retrans += 1;
        } else {
            self.timers.opened = self.timestamp(cx.now);
            self.scoreboard.sent(FIRST, FIRST + 1, stamp);
            if early > 0 {
                self.fast_open.syn_data_end = FIRST + 1 + early;
                self.scoreboard.sent(FIRST + 1, FIRST + 1 + early, stamp);
                self.counts.bytes_sent += early;
            }
            self.nxt = FIRST + 1 + early;
        }
        if self.timers.retransmit.is_none() {
            self.arm_retransmission(cx.now);
        }
        Progress::Done
    }

    /// The options of a SYN; those of a SYN-ACK only if the peer's had them.
    fn syn_options(&self, now: u64, answers: bool, again: bool) -> Options {
        let echo = if answers { self.ts_recent } else { 0 };
        Options {
            mss: Some(self.path_mss.min(65535) as u16),
            window_scale: self.wscale_ok.then_some(self.rcv_wscale),
            sack_permitted: self.sack_ok,
            timestamps: self.ts_ok.then(|| (self.timestamp(now), echo)),
            // RFC 7413, 4.1.3.1: not on retransmissions, since some networks drop it.
            fast_open: self.fast_open.cookie.clone().filter(|_| !again),
            fast_open_experimental: self.fast_open.is_experimental,
            ..Options::default()
        }
    }

    /// The SYN-ACK of a listener that stores nothing (RFC 4987, 3.6).
    pub(crate) fn send_cookie(&mut self, cx: &mut Context<'_>, link: &mut Link<'_>) {
        // Without room it is lost, as it might be on the way.
        let _ = self.send_syn(cx, link);
    }

    fn options_of(&mut self, now: u64) -> Options {
        let mut options = Options::default();
        if self.ts_ok {
            options.timestamps = Some((self.timestamp(now), self.ts_recent));
        }
        if self.sack_ok {
            let most = if self.ts_ok { 3 } else { SACK_BLOCKS };
            let room = most - usize::from(self.dsack.is_some());
            // A FIN behind a hole is a part of what was received (RFC 2018, 3).
            let fin = self.fin.filter(|fin| *fin > self.receiving.next());
            let alone = fin.filter(|fin| self.receiving.last_end() != Some(*fin)).map(|fin| (fin, fin));
            let blocks = self.receiving.blocks(room).chain(alone).take(room);
            let with_fin = |(start, end): (u64, u64)| (start, end + u64::from(fin == Some(end)));
            let wire = |(start, end): (u64, u64)| (self.peer_wire(start), self.peer_wire(end));
            options.sack = self.dsack.into_iter().chain(blocks.map(with_fin)).map(wire).collect();
        }
        options
    }

    /// How many bytes the buffer may hold, unread ones included: its size, or what its memory has room for if there is
    /// no more.
    fn window_size(&self, cx: &Context<'_>) -> u64 {
        let size = match cx.memory.supply() {
            Supply::Full => self.rcvbuf.min(self.receiving.capacity(cx.settings.tcp_rmem[0])),
            Supply::Free | Supply::Pressure => self.rcvbuf,
        };
        size as u64
    }

    /// The furthest right edge that the buffer permits, or its memory if there is no more.
    pub(super) fn right_edge(&self, cx: &Context<'_>) -> u64 {
        let unread = self.receiving.readable() as u64;
        // As in a SYN, until the handshake is complete.
        let most = if self.is_synchronized() { u64::MAX } else { LARGEST_UNSCALED };
        self.receiving.next() + self.window_size(cx).saturating_sub(unread).min(most)
    }

    /// Whether no window was announced but that of a SYN, and more than half of what a SYN can announce is left:
    /// the next acknowledgment announces more, early enough.
    pub(super) fn has_first_window(&self) -> bool {
        let left = self.rcv_adv.saturating_sub(self.rcv_nxt());
        self.rcv_adv <= FIRST + 1 + LARGEST_UNSCALED && 2 * left > LARGEST_UNSCALED
    }

    /// By how much a window grows at least: by no more than half of the largest one, else it would never open again.
    pub(super) fn window_step(&self, cx: &Context<'_>) -> u64 {
        self.rcv_mss.min(self.window_size(cx) / 2).max(1)
    }

    /// The window to announce. It never shrinks, and grows by whole segments (RFC 9293, 3.8.6.2.2).
    fn take_window(&mut self, cx: &Context<'_>) -> u16 {
        let (edge, nxt) = (self.right_edge(cx), self.rcv_nxt());
        let step = self.window_step(cx);
        if edge >= self.rcv_adv + step
            || (edge > self.rcv_adv && self.rcv_adv - nxt.min(self.rcv_adv) >= step)
        {
            self.rcv_adv = edge;
        }
        let wanted = self.rcv_adv.saturating_sub(nxt);
        // Rounded up: rounding down would take back what was announced.
        let scaled = wanted.div_ceil(1 << self.rcv_wscale).min(65535);
        self.rcv_adv = self.rcv_adv.max(nxt + (scaled << self.rcv_wscale));
        scaled as u16
    }

    /// A header with the current acknowledgment.
    fn outgoing(&mut self, cx: &Context<'_>, seq: u64, flags: Flags) -> Outgoing<'static> {
        let echo = self.ecn.demand_cwr && self.ecn.ok;
        Outgoing {
            seq: self.wire(seq),
            ack: self.peer_wire(self.rcv_nxt()),
            flags: flags.with(Flags::ACK).with(if echo { Flags::ECE } else { Flags(0) }),
            window: self.take_window(cx),
            ..Outgoing::default()
        }
    }

    /// A segment was sent that reports so many SACK blocks.
    fn acknowledgment_sent(&mut self, blocks: usize) {
        self.counts.segs_out += 1;
        let ranges = blocks.saturating_sub(usize::from(self.dsack.is_some()));
        self.receiving.blocks_sent(if self.sack_ok { ranges } else { usize::MAX });
        self.ack_now = self.receiving.has_unreported();
        self.dsack = None;
        self.timers.delayed_ack = None;
        self.timers.early_ack = None;
        self.last_ack_sent = self.rcv_nxt();
    }

    /// Sends an acknowledgment without data, or several if there is much to report. `false`: there was no room.
    fn send_ack(&mut self, cx: &mut Context<'_>, link: &mut Link<'_>) -> bool {
        let options = self.options_of(cx.now);
        if let Some((ack, echo)) = self.timers.early_ack.take() {
            let mut early = self.outgoing(cx, self.nxt, Flags::ACK);
            let flags = if echo { early.flags.with(Flags::ECE) } else { early.flags.without(Flags::ECE) };
            (early.ack, early.flags) = (self.peer_wire(ack), flags);
            if ack > self.last_ack_sent && !link.tcp(&self.tuple, &early, &options) {
                return false;
            }
        }
        loop {
            let options = self.options_of(cx.now);
            let outgoing = self.outgoing(cx, self.nxt, Flags::ACK);
            if !link.tcp(&self.tuple, &outgoing, &options) {
                return false;
            }
            self.acknowledgment_sent(options.sack.len());
            if !self.ack_now || options.sack.is_empty() {
                return true;
            }
        }
    }

    /// Probes that timers asked for. `false`: there was no room.
    fn send_probe(&mut self, cx: &mut Context<'_>, link: &mut Link<'_>) -> bool {
        match self.timers.probe {
            None => return true,
            Some(Probe::Alive) => {
                // A sequence number that was acknowledged: the peer must answer (RFC 9293, 3.8.4).
                let options = self.options_of(cx.now);
                let outgoing = self.outgoing(cx, self.una - 1, Flags::ACK);
                if !link.tcp(&self.tuple, &outgoing, &options) {
                    return false;
                }
                self.counts.segs_out += 1;
            }
            Some(Probe::Tail) => {
                if !self.send_tail_probe(cx, link) {
                    return false;
                }
            }
        }
        self.timers.probe = None;
        true
    }

    /// RFC 8985, 7.3: new data if there is some, else the last segment again.
    fn send_tail_probe(&mut self, cx: &mut Context<'_>, link: &mut Link<'_>) -> bool {
        let before = self.nxt;
        let edge = self.una + self.snd_wnd;
        let fresh = self.sending.record_end(self.nxt).min(edge).min(self.nxt + self.mss);
        let next = if fresh > self.nxt {
            Next { start: self.nxt, end: fresh, again: false, probe: false }
        } else {
            let Some(last) = self.scoreboard.last().filter(|last| last.fate == Fate::InFlight) else {
                // The last segment was received, and something before it was not: the timeout is left.
                self.arm_retransmission(cx.now);
                return true;
            };
            // The last segment is what is left after full ones.
            let before = self.bytes_of(&last).saturating_sub(1) / self.mss * self.mss;
            self.scoreboard.split(last.start + before);
            Next { start: last.start + before, end: last.end, again: true, probe: false }
        };
        if !self.send_data(cx, link, next) {
            return false;
        }
        self.recovery.tail_probe = Some((if next.again { before } else { self.nxt }, next.again));
        self.arm_retransmission(cx.now);
        true
    }

    /// Bytes of a frame with pending segmentation: about a millisecond at the pacing rate (Linux's
    /// `tcp_tso_autosize`), more on short paths.
    pub(super) fn tso_goal(&self) -> u64 {
        if !self.gso {
            return self.mss;
        }
        let mut bytes = self.window.pacing_rate >> 10;
        if let Some(rtt) = self.rtt.min() {
            let shift = (rtt / 1000) >> 9;
            bytes = bytes.saturating_add(if shift < 32 { GSO_MAX >> shift } else { 0 });
        }
        let least = self.control.min_tso_segs(&self.window).unwrap_or(self.min_tso_segs.into()) * self.mss;
        let most = (GSO_MAX / self.mss).min(GSO_SEGMENTS) * self.mss;
        (bytes / self.mss * self.mss).max(least).min(most)
    }

    fn is_paced(&self, cx: &Context<'_>) -> bool {
        match cx.settings.pacing {
            Pacing::Required => self.control.controls_cwnd() || self.options.so_max_pacing_rate != u64::MAX,
            Pacing::Always => true,
            Pacing::Never => false,
        }
    }

    /// The next bytes to send, if any may be sent now.
    fn next(&mut self, cx: &Context<'_>) -> Option<Next> {
        if !(self.is_synchronized() || self.fast_open.is_accepted) || self.state == State::TimeWait {
            return None;
        }
        self.limits.window_full = false;
        let lost = self.scoreboard.first_lost().filter(|_| !self.sends_new_data_first());
        // A SYN-ACK that is not acknowledged yet is no part of the window, and a FIN has no byte.
        let controls = u64::from(self.una == FIRST) + u64::from(self.nxt > self.sending.end());
        let in_flight = self.in_flight().saturating_sub(controls);
        let quota = self.window.cwnd.saturating_sub(in_flight);
        let goal = self.tso_goal();
        let next = match lost {
            Some(lost) => {
                // Without SACK, a partial acknowledgment always repeats the first segment (RFC 6582, 3.2).
                let partial = !self.sack_ok && lost.start == self.una;
                if quota < self.mss.min(self.bytes_of(&lost).max(1)) && in_flight > 0 && !partial {
                    self.hold.is_held = false;
                    return None;
                }
                self.resend(&lost, ((quota / self.mss).max(1) * self.mss).min(goal))
            }
            None => match self.next_new(cx, quota, goal) {
                Some(next) => next,
                None => {
                    self.hold.is_held = false;
                    return None;
                }
            },
        };
        if self.is_paced(cx) && self.release_at > cx.now && self.counts.data_segs_out >= 10 {
            self.timers.release = Some(self.release_at);
            self.hold.is_held = true;
            return None;
        }
        self.timers.release = None;
        Some(next)
    }

    /// The bytes of a record, without a FIN: that has a sequence number, but no place in a segment.
    pub(super) fn bytes_of(&self, record: &Record) -> u64 {
        record.end.min(self.sending.end()).saturating_sub(record.start)
    }

    /// The first bytes of a lost record again, at most `most`, and its FIN with the last one.
    fn resend(&self, lost: &Record, most: u64) -> Next {
        let bytes_end = lost.start + self.bytes_of(lost);
        let record = self.sending.next_record_end(lost.start).unwrap_or(u64::MAX);
        let end = bytes_end.min(lost.start + most).min(record);
        let end = if end == bytes_end { lost.end } else { end };
        Next { start: lost.start, end, again: true, probe: false }
    }

    /// New bytes: limited by the congestion window, the peer's window, and Nagle's algorithm.
    fn next_new(&mut self, cx: &Context<'_>, quota: u64, goal: u64) -> Option<Next> {
        let (end, edge) = (self.sending.end(), self.una.max(FIRST + 1) + self.snd_wnd);
        let left = self.sending.record_end(self.nxt).saturating_sub(self.nxt);
        if left == 0 {
            let fin = self.fin_queued && self.nxt == end;
            return fin.then_some(Next { start: end, end: end + 1, again: false, probe: false });
        }
        // Nagle's algorithm waits for further bytes only at the end.
        let follows = self.nxt + left < end;
        let idle = self.una == self.nxt;
        let usable = edge.saturating_sub(self.nxt);
        if usable == 0 {
            self.limits.window_full = true;
            if idle {
                self.arm_window_probe(cx.now);
            }
            return None;
        }
        if let Some(payload) = self.mtu_probe(cx, left, usable, quota) {
            return Some(Next { start: self.nxt, end: self.nxt + payload, again: false, probe: true });
        }
        if quota < left.min(usable).min(self.mss.max(goal)) {
            self.note_usage(true);
        }
        if quota < self.mss.min(left) && self.scoreboard.in_flight > 0 {
            return None;
        }
        // At least two frames in a window, as in Linux.
        let goal = goal.min(self.window.cwnd / 2).max(self.mss);
        let permitted = left.min(usable).min(goal).min(quota.max(self.mss));
        let full = permitted / self.mss * self.mss;
        if full > 0 {
            let rest = permitted - full;
            let last = rest > 0
                && permitted == left
                && rest + full <= goal
                && (follows || self.may_send_small(cx.now, idle));
            return Some(Next {
                start: self.nxt,
                end: self.nxt + if last { permitted } else { full },
                again: false,
                probe: false,
            });
        }
        let all = permitted == left;
        // RFC 9293, 3.8.6.2.1: part of what is left only if it fills half of the largest window, or after a time.
        let send = if all {
            follows || self.may_send_small(cx.now, idle)
        } else {
            permitted >= self.max_wnd / 2 || self.hold.uncorked
        };
        self.limits.window_full = !send && permitted == usable;
        if !send && !all && idle {
            self.arm_window_probe(cx.now);
        }
        send.then_some(Next { start: self.nxt, end: self.nxt + permitted, again: false, probe: false })
    }

    /// Nagle's algorithm (RFC 9293, 3.7.4), in Minshall's variant: only one segment in flight is not full. A cork,
    /// or `MSG_MORE`, holds back for one timeout at most while nothing is in flight.
    fn may_send_small(&mut self, now: u64, idle: bool) -> bool {
        if self.fin_queued || self.hold.uncorked {
            return true;
        }
        let corked = self.options.tcp_cork || self.hold.more_follows;
        if corked && idle && self.timers.cork.is_none() {
            self.timers.cork = Some(now + self.rtt.rto());
        }
        !corked && (self.options.tcp_nodelay || self.small_end <= self.una)
    }

    /// Sends bytes of the stream. `false`: there was no room.
    fn send_data(&mut self, cx: &mut Context<'_>, link: &mut Link<'_>, next: Next) -> bool {
        let Some(next) = self.within_pieces(next) else { return false };
        let bytes_end = next.end.min(self.sending.end());
        let payload_len = bytes_end.saturating_sub(next.start);
        let has_fin = self.fin_queued && (next.end > self.sending.end() || bytes_end == self.sending.end());
        let has_fin = has_fin && (next.again && next.end > self.sending.end() || !next.again);
        self.note_restart(cx, next.again);
        let cwr = !next.again && payload_len > 0 && self.ecn.queue_cwr;
        let mut flags = if has_fin { Flags::FIN } else { Flags(0) };
        if payload_len > 0 && self.is_pushed(bytes_end) {
            flags = flags.with(Flags::PSH);
        }
        let mut options = self.options_of(cx.now);
        let base = if self.ts_ok { 12 } else { 0 };
        let mss = if next.probe { payload_len } else { self.mss };
        if payload_len > mss && !next.again {
            // A receiver that joins segments passes them on at once, as Linux wants it.
            flags = flags.with(Flags::PSH);
        }
        if payload_len + options.emitted_len() as u64 > mss + base {
            // A full segment has no room for SACK blocks, so a segment of their own carries them.
            if self.ack_now && !options.sack.is_empty() && !self.send_ack(cx, link) {
                return false;
            }
            options.sack.clear();
        }
        let mut outgoing = self.outgoing(cx, next.start, flags);
        if cwr {
            outgoing.flags = outgoing.flags.with(Flags::CWR);
        }
        outgoing.mss = mss as usize;
        // RFC 3168, 6.1.5: not on retransmissions.
        outgoing.ect = self.ecn.ok && !next.again && payload_len > 0;
        let segments = payload_len.div_ceil(mss).max(1);
        let pieces = self.sending.pieces(next.start, payload_len as usize);
        let sent = link.tcp(&self.tuple, &Outgoing { payload: &pieces, ..outgoing }, &options);
        drop(pieces);
        if !sent {
            return false;
        }
        self.ecn.queue_cwr &= !cwr;
        (self.hold.uncorked, self.timers.cork) = (false, None);
        let end = next.end.max(next.start + payload_len + u64::from(has_fin));
        self.data_sent(cx, Next { end, ..next });
        self.acknowledgment_sent(options.sack.len());
        self.counts.segs_out += segments - 1;
        self.counts.data_segs_out += segments;
        self.counts.bytes_sent += payload_len;
        true
    }

    /// What to send, cut where a frame would have too many pieces; `None` if its bytes are gone.
    fn within_pieces(&mut self, next: Next) -> Option<Next> {
        let end = self.sending.end();
        if !self.sending.has_runs() || next.start >= end {
            return Some(next);
        }
        let wanted = next.end.min(end) - next.start;
        let pieces = self.sending.pieces(next.start, wanted as usize);
        let found = pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        drop(pieces);
        if found == 0 {
            self.sending.lose();
        }
        if self.sending.is_lost() {
            return None;
        }
        Some(if found < wanted { Next { end: next.start + found, ..next } } else { next })
    }

    /// Whether a program's bytes end at an offset, so that the peer's program should have them now.
    fn is_pushed(&self, end: u64) -> bool {
        let last = end == self.sending.end() && !self.hold.is_unfinished;
        last || end == self.fast_open.syn_data_end || self.sending.is_record_end(end)
    }

    /// Data follows after all was acknowledged: the controllers' event.
    fn note_restart(&mut self, cx: &Context<'_>, again: bool) {
        if again || self.una != self.nxt || self.last_sent_at == 0 {
            return;
        }
        self.update_window();
        let idle = cx.now.saturating_sub(self.last_sent_at);
        self.control.on_restart(cx.now, &mut self.window, idle);
    }

    /// RFC 5681, 4.1: before the size of the next frame is chosen.
    fn restart_window(&mut self, cx: &Context<'_>) {
        if self.una != self.nxt || self.sending.end() <= self.nxt || self.last_sent_at == 0 {
            return;
        }
        let idle = cx.now.saturating_sub(self.last_sent_at);
        if cx.settings.tcp_slow_start_after_idle && idle > self.rtt.rto() && !self.control.controls_cwnd() {
            let rounds = (idle / self.rtt.rto()).min(32);
            let restart = self.window.initial.min(self.window.cwnd);
            self.window.ssthresh = self.window.ssthresh.max(self.window.cwnd / 4 * 3);
            self.window.cwnd = (self.window.cwnd >> rounds).max(restart);
        }
    }

    fn data_sent(&mut self, cx: &mut Context<'_>, next: Next) {
        let bytes = next.end - next.start;
        let stamp = self.rate.stamp(cx.now, self.scoreboard.in_flight + bytes, self.scoreboard.is_empty());
        self.recovery.prr_out += bytes;
        if next.again {
            self.scoreboard.resent(next.start, next.end, stamp);
            self.note_retransmission(cx.now, self.stream_bytes(next.start, next.end));
            if !matches!(self.timers.retransmit, Some((Kind::Reordering, _))) {
                self.arm_retransmission(cx.now);
            }
        } else {
            self.scoreboard.sent(next.start, next.end, stamp);
            self.nxt = next.end;
            if next.probe {
                self.mtu_probe_sent(next.start, next.end);
            } else if !bytes.is_multiple_of(self.mss) {
                self.small_end = next.end;
            }
            if self.recovery.state <= CaState::Disorder {
                self.arm_probe(cx);
            } else if self.timers.retransmit.is_none() {
                self.arm_retransmission(cx.now);
            }
        }
        self.last_sent_at = cx.now;
        // Data that follows received data soon; or new data that carries the acknowledgment of the SYN-ACK.
        let answers = self.counts.bytes_received > 0 || (self.ack_now && !next.again);
        if answers && cx.now.saturating_sub(self.last_received_at) < self.delayed_ack_time() {
            self.is_interactive = true;
        }
        self.note_limits();
        self.pace(cx, bytes);
        if next.again {
            self.trace(cx.now);
        }
    }

    /// Whether the window or the application limits the rate.
    fn note_limits(&mut self) {
        let in_flight = self.in_flight();
        self.note_usage(in_flight + self.mss > self.window.cwnd);
        let unsent = self.sending.end().saturating_sub(self.nxt);
        if unsent < self.mss && in_flight < self.window.cwnd && self.scoreboard.lost_bytes == 0 {
            self.rate.app_limited = (self.rate.delivered + in_flight).max(1);
        }
    }

    /// How much of the window is used, at most in a round trip (RFC 2861; Linux's `tcp_cwnd_validate`).
    fn note_usage(&mut self, full: bool) {
        let in_flight = self.in_flight();
        let usage = &mut self.usage;
        if full || self.una >= usage.until || (!usage.full && in_flight > usage.most) {
            *usage = Usage { full, most: in_flight, until: self.nxt };
        }
    }

    /// When the next segment may be sent. A late start is made up for, at most by half of the frame's time, as in
    /// Linux. If the frame waited for its time and this thread looked late, as on a busy machine, it is made up for by
    /// a millisecond, whose bytes make a frame at most rates (see `tso_goal`), and an eighth of a round trip, at most:
    /// more would overflow queues that are small.
    fn pace(&mut self, cx: &Context<'_>, bytes: u64) {
        let rate = self.window.pacing_rate.min(self.options.so_max_pacing_rate);
        if !self.is_paced(cx) || rate == u64::MAX || rate == 0 {
            return;
        }
        let time = (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64;
        let missed = if self.hold.is_held { (self.rtt.min().unwrap_or(0) / 8).min(MS) } else { 0 };
        let late = cx.now.saturating_sub(self.release_at).min(missed.max(time / 2));
        self.release_at = (self.release_at.max(cx.now) + time - late).min(cx.now + 1000 * MS);
    }
}
