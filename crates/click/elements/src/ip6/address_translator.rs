//! `AddressTranslator(N, [STATIC_PORTS, MAPPING, ...], DYNAMIC, [PORTS, INWARD, ADDRESS, ...])`: translates addresses
//! and ports of IPv6 packets with TCP, UDP or ICMPv6.
//!
//! Ports: input 0: outward packets; they go to output 0 with a translated source. Input 1: inward packets; they go to
//! output 1 with a translated destination. All ports are push. Packets without a mapping, fragments, and other
//! protocols are dropped.
//!
//! Arguments, by position:
//! - `N`: number of static mappings. If there are any, `STATIC_PORTS` says whether they map ports too, and each
//!   mapping is `INNER MAPPED`, or `INNER PORT MAPPED PORT`.
//! - `DYNAMIC`: whether packets create further mappings. If so:
//! - `PORTS`: whether these map ports too.
//! - `INWARD`: true if inward packets create them, false if outward packets do.
//! - `ADDRESS`: without PORTS, addresses to map to, each for one host at a time; with PORTS one argument, `ADDRESS
//!   FIRST LAST`: the address and its ports. If no port is free, the least recently used of sixteen flows loses its
//!   port.
//!
//! The identifier of an echo is used as its ports. Packets begin with their IPv6 header, or have it marked.
//!
//! Handlers: `drops`, `evictions`, `table` (read): one line per dynamic mapping: inside, mapped, and outside with
//! PORTS.
use alloc::collections::BTreeMap;
use core::fmt::Write;
use core::net::Ipv6Addr;
use core::ops::Bound::{Excluded, Unbounded};
use ringway_click::arg::{Arg, Scope};
use ringway_click::prelude::*;
use ringway_click::{LINES, Pieces, Progress};
use ringway_click_lang::config;
use ringway_wire::checksum::{update, update_u128};
use ringway_wire::icmp::v6;
use ringway_wire::{Header, Icmp, Ipv6, Protocol, U16, Udp, ipv6};

pub static CLASS: Class = Class::new("AddressTranslator", || Box::<AddressTranslator>::default())
    .ports("2/2")
    .processing("h")
    .flow("xy/xy")
    .metadata(Metadata::Resolve);

/// Ports examined for a new flow.
const LOOKS: usize = 16;

/// An address and a port.
type End = (u128, u16);

/// Whether a packet's source is the inside end or the outside end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Outward,
    Inward,
}

/// The end of a packet that is translated, and the other end.
#[derive(Clone, Copy, Debug)]
struct Ends {
    own: End,
    other: End,
    protocol: Protocol,
    /// Offset of the transport header from the IPv6 header.
    transport: usize,
}

/// The ports, or the values used as ports; zeros for protocols without ports.
fn ports(protocol: Protocol, segment: &[u8]) -> Option<[u16; 2]> {
    let (udp, icmp) = (Udp::of(segment)?, Icmp::of(segment)?);
    match (protocol, icmp.kind) {
        (Protocol::TCP | Protocol::UDP, _) => Some([udp.source_port.get(), udp.destination_port.get()]),
        (Protocol::ICMPV6, v6::ECHO | v6::ECHO_REPLY) => Some([icmp.identifier.get(); 2]),
        (Protocol::ICMPV6, _) => Some([0; 2]),
        _ => None,
    }
}

impl Ends {
    fn of(data: &[u8], way: Way) -> Option<Self> {
        let ip = ipv6::Packet::parse(data)?;
        let upper = ip.upper().filter(|upper| !upper.fragment && !upper.routed)?;
        let ports = ports(upper.protocol, upper.payload)?;
        let source = (ip.header.source.get(), ports[0]);
        let destination = (ip.header.destination.get(), ports[1]);
        let (own, mut other) =
            if way == Way::Outward { (source, destination) } else { (destination, source) };
        if upper.protocol == Protocol::ICMPV6 {
            other.1 = 0;
        }
        let transport = Ipv6::LEN + ip.payload.len() - upper.payload.len();
        Some(Self { own, other, protocol: upper.protocol, transport })
    }

