//! One TCP connection (RFC 9293). Read this file first, then `input.rs` and `output.rs`.
//!
//! Positions in a stream are 64-bit offsets: [`FIRST`] is the SYN's, and they never wrap. Only `offset` and
//! `wire` convert them to sequence numbers.

pub(crate) mod buffer;
mod chunks;
mod fast_open;
mod info;
mod input;
mod limits;
mod mtu;
mod open;
pub(crate) mod options;
mod output;
pub(crate) mod payload;
pub(crate) mod rate;
mod recovery;
pub(crate) mod repair;
mod rtt;
mod scoreboard;
pub(crate) mod shared;
pub(crate) mod standstill;
mod timers;
mod tuning;

pub use info::TcpInfo;
pub(crate) use input::{Reset, Segment};
pub(crate) use open::Opening;
pub(crate) use output::Progress;

use crate::congestion::{Algorithm, Congestion, State as CaState, Window};
use crate::demux::Tuple;
use crate::memory::{Memory, Supply};
use crate::settings::{MS, SECOND, Settings, SocketOptions};
use crate::trace::Trace;
use alloc::boxed::Box;
use alloc::sync::Arc;
use buffer::{ReceiveBuffer, SendBuffer};
use core::ops::Range;
use fast_open::FastOpen;
use limits::Limits;
use mtu::MtuSearch;
use rate::Rate;
use recovery::Recovery;
use rtt::Rtt;
use scoreboard::Scoreboard;
use shared::Source;
use standstill::Standstill;
use timers::Timers;
use tuning::Tuning;

/// The offset of the SYN. Offsets before it, of segments from another time, stay positive.
pub(crate) const FIRST: u64 = 1 << 32;
/// The segment size if the peer announces none (RFC 9293, 3.7.1).
pub(crate) const DEFAULT_MSS: u16 = 536;
/// The smallest segment size. Attack: a peer that announces 1 multiplies the cost of its traffic (Linux's
/// `TCP_MIN_SND_MSS`).
pub(crate) const MIN_MSS: u64 = 48;

/// States of a connection (RFC 9293, 3.3.2). A listener is a socket of its own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The peer reset the connection attempt.
    #[error("connection refused")]
    Refused,
    /// The peer reset the connection.
    #[error("connection reset by peer")]
    Reset,
    /// The peer doesn't answer.
    #[error("connection timed out")]
    TimedOut,
    /// There is no route, or the next hop doesn't answer.
    #[error("no route to host")]
    Unreachable,
    /// Bytes that were to be sent without a copy are gone; see [`Source::is_lost`].
    #[error("the bytes to send are gone")]
    SourceLost,
    /// The interface went away, with what was sent over it; see [`crate::Stack::end_connections`].
    #[error("network is down")]
    NetworkDown,
}

/// What a call needs besides the connection.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub now: u64,
    pub settings: &'a Settings,
    pub challenges: &'a mut Challenges,
    pub memory: &'a mut Memory,
    pub standstill: Standstill,
}

/// The context of a call, of the fields of a stack; a method would borrow all of them.
macro_rules! context {
    ($stack:ident) => {
        $crate::connection::Context {
            now: $stack.now,
            settings: &$stack.settings,
            challenges: &mut $stack.challenges,
            memory: &mut $stack.memory,
            standstill: $stack.standstill,
        }
    };
}
pub(crate) use context;

/// Limits challenge ACKs (RFC 5961, 10). Attack: spoofed segments would make a host flood its peer.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    second: u64,
    sent: u32,
    /// Total, for statistics.
    pub total: u64,
}

impl Challenges {
    fn permit(&mut self, now: u64, limit: u32) -> bool {
        if self.second != now / SECOND {
            (self.second, self.sent) = (now / SECOND, 0);
        }
        self.sent += 1;
        self.total += u64::from(self.sent <= limit);
        self.sent <= limit
    }
}

/// What a program has not been told yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There are bytes to read, or the end of the stream was reached.
    pub readable: bool,
    /// There is room for bytes to send, or the connection is established.
    pub writable: bool,
    /// A listener has a connection to accept.
    pub acceptable: bool,
    /// The connection has ended; see [`crate::Stack::error`].
    pub closed: bool,
}

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ecn {
    pub ok: bool,
    /// As a receiver: a CE mark was seen, and the sender has not confirmed it by CWR.
    pub demand_cwr: bool,
    /// As a sender: the next new segment has CWR.
    pub queue_cwr: bool,
    /// Whether a packet said that its sender supports ECN.
    pub seen: bool,
    /// With a controller that needs every mark (RFC 8257, 3.2): whether the last segment was marked.
    pub last_ce: bool,
}

