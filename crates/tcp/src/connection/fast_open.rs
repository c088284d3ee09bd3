//! Fast Open (RFC 7413): data with the SYN, behind a cookie.

use super::options::{Cookie, Options};
use super::{Connection, Context, FIRST, Segment, State};

/// The state of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastOpen {
    /// What our SYN or SYN-ACK carries: a cookie, or an empty one as a request.
    pub cookie: Option<Cookie>,
    /// The segment size that the peer announced when it gave the cookie.
    pub mss: u64,
    /// Whether the peer's SYN had a valid cookie: its data is passed on, and ours is sent, before the handshake is
    /// complete.
    pub is_accepted: bool,
    /// A cookie that the peer gave.
    pub given: Option<Cookie>,
}

impl Connection {
    /// Whether the SYN can still carry a cookie.
    pub(crate) fn may_open_fast(&self) -> bool {
        self.state == State::SynSent && self.nxt == FIRST
    }

    /// The segment size that the peer announced.
    pub(crate) fn peer_mss(&self) -> u64 {
        self.peer_mss
    }

    /// Whether a program may have the connection: after its handshake, or with data from the SYN.
    pub(crate) fn is_acceptable_by_program(&self) -> bool {
        self.is_synchronized() || self.fast_open.is_accepted
    }

    /// The peer's SYN has a valid cookie.
    pub(crate) fn accept_fast_open(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        self.fast_open.is_accepted = true;
        self.snd_wnd = u64::from(segment.window);
        self.max_wnd = self.snd_wnd;
        self.ready.writable = true;
        self.receive(cx, segment);
    }

    /// Bytes that a SYN with these options carries.
    pub(super) fn fast_open_payload(&self, options: &Options) -> u64 {
        let room = self.fast_open.mss.min(self.path_mss).saturating_sub(options.emitted_len() as u64);
        let waiting = self.sending.len() as u64;
        if self.fast_open.cookie.as_ref().is_some_and(|cookie| !cookie.is_empty()) {
            waiting.min(room)
        } else {
            0
        }
    }

    /// The SYN-ACK arrived: what it does not acknowledge is sent again at once (RFC 7413, 4.2.1).
    pub(super) fn fast_open_answered(&mut self, segment: &Segment<'_>) {
        self.fast_open.given = segment.options.fast_open.clone().filter(|cookie| !cookie.is_empty());
        self.board.lose_all(false);
    }
}