    /// Replaces the packet's translated end, and updates the checksum that covers it (RFC 1624).
    fn write(&self, data: &mut [u8], (address, port): End, way: Way) -> Option<()> {
        let outward = way == Way::Outward;
        let (head, segment) = data.split_at_mut_checked(self.transport)?;
        let ip = Ipv6::of_mut(head)?;
        let field = if outward { &mut ip.source } else { &mut ip.destination };
        let old = core::mem::replace(field, address.into());
        let is_echo = matches!(*segment.first()?, v6::ECHO | v6::ECHO_REPLY);
        let [source, destination, identifier, _] = <[U16; 4]>::of_mut(segment)?;
        let own = match self.protocol {
            Protocol::ICMPV6 => is_echo.then_some(identifier),
            _ => Some(if outward { source } else { destination }),
        };
        let change = own.map(|own| (core::mem::replace(own, port.into()).get(), port));
        let checksum = self.protocol.checksum_at().and_then(|at| U16::of_mut(segment.get_mut(at..)?));
        if let Some(checksum) = checksum {
            let sum = update_u128(checksum.get(), old.get(), address);
            let sum = change.map_or(sum, |(old, new)| update(sum, old, new));
            checksum.set(if sum == 0 { 0xffff } else { sum });
        }
        Some(())
    }
}

/// A configured mapping; ports only matter if they are mapped.
#[derive(Clone, Copy, Debug)]
struct Fixed {
    inner: End,
    mapped: End,
}

fn text(address: u128) -> Ipv6Addr {
    Ipv6Addr::from_bits(address)
}

/// The key of a flow with a mapped port: its inside end before translation, its outside end, and the protocol.
type Flow = (End, End, Protocol);

/// How mappings are made.
#[derive(Debug, Default)]
enum Dynamic {
    #[default]
    None,
    /// Addresses, each with the host to which it is assigned.
    Addresses(Vec<(u128, Option<u128>)>),
    Ports(Pool),
}

/// The ports of an address.
#[derive(Debug, Default)]
struct Pool {
    address: u128,
    first: u16,
    /// Indexed by port: the flow that uses it, and the time it was last used.
    taken: Vec<Option<(Flow, u64)>>,
    flows: BTreeMap<Flow, u16>,
    /// Where the search for the next port begins.
    next: usize,
    evictions: u64,
}

impl Pool {
    /// Chooses a free port among the next few, or else the least recently used of them.
    fn choose(&mut self) -> usize {
        let ports = self.taken.len();
        let next = (0..LOOKS.min(ports)).map(|step| (self.next + step) % ports);
        let seen = |index: &usize| self.taken[*index].as_ref().map_or(0, |(_, seen)| seen.saturating_add(1));
        let chosen = next.min_by_key(seen).unwrap_or(0);
        self.next = (chosen + 1) % ports.max(1);
        chosen
    }

    /// The mapped end of a flow; with `make` one is assigned if the flow has none.
    fn map(&mut self, flow: Flow, make: bool, now: u64) -> Option<End> {
        let port = match self.flows.get(&flow) {
            Some(port) => *port,
            None if !make => return None,
            None => {
                let index = self.choose();
                if let Some((old, _)) = self.taken[index] {
                    self.flows.remove(&old);
                    self.evictions += 1;
                }
                let port = self.first + index as u16;
                self.flows.insert(flow, port);
                port
            }
        };
        *self.taken.get_mut(usize::from(port - self.first))? = Some((flow, now));
        Some((self.address, port))
    }

    /// The inside end to which packets from outside to a mapped end belong.
    fn back(&mut self, (address, port): End, other: End, protocol: Protocol, now: u64) -> Option<End> {
        let index = usize::from(port.checked_sub(self.first)?);
        let ((own, outside, theirs), seen) = self.taken.get_mut(index)?.as_mut()?;
        let same = address == self.address && *outside == other && *theirs == protocol;
        same.then(|| {
            *seen = now;
            *own
        })
    }
}

