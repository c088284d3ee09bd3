//! `PPPoEConcentrator(ETH, SESSION, ..., CAPACITY)`: the data path of a broadband access server: IPv4 and IPv6 packets
//! of PPPoE sessions (RFC 2516), counted and optionally rate-limited per session.
//!
//! Ports: input 0: frames from subscribers; the packets of known sessions go to output 0, without headers and padding,
//! with marked IP header and destination annotation. Input 1: IP packets for subscribers, with marked header; they go
//! to output 1 as frames of the session whose address or prefix contains their destination. Output 2 (optional): all
//! other frames and packets, unchanged: discovery, PPP's control protocols, IPv6 from and to link-local addresses (by
//! which a subscriber requests its prefix), frames to other stations, unknown sessions and addresses. All ports are
//! push.
//!
//! A packet with a source other than its session's is dropped (RFC 2827). Frames carry 1492 bytes of IP: put an
//! `IPFragmenter(1492)` before input 1.
//!
//! Arguments:
//! - `ETH`: its own Ethernet address.
//! - `SESSION`: the subscriber's Ethernet address, the session's number, the subscriber's IPv4 address, optionally its
//!   IPv6 prefix of at most 64 bits, and optionally the maximum bandwidth in each direction; bursts of up to a tenth
//!   of a second are permitted. Once per session, by position or as keyword.
//! - `CAPACITY`: maximum number of sessions; 1048576. More are refused.
//!
//! Handlers: `add` (write): a session in the form of SESSION, or new values for one; `remove` (write): `ETH NUMBER`;
//! `session` (read, `ETH NUMBER`): address, prefix or `-`, rate in bytes per second; packets, bytes and rate drops
//! from the subscriber; the same to it; `table` (read, with the number of lines, 100 by default): Ethernet address,
//! number, then the same, one session per line; `count` (sessions), `capacity`, `unknown`, `spoofed`, `limited`,
//! `malformed` (read).
use super::pppoe::{self, SessionFrame, Wrong};
use super::sessions::{Delegation, Direction, Refused, Session, Sessions, name, parts};
use crate::flow::table::USUAL;
use crate::packet::mac_text;
use core::fmt::Write;
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, ArgError, Bandwidth, Prefix6, Scope};
use ringway_click::prelude::*;
use ringway_click::{LINES, OrderedSet, PACKETS, Pieces, Progress};
use ringway_click_lang::config;
use ringway_wire::tunnel::Pppoe;
use ringway_wire::{Header, Ipv4, Ipv6, MacAddress};

pub static CLASS: Class = Class::new("PPPoEConcentrator", || Box::<PppoeConcentrator>::default())
    .ports("2/2-3")
    .processing("h")
    .flow("xy/xyz")
    .metadata(Metadata::Resolve);

/// Lines of a table. Attack: a handler that would print millions while packets wait.
const MOST_LINES: usize = 10_000;

/// A session as given in an argument.
struct SessionArg {
    name: u64,
    address: Ipv4Addr,
    delegation: Delegation,
    rate: u32,
}

impl Arg for SessionArg {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let words = config::split_words(text);
        let [ethernet, number, address, more @ ..] = words.as_slice() else {
            return Err(ArgError::other("expected ETH NUMBER ADDRESS [PREFIX] [BANDWIDTH]"));
        };
        let prefix = more.first().and_then(|word| Prefix6::parse(word, scope).ok());
        let delegation = match prefix {
            Some(prefix) => Delegation::new(prefix)
                .ok_or_else(|| ArgError::other("the prefix must have between 1 and 64 bits"))?,
            None => Delegation::default(),
        };
        let rate = match &more[usize::from(prefix.is_some())..] {
            [] => 0,
            [rate] => Bandwidth::parse(rate, scope)?.0,
            _ => return Err(ArgError::other("expected ETH NUMBER ADDRESS [PREFIX] [BANDWIDTH]")),
        };
        let name = name(MacAddress::parse(ethernet, scope)?, u16::parse(number, scope)?);
        Ok(Self { name, address: Ipv4Addr::parse(address, scope)?, delegation, rate })
    }
}

/// The outcome of processing a packet.
enum Verdict {
    On,
    Other,
    Drop,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Count {
    fn of(direction: &Direction) -> Self {
        Self { packets: direction.packets, bytes: direction.bytes }
    }
}

/// What passed in a session, from the subscriber and to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) up: Count,
    pub(crate) down: Count,
}

