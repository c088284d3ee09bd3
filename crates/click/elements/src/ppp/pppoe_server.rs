//! `PPPoEServer(CONCENTRATOR, GATEWAY, POOL, USER, ..., AUTH, RADIUS, SECRET, ...)`: opens and ends PPPoE sessions of a
//! PPPoEConcentrator: discovery (RFC 2516), LCP, PAP and CHAP with MD5, IPCP and IPV6CP, with users of its own or of a
//! RADIUS server (RFC 2865), to which it reports their traffic (RFC 2866).
//!
//! Ports: input 0: frames that the concentrator does not handle, its output 2; output 0: frames to subscribers. Input 1
//! (optional): IPv4 packets for SRC, with a marked header; output 1 (optional): requests to the RADIUS server, with
//! marked header and destination annotation. Output 2 (optional): frames and packets for others, unchanged: other
//! protocols than PPPoE, other stations, IPv6 from link-local addresses of open sessions. All ports are push.
//!
//! An authenticated subscriber gets an address and up to two name servers by IPCP, and with IPV6CP an interface
//! identifier. As soon as IPCP is open, the concentrator passes its packets. The RADIUS server is asked for users that
//! are not in the own list, and may choose Framed-IP-Address, Delegated-IPv6-Prefix, Session-Timeout,
//! Acct-Interim-Interval and Class.
//!
//! Arguments:
//! - `CONCENTRATOR`: a PPPoEConcentrator, whose Ethernet address it uses.
//! - `GATEWAY`: its IP address in the sessions.
//! - `POOL`: a prefix with addresses for subscribers.
//! - `USER`: `NAME:PASSWORD`; once per user.
//! - `AUTH`: `chap`, `pap`, or both in one argument, the default: CHAP first, PAP if the subscriber prefers it.
//! - `DNS`: one or two addresses.
//! - `NAME`: its name in discovery, challenges and reports; `ringway` by default.
//! - `SERVICE`: a service name that it offers besides the empty one.
//! - `CAPACITY`: maximum number of sessions; 4096, at most 32000. More are refused.
//! - `PER_HOST`: sessions per Ethernet address; 1. One more ends the oldest.
//! - `RATE`: maximum bandwidth of each session in each direction.
//! - `IPV6`: whether IPV6CP is accepted; true by default.
//! - `ECHO`: time between LCP echo requests, 30 seconds by default; after three without a reply the session ends.
//! - `RECHALLENGE`: time between CHAP's later challenges; 0, the default, for none.
//! - `RADIUS`, `SRC`, `SECRET`: the RADIUS server's address (0.0.0.0, the default, for none), the address to ask from,
//!   and the shared secret. `AUTHPORT`, `ACCTPORT`: the server's ports, 1812 and 1813.
//! - `LAX`: whether answers without a Message-Authenticator are accepted; false by default.
//! - `ACCOUNTING`: whether traffic is reported, if RADIUS is given; true by default. `INTERIM`: time between two
//!   reports, 0 (none) by default.
//!
//! Handlers: `users` (read, write): their number; written lines `NAME:PASSWORD` replace them until a restart;
//! `sessions` (read): number, Ethernet address, user, phase, address, seconds, packets and bytes from the subscriber,
//! the same to it; `accounting` (read): the same of the last 1000 sessions that have ended, with the reason instead of
//! the phase;
//! `disconnect` (write): ends the session with a number; `count` (sessions), `capacity`, `accepted`, `rejected`
//! (logins), `refused` (sessions), `malformed`, `ignored`, `requests`, `timeouts`, `forged`, `full` (RADIUS) (read).
use super::accounting::{Records, Status, describe, line, name_text, report};
use super::arguments::Given;
use super::automaton::NEVER;
use super::discovery::{self, DISCOVERY, Discovery, tag};
use super::packet::{Nonce, Outbox, same};
use super::pool::Pool;
use super::radius::{Client, Outcome, Waiting};
use super::request::{Reply, attribute};
use super::session::{Cause, Effect, Grant, Online, Phase, Session, Settings, Turn};
use super::table::{LAST, Table};
use super::users::{LONGEST_PASSWORD, Proof, Users};
use crate::packet::mac_text;
use crate::tunnel::pppoe::{SessionFrame, Wrong};
use crate::tunnel::pppoe_concentrator::{PppoeConcentrator, Traffic};
use core::fmt::Write;
use core::net::Ipv4Addr;
use ringway_click::prelude::*;
use ringway_click::{LINES, Pieces, Progress};
use ringway_wire::tunnel::Pppoe;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, MacAddress};