/// Bytes to send.
#[derive(Clone, Debug)]
pub(crate) enum Bytes<'a> {
    /// Bytes to copy.
    Copied(&'a [u8]),
    /// A range of the application's memory, which is referred to until it is acknowledged.
    Shared(&'a Arc<dyn Source>, Range<usize>),
}

impl Bytes<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Bytes::Copied(bytes) => bytes.len(),
            Bytes::Shared(_, range) => range.len(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub tuple: Tuple,
    pub interface: usize,
    pub state: State,
    pub options: SocketOptions,
    pub error: Option<ConnectionError>,
    /// What to tell the program.
    pub ready: Readiness,
    /// The listener that made it, until the program accepts it.
    pub listener: Option<u32>,
    /// Whether a program holds the socket.
    pub owned: bool,
    /// Whether the interface segments.
    pub gso: bool,

    iss: u32,
    una: u64,
    nxt: u64,
    snd_wnd: u64,
    /// Offsets of the segment that updated the window last.
    wl1: u64,
    wl2: u64,
    max_wnd: u64,
    snd_wscale: u8,
    /// Payload of a full segment.
    mss: u64,
    /// The segment size that the peer announced, and the path's, without TCP options.
    peer_mss: u64,
    path_mss: u64,
    mtu: MtuSearch,
    pub(crate) fast_open: FastOpen,
    sending: SendBuffer,
    sndbuf: usize,
    /// No more bytes are sent after those in the buffer.
    fin_queued: bool,
    hold: Hold,
    /// The end of the last segment sent that was not full (Minshall's variant of Nagle's algorithm).
    small_end: u64,
    scoreboard: Scoreboard,
    rate: Rate,
    rtt: Rtt,
    pub(crate) recovery: Recovery,
    window: Window,
    control: Box<dyn Congestion>,
    /// When the next segment may be sent.
    release_at: u64,
    /// When data was sent last.
    last_sent_at: u64,
    /// When data was received last.
    last_received_at: u64,
    usage: Usage,
    limits: Limits,

    irs: u32,
    receiving: ReceiveBuffer,
    rcvbuf: usize,
    /// The offset of the peer's FIN.
    fin: Option<u64>,
    /// The right edge of the announced window.
    rcv_adv: u64,
    rcv_wscale: u8,
    /// Estimate of the peer's segment size.
    rcv_mss: u64,
    last_ack_sent: u64,
    ts_recent: u32,
    ts_recent_at: u64,
    ts_offset: u32,
    ts_ok: bool,
    sack_ok: bool,
    wscale_ok: bool,
    ecn: Ecn,
    dsack: Option<(u64, u64)>,
    /// An acknowledgment must be sent now; so many more at once.
    ack_now: bool,
    quick_acks: u32,
    /// Sends soon after it receives, so that acknowledgments travel with data (Linux's `pingpong`).
    is_interactive: bool,
    /// `tcp_min_tso_segs`.
    min_tso_segs: u32,
    tuning: Tuning,

    timers: Timers,
    pub(crate) counts: Counts,
    pub(crate) trace: Option<Box<Trace>>,
}

/// What holds back bytes that could be sent.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    /// `tcp_cork` holds back nothing until the next segment.
    uncorked: bool,
    /// The last bytes came with `MSG_MORE`, and are held back like by `tcp_cork` until something happens.
    more_follows: bool,
    /// The last bytes came with `MSG_MORE`, so that the peer's program need not have them soon (PSH).
    is_unfinished: bool,
    /// Segments wait for their release, or did when the last one was sent.
    is_held: bool,
}

/// Use of the congestion window until an offset is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Whether it held back data.
    full: bool,
    /// Most bytes in flight.
    most: u64,
    until: u64,
}

/// Counters of a connection, for [`TcpInfo`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub segs_out: u64,
    pub segs_in: u64,
    pub data_segs_out: u64,
    pub data_segs_in: u64,
    pub rcv_ooopack: u32,
    /// When a segment with an acknowledgment arrived last.
    pub last_ack_received: u64,
    pub retrans: u64,
    pub timeouts: u64,
    /// How often the first timeout of a row happened, when the last one did (0: the row has ended), and the time of
    /// all.
    pub rto_recoveries: u32,
    pub rto_since: u64,
    pub rto_time: u64,
    pub dsack_dups: u64,
    /// The largest distance, in segments, at which segments were reordered; and how often they were.
    pub reordering: u64,
    pub reord_seen: u64,
    /// The buffers' memory when it was counted last.
    pub memory: usize,
    /// The state in which it ended, until that is counted.
    pub ended_in: Option<State>,
}

