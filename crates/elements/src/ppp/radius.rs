//! A client of a RADIUS server: requests without an answer are repeated, answers are matched and checked.
use super::automaton::NEVER;
use super::packet::Nonce;
use super::request::{
    ACCESS_ACCEPT, ACCESS_CHALLENGE, ACCESS_REJECT, ACCESS_REQUEST, ACCOUNTING_REQUEST, ACCOUNTING_RESPONSE,
    HEADER, Reply, Request,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use ringway_click::SECOND;
use ringway_wire::{Header, Ipv4, Protocol, Udp};

/// Attack: logins faster than the server answers. Most requests without an answer: 16 source ports, since an
/// identifier has 8 bits.
const MOST: u16 = 16 << 8;
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
    pending: BTreeMap<u16, Pending>,
    dues: BTreeSet<(u64, u16)>,
    last: u16,
    pub(super) requests: u64,
    pub(super) timeouts: u64,
    pub(super) forged: u64,
    /// Requests that were not sent because too many are pending.
    pub(super) full: u64,
}

impl Client {
    pub(super) fn new(server: Server) -> Self {
        let (pending, dues) = (BTreeMap::new(), BTreeSet::new());
        Self { server, pending, dues, last: 0, requests: 0, timeouts: 0, forged: 0, full: 0 }
    }

    /// Takes over what another client waits for, if it asks the same server.
    pub(super) fn take_state(&mut self, from: &mut Self) {
        if self.server == from.server {
            self.pending = core::mem::take(&mut from.pending);
            self.dues = core::mem::take(&mut from.dues);
            self.last = from.last;
        }
        (self.requests, self.timeouts) = (from.requests, from.timeouts);
        (self.forged, self.full) = (from.forged, from.full);
    }

    /// When a request must be repeated.
    pub(super) fn due(&self) -> u64 {
        self.dues.first().map_or(NEVER, |(due, _)| *due)
    }

    /// Sends an Access-Request for a session, whose attributes `fill` appends. `None`, with a count, if too many are
    /// pending.
    pub(super) fn ask(
        &mut self,
        waiting: Waiting,
        (now, nonce): (u64, &mut Nonce),
        fill: impl FnOnce(&mut Request, &Server),
    ) -> Option<Vec<u8>> {
        let number = self.free()?;
        let mut request = Request::access(number as u8, nonce.next());
        fill(&mut request, &self.server);
        self.send(number, Some(waiting), request, now)
    }

    /// Sends an Accounting-Request.
    pub(super) fn account(&mut self, now: u64, fill: impl FnOnce(&mut Request, &Server)) -> Option<Vec<u8>> {
        let number = self.free()?;
        let mut request = Request::accounting(number as u8);
        fill(&mut request, &self.server);
        self.send(number, None, request, now)
    }

    fn free(&mut self) -> Option<u16> {
        if self.pending.len() >= MOST.into() {
            self.full += 1;
            return None;
        }
        loop {
            self.last = (self.last + 1) % MOST;
            if !self.pending.contains_key(&self.last) {
                return Some(self.last);
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

    /// Repeats the request that is due first, or gives it up: the packet to send, or who waited.
    pub(super) fn tick(&mut self, now: u64) -> Result<Vec<u8>, Option<Waiting>> {
        let Some((due, number)) = self.dues.first().copied().filter(|(due, _)| *due <= now) else {
            return Err(None);
        };
        self.dues.remove(&(due, number));
        let Some(pending) = self.pending.get_mut(&number) else { return Err(None) };
        if pending.left == 0 {
            self.timeouts += 1;
            return Err(self.pending.remove(&number).and_then(|pending| pending.waiting));
        }
        pending.left -= 1;
        pending.due = now + REPEAT;
        self.dues.insert((pending.due, number));
        let payload = core::mem::take(&mut pending.payload);
        let packet = self.packet(number, &payload);
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.payload = payload;
        }
        packet.ok_or(None)
    }

    /// Handles an IPv4 packet.
    pub(super) fn receive<'a>(&mut self, packet: &'a [u8]) -> Outcome<'a> {
        let Some((number, reply)) = self.reply(packet) else { return Outcome::Stranger };
        let Some(pending) = self.pending.get(&number) else { return Outcome::Stranger };
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
        self.dues.remove(&(pending.due, number));
        let waiting = self.pending.remove(&number).and_then(|pending| pending.waiting);
        waiting.map_or(Outcome::Accounted, |waiting| Outcome::Answer(waiting, reply))
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
        let port = udp.destination_port.get().checked_sub(FIRST_PORT).filter(|port| *port < MOST >> 8)?;
        let from = if reply.code == ACCOUNTING_RESPONSE {
            self.server.accounting_port
        } else {
            self.server.access_port
        };
        (udp.source_port == from).then_some((port << 8 | u16::from(reply.id), reply))
    }
}