#[cfg(test)]
mod tests;
mod update;

pub static CLASS: Class = Class::new("PPPoEServer", || Box::<PppoeServer>::default())
    .ports("1-2/1-3")
    .processing("h")
    .flow("xy/xyz")
    .metadata(Metadata::Resolve);

/// Attack: numbers of sessions in use everywhere, between which a free one is long sought.
const MOST_SESSIONS: usize = 32_000;
/// Most sessions of an Ethernet address.
const MOST_PER_HOST: usize = 64;
/// Time for which a cookie is valid, at least; twice as long at most.
const COOKIE_TIME: u64 = 60 * SECOND;
/// Things done per expiry of the timer, so that packets don't wait long.
const ROUNDS: usize = 64;
/// Shortest Acct-Interim-Interval in seconds (RFC 2869, 5.16).
const LEAST_INTERIM: u64 = 60;
/// Addresses that a server leaves to this one (RFC 2865, 5.8).
const CHOOSE: [Ipv4Addr; 2] = [Ipv4Addr::BROADCAST, Ipv4Addr::new(255, 255, 255, 254)];

/// What happened so far.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    accepted: u64,
    rejected: u64,
    refused: u64,
    malformed: u64,
    ignored: u64,
}

#[derive(Debug)]
pub struct PppoeServer {
    concentrator: Option<ElementId>,
    settings: Settings,
    service: String,
    capacity: usize,
    per_host: usize,
    rate: u32,
    interim: u64,
    accounts: bool,
    pool: Pool,
    users: Users,
    /// The users were written by the handler.
    are_written: bool,
    client: Option<Client>,
    table: Table,
    nonce: Nonce,
    outbox: Outbox,
    records: Records,
    counts: Counts,
    timer: Option<Timer>,
    /// Until then, refused logins are not reported.
    quiet_until: u64,
    /// Number of the last session that was online.
    number: u32,
    /// The first of the sessions, taken over from another configuration, that are still to be settled.
    unsettled: Option<u16>,
}

impl Default for PppoeServer {
    fn default() -> Self {
        Self {
            concentrator: None,
            settings: Settings::default(),
            service: String::new(),
            capacity: 4096,
            per_host: 1,
            rate: 0,
            interim: 0,
            accounts: true,
            pool: Pool::default(),
            users: Users::default(),
            are_written: false,
            client: None,
            table: Table::default(),
            nonce: Nonce::default(),
            outbox: Outbox::default(),
            records: Records::default(),
            counts: Counts::default(),
            timer: None,
            quiet_until: 0,
            number: 0,
            unsettled: None,
        }
    }
}

impl PppoeServer {
    /// Handles a discovery packet.
    fn discover(&mut self, frame: &[u8], now: u64, cx: &mut Context<'_>) {
        let Some(packet) = Discovery::of(frame) else {
            self.counts.malformed += 1;
            return;
        };
        match packet.code {
            discovery::PADI if packet.session == 0 => self.offer(&packet, now, cx),
            discovery::PADR if packet.session == 0 && packet.destination == self.settings.ethernet => {
                self.confirm(&packet, now, cx);
            }
            discovery::PADT => {
                let own = self.table.get(packet.session).is_some_and(|session| session.peer == packet.source);
                if own {
                    self.finish(packet.session, Cause::UserRequest, false, now, cx);
                }
            }
            _ => self.counts.ignored += 1,
        }
    }

    /// A cookie for a host. Attack: requests from false addresses; a session takes the answer to an offer.
    fn cookie(&self, host: MacAddress, period: u64) -> [u8; 16] {
        self.nonce.seal(&[&host.0, &period.to_be_bytes()])
    }

    /// Whether a host's wish for a service can be fulfilled.
    fn serves(&self, packet: &Discovery<'_>) -> Option<bool> {
        let service = packet.tag(tag::SERVICE_NAME)?;
        Some(service.is_empty() || service == self.service.as_bytes())
    }