#[derive(Debug, Default)]
pub struct PppoeConcentrator {
    ethernet: MacAddress,
    sessions: Sessions,
    /// Keys of the sessions that a server opened, and ends.
    served: OrderedSet<u64>,
    unknown: u64,
    spoofed: u64,
    limited: u64,
    malformed: u64,
}

impl PppoeConcentrator {
    fn add(&mut self, wanted: &SessionArg, now: u64) -> Result<(), String> {
        let SessionArg { name, address, delegation, rate } = *wanted;
        self.sessions.add(name, (address, delegation), rate, now).map_err(|refused| match refused {
            Refused::Full => "too many sessions".to_string(),
            Refused::AddressTaken => format!("{address} is another session's"),
            Refused::PrefixTaken => format!("{delegation} is another session's"),
            Refused::Number => "session number must be between 1 and 65534".to_string(),
        })
    }

    /// Its own Ethernet address.
    pub(crate) fn address(&self) -> MacAddress {
        self.ethernet
    }

    /// Whether a server opened this session.
    pub(crate) fn serves(&self, peer: MacAddress, number: u16) -> bool {
        self.served.contains(name(peer, number))
    }

    /// Whether this session was configured here, and not opened by a server.
    pub(crate) fn has_own(&self, peer: MacAddress, number: u16) -> bool {
        self.sessions.sessions.find_one(name(peer, number)).is_some() && !self.serves(peer, number)
    }

    /// Adds a session for a server, which also removes it; it is kept when the configuration is replaced.
    pub(crate) fn open(
        &mut self,
        (peer, number): (MacAddress, u16),
        (address, prefix): (Ipv4Addr, Option<Prefix6>),
        rate: u32,
        now: u64,
    ) -> Result<(), String> {
        if self.has_own(peer, number) {
            return Err(format!("session {number} is configured already"));
        }
        let name = name(peer, number);
        self.sessions.remove(name);
        let delegation = prefix.and_then(Delegation::new).unwrap_or_default();
        self.add(&SessionArg { name, address, delegation, rate }, now)?;
        self.served.insert(name);
        Ok(())
    }

    /// Removes a server's session.
    pub(crate) fn close(&mut self, peer: MacAddress, number: u16) {
        if self.served.remove(name(peer, number)) {
            self.sessions.remove(name(peer, number));
        }
    }

    /// What passed in a server's session.
    pub(crate) fn traffic(&self, peer: MacAddress, number: u16) -> Option<Traffic> {
        let number =
            self.sessions.sessions.find_one(name(peer, number)).filter(|_| self.serves(peer, number))?;
        let (_, session) = self.sessions.sessions.get(number)?;
        Some(Traffic { up: Count::of(&session.up), down: Count::of(&session.down) })
    }

    /// Handles a frame from a subscriber.
    #[inline]
    fn up(&mut self, packet: &mut Packet, frame: SessionFrame, hash: u64, now: u64) -> Verdict {
        let Some(number) = self.sessions.sessions.find(hash, name(frame.source, frame.session)) else {
            self.unknown += 1;
            return Verdict::Other;
        };
        let data = packet.data().get(Pppoe::LEN..).unwrap_or_default();
        let data = data.get(..frame.length).unwrap_or_default();
        let (four, six) = match frame.protocol {
            Pppoe::IPV4 => (Ipv4::of(data).filter(|ip| ip.version() == 4), None),
            Pppoe::IPV6 => (None, Ipv6::of(data).filter(|ip| ip.version() == 6)),
            _ => return Verdict::Other,
        };
        if four.is_none() && six.is_none() {
            self.malformed += 1;
            return Verdict::Drop;
        }
        if six.is_some_and(is_local) {
            return Verdict::Other;
        }
        let Some(session) = self.sessions.sessions.touch(number, now) else { return Verdict::Drop };
        let own = four.is_some_and(|ip| session.address == ip.source.get())
            || six.is_some_and(|ip| session.delegation.holds((ip.source.get() >> 64) as u64));
        if !own {
            self.spoofed += 1;
            return Verdict::Drop;
        }
        // Whether a packet exceeds its rate is often random, so dropped packets are changed too, without a branch.
        let passed = session.up.pass(frame.length, session.rate, now);
        self.limited += u64::from(!passed);
        frame.strip(packet);
        if passed { Verdict::On } else { Verdict::Drop }
    }

