//! A client of a RADIUS server: requests without an answer are repeated, answers are matched and checked.
use super::automaton::NEVER;
use super::packet::Nonce;
use super::request::{
    ACCESS_ACCEPT, ACCESS_CHALLENGE, ACCESS_REJECT, ACCESS_REQUEST, ACCOUNTING_REQUEST, ACCOUNTING_RESPONSE,
    HEADER, Reply, Request,
};
use core::net::Ipv4Addr;
use ringway_click::prelude::*;
use ringway_click::{OrderedMap, OrderedSet};
use ringway_wire::{Header, Ipv4, Protocol, Udp};

/// Attack: logins faster than the server answers. Most requests without an answer, for logins and for reports, so that
/// neither keeps the other from being sent: 8 source ports each, since an identifier has 8 bits.
const MOST: u16 = 8 << 8;
/// The first source port.
const FIRST_PORT: u16 = 0xd000;
/// Time after which a request is repeated, and how often it is sent: within the time for a login.
const REPEAT: u64 = 3 * SECOND;
const ACCESS_TRIES: u8 = 4;
const ACCOUNTING_TRIES: u8 = 10;
const TTL: u8 = 64;

/// Where and how to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) own: Ipv4Addr,
    pub(super) address: Ipv4Addr,
    pub(super) secret: String,
    pub(super) access_port: u16,
    pub(super) accounting_port: u16,
    /// Answers without a Message-Authenticator are accepted.
    pub(super) lax: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            own: Ipv4Addr::UNSPECIFIED,
            address: Ipv4Addr::UNSPECIFIED,
            secret: String::new(),
            access_port: 1812,
            accounting_port: 1813,
            lax: false,
        }
    }
}

#[derive(Debug)]
struct Pending {
    /// The session, and the number of its check, that wait for the answer; none for accounting.
    waiting: Option<Waiting>,
    payload: Vec<u8>,
    due: u64,
    left: u8,
}

/// A session and the number of its check.
pub(super) type Waiting = (u16, u64);

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    /// The server's answer for this session.
    Answer(Waiting, Reply<'a>),
    /// Accounted.
    Accounted,
    /// Not an answer to any request.
    Stranger,
    /// Pretends to be an answer.
    Forged,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) server: Server,
    pending: OrderedMap<u16, Pending>,
    dues: OrderedSet<(u64, u16)>,
    /// The number of the request that each session waits for.
    asked: OrderedMap<u16, u16>,
    /// The number used last for a login, and for a report.
    last: [u16; 2],
    pub(super) requests: u64,
    pub(super) timeouts: u64,
    pub(super) forged: u64,
    /// Requests that were not sent because too many are pending.
    pub(super) full: u64,
}

impl Client {
    pub(super) fn new(server: Server) -> Self {
        let (pending, dues, asked) = (OrderedMap::new(), OrderedSet::new(), OrderedMap::new());
        let last = [0, MOST];
        Self { server, pending, dues, asked, last, requests: 0, timeouts: 0, forged: 0, full: 0 }
    }

    /// Takes over what another client waits for, if it asks the same server.
    pub(super) fn take_state(&mut self, from: &mut Self) {
        if self.server == from.server {
            self.pending = core::mem::take(&mut from.pending);
            self.dues = core::mem::take(&mut from.dues);
            self.asked = core::mem::take(&mut from.asked);
            self.last = from.last;
        }
        (self.requests, self.timeouts) = (from.requests, from.timeouts);
        (self.forged, self.full) = (from.forged, from.full);
    }

    /// When a request must be repeated.
    pub(super) fn due(&self) -> u64 {
        self.dues.first().map_or(NEVER, |(due, _)| due)
    }

    /// Sends an Access-Request for a session, whose attributes `fill` appends. `None`, with a count, if too many are
    /// pending.
    pub(super) fn ask(
        &mut self,
        waiting: Waiting,
        (now, nonce): (u64, &mut Nonce),
        fill: impl FnOnce(&mut Request, &Server),
    ) -> Option<Vec<u8>> {
        self.forget(waiting.0);
        let number = self.free(true)?;
        let mut request = Request::access(number as u8, nonce.next());
        fill(&mut request, &self.server);
        self.send(number, Some(waiting), request, now)
    }

    /// Sends an Accounting-Request.
    pub(super) fn account(&mut self, now: u64, fill: impl FnOnce(&mut Request, &Server)) -> Option<Vec<u8>> {
        let number = self.free(false)?;
        let mut request = Request::accounting(number as u8);
        fill(&mut request, &self.server);
        self.send(number, None, request, now)
    }

    /// Whether a session's check still waits for an answer.
    pub(super) fn waits(&self, waiting: Waiting) -> bool {
        let pending = self.asked.get(waiting.0).and_then(|number| self.pending.get(*number));
        pending.is_some_and(|pending| pending.waiting == Some(waiting))
    }

    /// Forgets the request that a session waits for.
    /// Attack: a subscriber that logs in and leaves again, each time for another request that is repeated.
    pub(super) fn forget(&mut self, session: u16) {
        if let Some(number) = self.asked.get(session).copied() {
            self.remove(number);
        }
    }

    /// Removes a request; returns what waits for it.
    fn remove(&mut self, number: u16) -> Option<Waiting> {
        let pending = self.pending.remove(number)?;
        self.dues.remove((pending.due, number));
        let waiting = pending.waiting?;
        self.asked.remove(waiting.0);
        Some(waiting)
    }