impl Connection {
    /// The sequence number of an offset of our stream.
    pub(crate) fn wire(&self, offset: u64) -> u32 {
        self.iss.wrapping_add(offset as u32)
    }

    /// The offset of our stream that a sequence number near `una` means.
    pub(crate) fn offset(&self, seq: u32) -> u64 {
        near(self.una, seq.wrapping_sub(self.wire(self.una)))
    }

    /// The sequence number of an offset of the peer's stream.
    fn peer_wire(&self, offset: u64) -> u32 {
        self.irs.wrapping_add(offset as u32)
    }

    fn peer_offset(&self, seq: u32) -> u64 {
        near(self.rcv_nxt(), seq.wrapping_sub(self.peer_wire(self.rcv_nxt())))
    }

    /// The offset that is expected next.
    pub(crate) fn rcv_nxt(&self) -> u64 {
        let next = self.receiving.next();
        next + u64::from(self.fin == Some(next))
    }

    /// The offset after everything that is to be sent, the FIN included.
    fn end(&self) -> u64 {
        self.sending.end() + u64::from(self.fin_queued)
    }

    /// Whether the handshake is complete.
    pub(crate) fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }

    /// When [`Connection::expire`] must be called.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.timers.next()
    }

    /// The timestamp to send.
    fn timestamp(&self, now: u64) -> u32 {
        ((now / MS) as u32).wrapping_add(self.ts_offset)
    }

    /// Bytes in flight. Without SACK, each duplicate acknowledgment stands for a segment that has left the
    /// network.
    fn in_flight(&self) -> u64 {
        self.scoreboard.in_flight.saturating_sub(self.recovery.dup_bytes)
    }

    /// The state as controllers see it.
    fn update_window(&mut self) {
        self.window.in_flight = self.in_flight();
        self.window.mss = self.mss;
        self.window.srtt = self.rtt.srtt;
        self.window.min_rtt = self.rtt.min();
        self.window.delivered = self.rate.delivered;
        self.window.lost = self.rate.lost;
        self.window.state = self.recovery.state;
        self.window.max_pacing_rate = self.options.so_max_pacing_rate;
        self.window.tso_goal = self.tso_goal();
        self.window.release_at = self.release_at;
        self.window.app_limited = self.rate.app_limited != 0;
    }

    /// Sets the state of loss recovery.
    fn set_ca_state(&mut self, now: u64, state: CaState) {
        if self.recovery.state != state {
            self.control.on_state(now, &mut self.window, state);
            self.recovery.state = state;
            self.window.state = state;
        }
    }

    /// Ends the connection.
    pub(crate) fn end_with(&mut self, error: Option<ConnectionError>) {
        self.counts.ended_in = (self.state != State::Closed).then_some(self.state).or(self.counts.ended_in);
        self.state = State::Closed;
        self.error = self.error.or(error);
        self.timers = Timers::default();
        self.scoreboard.clear();
        self.ready = Readiness { readable: true, writable: true, closed: true, ..self.ready };
    }

    /// Appends bytes to the stream; returns how many had room. `more`: others follow soon.
    pub(crate) fn send(&mut self, cx: &Context<'_>, bytes: &Bytes<'_>, more: bool) -> usize {
        if self.fin_queued || self.error.is_some() || self.state == State::Closed {
            return 0;
        }
        let lowat = self.lowat_room(cx.settings);
        let limit = self.send_limit(cx.settings, cx.memory.supply());
        (self.hold.more_follows, self.hold.is_unfinished) = (more, more);
        let sent = match bytes {
            Bytes::Copied(bytes) => self.sending.push(&bytes[..bytes.len().min(lowat)], limit),
            Bytes::Shared(source, range) => {
                let end = range.end.min(range.start.saturating_add(lowat)).min(source.len());
                self.sending.push_run(source, range.start..end, self.sndbuf)
            }
        };
        self.limits.wants_room = sent < bytes.len();
        sent
    }

    /// How many bytes `tcp_notsent_lowat` permits.
    fn lowat_room(&self, settings: &Settings) -> usize {
        let unsent = (self.sending.end() - self.nxt.min(self.sending.end())) as usize;
        let own = self.options.tcp_notsent_lowat;
        if own == 0 { settings.tcp_notsent_lowat } else { own }.saturating_sub(unsent)
    }

    /// Most bytes that the send buffer holds if others are added. Attack: peers that acknowledge nothing.
    fn send_limit(&self, settings: &Settings, supply: Supply) -> usize {
        match supply {
            // At least one byte: no event tells a program with an empty buffer that it may send again.
            Supply::Full => self.sndbuf.min(settings.tcp_wmem[0].max(self.sending.memory()).max(1)),
            Supply::Free | Supply::Pressure => self.sndbuf,
        }
    }

    /// How many bytes [`Connection::send`] would take now.
    pub(crate) fn send_room_now(&self, settings: &Settings, supply: Supply) -> usize {
        if self.may_send() && self.error.is_none() {
            let room = self.send_limit(settings, supply).saturating_sub(self.sending.len());
            room.min(self.lowat_room(settings))
        } else {
            0
        }
    }

    /// Room for bytes to send.
    pub(crate) fn send_room(&self) -> usize {
        self.sndbuf.saturating_sub(self.sending.len())
    }

    /// The unread bytes, in order.
    pub(crate) fn received(&self) -> impl Iterator<Item = &[u8]> {
        self.receiving.pieces()
    }

    /// How many there are.
    pub(crate) fn unread(&self) -> usize {
        self.receiving.readable()
    }

    /// Whether the peer sent everything, and all was read.
    pub(crate) fn is_finished(&self) -> bool {
        self.receiving.readable() == 0 && (self.fin == Some(self.receiving.next()) || self.error.is_some())
    }

    /// Removes `count` bytes that were read; may schedule a window update.
    pub(crate) fn consume(&mut self, cx: &Context<'_>, count: usize) {
        let count = count.min(self.receiving.readable());
        self.receiving.consume(count);
        self.moderate(cx, count as u64);
        if self.fin.is_some() || !self.is_synchronized() {
            return;
        }
        let left = self.rcv_adv.saturating_sub(self.rcv_nxt());
        let possible = self.right_edge(cx) - self.rcv_nxt();
        let grows = possible >= 2 * left && possible >= left + self.window_step(cx);
        self.ack_now |= grows && !self.has_first_window();
    }

    /// Whether bytes that were to be sent without a copy are gone: the connection must be reset.
    pub(crate) fn is_source_lost(&self) -> bool {
        self.sending.is_lost()
    }

    /// The caller takes the next `room` bytes of the stream itself, if nothing is to be read before them; returns their
    /// offset. [`Connection::passed`] must follow.
    pub(crate) fn pass_next(&mut self, room: usize) -> Option<u64> {
        let free = self.receiving.readable() == 0 && self.is_synchronized();
        free.then(|| self.receiving.pass(room))?;
        Some(self.receiving.next())
    }

    /// How many bytes of a segment that begins with `seq` the caller has to take, and then to consume.
    pub(crate) fn passed(&mut self, begin: u64, seq: u32, len: usize) -> usize {
        self.receiving.pass(0);
        let arrived = (self.receiving.next() - begin) as usize;
        if self.peer_wire(begin) == seq { arrived.min(len) } else { 0 }
    }

    /// Grows whenever the peer proves that it receives.
    pub(crate) fn progress(&self) -> u64 {
        self.una + self.rcv_nxt()
    }

    /// Whether a sequence number is that of bytes in flight.
    pub(crate) fn is_outstanding(&self, seq: u32) -> bool {
        let offset = self.offset(seq);
        offset >= self.una && offset < self.nxt
    }

    /// Whether a SYN can't be an old duplicate of this connection's segments (RFC 6191, 2): its timestamp is
    /// newer, or not older and its sequence number is.
    pub(crate) fn is_newer(&self, segment: &Segment<'_>) -> bool {
        let later = |new: u32, old: u32| (new.wrapping_sub(old) as i32) > 0;
        let follows = later(segment.seq, self.peer_wire(self.rcv_nxt()));
        match segment.options.timestamps.filter(|_| self.ts_ok) {
            Some((val, _)) => later(val, self.ts_recent) || val == self.ts_recent && follows,
            None => follows,
        }
    }

    /// The bytes of the buffers' and the scoreboard's memory.
    pub(crate) fn memory(&self) -> usize {
        self.sending.memory() + self.receiving.memory() + self.scoreboard.memory()
    }

    /// Whether an empty buffer or scoreboard has memory, or the receive buffer more than it uses.
    pub(crate) fn has_spare(&self) -> bool {
        self.sending.is_spare() || self.receiving.is_spare() || self.scoreboard.is_spare()
    }

    /// Returns the memory that the receive buffer has not used since this was called last.
    pub(crate) fn age_spare(&mut self) {
        self.receiving.age();
    }

    /// Returns the memory of what is empty.
    pub(crate) fn release_spare(&mut self) {
        self.scoreboard.release();
        self.sending.release();
        self.receiving.release();
    }

    /// Whether the peer has not acknowledged everything that is to be sent.
    pub(crate) fn is_sending(&self) -> bool {
        !matches!(self.state, State::Closed | State::SynReceived) && self.una < self.end()
    }

    /// Whether bytes can be appended to the stream.
    pub(crate) fn may_send(&self) -> bool {
        !self.fin_queued && self.state != State::Closed
    }

    /// Whether its program has closed the socket.
    pub(crate) fn is_orphan(&self) -> bool {
        !self.owned && self.listener.is_none()
    }

    /// The reset that tells the peer that the connection is aborted (RFC 9293, 3.10.5).
    pub(crate) fn abort_reset(&self, now: u64) -> Option<Reset> {
        let told = matches!(
            self.state,
            State::SynReceived | State::Established | State::FinWait1 | State::FinWait2 | State::CloseWait
        );
        told.then(|| Reset {
            seq: self.wire(self.nxt),
            ack: Some(self.peer_wire(self.rcv_nxt())),
            timestamps: self.ts_ok.then(|| (self.timestamp(now), self.ts_recent)),
        })
    }

    /// Changes the options; what they held back may be sent.
    pub(crate) fn set_options(&mut self, cx: &mut Context<'_>, options: SocketOptions) {
        // As in Linux: what was held back is sent, even if `tcp_cork` is set.
        let set = options.tcp_nodelay && (!self.options.tcp_nodelay || self.hold.more_follows);
        self.hold.uncorked |= set && self.sending.end() > self.nxt;
        self.options = options;
        if options.so_sndbuf > 0 {
            self.sndbuf = options.so_sndbuf;
        }
        if self.state == State::SynSent && self.nxt == FIRST {
            self.path_mss = self.path_mss.min(self.max_segment());
        }
        self.rearm_keepalive(cx);
    }

    /// Changes the controller. Its window and threshold stay, as in Linux.
    pub(crate) fn set_congestion(&mut self, cx: &Context<'_>, algorithm: Algorithm, seed: u64) {
        if self.control.name() == algorithm.name() {
            return;
        }
        self.control = algorithm.build(seed);
        self.window.pacing_rate = u64::MAX;
        if self.is_synchronized() {
            self.update_window();
            self.control.init(cx.now, &mut self.window);
            self.control.on_state(cx.now, &mut self.window, self.recovery.state);
        }
    }

    /// What is sent from now on does not share a segment with what was sent before.
    pub(crate) fn end_record(&mut self) {
        self.sending.end_record();
    }

    /// The largest segment that the program permits.
    fn max_segment(&self) -> u64 {
        if self.options.tcp_maxseg == 0 { u64::MAX } else { self.options.tcp_maxseg.max(MIN_MSS) }
    }

    /// No more bytes will be sent.
    pub(crate) fn shutdown(&mut self) {
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            State::SynSent if !self.owned && self.sending.len() == 0 => return self.end_with(None),
            // The FIN follows once the connection is established.
            State::SynSent => {}
            State::SynReceived if self.fast_open.is_accepted => {}
            State::SynReceived => self.state = State::FinWait1,
            _ => return,
        }
        self.fin_queued = true;
    }

    /// The program gives the socket up. `true`: the peer must be told by a reset that bytes are lost
    /// (RFC 2525, 2.17).
    pub(crate) fn close(&mut self, now: u64, settings: &Settings) -> bool {
        self.owned = false;
        let lost = self.receiving.readable() > 0 && (self.is_synchronized() || self.fast_open.is_accepted);
        if !lost {
            self.shutdown();
            if self.state == State::FinWait2 {
                self.timers.time_wait = Some(now + settings.tcp_fin_timeout);
            }
        }
        lost
    }
}

/// `base` plus a difference of sequence numbers.
fn near(base: u64, difference: u32) -> u64 {
    base.wrapping_add_signed(i64::from(difference as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million idle connections need less than 2 GB: this, the controller, and some 150 bytes of the stack's tables.
    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Connection>() <= 1632, "{} bytes", size_of::<Connection>());
    }
}