#[derive(Debug, Default)]
pub struct AddressTranslator {
    fixed: Vec<Fixed>,
    fixed_ports: bool,
    dynamic: Dynamic,
    inward: bool,
    drops: u64,
}

fn address(word: &str, scope: &Scope) -> Option<u128> {
    Ipv6Addr::parse(word, scope).ok().map(Ipv6Addr::to_bits)
}

impl AddressTranslator {
    /// The translated end of a packet.
    fn translate(&mut self, ends: &Ends, way: Way, now: u64) -> Option<End> {
        let (own, ports) = (ends.own, self.fixed_ports);
        for Fixed { inner, mapped } in &self.fixed {
            let (from, to) = if way == Way::Outward { (inner, mapped) } else { (mapped, inner) };
            if from.0 == own.0 && (!ports || from.1 == own.1) {
                return Some((to.0, if ports { to.1 } else { own.1 }));
            }
        }
        let makes = (way == Way::Inward) == self.inward;
        match &mut self.dynamic {
            Dynamic::None => None,
            Dynamic::Addresses(pool) if makes => {
                let known = pool.iter().position(|(_, host)| *host == Some(own.0));
                let place = known.or_else(|| pool.iter().position(|(_, host)| host.is_none()))?;
                let (mapped, host) = pool.get_mut(place)?;
                *host = Some(own.0);
                Some((*mapped, own.1))
            }
            Dynamic::Addresses(pool) => {
                let (_, host) = pool.iter().find(|(mapped, _)| *mapped == own.0)?;
                host.map(|host| (host, own.1))
            }
            Dynamic::Ports(pool) if makes => pool.map((own, ends.other, ends.protocol), true, now),
            Dynamic::Ports(pool) => pool.back(own, ends.other, ends.protocol, now),
        }
    }

    fn pass(&mut self, packet: &mut Packet, way: Way, now: u64) -> Option<()> {
        if packet.network_data().is_none() {
            packet.set_network_header(0, Ipv6::LEN);
        }
        let ends = Ends::of(packet.network_data()?, way)?;
        let new = self.translate(&ends, way, now)?;
        ends.write(packet.network_data_mut()?, new, way)?;
        if way == Way::Inward {
            packet.notes_mut().set(Annotations::DST_IP6, new.0.to_be_bytes());
        }
        Some(())
    }

    fn read_fixed(&mut self, texts: &[String], scope: &Scope) -> Result<(), String> {
        for text in texts {
            let words = config::split_words(text);
            let word = |at: usize| words.get(at).map(String::as_str).unwrap_or_default();
            let port = |at: usize| u16::parse(word(at), scope).ok();
            let (count, found) = match self.fixed_ports {
                true => (4, address(word(0), scope).zip(port(1)).zip(address(word(2), scope).zip(port(3)))),
                false => {
                    (2, address(word(0), scope).map(|a| (a, 0)).zip(address(word(1), scope).map(|a| (a, 0))))
                }
            };
            let (inner, mapped) = found.filter(|_| words.len() == count).ok_or_else(|| {
                let ports = if self.fixed_ports { "INNER PORT MAPPED PORT" } else { "INNER MAPPED" };
                format!("mapping '{text}' should be '{ports}'")
            })?;
            self.fixed.push(Fixed { inner, mapped });
        }
        Ok(())
    }

    fn read_dynamic(&mut self, texts: &[String], ports: bool, scope: &Scope) -> Result<(), String> {
        if !ports {
            let parsed = texts.iter().map(|text| {
                let found = address(text, scope).map(|address| (address, None));
                found.ok_or_else(|| format!("'{text}' should be an IPv6 address"))
            });
            self.dynamic = Dynamic::Addresses(parsed.collect::<Result<_, _>>()?);
            return Ok(());
        }
        let words = texts.first().map(|text| config::split_words(text)).unwrap_or_default();
        let range = match words.as_slice() {
            [own, first, last] => {
                let port = |word: &str| u16::parse(word, scope).ok();
                address(own, scope)
                    .zip(port(first))
                    .zip(port(last))
                    .filter(|((_, first), last)| first <= last)
            }
            _ => None,
        };
        let ((own, first), last) =
            range.filter(|_| texts.len() == 1).ok_or("expected one 'ADDRESS FIRST LAST' with PORTS")?;
        let taken = (first..=last).map(|_| None).collect();
        self.dynamic = Dynamic::Ports(Pool { address: own, first, taken, ..Pool::default() });
        Ok(())
    }

