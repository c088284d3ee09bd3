//! A connection as bytes, and again as a connection: it moves to another stack and goes on there, as with Linux's
//! `TCP_REPAIR`. Everything moves that has an effect on what is sent: buffers, what is in flight and its fate, timers,
//! loss recovery, the controller's state. A trace does not.

use super::buffer::SendBuffer;
use super::open::Opening;
use super::rate::Stamp;
use super::scoreboard::Scoreboard;
use super::{Connection, Context, Counts, Ecn, FIRST, Hold, MIN_MSS, Readiness, State, Usage};
use crate::codec::{BYTES, Bound, COUNT, Field, Reader, STREAM, fields, variants};
use crate::congestion::Algorithm;
use crate::demux::Tuple;
use crate::settings::SocketOptions;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// What the bytes begin with. Another number, if what follows is changed.
const FORMAT: u32 = 0x5250_0002;
/// Bytes of a buffer, and its size.
const BUFFER: usize = 1 << 30;
/// The largest window (RFC 7323, 2.2), in flight or announced.
const WINDOW: u64 = 65_535 << 14;

variants!(State {
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
});
fields!(Readiness { readable: Bound::Any, writable: Bound::Any, acceptable: Bound::Any, closed: Bound::Any });
fields!(Ecn {
    ok: Bound::Any,
    demand_cwr: Bound::Any,
    queue_cwr: Bound::Any,
    seen: Bound::Any,
    last_ce: Bound::Any,
});
fields!(Hold {
    uncorked: Bound::Any,
    more_follows: Bound::Any,
    is_unfinished: Bound::Any,
    is_held: Bound::Any
});
fields!(Usage { full: Bound::Any, most: BYTES, until: STREAM });
fields!(SocketOptions {
    tcp_nodelay: Bound::Any,
    tcp_cork: Bound::Any,
    so_keepalive: Bound::Any,
    tcp_user_timeout: Bound::Any,
    so_max_pacing_rate: Bound::Any,
    so_sndbuf: Bound::Most(BUFFER as u64),
    tcp_maxseg: Bound::Any,
    tcp_syncnt: Bound::Any,
    tcp_notsent_lowat: Bound::Any,
    tcp_fastopen_connect: Bound::Any,
});
fields!(Counts {
    bytes_acked: STREAM,
    bytes_received: STREAM,
    bytes_sent: STREAM,
    bytes_retrans: STREAM,
    segs_out: STREAM,
    segs_in: STREAM,
    data_segs_out: STREAM,
    data_segs_in: STREAM,
    rcv_ooopack: Bound::Any,
    last_ack_received: Bound::Past,
    retrans: STREAM,
    timeouts: STREAM,
    rto_recoveries: COUNT,
    rto_since: Bound::Past,
    rto_time: STREAM,
    dsack_dups: STREAM,
    reordering: STREAM,
    reord_seen: STREAM,
    memory: Bound::Any,
    ended_in: Bound::Any,
});

/// The fields that are written as they are, in this order; and the others, so that none is forgotten.
macro_rules! carried {
    ({ $($name:ident: $bound:expr),* $(,)? } others: $($other:ident),* $(,)?) => {
        impl Connection {
            fn put_fields(&self, to: &mut Vec<u8>) {
                let Connection { $($name,)* $($other: _),* } = self;
                $($name.put(to);)*
            }

            fn take_fields(&mut self, from: &mut Reader<'_>) -> Option<()> {
                $(self.$name = Field::take(from, $bound)?;)*
                Some(())
            }
        }
    };
}

carried!({
    state: Bound::Any,
    options: Bound::Any,
    ready: Bound::Any,
    iss: Bound::Any,
    una: STREAM,
    nxt: STREAM,
    snd_wnd: Bound::Most(WINDOW),
    wl1: STREAM,
    wl2: STREAM,
    max_wnd: Bound::Most(WINDOW),
    snd_wscale: Bound::Most(14),
    mss: Bound::Positive(1 << 16),
    peer_mss: Bound::Positive(1 << 16),
    path_mss: Bound::Positive(1 << 16),
    mtu: Bound::Any,
    fast_open: Bound::Any,
    sndbuf: Bound::Most(BUFFER as u64),
    fin_queued: Bound::Any,
    hold: Bound::Any,
    small_end: STREAM,
    rate: Bound::Any,
    rtt: Bound::Any,
    recovery: Bound::Any,
    window: Bound::Any,
    release_at: Bound::Deadline,
    last_sent_at: Bound::Past,
    last_received_at: Bound::Past,
    usage: Bound::Any,
    limits: Bound::Any,
    irs: Bound::Any,
    rcvbuf: Bound::Most(BUFFER as u64),
    fin: STREAM,
    rcv_adv: STREAM,
    rcv_wscale: Bound::Most(14),
    rcv_mss: Bound::Positive(1 << 16),
    last_ack_sent: STREAM,
    ts_recent: Bound::Any,
    ts_recent_at: Bound::Past,
    ts_offset: Bound::Any,
    ts_ok: Bound::Any,
    sack_ok: Bound::Any,
    wscale_ok: Bound::Any,
    ecn: Bound::Any,
    dsack: STREAM,
    ack_now: Bound::Any,
    quick_acks: COUNT,
    is_interactive: Bound::Any,
    min_tso_segs: Bound::Most(1 << 16),
    tuning: Bound::Any,
    timers: Bound::Any,
    counts: Bound::Any,
}
others: tuple, interface, error, listener, owned, gso, sending, scoreboard, control, receiving, trace);

