//! One subscriber's PPP (RFC 1661): the link, authentication, then IPv4 and IPv6. Without I/O: what it has to send goes
//! to an [`Outbox`], and what the server has to do is returned.
use super::automaton::{Automaton, Change, NEVER};
use super::lcp::{Link, Methods};
use super::login::Login;
use super::ncp::{Four, Six};
use super::packet::{CHAP, Control, IPCP, IPV6CP, LCP, Nonce, Outbox, PAP, code};
use super::users::Proof;
use core::net::Ipv4Addr;
use ringway_click::arg::Prefix6;
use ringway_click::prelude::*;
use ringway_wire::MacAddress;

/// Attack: sessions that are opened and left. Time that a subscriber has to get an address.
const LOGIN_TIME: u64 = 40 * SECOND;
/// Attack: a subscriber that negotiates again and again, for a RADIUS request, two reports and a record each time. How
/// often the link or IPCP of a session may go down.
const MAX_DOWNS: u8 = 10;
/// Echo requests without a reply after which a subscriber is gone.
const MAX_ECHOES: u32 = 3;

/// What all sessions share.
#[derive(Debug)]
pub(super) struct Settings {
    /// The server's Ethernet address.
    pub(super) ethernet: MacAddress,
    /// The server's name, in PADO and in challenges.
    pub(super) name: String,
    pub(super) methods: Methods,
    /// The server's address in each session.
    pub(super) gateway: Ipv4Addr,
    pub(super) dns: [Ipv4Addr; 2],
    pub(super) ipv6: bool,
    /// Time between echo requests, and between challenges; 0: none.
    pub(super) echo: u64,
    pub(super) rechallenge: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ethernet: MacAddress::default(),
            name: "ringway".into(),
            methods: Methods { pap: true, chap: true },
            gateway: Ipv4Addr::UNSPECIFIED,
            dns: [Ipv4Addr::UNSPECIFIED; 2],
            ipv6: true,
            echo: 30 * SECOND,
            rechallenge: 0,
        }
    }
}

/// Time, settings, random values and the packets to send while a session runs.
pub(super) struct Turn<'a> {
    pub(super) now: u64,
    pub(super) settings: &'a Settings,
    pub(super) nonce: &'a mut Nonce,
    pub(super) out: &'a mut Outbox,
}

/// Why a session ended, with RADIUS's number (RFC 2866, 5.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    UserRequest = 1,
    LostCarrier = 2,
    SessionTimeout = 5,
    AdminReset = 6,
    NasError = 9,
    UserError = 17,
}

impl Cause {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::UserRequest => "User-Request",
            Self::LostCarrier => "Lost-Carrier",
            Self::SessionTimeout => "Session-Timeout",
            Self::AdminReset => "Admin-Reset",
            Self::NasError => "NAS-Error",
            Self::UserError => "User-Error",
        }
    }
}

/// What the server has to do for a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// The packet is malformed.
    Malformed,
    /// The packet is of no use in this phase.
    Ignored,
    /// Check this proof, then call [`Session::granted`] or [`Session::refused`].
    Check(Proof),
    /// Let packets pass.
    Up,
    /// Let no more packets pass.
    Down,
    /// Report the subscriber's counters.
    Report,
    /// Forget the session.
    End(Cause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Link,
    Authentication,
    Network,
    Termination,
}

/// What an authenticated subscriber gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) address: Ipv4Addr,
    /// The address is of the pool.
    pub(super) is_pooled: bool,
    pub(super) prefix: Option<Prefix6>,
    /// Time until the session ends, and between two reports; 0: never.
    pub(super) time: u64,
    pub(super) interim: u64,
    /// RADIUS's Class, to be returned in reports.
    pub(super) class: Vec<u8>,
    /// A RADIUS server decided.
    pub(super) by_radius: bool,
}

/// A subscriber whose packets pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Online {
    pub(super) since: u64,
    /// Number in Acct-Session-Id.
    pub(super) number: u32,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) peer: MacAddress,
    pub(super) id: u16,
    /// The subscriber's Host-Uniq tag in discovery.
    pub(super) host_uniq: Vec<u8>,
    /// The server's address when it was opened.
    pub(super) server: MacAddress,
    /// The subscriber has sent a packet in this session.
    pub(super) has_talked: bool,
    pub(super) phase: Phase,
    pub(super) grant: Option<Grant>,
    pub(super) online: Option<Online>,
    /// The moment for which its timer is set.
    pub(super) scheduled: u64,
    pub(super) began: u64,
    link: Link,
    lcp: Automaton,
    login: Login,
    four: Four,
    ipcp: Automaton,
    six: Six,
    ipv6cp: Automaton,
    cause: Option<Cause>,
    /// When it must have an address, when it ends, when to report, when to send an echo request.
    deadline: u64,
    expires: u64,
    report: u64,
    echo: u64,
    unanswered: u32,
    /// How often the link or IPCP went down.
    downs: u8,
}