    /// Answers a PADI.
    fn offer(&mut self, packet: &Discovery<'_>, now: u64, cx: &mut Context<'_>) {
        if self.serves(packet) != Some(true) {
            self.counts.ignored += 1;
            return;
        }
        let cookie = self.cookie(packet.source, now / COOKIE_TIME);
        let wanted = packet.tag(tag::SERVICE_NAME).unwrap_or_default();
        let more =
            (wanted != self.service.as_bytes()).then_some((tag::SERVICE_NAME, self.service.as_bytes()));
        let tags = [(tag::AC_NAME, self.settings.name.as_bytes()), (tag::SERVICE_NAME, wanted)];
        let tags = tags.into_iter().chain(more).chain([(tag::AC_COOKIE, &cookie[..])]);
        let ends = (packet.source, self.settings.ethernet);
        emit(0, discovery::frame(ends, (discovery::PADO, 0), tags.chain(packet.repeated())), cx);
    }

    /// Answers a PADR.
    fn confirm(&mut self, packet: &Discovery<'_>, now: u64, cx: &mut Context<'_>) {
        let period = now / COOKIE_TIME;
        let told = packet.tag(tag::AC_COOKIE).unwrap_or_default();
        let periods = [period, period.wrapping_sub(1)];
        if !periods.iter().any(|period| same(&self.cookie(packet.source, *period), told)) {
            self.counts.refused += 1;
            return;
        }
        let ends = (packet.source, self.settings.ethernet);
        let answer = match self.open(packet, now, cx) {
            Ok(id) => {
                let service = packet.tag(tag::SERVICE_NAME).unwrap_or_default();
                let tags = [(tag::SERVICE_NAME, service)].into_iter().chain(packet.repeated());
                discovery::frame(ends, (discovery::PADS, id), tags)
            }
            Err(error) => {
                self.counts.refused += 1;
                let tags = [(tag::SERVICE_NAME, &b""[..]), error];
                discovery::frame(ends, (discovery::PADS, 0), tags.into_iter().chain(packet.repeated()))
            }
        };
        emit(0, answer, cx);
    }

    /// Opens a session for a PADR, or finds the one that it opened before.
    fn open(
        &mut self,
        packet: &Discovery<'_>,
        now: u64,
        cx: &mut Context<'_>,
    ) -> Result<u16, (u16, &'static [u8])> {
        if self.serves(packet) != Some(true) {
            return Err((tag::SERVICE_NAME_ERROR, b"no such service"));
        }
        let host_uniq = packet.tag(tag::HOST_UNIQ).unwrap_or_default();
        let known = self.table.of(packet.source);
        let sessions = known.iter().filter_map(|id| self.table.get(*id));
        // The answer was lost.
        let again = sessions.clone().find(|session| !session.has_talked && session.host_uniq == host_uniq);
        if let Some(session) = again {
            return Ok(session.id);
        }
        if known.len() >= self.per_host
            && let Some(oldest) = sessions.min_by_key(|session| session.began).map(|session| session.id)
        {
            self.finish(oldest, Cause::LostCarrier, true, now, cx);
        }
        let id = if self.table.len() < self.capacity { self.free(packet.source, cx) } else { None };
        let id = id.ok_or((tag::AC_SYSTEM_ERROR, &b"too many sessions"[..]))?;
        let (settings, nonce, out) = (&self.settings, &mut self.nonce, &mut self.outbox);
        let mut turn = Turn { now, settings, nonce, out };
        self.table.insert(Session::new(packet.source, id, host_uniq, &mut turn));
        Ok(id)
    }

    /// A free number for a session of this host, that no session of the concentrator itself has.
    fn free(&mut self, host: MacAddress, cx: &Context<'_>) -> Option<u16> {
        let concentrator = self.concentrator(cx);
        let is_own = |id: &u16| concentrator.is_none_or(|concentrator| !concentrator.has_own(host, *id));
        let numbers = core::iter::repeat_with(|| self.table.free()).take(LAST.into());
        numbers.map_while(|id| id).find(is_own)
    }

    fn concentrator<'a>(&self, cx: &'a Context<'_>) -> Option<&'a PppoeConcentrator> {
        self.concentrator.and_then(|id| cx.element(id))
    }

