//! Fast Open (RFC 7413): data with the SYN, behind a cookie.

use super::options::{Cookie, OPTIONS, Options};
use super::{Connection, Context, FIRST, Segment, State};
use crate::codec::{Bound, Field, Reader};
use alloc::vec::Vec;

/// The state of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastOpen {
    /// What our SYN or SYN-ACK carries: a cookie, or an empty one as a request.
    pub cookie: Option<Cookie>,
    /// Whether it is in the experimental option.
    pub is_experimental: bool,
    /// Whether our SYN carries data without a cookie.
    pub needs_no_cookie: bool,
    /// The segment size that the peer announced before; 0 if it is unknown.
    pub mss: u64,
    /// Whether the peer's SYN had a valid cookie: its data is passed on, and ours is sent, before the handshake is
    /// complete.
    pub is_accepted: bool,
    /// Whether data with a SYN was acknowledged, by the peer or by us.
    pub is_syn_data_acked: bool,
    /// Where the data of our SYN ends.
    pub syn_data_end: u64,
    /// What the peer's SYN-ACK said.
    pub answer: Option<Answer>,
}

/// A SYN-ACK's answer to Fast Open.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// A cookie, and whether it was in the experimental option.
    pub given: Option<(Cookie, bool)>,
    /// Whether a request was not answered, and which option it was in.
    pub ignored: Option<bool>,
}

impl Connection {
    /// Whether the SYN can still carry a cookie.
    pub(crate) fn may_open_fast(&self) -> bool {
        self.state == State::SynSent && self.nxt == FIRST
    }

    /// Whether it is a listener's in SYN-RECEIVED, and no program can have it yet.
    pub(crate) fn is_embryo(&self) -> bool {
        self.state == State::SynReceived && self.listener.is_some() && !self.fast_open.is_accepted
    }

    /// Whether the handshake is not complete, and its failure is a program's: it waits for the connection, or may
    /// accept it. A connection with Fast Open that was accepted counts as established.
    pub(crate) fn is_opening(&self) -> bool {
        match self.state {
            State::SynSent => true,
            State::SynReceived => !self.is_embryo() && !(self.fast_open.is_accepted && self.owned),
            _ => false,
        }
    }

    /// A SYN with data was too long for the path: another goes at once, without.
    pub(crate) fn resend_syn_without_data(&mut self) {
        self.timers.resend_syn |= self.state == State::SynSent && self.nxt > FIRST + 1;
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
        self.fast_open.is_syn_data_acked = !segment.payload.is_empty();
        self.snd_wnd = u64::from(segment.window);
        self.max_wnd = self.snd_wnd;
        self.ready.writable = true;
        self.receive(cx, segment);
    }

    /// Bytes that a SYN with these options carries.
    pub(super) fn fast_open_payload(&self, options: &Options) -> u64 {
        let has_cookie = options.fast_open.as_ref().is_some_and(|cookie| !cookie.is_empty());
        let carries = has_cookie || self.fast_open.needs_no_cookie;
        if carries { self.fast_open_room().min(self.sending.len() as u64) } else { 0 }
    }

    /// Room for bytes in a SYN, beside options that are added on the way, as Linux reckons.
    pub(crate) fn fast_open_room(&self) -> u64 {
        let mss = if self.fast_open.mss == 0 { self.path_mss } else { self.fast_open.mss.min(self.path_mss) };
        mss.saturating_sub(OPTIONS as u64)
    }

    /// The SYN-ACK arrived: what it does not acknowledge is sent again at once (RFC 7413, 4.2.1).
    pub(super) fn fast_open_answered(&mut self, segment: &Segment<'_>) {
        if self.fast_open.cookie.is_some() || self.fast_open.needs_no_cookie {
            let experimental = segment.options.fast_open_experimental;
            let cookie = segment.options.fast_open.clone().filter(|cookie| !cookie.is_empty());
            // A cookie that was not asked for does not count.
            let given =
                cookie.filter(|_| self.fast_open.cookie.is_some()).map(|cookie| (cookie, experimental));
            let asked = self.fast_open.cookie.as_ref().is_some_and(|cookie| cookie.is_empty());
            let vain = asked && given.is_none() && self.counts.retrans == 0;
            let ignored = vain.then_some(self.fast_open.is_experimental);
            self.fast_open.answer = Some(Answer { given, ignored });
        }
        // As in Linux: all of it.
        self.fast_open.is_syn_data_acked = self.nxt > FIRST + 1 && self.offset(segment.ack) >= self.nxt;
        self.scoreboard.lose_all(false);
    }
}

/// What is left of it after the handshake.
impl Field for FastOpen {
    fn put(&self, to: &mut Vec<u8>) {
        (self.is_accepted, self.is_syn_data_acked).put(to);
        self.syn_data_end.put(to);
    }

    fn take(from: &mut Reader<'_>, _: Bound) -> Option<FastOpen> {
        let (is_accepted, is_syn_data_acked) = <(bool, bool)>::take(from, Bound::Any)?;
        let syn_data_end = u64::take(from, Bound::Most(FIRST + (1 << 16)))?;
        let is_known = syn_data_end > FIRST || is_accepted || !is_syn_data_acked;
        is_known.then(|| FastOpen { is_accepted, is_syn_data_acked, syn_data_end, ..FastOpen::default() })
    }
}
