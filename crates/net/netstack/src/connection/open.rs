//! How a connection begins: by a SYN of either side, or by a cookie.

use super::buffer::{ReceiveBuffer, SendBuffer};
use super::fast_open::FastOpen;
use super::limits::Limits;
use super::mtu::MtuSearch;
use super::options::Options;
use super::rate::Rate;
use super::recovery::Recovery;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::timers::Timers;
use super::{Connection, Counts, DEFAULT_MSS, Ecn, FIRST, Hold, MIN_MSS, Readiness, State, Tuning, Usage};
use crate::congestion::{Algorithm, State as CaState, Window};
use crate::demux::Tuple;
use crate::settings::{Settings, SocketOptions};

/// What a new connection starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub tuple: Tuple,
    pub interface: usize,
    pub iss: u32,
    pub ts_offset: u32,
    /// Payload that the path carries, without TCP options.
    pub path_mss: u64,
    pub options: SocketOptions,
    pub algorithm: Algorithm,
    pub seed: u64,
    pub gso: bool,
}

impl Connection {
    /// A connection that will send a SYN.
    pub(crate) fn connect(opening: &Opening, now: u64, settings: &Settings) -> Connection {
        let mss = opening.path_mss;
        let mut new = Connection {
            tuple: opening.tuple,
            interface: opening.interface,
            state: State::SynSent,
            options: opening.options,
            error: None,
            ready: Readiness::default(),
            listener: None,
            owned: true,
            gso: opening.gso,
            iss: opening.iss.wrapping_sub(FIRST as u32),
            una: FIRST,
            nxt: FIRST,
            snd_wnd: 0,
            wl1: 0,
            wl2: 0,
            max_wnd: 0,
            snd_wscale: 0,
            mss,
            peer_mss: u64::from(DEFAULT_MSS),
            path_mss: mss,
            fast_open: FastOpen::default(),
            mtu: MtuSearch::new(settings, mss),
            sending: SendBuffer::new(FIRST + 1),
            sndbuf: settings.tcp_wmem[1],
            fin_queued: false,
            hold: Hold::default(),
            small_end: 0,
            scoreboard: Scoreboard::default(),
            rate: Rate::default(),
            rtt: Rtt::default(),
            recovery: Recovery::default(),
            window: first_window(mss, u64::from(settings.tcp_init_cwnd) * mss),
            control: opening.algorithm.build(opening.seed),
            release_at: 0,
            last_sent_at: 0,
            last_received_at: 0,
            usage: Usage::default(),
            limits: Limits::default(),
            irs: 0,
            receiving: ReceiveBuffer::new(FIRST + 1, settings.tcp_rmem[2]),
            rcvbuf: settings.tcp_rmem[1],
            fin: None,
            rcv_adv: FIRST + 1 + settings.tcp_rmem[1].min(65535) as u64,
            rcv_wscale: scale_for(settings),
            rcv_mss: u64::from(DEFAULT_MSS),
            last_ack_sent: 0,
            ts_recent: 0,
            ts_recent_at: 0,
            ts_offset: opening.ts_offset,
            ts_ok: settings.tcp_timestamps,
            sack_ok: settings.tcp_sack,
            wscale_ok: settings.tcp_window_scaling,
            ecn: Ecn::default(),
            dsack: None,
            ack_now: false,
            quick_acks: 16,
            is_interactive: false,
            min_tso_segs: settings.tcp_min_tso_segs,
            tuning: Tuning { since: now, ..Tuning::default() },
            timers: Timers::default(),
            counts: Counts::default(),
            trace: None,
        };
        // A controller that needs ECN requests it (RFC 8257, 3.1).
        new.ecn.ok = settings.tcp_ecn == 1 || (settings.tcp_ecn != 0 && new.control.wants_ecn());
        new
    }

    /// A connection that answers a SYN with these options and sequence number.
    pub(crate) fn accept(
        opening: &Opening,
        now: u64,
        settings: &Settings,
        seq: u32,
        options: &Options,
        ecn: bool,
    ) -> Connection {
        let mut new = Connection::connect(opening, now, settings);
        new.state = State::SynReceived;
        new.owned = false;
        new.path_mss = new.path_mss.min(new.max_segment());
        if new.options.so_sndbuf > 0 {
            new.sndbuf = new.options.so_sndbuf;
        }
        new.ecn.ok = ecn && settings.tcp_ecn != 0;
        new.negotiate(now, seq, options);
        new
    }

    /// A connection whose SYN-ACK carried a cookie: the handshake is already complete, except for the segment
    /// that brings the cookie.
    pub(crate) fn sent_cookie(&mut self) {
        self.nxt = FIRST + 1;
    }

    /// Takes over what the peer's SYN says.
    pub(super) fn negotiate(&mut self, now: u64, seq: u32, options: &Options) {
        self.irs = seq.wrapping_sub(FIRST as u32);
        self.wl1 = FIRST;
        self.peer_mss = u64::from(options.mss.unwrap_or(DEFAULT_MSS)).max(MIN_MSS);
        self.sack_ok &= options.sack_permitted;
        self.ts_ok &= options.timestamps.is_some();
        self.wscale_ok &= options.window_scale.is_some();
        match options.window_scale.filter(|_| self.wscale_ok) {
            Some(shift) => self.snd_wscale = shift,
            None => (self.snd_wscale, self.rcv_wscale) = (0, 0),
        }
        if let Some((val, _)) = options.timestamps.filter(|_| self.ts_ok) {
            (self.ts_recent, self.ts_recent_at) = (val, now);
        }
        self.set_mss();
        let first = self.window.initial / self.window.mss.max(1) * self.mss;
        (self.window.initial, self.window.cwnd) = (first, first);
        self.update_window();
        self.rcv_mss = self.mss;
        // As much as the peer's initial window brings in a round trip.
        self.tuning.space = 10 * self.rcv_mss;
    }

    /// Sets the segment size from the path's, the peer's and the options of every segment (RFC 6691).
    pub(super) fn set_mss(&mut self) {
        let options = if self.ts_ok { 12 } else { 0 };
        let path = self.path_mss.min(self.mtu.limit());
        self.mss = path.min(self.peer_mss).saturating_sub(options).max(MIN_MSS - 12);
    }

    /// The path carries less than was assumed (RFC 1191, RFC 8201).
    pub(crate) fn set_path_mss(&mut self, now: u64, path_mss: u64) {
        if path_mss >= self.path_mss {
            return;
        }
        self.path_mss = path_mss;
        let before = self.mss;
        self.set_mss();
        self.update_window();
        if self.mss < before && self.is_synchronized() && self.scoreboard.in_flight > 0 {
            self.resend_smaller(now);
        }
    }
}

/// The shift that lets the largest receive buffer be announced (RFC 7323, 2.2).
fn scale_for(settings: &Settings) -> u8 {
    if !settings.tcp_window_scaling {
        return 0;
    }
    (0..14).find(|shift| settings.tcp_rmem[2] >> shift <= 65535).unwrap_or(14)
}

/// The window before anything was sent.
fn first_window(mss: u64, initial: u64) -> Window {
    Window {
        cwnd: initial,
        ssthresh: u64::MAX,
        pacing_rate: u64::MAX,
        max_pacing_rate: u64::MAX,
        mss,
        in_flight: 0,
        srtt: 0,
        min_rtt: None,
        prior_cwnd: 0,
        delivered: 0,
        lost: 0,
        cwnd_limited: false,
        state: CaState::Open,
        tso_goal: 2 * mss,
        initial,
        release_at: 0,
        app_limited: false,
    }
}