    /// Handles a session's frame. `false` if it is for others.
    fn receive(&mut self, data: &[u8], frame: SessionFrame, now: u64, cx: &mut Context<'_>) -> bool {
        let id = frame.session;
        let Some(session) = self.table.get(id).filter(|session| session.peer == frame.source) else {
            if self.concentrator(cx).is_some_and(|concentrator| concentrator.has_own(frame.source, id)) {
                return false;
            }
            // A subscriber that missed the end of its session.
            self.counts.ignored += 1;
            if frame.source.is_unicast() {
                emit(
                    0,
                    discovery::frame((frame.source, self.settings.ethernet), (discovery::PADT, id), []),
                    cx,
                );
            }
            return true;
        };
        if frame.protocol == Pppoe::IPV6 && session.online.is_some() && session.has_ipv6() {
            return false;
        }
        if matches!(frame.protocol, Pppoe::IPV4 | Pppoe::IPV6) {
            self.counts.ignored += 1;
            return true;
        }
        let payload = data.get(Pppoe::LEN..).and_then(|rest| rest.get(..frame.length)).unwrap_or_default();
        self.run(id, now, cx, |session, turn| session.receive(frame.protocol, payload, turn));
        true
    }

    /// Runs a session, and does what it wants.
    fn run(
        &mut self,
        id: u16,
        now: u64,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut Session, &mut Turn<'_>) -> Effect,
    ) {
        let Some(session) = self.table.get_mut(id) else { return };
        let (settings, nonce, out) = (&self.settings, &mut self.nonce, &mut self.outbox);
        let effect = act(session, &mut Turn { now, settings, nonce, out });
        let peer = session.peer;
        self.table.schedule(id);
        self.send(peer, id, cx);
        match effect {
            Effect::Nothing => {}
            Effect::Malformed => self.counts.malformed += 1,
            Effect::Ignored => self.counts.ignored += 1,
            Effect::Check(proof) => self.check(id, &proof, now, cx),
            Effect::Up => self.let_in(id, now, cx),
            Effect::Down => self.shut_out(id, None, now, cx),
            Effect::Report => self.report(id, Status::Interim, None, now, cx),
            Effect::End(cause) => self.finish(id, cause, true, now, cx),
        }
    }

    /// Sends what a session has put into the outbox.
    fn send(&mut self, peer: MacAddress, id: u16, cx: &mut Context<'_>) {
        for (protocol, payload) in self.outbox.packets() {
            let header = Pppoe {
                ethernet: Ethernet {
                    destination: peer,
                    source: self.settings.ethernet,
                    ethertype: EtherType::PPPOE_SESSION,
                },
                version_type: Pppoe::VERSION_TYPE,
                code: 0,
                session: id.into(),
                length: (payload.len() as u16 + 2).into(),
                protocol: protocol.into(),
            };
            emit(0, Some([header.bytes(), payload].concat()), cx);
        }
        self.outbox.clear();
    }

    /// Checks a subscriber's proof.
    fn check(&mut self, id: u16, proof: &Proof, now: u64, cx: &mut Context<'_>) {
        let Some(session) = self.table.get(id) else { return };
        if let Some(right) = self.users.check(session.name(), proof) {
            let refusal: Result<(), &[u8]> = if right { Ok(()) } else { Err(b"wrong name or password") };
            return self.decide(id, refusal.map(|()| None), now, cx);
        }
        let long = matches!(proof, Proof::Password(password) if password.len() > LONGEST_PASSWORD);
        let Some(client) = self.client.as_mut().filter(|_| !long) else {
            return self.decide(id, Err(b"wrong name or password"), now, cx);
        };
        let (name, waiting) = (&self.settings.name, (id, session.check()));
        let packet = client.ask(waiting, (now, &mut self.nonce), |request, server| {
            describe(request, session, (server.own, name));
            request.put_proof(proof, server.secret.as_bytes());
        });
        if packet.is_none() {
            return self.undecided(id, b"busy, try again", now, cx);
        }
        emit_ip(packet, cx);
    }