    fn read_arguments(&mut self, texts: &[String], scope: &Scope) -> Result<(), String> {
        let boolean = |at: usize| {
            let text = texts.get(at).ok_or_else(|| "too few arguments".to_string())?;
            bool::parse(text, scope).map_err(|_| format!("argument {at} should be : bool"))
        };
        let count = texts.first().and_then(|text| u16::parse(text, scope).ok());
        let count = usize::from(count.ok_or("argument 0 should be : integer")?);
        let mut at = 1;
        if count > 0 {
            self.fixed_ports = boolean(1)?;
            let given = texts.get(2..2 + count).ok_or("too few mappings")?;
            self.read_fixed(given, scope)?;
            at = 2 + count;
        }
        if !boolean(at)? {
            return if texts.len() > at + 1 { Err("too many arguments".to_string()) } else { Ok(()) };
        }
        let ports = boolean(at + 1)?;
        self.inward = boolean(at + 2)?;
        self.read_dynamic(&texts[at + 3..], ports, scope)
    }

    /// The mappings, in steps.
    fn table(&self, pieces: &mut Pieces) -> Progress {
        match &self.dynamic {
            Dynamic::None => Progress::Done,
            Dynamic::Addresses(pool) => {
                let from: usize = pieces.kept();
                let piece = pool.iter().skip(from).take(LINES);
                for (mapped, host) in piece.filter_map(|(mapped, host)| Some((mapped, (*host)?))) {
                    let _ = writeln!(pieces.text, "{} {}", text(host), text(*mapped));
                }
                if from + LINES < pool.len() { pieces.keep(from + LINES) } else { Progress::Done }
            }
            Dynamic::Ports(pool) => {
                let last: Option<Flow> = pieces.kept();
                let behind = last.map_or(Unbounded, Excluded);
                let mut last = None;
                for (flow, port) in pool.flows.range((behind, Unbounded)).take(LINES) {
                    let (own, other, _) = flow;
                    let (inside, mapped, outside) = (text(own.0), text(pool.address), text(other.0));
                    let _ = writeln!(pieces.text, "{inside} {} {mapped} {port} {outside} {}", own.1, other.1);
                    last = Some(*flow);
                }
                last.map_or(Progress::Done, |last| pieces.keep(Some(last)))
            }
        }
    }
}

impl Element for AddressTranslator {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let texts = args.take_rest();
        args.complete()?;
        self.read_arguments(&texts, &cx.scope()).map_err(|error| cx.error(error))
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let (way, now) = (if port == 0 { Way::Outward } else { Way::Inward }, cx.coarse_now());
        for mut packet in burst.drain() {
            match self.pass(&mut packet, way, now) {
                Some(()) => cx.push(port, packet),
                None => self.drops += 1,
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read("evictions", |e: &Self| match &e.dynamic {
                Dynamic::Ports(pool) => pool.evictions,
                _ => 0,
            }),
            Handler::read_in_pieces("table", |e: &mut Self, _, pieces, _| Ok(e.table(pieces))),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        match (&mut self.dynamic, &mut from.dynamic) {
            (Dynamic::Ports(own), Dynamic::Ports(old))
                if (own.address, own.first, own.taken.len()) == (old.address, old.first, old.taken.len()) =>
            {
                core::mem::swap(own, old);
            }
            (Dynamic::Addresses(own), Dynamic::Addresses(old)) if self.inward == from.inward => {
                for (mapped, host) in own {
                    *host = old.iter().find(|(address, _)| address == mapped).and_then(|(_, host)| *host);
                }
            }
            _ => {}
        }
    }
}