    /// Handles a packet for a subscriber.
    #[inline]
    fn down(&mut self, packet: &mut Packet, number: Option<u32>, now: u64) -> Verdict {
        let Some(number) = number else {
            self.unknown += 1;
            return Verdict::Other;
        };
        let length = packet.len();
        let Some((name, _)) = self.sessions.sessions.get(number) else { return Verdict::Drop };
        let (subscriber, id) = parts(*name);
        let Some(session) = self.sessions.sessions.touch(number, now) else { return Verdict::Drop };
        let passed = session.down.pass(length, session.rate, now);
        self.limited += u64::from(!passed);
        let wrapped = pppoe::wrap(packet, subscriber, self.ethernet, id);
        self.malformed += u64::from(passed & !wrapped);
        if passed & wrapped { Verdict::On } else { Verdict::Drop }
    }

    fn push_up(&mut self, burst: &mut PacketBurst, now: u64, cx: &mut Context<'_>) {
        let mut found = [const { Err(Wrong::Other) }; PACKETS];
        for (packet, place) in burst.iter().zip(&mut found) {
            let frame = SessionFrame::of(packet.data());
            let own = |frame: SessionFrame| {
                if frame.destination == self.ethernet { Ok(frame) } else { Err(Wrong::Other) }
            };
            *place = frame
                .and_then(own)
                .map(|frame| (frame, self.sessions.sessions.approach(name(frame.source, frame.session))));
        }
        for (_, hash) in found.iter().flatten() {
            self.sessions.sessions.near(*hash);
        }
        cx.scatter(burst, |number, packet| {
            let verdict = match found[number] {
                Ok((frame, hash)) => self.up(packet, frame, hash, now),
                Err(Wrong::Other) => Verdict::Other,
                Err(Wrong::Malformed) => {
                    self.malformed += 1;
                    Verdict::Drop
                }
            };
            verdict.output(0)
        });
    }

    fn push_down(&mut self, burst: &mut PacketBurst, now: u64, cx: &mut Context<'_>) {
        let (mut found, mut numbers) = ([None; PACKETS], [None; PACKETS]);
        for ((packet, place), number) in burst.iter().zip(&mut found).zip(&mut numbers) {
            let data = packet.network_data().unwrap_or_default();
            if let Some(ip) = Ipv4::of(data).filter(|ip| ip.version() == 4) {
                let address = ip.destination.get();
                *place = Some((address, self.sessions.addresses.approach(address)));
            } else if let Some(ip) = Ipv6::of(data).filter(|ip| ip.version() == 6 && !is_local(ip)) {
                *number = self.sessions.by_prefix((ip.destination.get() >> 64) as u64);
            }
        }
        for (_, hash) in found.iter().flatten() {
            self.sessions.addresses.near(*hash);
        }
        for (place, number) in found.iter().zip(&mut numbers) {
            let Some((address, hash)) = place else { continue };
            let at = self.sessions.addresses.find(*hash, *address);
            *number = at.and_then(|at| self.sessions.addresses.get(at)).map(|(_, number)| *number);
            if let Some(number) = number {
                self.sessions.sessions.fetch(*number, |session| &session.down);
            }
        }
        cx.scatter(burst, |number, packet| self.down(packet, numbers[number], now).output(1));
    }

    fn name(text: &str, cx: &Context<'_>) -> Result<u64, HandlerError> {
        let words = config::split_words(text);
        let [ethernet, number] = words.as_slice() else {
            return Err(HandlerError::failed("expected ETH NUMBER"));
        };
        let wrong = |error: ArgError| HandlerError::failed(error.to_string());
        Ok(name(cx.parse(ethernet).map_err(wrong)?, cx.parse(number).map_err(wrong)?))
    }

    /// Reads sessions, in steps: the number in the parameter, 100 by default.
    fn table(
        &mut self,
        parameter: &str,
        pieces: &mut Pieces,
        cx: &mut Context<'_>,
    ) -> Result<Progress, HandlerError> {
        let lines = if parameter.is_empty() { 100 } else { cx.parse::<u32>(parameter)? as usize };
        let (from, before): (u32, usize) = pieces.kept();
        let left = lines.min(MOST_LINES) - before;
        let (sessions, next) = self.sessions.sessions.some(from, LINES);
        let mut count = before;
        for (name, session) in sessions.take(left) {
            let (ethernet, number) = parts(*name);
            let _ = writeln!(pieces.text, "{} {number} {}", mac_text(ethernet), line(session));
            count += 1;
        }
        let next = next.filter(|_| count < lines.min(MOST_LINES));
        Ok(next.map_or(Progress::Done, |next| pieces.keep((next, count))))
    }
}