    /// Lets a subscriber in, with what a RADIUS server says, or not.
    fn decide(
        &mut self,
        id: u16,
        decision: Result<Option<&Reply<'_>>, &[u8]>,
        now: u64,
        cx: &mut Context<'_>,
    ) {
        let Some(session) = self.table.get(id) else { return };
        if decision.is_ok() && session.phase == Phase::Network {
            return self.run(id, now, cx, |session, turn| {
                session.confirmed(turn);
                Effect::Nothing
            });
        }
        let grant = decision.and_then(|reply| {
            self.release(id);
            self.grant(reply)
        });
        let who = format!("{} ({})", name_text(self.table.get(id).map_or(b"", Session::name)), id);
        let name = cx.declaration();
        match grant {
            Ok(grant) => {
                self.counts.accepted += 1;
                self.run(id, now, cx, |session, turn| {
                    session.granted(grant, turn);
                    Effect::Nothing
                });
            }
            Err(message) => {
                self.counts.rejected += 1;
                // Attack: wrong passwords in numbers, to fill the log. Others are only counted.
                if now >= self.quiet_until {
                    self.quiet_until = now + SECOND;
                    let text = message.escape_ascii().to_string();
                    cx.chatter(format_args!("{name}: {who} is refused: {text}"));
                }
                self.run(id, now, cx, |session, turn| session.refused(message, Cause::UserError, turn));
            }
        }
    }