impl Session {
    /// A new session, of which the subscriber has yet to be told.
    pub(super) fn new(peer: MacAddress, id: u16, host_uniq: &[u8], turn: &mut Turn<'_>) -> Self {
        let settings = turn.settings;
        let mut session = Self {
            peer,
            id,
            host_uniq: host_uniq.into(),
            server: settings.ethernet,
            has_talked: false,
            phase: Phase::Link,
            grant: None,
            online: None,
            scheduled: NEVER,
            began: turn.now,
            link: Link::new(settings.methods, turn.nonce.number()),
            lcp: Automaton::new(LCP),
            login: Login::new(),
            four: Four::new(settings.gateway, Ipv4Addr::UNSPECIFIED, settings.dns),
            ipcp: Automaton::new(IPCP),
            six: Six::new(turn.nonce.interface(), turn.nonce.interface()),
            ipv6cp: Automaton::new(IPV6CP),
            cause: None,
            deadline: turn.now + LOGIN_TIME,
            expires: NEVER,
            report: NEVER,
            echo: NEVER,
            unanswered: 0,
            downs: 0,
        };
        session.lcp.open_later(turn.now);
        session
    }

    /// The subscriber's name; empty before it has given one.
    pub(super) fn name(&self) -> &[u8] {
        &self.login.name
    }

    /// Number of the check of a proof that is going on; 0 if there is none.
    pub(super) fn check(&self) -> u64 {
        self.login.check
    }

    /// Why it ends, if it is known.
    pub(super) fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// Whether IPv6 packets may pass.
    pub(super) fn has_ipv6(&self) -> bool {
        self.ipv6cp.is_open()
    }

    /// The next moment at which [`Session::tick`] has something to do.
    pub(super) fn due(&self) -> u64 {
        let dues = [
            self.lcp.due,
            self.ipcp.due,
            self.ipv6cp.due,
            self.login.due,
            self.deadline,
            self.expires,
            self.report,
            self.echo,
        ];
        dues.into_iter().min().unwrap_or(NEVER)
    }

    /// Handles a PPP packet.
    pub(super) fn receive(&mut self, protocol: u16, payload: &[u8], turn: &mut Turn<'_>) -> Effect {
        self.has_talked = true;
        if protocol == LCP {
            return match Control::of(payload) {
                Some(packet) => self.receive_lcp(&packet, turn),
                None => Effect::Malformed,
            };
        }
        // RFC 1661, 3.4: other packets are discarded until the link is open.
        if !self.lcp.is_open() {
            return Effect::Ignored;
        }
        let wants_six = turn.settings.ipv6;
        if !matches!(protocol, PAP | CHAP | IPCP) && !(protocol == IPV6CP && wants_six) {
            let id = self.lcp.next_id();
            turn.out.reject_protocol(protocol, id, payload);
            return Effect::Ignored;
        }
        let Some(packet) = Control::of(payload) else { return Effect::Malformed };
        match (protocol, self.phase) {
            (PAP | CHAP, Phase::Authentication | Phase::Network) => {
                self.login.receive(protocol, &packet, turn).map_or(Effect::Ignored, Effect::Check)
            }
            (IPCP, Phase::Network) => {
                let change = self.ipcp.receive(&packet, &mut self.four, turn);
                self.ipcp_changed(change, turn)
            }
            (IPV6CP, Phase::Network) => {
                self.ipv6cp.receive(&packet, &mut self.six, turn);
                Effect::Nothing
            }
            _ => Effect::Ignored,
        }
    }

    fn receive_lcp(&mut self, packet: &Control<'_>, turn: &mut Turn<'_>) -> Effect {
        match packet.code {
            code::PROTOCOL_REJECT if self.lcp.is_open() => match *packet.data {
                [high, low, ..] => match u16::from_be_bytes([high, low]) {
                    IPV6CP => self.ipv6cp.stop(),
                    LCP | PAP | CHAP | IPCP => return self.close(Cause::UserError, turn),
                    _ => {}
                },
                _ => return Effect::Malformed,
            },
            code::ECHO_REQUEST if self.lcp.is_open() => {
                let Some(rest) = packet.data.get(4..) else { return Effect::Malformed };
                turn.out.send(LCP, code::ECHO_REPLY, packet.id, |out| {
                    out.extend_from_slice(&self.link.magic.to_be_bytes());
                    out.extend_from_slice(rest);
                });
            }
            code::ECHO_REPLY if self.lcp.is_open() => self.unanswered = 0,
            code::PROTOCOL_REJECT..=code::DISCARD_REQUEST => return Effect::Ignored,
            _ => {
                let change = self.lcp.receive(packet, &mut self.link, turn);
                return self.lcp_changed(change, turn);
            }
        }
        Effect::Nothing
    }