/// Whether an IPv6 packet must stay on its link: from or to a link-local address, from the unspecified address, or to
/// a link-local group (RFC 4291).
fn is_local(ip: &Ipv6) -> bool {
    let [source, destination] = [ip.source, ip.destination].map(|address| (address.get() >> 64) as u64);
    let on_link = |address: u64| address >> 54 == 0xfe80 >> 6;
    on_link(source) || on_link(destination) || source == 0 || destination >> 48 & 0xff0f == 0xff02
}

impl Verdict {
    /// The output, where `on` is that of packets of sessions.
    #[inline]
    fn output(self, on: usize) -> Option<usize> {
        match self {
            Self::On => Some(on),
            Self::Other => Some(2),
            Self::Drop => None,
        }
    }
}

fn line(session: &Session) -> String {
    let Session { address, rate, delegation, up, down } = session;
    let prefix = if *delegation == Delegation::default() { "-".to_string() } else { delegation.to_string() };
    format!(
        "{} {prefix} {rate} {} {} {} {} {} {}",
        Ipv4Addr::from_bits(*address),
        up.packets,
        up.bytes,
        up.limited,
        down.packets,
        down.bytes,
        down.limited
    )
}

impl Element for PppoeConcentrator {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut capacity = USUAL;
        args.read_mp("ETH", &mut self.ethernet);
        args.read("CAPACITY", &mut capacity);
        let mut wanted: Vec<SessionArg> = Vec::new();
        args.read_all("SESSION", &mut wanted);
        args.result()?;
        let scope = cx.scope();
        for (number, text) in args.take_rest().into_iter().enumerate() {
            if number % LINES == LINES - 1 {
                cx.breathe();
            }
            match SessionArg::parse(&text, &scope) {
                Ok(session) => wanted.push(session),
                Err(error) => args.error(format!("SESSION '{text}': {error}")),
            }
        }
        args.complete()?;
        if capacity == 0 {
            return Err(cx.error("CAPACITY must be > 0"));
        }
        let seed = cx.own_seed();
        self.sessions = Sessions::new(capacity, seed);
        for (number, session) in wanted.into_iter().enumerate() {
            if number % LINES == LINES - 1 {
                cx.breathe();
            }
            self.add(&session, 0).map_err(|error| cx.error(error))?;
        }
        Ok(())
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        if port == 0 { self.push_up(burst, now, cx) } else { self.push_down(burst, now, cx) }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.sessions.sessions.len()),
            Handler::read("capacity", |e: &Self| e.sessions.sessions.capacity()),
            Handler::counter("unknown", |e: &mut Self| &mut e.unknown),
            Handler::counter("spoofed", |e: &mut Self| &mut e.spoofed),
            Handler::counter("limited", |e: &mut Self| &mut e.limited),
            Handler::counter("malformed", |e: &mut Self| &mut e.malformed),
            Handler::read_with("session", |e: &mut Self, parameter, cx| {
                let sessions = &e.sessions.sessions;
                let found = sessions.find_one(Self::name(parameter, cx)?);
                let session = found.and_then(|number| sessions.get(number));
                session
                    .map(|(_, session)| line(session))
                    .ok_or_else(|| HandlerError::failed("no such session"))
            })
            .parameters(),
            Handler::read_in_pieces("table", Self::table).parameters().expensive(),
            Handler::write("add", |e: &mut Self, value, cx| {
                let wanted = cx.parse::<SessionArg>(value)?;
                e.add(&wanted, cx.coarse_now()).map_err(HandlerError::failed)
            }),
            Handler::write("remove", |e: &mut Self, value, cx| {
                let removed = e.sessions.remove(Self::name(value, cx)?);
                removed.then_some(()).ok_or_else(|| HandlerError::failed("no such session"))
            }),
        ]
        .into()
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.sessions.reseed(cx.own_seed());
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        for (name, old) in from.sessions.sessions.iter() {
            if from.served.contains(*name) && from.ethernet == self.ethernet {
                let (peer, number) = parts(*name);
                let prefix = (old.delegation != Delegation::default()).then(|| old.delegation.prefix());
                // A session that the new configuration has no room for, or whose address it gives to another.
                let _ = self.open((peer, number), (Ipv4Addr::from_bits(old.address), prefix), old.rate, 0);
            }
            let number = self.sessions.sessions.find_one(*name);
            if let Some(session) = number.and_then(|number| self.sessions.sessions.get_mut(number)) {
                (session.up, session.down) = (old.up, old.down);
            }
        }
    }
}