    /// What a subscriber gets; a message if there is not an address.
    fn grant(&mut self, reply: Option<&Reply<'_>>) -> Result<Grant, &'static [u8]> {
        let seconds = |kind| reply.and_then(|reply| reply.number(kind)).map(u64::from);
        let told =
            reply.and_then(|reply| reply.number(attribute::FRAMED_IP_ADDRESS)).map(Ipv4Addr::from_bits);
        let told = told.filter(|address| !CHOOSE.contains(address));
        let (address, is_pooled) = match told {
            Some(address) => {
                let is_pooled = self.pool.take(address);
                if !is_pooled && self.pool.contains(address) {
                    return Err(b"the address is in use");
                }
                (address, is_pooled)
            }
            None => (self.pool.get().ok_or(&b"no address left"[..])?, true),
        };
        let interim = seconds(attribute::ACCT_INTERIM_INTERVAL);
        let class = reply.and_then(|reply| reply.find(attribute::CLASS)).unwrap_or_default();
        Ok(Grant {
            address,
            is_pooled,
            prefix: reply.and_then(Reply::prefix),
            time: seconds(attribute::SESSION_TIMEOUT).unwrap_or(0) * SECOND,
            interim: interim.map_or(self.interim, |interim| interim.max(LEAST_INTERIM) * SECOND),
            class: class.into(),
            by_radius: reply.is_some(),
        })
    }

    /// Gives a session's address back.
    fn release(&mut self, id: u16) {
        let grant = self.table.get_mut(id).and_then(|session| session.grant.take());
        if let Some(grant) = grant.filter(|grant| grant.is_pooled) {
            self.pool.give_back(grant.address);
        }
    }

    /// A session's packets and bytes.
    fn traffic(&self, session: &Session, cx: &Context<'_>) -> Traffic {
        let traffic =
            self.concentrator(cx).and_then(|concentrator| concentrator.traffic(session.peer, session.id));
        traffic.unwrap_or_default()
    }

    /// A session's packets pass from now on.
    fn let_in(&mut self, id: u16, now: u64, cx: &mut Context<'_>) {
        let (Some(concentrator), Some(session)) = (self.concentrator, self.table.get(id)) else { return };
        let Some(grant) = &session.grant else { return };
        let (peer, rate) = (session.peer, self.rate);
        let opened = cx.with(concentrator, |concentrator: &mut PppoeConcentrator, _| {
            concentrator.open((peer, id), (grant.address, grant.prefix), rate, now)
        });
        let name = cx.declaration();
        let (who, address) = (name_text(session.name()), grant.address);
        if let Some(Err(why)) = opened {
            cx.chatter(format_args!("{name}: {who} ({id}) is refused: {why}"));
            return self.run(id, now, cx, |session, turn| session.close(Cause::NasError, turn));
        }
        self.number = self.number.wrapping_add(1);
        let online = Online { since: now, number: self.number };
        if let Some(session) = self.table.get_mut(id) {
            session.online = Some(online);
        }
        cx.chatter(format_args!("{name}: {who} ({id}, {}) has {address}", mac_text(peer)));
        self.report(id, Status::Start, None, now, cx);
    }

    /// A session's packets pass no more.
    fn shut_out(&mut self, id: u16, cause: Option<Cause>, now: u64, cx: &mut Context<'_>) {
        let Some(session) = self.table.get(id) else { return };
        let Some(online) = session.online else { return };
        let cause = session.cause().or(cause).unwrap_or(Cause::UserRequest);
        let (seconds, who) = (now.saturating_sub(online.since) / SECOND, name_text(session.name()));
        let traffic = line(session, seconds, self.traffic(session, cx));
        let record = format!("{id} {} {who} {} {traffic}", mac_text(session.peer), cause.text());
        let peer = session.peer;
        self.records.add(record);
        self.report(id, Status::Stop, Some(cause), now, cx);
        if let Some(concentrator) = self.concentrator {
            cx.with(concentrator, |concentrator: &mut PppoeConcentrator, _| concentrator.close(peer, id));
        }
        if let Some(session) = self.table.get_mut(id) {
            session.online = None;
        }
        let name = cx.declaration();
        cx.chatter(format_args!("{name}: {who} ({id}) has left: {}", cause.text()));
    }

    /// Reports a session's traffic.
    fn report(&mut self, id: u16, status: Status, cause: Option<Cause>, now: u64, cx: &mut Context<'_>) {
        let wall = cx.now() / SECOND;
        let Some(session) = self.table.get(id) else { return };
        let traffic = self.traffic(session, cx);
        let seconds = session.online.map_or(0, |online| now.saturating_sub(online.since) / SECOND);
        let Some(client) = self.client.as_mut().filter(|_| self.accounts) else { return };
        let name = &self.settings.name;
        let packet = client.account(now, |request, server| {
            describe(request, session, (server.own, name));
            report(request, session, (status, cause), traffic, (wall, seconds));
        });
        emit_ip(packet, cx);
    }

    /// Forgets a session; tells the subscriber unless it said so itself.
    fn finish(&mut self, id: u16, cause: Cause, tells: bool, now: u64, cx: &mut Context<'_>) {
        self.shut_out(id, Some(cause), now, cx);
        self.release(id);
        if let Some(client) = &mut self.client {
            client.forget(id);
        }
        let Some(session) = self.table.remove(id) else { return };
        if tells {
            emit(0, discovery::frame((session.peer, session.server), (discovery::PADT, id), []), cx);
        }
    }

    /// Handles a packet that may come from the RADIUS server. `false` if it does not.
    fn answer(&mut self, packet: &Packet, now: u64, cx: &mut Context<'_>) -> bool {
        let Some(client) = &mut self.client else { return false };
        match client.receive(packet.network_data().unwrap_or_default()) {
            Outcome::Stranger => return false,
            Outcome::Forged | Outcome::Accounted => {}
            Outcome::Answer(waiting, reply) => {
                let message = reply.find(attribute::REPLY_MESSAGE).unwrap_or(b"wrong name or password");
                let decision = if reply.accepts() { Ok(Some(&reply)) } else { Err(message) };
                if self.waits(waiting) {
                    self.decide(waiting.0, decision, now, cx);
                }
            }
        }
        true
    }

    fn waits(&self, (id, check): Waiting) -> bool {
        self.table.get(id).is_some_and(|session| check != 0 && session.check() == check)
    }

    /// A request stays without an answer.
    fn unanswered(&mut self, waiting: Waiting, now: u64, cx: &mut Context<'_>) {
        if self.waits(waiting) {
            self.undecided(waiting.0, b"no answer, try again", now, cx);
        }
    }

    /// Nobody can tell whether a proof is right. A subscriber that was let in before stays, since the server is at
    /// fault.
    fn undecided(&mut self, id: u16, message: &[u8], now: u64, cx: &mut Context<'_>) {
        let is_in = self.table.get(id).is_some_and(|session| session.phase == Phase::Network);
        self.decide(id, if is_in { Ok(None) } else { Err(message) }, now, cx);
    }

    /// Sets the timer to the next moment at which there is something to do.
    fn arm(&mut self, cx: &mut Context<'_>) {
        let Some(timer) = self.timer else { return };
        let sessions = self.table.first().map_or(NEVER, |(due, _)| due);
        let due = sessions.min(self.client.as_ref().map_or(NEVER, Client::due));
        let due = if self.unsettled.is_some() { 0 } else { due };
        if due == NEVER {
            cx.cancel_timer(timer);
        } else if !cx.is_timer_set(timer) || cx.timer_expiry(timer) != due {
            cx.set_timer(timer, due);
        }
    }

    /// Reads sessions, in steps.
    fn sessions(
        &mut self,
        _: &str,
        pieces: &mut Pieces,
        cx: &mut Context<'_>,
    ) -> Result<Progress, HandlerError> {
        let from: u16 = pieces.kept();
        let now = cx.coarse_now();
        let mut last = None;
        for session in self.table.onward(from).take(LINES) {
            last = Some(session.id);
            let phase = match session.phase {
                Phase::Network if session.online.is_some() => "open",
                Phase::Link => "link",
                Phase::Authentication => "authentication",
                Phase::Network => "network",
                Phase::Termination => "termination",
            };
            let since = session.online.map_or(session.began, |online| online.since);
            let traffic = line(session, now.saturating_sub(since) / SECOND, self.traffic(session, cx));
            let (peer, who) = (mac_text(session.peer), name_text(session.name()));
            let _ = writeln!(pieces.text, "{} {peer} {who} {phase} {traffic}", session.id);
        }
        Ok(last.map_or(Progress::Done, |last| pieces.keep(last + 1)))
    }

    /// Reads records, in steps.
    fn accounting(
        &mut self,
        _: &str,
        pieces: &mut Pieces,
        _: &mut Context<'_>,
    ) -> Result<Progress, HandlerError> {
        let from: usize = pieces.kept();
        let mut count = 0;
        for record in self.records.onward(from).take(LINES) {
            let _ = writeln!(pieces.text, "{record}");
            count += 1;
        }
        Ok(if count < LINES { Progress::Done } else { pieces.keep(from + count) })
    }

    fn counter(&self, count: fn(&Client) -> u64) -> u64 {
        self.client.as_ref().map_or(0, count)
    }
}

/// Emits a frame.
fn emit(port: usize, frame: Option<Vec<u8>>, cx: &mut Context<'_>) {
    if let Some(mut packet) = frame.and_then(|frame| cx.packet(&frame)) {
        packet.set_mac_header(0);
        cx.push(port, packet);
    }
}

/// Emits an IPv4 packet to the RADIUS server.
fn emit_ip(packet: Option<Vec<u8>>, cx: &mut Context<'_>) {
    if let Some(mut packet) = packet.and_then(|packet| cx.packet(&packet)) {
        let destination = Ipv4::of(packet.data()).map(|ip| ip.destination.to_bytes());
        packet.set_network_header(0, Ipv4::LEN);
        packet.notes_mut().set_dst_ip(destination.unwrap_or_default());
        cx.push(1, packet);
    }
}

/// A secret for cookies and challenges.
fn key(cx: &mut Context<'_>) -> [u8; 16] {
    let mut key = [0; 16];
    for part in key.as_chunks_mut().0 {
        *part = (cx.random() as u16).to_be_bytes();
    }
    key
}

impl Element for PppoeServer {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut given = Given::default();
        args.read_mp("CONCENTRATOR", &mut self.concentrator);
        args.read_mp("GATEWAY", &mut given.settings.gateway);
        args.read_mp("POOL", &mut given.pool);
        given.read(args);
        args.read("CAPACITY", &mut self.capacity);
        args.read("PER_HOST", &mut self.per_host);
        args.read("SERVICE", &mut self.service);
        args.read("ACCOUNTING", &mut self.accounts);
        args.complete()?;
        if !(1..=MOST_SESSIONS).contains(&self.capacity) {
            return Err(cx.error("CAPACITY must be between 1 and 32000"));
        }
        if !(1..=MOST_PER_HOST).contains(&self.per_host) {
            return Err(cx.error("PER_HOST must be between 1 and 64"));
        }
        for (number, user) in given.users.iter().enumerate() {
            if number % LINES == LINES - 1 {
                cx.breathe();
            }
            self.users.add(user).map_err(|error| cx.error(format!("USER: {error}")))?;
        }
        given.check(&self.service).map_err(|error| cx.error(error))?;
        self.pool = Pool::new(given.pool).ok_or_else(|| cx.error("POOL must have a contiguous mask"))?;
        self.pool.take(given.settings.gateway);
        (self.settings, self.rate, self.interim) = (given.settings, given.rate.0, given.interim.0);
        self.client = given.server.map(Client::new);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let concentrator = self.concentrator.and_then(|id| cx.element::<PppoeConcentrator>(id));
        let Some(concentrator) = concentrator else {
            return Err(cx.error("CONCENTRATOR: element is not a PPPoEConcentrator"));
        };
        self.settings.ethernet = concentrator.address();
        self.nonce = Nonce::new(key(cx));
        self.table = Table::new(self.nonce.number() as u16);
        // Acct-Session-Id differs from those before a restart.
        self.number = (cx.now() / SECOND) as u32;
        self.timer = Some(cx.new_timer());
        Ok(())
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.nonce.renew(key(cx));
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        for packet in burst.drain() {
            let taken = match port {
                0 if Ethernet::of(packet.data()).is_some_and(|header| header.ethertype == DISCOVERY) => {
                    let to = Ethernet::of(packet.data()).map(|header| header.destination);
                    let own = to.is_some_and(|to| to == self.settings.ethernet || to.is_broadcast());
                    if own {
                        self.discover(packet.data(), now, cx);
                    }
                    own
                }
                0 => match SessionFrame::of(packet.data()) {
                    Ok(frame) if frame.destination == self.settings.ethernet => {
                        self.receive(packet.data(), frame, now, cx)
                    }
                    Ok(_) | Err(Wrong::Other) => false,
                    Err(Wrong::Malformed) => {
                        self.counts.malformed += 1;
                        true
                    }
                },
                _ => self.answer(&packet, now, cx),
            };
            if !taken {
                cx.push(2, packet);
            }
        }
        self.arm(cx);
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        let now = cx.steady();
        self.settle_taken_over(now, cx);
        for _ in 0..ROUNDS {
            let due = self.table.first().filter(|(due, _)| *due <= now);
            let asks = self.client.as_ref().is_some_and(|client| client.due() <= now);
            if let Some((_, id)) = due {
                self.run(id, now, cx, Session::tick);
            } else if let Some(client) = self.client.as_mut().filter(|_| asks) {
                match client.tick(now) {
                    Ok(packet) => emit_ip(Some(packet), cx),
                    Err(Some(waiting)) => self.unanswered(waiting, now, cx),
                    Err(None) => {}
                }
            } else {
                break;
            }
        }
        self.arm(cx);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("users", |e: &Self| e.users.len()).writes(|e: &mut Self, text, _| {
                e.users = Users::parse(text).map_err(HandlerError::failed)?;
                e.are_written = true;
                Ok(())
            }),
            Handler::read_in_pieces("sessions", Self::sessions).expensive(),
            Handler::read_in_pieces("accounting", Self::accounting).expensive(),
            Handler::write("disconnect", |e: &mut Self, value, cx| {
                let id = cx.parse::<u16>(value)?;
                let now = cx.coarse_now();
                if e.table.get(id).is_none() {
                    return Err(HandlerError::failed(format!("no session {id}")));
                }
                e.run(id, now, cx, |session, turn| session.close(Cause::AdminReset, turn));
                e.arm(cx);
                Ok(())
            }),
            Handler::read("count", |e: &Self| e.table.len()),
            Handler::read("capacity", |e: &Self| e.capacity),
            Handler::read("accepted", |e: &Self| e.counts.accepted),
            Handler::read("rejected", |e: &Self| e.counts.rejected),
            Handler::read("refused", |e: &Self| e.counts.refused),
            Handler::read("malformed", |e: &Self| e.counts.malformed),
            Handler::read("ignored", |e: &Self| e.counts.ignored),
            Handler::read("requests", |e: &Self| e.counter(|client| client.requests)),
            Handler::read("timeouts", |e: &Self| e.counter(|client| client.timeouts)),
            Handler::read("forged", |e: &Self| e.counter(|client| client.forged)),
            Handler::read("full", |e: &Self| e.counter(|client| client.full)),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            self.take_over(from, cx);
        }
    }
}
