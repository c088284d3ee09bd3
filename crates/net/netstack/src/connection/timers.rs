//! Timers of a connection: retransmission, probes, delayed acknowledgments, keepalive, TIME-WAIT.

use super::rtt::TCP_RTO_MAX;
use super::{Connection, ConnectionError, Context, State};
use crate::codec::{Bound, COUNT, STREAM, fields, variants};
use crate::congestion::State as CaState;
use crate::settings::SECOND;

/// Timeouts of a closed connection, more than a hundred seconds with the shortest one (Linux's `tcp_orphan_retries`).
const ORPHAN_RETRIES: u32 = 8;

/// What the retransmission timer stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Retransmission timeout (RFC 6298).
    Timeout,
    /// Tail loss probe (RFC 8985, 7).
    Probe,
    /// End of the reordering window (RFC 8985, 6.3).
    Reordering,
    /// Zero-window probe (RFC 9293, 3.8.6.1).
    Window,
}

/// A segment that a timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// An old sequence number, so that the peer answers.
    Alive,
    /// The last segment again, or a new one.
    Tail,
}

/// Deadlines in nanoseconds, and what they ask `output.rs` to send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers {
    pub retransmit: Option<(Kind, u64)>,
    pub delayed_ack: Option<u64>,
    pub keepalive: Option<u64>,
    /// When `tcp_cork` no longer holds back what is not full.
    pub cork: Option<u64>,
    /// When pacing permits the next segment.
    pub release: Option<u64>,
    /// End of TIME-WAIT, or of FIN-WAIT-2 without a program.
    pub time_wait: Option<u64>,
    pub probe: Option<Probe>,
    pub resend_syn: bool,
    /// An acknowledgment of an earlier offset with or without ECN echo, to be sent first.
    pub early_ack: Option<(u64, bool)>,
    /// Unanswered probes.
    pub probes: u32,
    /// Since when the peer doesn't acknowledge.
    pub unanswered_since: Option<u64>,
    /// The timestamp of the first SYN.
    pub opened: u32,
    /// Milliseconds of standstills that are taken into account.
    pub stood_still: u32,
}

impl Timers {
    pub(super) fn next(&self) -> Option<u64> {
        let retransmit = self.retransmit.map(|(_, at)| at);
        let all = [retransmit, self.delayed_ack, self.keepalive, self.cork, self.release, self.time_wait];
        // No time is later than all: this is called several times a segment, and needs no branches so.
        let first = all.into_iter().fold(u64::MAX, |first, at| first.min(at.unwrap_or(u64::MAX)));
        (first < u64::MAX).then_some(first)
    }

    pub(super) fn clear(&mut self) {
        *self = Timers::default();
    }
}

impl Connection {
    /// Handles the timers that are due.
    pub(crate) fn expire(&mut self, cx: &mut Context<'_>) {
        self.skip_standstill(cx);
        let due = |at: Option<u64>| at.is_some_and(|at| at <= cx.now);
        if due(self.timers.release) {
            self.timers.release = None;
        }
        if due(self.timers.cork) {
            self.timers.cork = None;
            (self.hold.uncorked, self.hold.is_unfinished) = (true, false);
        }
        if due(self.timers.delayed_ack) {
            self.timers.delayed_ack = None;
            (self.ack_now, self.is_interactive) = (true, false);
        }
        if due(self.timers.time_wait) {
            return self.end_with(None);
        }
        if due(self.timers.keepalive) {
            self.keepalive(cx);
        }
        if let Some((kind, _)) = self.timers.retransmit.filter(|&(_, at)| at <= cx.now) {
            self.timers.retransmit = None;
            match kind {
                Kind::Timeout => self.timeout(cx),
                Kind::Probe => {
                    self.timers.probe = Some(Probe::Tail);
                    self.recovery.tail_probe_sent = true;
                }
                Kind::Reordering => self.reordering_ends(cx),
                Kind::Window => self.probe_window(cx),
            }
        }
    }

    /// Whether the peer has been silent for too long.
    fn is_given_up(&mut self, cx: &Context<'_>, tries: u32) -> bool {
        let since = *self.timers.unanswered_since.get_or_insert(cx.now);
        // Attack: a peer that answers the probes of its closed window keeps the bytes of a closed connection.
        if self.is_orphan() && self.is_synchronized() && self.rtt.rto() >= TCP_RTO_MAX {
            return true;
        }
        if self.options.tcp_user_timeout > 0 && self.state != State::SynSent {
            return cx.now - since >= self.options.tcp_user_timeout;
        }
        let most = match self.state {
            State::SynSent if self.options.tcp_syncnt > 0 => self.options.tcp_syncnt,
            State::SynSent => cx.settings.tcp_syn_retries,
            State::SynReceived => cx.settings.tcp_synack_retries,
            _ if self.is_orphan() && cx.settings.tcp_orphan_retries == 0 => ORPHAN_RETRIES,
            _ if self.is_orphan() => cx.settings.tcp_orphan_retries,
            _ => cx.settings.tcp_retries2,
        };
        tries > most
    }