    /// A free number for a login (below [`MOST`]) or for a report (from there on).
    fn free(&mut self, is_login: bool) -> Option<u16> {
        let reports = self.pending.len() - self.asked.len();
        let (taken, first) = if is_login { (self.asked.len(), 0) } else { (reports, MOST) };
        if taken >= MOST.into() {
            self.full += 1;
            return None;
        }
        let last = &mut self.last[usize::from(!is_login)];
        loop {
            *last = first + (*last - first + 1) % MOST;
            if !self.pending.contains_key(*last) {
                return Some(*last);
            }
        }
    }

    fn send(&mut self, number: u16, waiting: Option<Waiting>, request: Request, now: u64) -> Option<Vec<u8>> {
        self.requests += 1;
        let payload = request.seal(self.server.secret.as_bytes());
        let tries = if waiting.is_some() { ACCESS_TRIES } else { ACCOUNTING_TRIES };
        let due = now + REPEAT;
        let packet = self.packet(number, &payload);
        self.pending.insert(number, Pending { waiting, payload, due, left: tries - 1 });
        self.dues.insert((due, number));
        if let Some((session, _)) = waiting {
            self.asked.insert(session, number);
        }
        packet
    }

    /// A request as an IPv4 packet.
    fn packet(&self, number: u16, payload: &[u8]) -> Option<Vec<u8>> {
        let destination_port = match payload.first() {
            Some(&ACCOUNTING_REQUEST) => self.server.accounting_port,
            _ => self.server.access_port,
        };
        let length = u16::try_from(Udp::LEN + payload.len()).ok()?;
        let mut ip = Ipv4 {
            total_length: (Ipv4::LEN as u16 + length).into(),
            ttl: TTL,
            protocol: Protocol::UDP,
            source: self.server.own.to_bits().into(),
            destination: self.server.address.to_bits().into(),
            ..Ipv4::EMPTY
        };
        ip.fill_checksum(&[]);
        let udp = Udp {
            source_port: (FIRST_PORT + (number >> 8)).into(),
            destination_port: destination_port.into(),
            length: length.into(),
            checksum: 0.into(),
        };
        let mut packet = [ip.bytes(), udp.bytes(), payload].concat();
        Udp::fill_checksum(packet.get_mut(Ipv4::LEN..)?, ip.pseudo_header(length))?;
        Some(packet)
    }

    /// Repeats the request that is due first, or gives it up: returns the packet to send, or what waited for the
    /// request.
    pub(super) fn tick(&mut self, now: u64) -> Result<Vec<u8>, Option<Waiting>> {
        let Some((due, number)) = self.dues.first().filter(|(due, _)| *due <= now) else {
            return Err(None);
        };
        let Some(pending) = self.pending.get_mut(number) else { return Err(None) };
        if pending.left == 0 {
            self.timeouts += 1;
            return Err(self.remove(number));
        }
        self.dues.remove((due, number));
        pending.left -= 1;
        pending.due = now + REPEAT;
        self.dues.insert((pending.due, number));
        let payload = core::mem::take(&mut pending.payload);
        let packet = self.packet(number, &payload);
        if let Some(pending) = self.pending.get_mut(number) {
            pending.payload = payload;
        }
        packet.ok_or(None)
    }

    /// Handles an IPv4 packet.
    pub(super) fn receive<'a>(&mut self, packet: &'a [u8]) -> Outcome<'a> {
        let Some((number, reply)) = self.reply(packet) else { return Outcome::Stranger };
        let Some(pending) = self.pending.get(number) else { return Outcome::Stranger };
        let authenticator = pending.payload.get(4..HEADER).and_then(<[u8]>::first_chunk).copied();
        let is_access = pending.payload.first() == Some(&ACCESS_REQUEST);
        let fits = match reply.code {
            ACCESS_ACCEPT | ACCESS_REJECT | ACCESS_CHALLENGE => is_access,
            code => code == ACCOUNTING_RESPONSE && !is_access,
        };
        let Server { secret, lax, .. } = &self.server;
        let genuine = authenticator.is_some_and(|own| reply.is_genuine(own, secret.as_bytes(), *lax));
        if !fits || !genuine {
            self.forged += 1;
            return Outcome::Forged;
        }
        self.remove(number).map_or(Outcome::Accounted, |waiting| Outcome::Answer(waiting, reply))
    }

    /// The request's number and the reply in a packet from the server.
    fn reply<'a>(&self, packet: &'a [u8]) -> Option<(u16, Reply<'a>)> {
        let (ip, _, rest) = Ipv4::parse(packet)?;
        let own = ip.destination_addr() == self.server.own && ip.source_addr() == self.server.address;
        if !own || ip.protocol != Protocol::UDP || ip.is_fragment() {
            return None;
        }
        let (udp, payload) = Udp::split(rest)?;
        let payload = payload.get(..usize::from(udp.length.get()).checked_sub(Udp::LEN)?)?;
        let reply = Reply::of(payload)?;
        let port =
            udp.destination_port.get().checked_sub(FIRST_PORT).filter(|port| *port < (2 * MOST) >> 8)?;
        let from = if reply.code == ACCOUNTING_RESPONSE {
            self.server.accounting_port
        } else {
            self.server.access_port
        };
        (udp.source_port == from).then_some((port << 8 | u16::from(reply.id), reply))
    }
}