    fn lcp_changed(&mut self, change: Change, turn: &mut Turn<'_>) -> Effect {
        match change {
            Change::Nothing => Effect::Nothing,
            Change::Up => {
                self.phase = Phase::Authentication;
                self.unanswered = 0;
                self.echo = after(turn.now, turn.settings.echo);
                self.login.begin(self.link.method, turn);
                Effect::Nothing
            }
            Change::Down => {
                self.phase = Phase::Link;
                // Another negotiation gives no more time to a subscriber that has not logged in yet.
                let deadline = self.deadline.min(turn.now + LOGIN_TIME);
                self.stop_network();
                self.deadline = deadline;
                self.went_down(turn)
            }
            Change::Ended => Effect::End(self.cause.unwrap_or(Cause::UserRequest)),
            Change::GaveUp => Effect::End(self.cause.unwrap_or(Cause::LostCarrier)),
        }
    }

    fn ipcp_changed(&mut self, change: Change, turn: &mut Turn<'_>) -> Effect {
        match change {
            Change::Nothing => Effect::Nothing,
            Change::Up => {
                self.deadline = NEVER;
                self.report = after(turn.now, self.grant.as_ref().map_or(0, |grant| grant.interim));
                Effect::Up
            }
            Change::Down => {
                self.deadline = self.deadline.min(turn.now + LOGIN_TIME);
                self.report = NEVER;
                self.went_down(turn)
            }
            Change::Ended => self.close(Cause::UserRequest, turn),
            Change::GaveUp => self.close(Cause::UserError, turn),
        }
    }

    fn went_down(&mut self, turn: &mut Turn<'_>) -> Effect {
        self.downs += 1;
        if self.downs > MAX_DOWNS { self.close(Cause::UserError, turn) } else { Effect::Down }
    }

    fn stop_network(&mut self) {
        self.login.stop();
        self.ipcp.stop();
        self.ipv6cp.stop();
        (self.deadline, self.expires, self.report, self.echo) = (NEVER, NEVER, NEVER, NEVER);
    }

    /// Ends the session in a friendly way; [`Effect::End`] follows.
    pub(super) fn close(&mut self, cause: Cause, turn: &mut Turn<'_>) -> Effect {
        if self.phase != Phase::Termination {
            self.phase = Phase::Termination;
            self.cause = Some(cause);
            self.stop_network();
            self.lcp.close(turn);
        }
        Effect::Down
    }

    /// The subscriber is authenticated.
    pub(super) fn granted(&mut self, grant: Grant, turn: &mut Turn<'_>) {
        self.login.checked(true, b"", turn);
        self.phase = Phase::Network;
        self.expires = after(turn.now, grant.time);
        self.four = Four::new(turn.settings.gateway, grant.address, turn.settings.dns);
        self.grant = Some(grant);
        self.ipcp.open(&self.four, turn);
        if turn.settings.ipv6 {
            self.ipv6cp.open(&self.six, turn);
        }
    }

    /// A later proof is right.
    pub(super) fn confirmed(&mut self, turn: &mut Turn<'_>) {
        self.login.checked(true, b"", turn);
    }

    /// The subscriber's proof is wrong, or nobody can tell.
    pub(super) fn refused(&mut self, message: &[u8], cause: Cause, turn: &mut Turn<'_>) -> Effect {
        self.login.checked(false, message, turn);
        self.close(cause, turn)
    }

    /// Does what is due first.
    pub(super) fn tick(&mut self, turn: &mut Turn<'_>) -> Effect {
        let now = turn.now;
        if self.lcp.due <= now {
            let change = self.lcp.timeout(&self.link, turn);
            return self.lcp_changed(change, turn);
        }
        if self.deadline <= now {
            return self.close(Cause::UserError, turn);
        }
        if self.expires <= now {
            return self.close(Cause::SessionTimeout, turn);
        }
        if self.login.due <= now {
            return if self.login.timeout(turn) {
                Effect::Nothing
            } else {
                self.close(Cause::LostCarrier, turn)
            };
        }
        if self.ipcp.due <= now {
            let change = self.ipcp.timeout(&self.four, turn);
            return self.ipcp_changed(change, turn);
        }
        if self.ipv6cp.due <= now {
            self.ipv6cp.timeout(&self.six, turn);
            return Effect::Nothing;
        }
        if self.report <= now {
            self.report = after(now, self.grant.as_ref().map_or(0, |grant| grant.interim));
            return Effect::Report;
        }
        if self.echo <= now {
            return self.send_echo(turn);
        }
        Effect::Nothing
    }

    fn send_echo(&mut self, turn: &mut Turn<'_>) -> Effect {
        if self.unanswered >= MAX_ECHOES {
            return Effect::End(Cause::LostCarrier);
        }
        self.unanswered += 1;
        self.echo = after(turn.now, turn.settings.echo);
        let (id, magic) = (self.lcp.next_id(), self.link.magic);
        turn.out.send(LCP, code::ECHO_REQUEST, id, |out| out.extend_from_slice(&magic.to_be_bytes()));
        Effect::Nothing
    }
}

/// The moment after this time; never if it is 0.
fn after(now: u64, time: u64) -> u64 {
    if time == 0 { NEVER } else { now.saturating_add(time) }
}