/// What is known before the rest is read.
#[derive(Debug)]
pub(crate) struct Saved<'a> {
    pub tuple: Tuple,
    pub algorithm: Algorithm,
    rest: Reader<'a>,
}

impl<'a> Saved<'a> {
    pub(crate) fn new(bytes: &'a [u8], now: u64) -> Option<Saved<'a>> {
        let mut rest = Reader::new(bytes, now);
        let from = &mut rest;
        if u32::take(from, Bound::Any)? != FORMAT {
            return None;
        }
        from.writer_time()?;
        let (local, remote) = <(SocketAddr, SocketAddr)>::take(from, Bound::Any)?;
        let algorithm = Algorithm::take(from, Bound::Any)?;
        let tuple = Tuple { local, remote };
        (local.is_ipv4() == remote.is_ipv4()).then_some(Saved { tuple, algorithm, rest })
    }
}

impl Connection {
    /// Its state as bytes; `None` if it can't move: its handshake is not complete, it has ended or is in TIME-WAIT, or
    /// bytes that it sends without a copy are gone.
    pub(crate) fn save(&self, now: u64) -> Option<Vec<u8>> {
        let algorithm = Algorithm::from_name(self.control.name())?;
        if !self.owned || self.error.is_some() || !may_move(self.state) {
            return None;
        }
        let mut bytes = Vec::with_capacity(2048 + self.sending.len() + self.receiving.readable());
        let to = &mut bytes;
        (FORMAT, now).put(to);
        (self.tuple.local, self.tuple.remote).put(to);
        algorithm.put(to);
        self.put_fields(to);
        self.control.save(to);
        let is_whole = self.sending.save(to);
        self.receiving.save(to);
        self.scoreboard.save(to);
        is_whole.then_some(bytes)
    }

    /// The connection that was saved. `opening` has what the new stack knows of the path.
    pub(crate) fn restore(saved: Saved<'_>, opening: &Opening, cx: &Context<'_>) -> Option<Connection> {
        let mut from = saved.rest;
        let mut new = Connection::connect(opening, cx.now, cx.settings);
        new.take_fields(&mut from)?;
        new.control = saved.algorithm.restore(&mut from)?;
        new.sending = SendBuffer::restore(&mut from, BUFFER)?;
        new.receiving.restore(&mut from, BUFFER)?;
        let newest = Stamp { delivered: new.rate.delivered, lost: new.rate.lost, ..Stamp::default() };
        new.scoreboard = Scoreboard::restore(&mut from, new.una, new.nxt, &newest)?;
        if !from.is_empty() || !new.is_consistent() {
            return None;
        }
        new.counts.memory = 0;
        new.counts.ended_in = None;
        new.timers.resend_syn = false;
        new.join_standstills(cx);
        new.path_mss = new.path_mss.min(opening.path_mss);
        new.set_mss();
        if new.window.mss != new.mss {
            new.update_window();
        }
        // The new owner has not been told anything.
        let is_over = new.fin == Some(new.receiving.next());
        new.ready.readable |= is_over || new.receiving.readable() > 0;
        new.ready.writable |= new.send_room() >= new.sndbuf / 3;
        (new.ready.acceptable, new.ready.closed) = (false, false);
        Some(new)
    }

    /// What holds between the numbers of each connection that moves. Attack: offsets whose differences would be
    /// negative, or larger than a window.
    fn is_consistent(&self) -> bool {
        let (end, next) = (self.sending.end(), self.receiving.next());
        let sends_fin =
            matches!(self.state, State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck);
        let got_fin = matches!(self.state, State::CloseWait | State::Closing | State::LastAck);
        may_move(self.state)
            && self.fin_queued == sends_fin
            && (self.fin == Some(next)) == got_fin
            && self.fin.is_none_or(|fin| fin >= self.receiving.last_end().unwrap_or(next))
            && self.una > FIRST
            && self.una <= self.nxt
            && self.nxt - self.una <= WINDOW + 1
            && self.nxt <= self.end()
            && self.sending.start() == self.una.min(end)
            && (self.state != State::FinWait2 || self.una == self.end())
            && next > FIRST
            && self.rcv_adv <= next.saturating_add(WINDOW + 1)
            && self.peer_mss >= MIN_MSS
    }
}

/// Whether a connection in this state can move to another stack.
fn may_move(state: State) -> bool {
    use State::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck};
    matches!(state, Established | FinWait1 | FinWait2 | CloseWait | Closing | LastAck)
}