    /// The retransmission timer expires (RFC 6298, 5.4 to 5.7).
    fn timeout(&mut self, cx: &mut Context<'_>) {
        self.counts.timeouts += 1;
        if self.counts.rto_since == 0 {
            (self.counts.rto_recoveries, self.counts.rto_since) = (self.counts.rto_recoveries + 1, cx.now);
        }
        self.rtt.back_off();
        if self.is_given_up(cx, self.rtt.backoff) {
            return self.end_with(Some(ConnectionError::TimedOut));
        }
        if self.is_synchronized() {
            self.mtu_timeout(cx.settings);
            self.enter_loss(cx);
        } else {
            self.timers.resend_syn = true;
        }
        self.arm_retransmission(cx.now);
        self.trace(cx.now);
    }

    /// Sets the retransmission timer for what is outstanding, or clears it.
    pub(super) fn arm_retransmission(&mut self, now: u64) {
        if self.una < self.nxt {
            self.timers.retransmit = Some((Kind::Timeout, now + self.rtt.rto()));
        } else if !matches!(self.timers.retransmit, Some((Kind::Window, _))) {
            self.timers.retransmit = None;
        }
    }

    /// After sending new data or an acknowledgment of some: a tail loss probe instead of the timeout, if
    /// possible (RFC 8985, 7.2).
    pub(super) fn arm_probe(&mut self, cx: &Context<'_>) {
        let permitted = cx.settings.tcp_early_retrans > 0
            && self.sack_ok
            && self.recovery.state <= CaState::Disorder
            && self.scoreboard.lost_bytes == 0
            && !self.recovery.tail_probe_sent
            && !self.scoreboard.is_empty();
        self.arm_retransmission(cx.now);
        if let (true, Some((Kind::Timeout, timeout))) = (permitted, self.timers.retransmit) {
            let one = self.nxt.min(self.sending.end()).saturating_sub(self.una) <= self.mss;
            let at = cx.now + self.rtt.probe_timeout(one);
            self.timers.retransmit = Some((Kind::Probe, at.min(timeout)));
        }
    }

    /// The window is closed and nothing is in flight: probes, ever more seldom.
    pub(super) fn arm_window_probe(&mut self, now: u64) {
        if self.timers.retransmit.is_none() {
            self.timers.retransmit = Some((Kind::Window, now + self.rtt.rto()));
        }
    }

    fn probe_window(&mut self, cx: &mut Context<'_>) {
        if self.snd_wnd > 0 {
            // The window is open, but small: RFC 9293, 3.8.6.2.1, its override timeout.
            self.hold.uncorked = true;
            return;
        }
        self.timers.probes += 1;
        self.rtt.back_off();
        // A peer that answers probes with a closed window may do so forever (RFC 9293, 3.8.6.1), while the program has
        // the socket; each answer sets `probes` to 0.
        if self.is_given_up(cx, self.timers.probes) {
            return self.end_with(Some(ConnectionError::TimedOut));
        }
        self.timers.probe = Some(Probe::Alive);
        self.arm_window_probe(cx.now);
    }

    /// Restarts the keepalive timer, since the peer sent something.
    pub(super) fn rearm_keepalive(&mut self, cx: &Context<'_>) {
        let armed = self.options.so_keepalive && self.is_synchronized() && self.state != State::TimeWait;
        self.timers.keepalive = armed.then_some(cx.now + cx.settings.tcp_keepalive_time);
        if self.timers.retransmit.is_none() {
            self.timers.probes = 0;
        }
    }

    fn keepalive(&mut self, cx: &mut Context<'_>) {
        // While data is outstanding, retransmissions show whether the peer is alive.
        if self.una < self.nxt {
            self.timers.keepalive = Some(cx.now + cx.settings.tcp_keepalive_time);
            return;
        }
        let since = *self.timers.unanswered_since.get_or_insert(cx.now);
        let limit = self.options.tcp_user_timeout;
        let expired = match limit {
            0 => self.timers.probes >= cx.settings.tcp_keepalive_probes,
            limit => self.timers.probes > 0 && cx.now - since >= limit,
        };
        if expired {
            return self.end_with(Some(ConnectionError::TimedOut));
        }
        self.timers.probes += 1;
        self.timers.probe = Some(Probe::Alive);
        self.timers.keepalive = Some(cx.now + cx.settings.tcp_keepalive_intvl.max(SECOND));
    }
}

variants!(Kind { Timeout, Probe, Reordering, Window });
variants!(Probe { Alive, Tail });
fields!(Timers {
    retransmit: Bound::Deadline,
    delayed_ack: Bound::Deadline,
    keepalive: Bound::Deadline,
    cork: Bound::Deadline,
    release: Bound::Deadline,
    time_wait: Bound::Deadline,
    probe: Bound::Any,
    resend_syn: Bound::Any,
    early_ack: STREAM,
    probes: COUNT,
    unanswered_since: Bound::Past,
    opened: Bound::Any,
    stood_still: Bound::Any,
});
