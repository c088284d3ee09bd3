//! The examples with their traffic, and the addresses of frames that have passed.

use super::Example;
use super::ends::{Ends, station};
use super::opening::{Connections, Once, frame};
use super::seen::Seen;
use super::subscribers::Subscribers;
use crate::Failure;
use crate::click::frames::{Flow, Frames, HEADERS, KEPT, LEAST, Length, Numbers, PPPOE, in_session};
use crate::click::{flow, middlebox};
use ringway_wire::{EtherType, Ethernet, Header, Ipv6, MacAddress, Protocol, Udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which way frames take.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Frames from `inside` to `outside`.
    Out,
    /// Frames from `outside` to `inside`.
    In,
    /// Frames from `inside` to `inside`.
    Back,
}

/// What frames belong to.
pub enum Traffic {
    /// So many flows of TCP segments, to this station or to the destinations' own.
    Flows(usize, fn(usize) -> Flow, Option<MacAddress>),
    /// So many flows of TCP segments that begin with a handshake.
    Connections(usize, fn(usize) -> Flow, Option<MacAddress>),
    /// UDP over IPv6.
    Routes6,
    /// Sessions of PPP over Ethernet.
    Sessions,
    /// Segments with text, each the next one of its connection.
    Text,
}

/// The functions' own addresses, inside and outside.
const INSIDE: MacAddress = MacAddress([2, 0, 0, 0, 1, 1]);
const OUTSIDE: MacAddress = MacAddress([2, 0, 0, 0, 2, 1]);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const WAN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The network of the load balancer's clients, or of PPP's subscribers, with hosts in its last two bytes.
const CLIENTS: [u8; 2] = [203, 0];
const POOL: [u8; 2] = [198, 18];
/// Hosts of a network.
const HOSTS: usize = 250;
const CONNECTIONS: usize = 50_000;
const SESSIONS: usize = 4000;
/// Flows of which one frame is sent before all of them, so that next hops are known.
const FIRST: usize = 1024;

/// An example without parameters whose frames pass unchanged.
const PLAIN: Example = Example {
    name: "",
    text: "",
    parameters: &[],
    way: Way::Out,
    traffic: Traffic::Flows(LEAST, |number| flow(number as u64), None),
    is_right: is_unchanged,
    note: "flows are not opened",
};

/// An example with its file.
macro_rules! example {
    ($name:literal, $($field:ident: $value:expr),* $(,)?) => {
        Example {
            name: $name,
            text: include_str!(concat!("../../../../examples/functions/", $name, ".click")),
            $($field: $value,)*
            ..PLAIN
        }
    };
}

/// All examples that have keys.
#[allow(clippy::needless_update, reason = "some examples name every field")]
pub const EXAMPLES: &[Example] = &[
    example!("wire",),
    example!(
        "mirror",
        way: Way::Back,
        is_right: |seen| is_between(seen, [10, 172], 64)
            && seen.stations == [station(seen.addresses[0]), station(seen.addresses[1])],
    ),
    example!(
        "router",
        traffic: Traffic::Flows(CONNECTIONS, |number| between(number, [10, 0, 1], [10, 0, 2]), Some(INSIDE)),
        is_right: |seen| is_between(seen, [10, 10], 63)
            && seen.stations == [station(seen.addresses[1]), OUTSIDE],
        note: "next hops are resolved by ARP before",
    ),
    example!(
        "router6",
        traffic: Traffic::Routes6,
        is_right: |seen| seen.hops == 63
            && seen.stations == [station(seen.addresses[1]), OUTSIDE]
            && seen.addresses == [left(seen), right(seen)].map(IpAddr::V6),
        note: "next hops are resolved by neighbor discovery before",
    ),
    example!(
        "firewall",
        traffic: Traffic::Connections(CONNECTIONS, |number| between(number, [10, 0, 0], [192, 0, 2]), None),
        note: HANDSHAKES,
    ),
    example!(
        "nat",
        traffic: Traffic::Connections(
            CONNECTIONS,
            |number| between(number, [10, 0, 0], [198, 51, 100]),
            Some(INSIDE)
        ),
        is_right: is_translated,
        note: HANDSHAKES,
    ),
    example!(
        "cgnat",
        traffic: Traffic::Connections(
            30_000,
            |number| Flow {
                addresses: [Ipv4Addr::new(100, 64, 0, 2 + (number % 60) as u8), server(number)],
                ports: [1024 + (number / 60) as u16, 80],
                opens: false,
            },
            Some(INSIDE)
        ),
        is_right: is_translated,
        note: HANDSHAKES,
    ),
    example!(
        "bras",
        // A pool for more sessions than the file's; nobody answers echo requests while frames are counted.
        parameters: &[("POOL", "198.18.0.0/20"), ("GATEWAY", "198.18.0.1"), ("ECHO", "0")],
        traffic: Traffic::Sessions,
        is_right: |seen| seen.hops == 63
            && seen.stations == [station(GATEWAY.into()), OUTSIDE]
            && seen.v4(0).octets()[..2] == POOL,
        note: "sessions are opened by discovery, LCP, PAP and IPCP before",
    ),
    example!(
        "lb",
        // Nobody answers health checks while frames are counted.
        parameters: &[("CHECK", "false")],
        way: Way::In,
        traffic: Traffic::Connections(
            CONNECTIONS,
            |number| {
                let [a, b] = CLIENTS;
                let flow = between(number, [a, b, 113], [192, 0, 2]);
                Flow { addresses: [flow.addresses[0], Ipv4Addr::new(192, 0, 2, 80)], ..flow }
            },
            Some(OUTSIDE)
        ),
        is_right: |seen| seen.hops == 63
            && seen.stations == [station(seen.addresses[1]), INSIDE]
            && seen.v4(0).octets()[..2] == CLIENTS
            && [Ipv4Addr::new(10, 0, 0, 11), Ipv4Addr::new(10, 0, 0, 12)].contains(&seen.v4(1)),
        note: HANDSHAKES,
    ),
    example!(
        "flowmon",
        traffic: Traffic::Flows(1 << 15, |number| flow(number as u64), None),
        // Reports pass too.
        is_right: |seen| is_unchanged(seen) || seen.ports[1] == 4739,
    ),
    example!(
        "ids",
        way: Way::In,
        traffic: Traffic::Text,
        is_right: |seen| is_between(seen, [10, 172], 64),
        note: "each frame is its connection's next segment; no rule matches",
    ),
];

const HANDSHAKES: &str = "connections are opened by TCP's handshake before";

/// One of 50,000 flows between hosts of two networks.
fn between(number: usize, [a, b, c]: [u8; 3], [d, e, f]: [u8; 3]) -> Flow {
    let host = 2 + (number % HOSTS) as u8;
    let addresses = [Ipv4Addr::new(a, b, c, host), Ipv4Addr::new(d, e, f, 2 + (number % 200) as u8)];
    Flow { addresses, ports: [1024 + (number / HOSTS) as u16, 80], opens: false }
}

fn server(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, 2 + (number % 200) as u8)
}

/// Whether addresses begin with these bytes.
fn is_between(seen: &Seen, firsts: [u8; 2], hops: u8) -> bool {
    [seen.v4(0), seen.v4(1)].map(|address| address.octets()[0]) == firsts && seen.hops == hops
}

fn is_unchanged(seen: &Seen) -> bool {
    seen.hops == 64
        && seen.v4(0).octets()[0] == 10
        && seen.stations == [station(seen.addresses[1]), station(seen.addresses[0])]
}

fn is_translated(seen: &Seen) -> bool {
    seen.hops == 63
        && seen.stations == [station(GATEWAY.into()), OUTSIDE]
        && seen.v4(0) == WAN
        && seen.ports[0] >= 1024
        && seen.v4(1).octets()[..3] == [198, 51, 100]
}

fn host6(network: u16, host: u128) -> Ipv6Addr {
    Ipv6Addr::from_bits(Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, 0).to_bits() | host)
}

/// The addresses that a frame of the IPv6 router should have: both hosts as they are, their networks as given.
fn left(seen: &Seen) -> Ipv6Addr {
    host6(1, host(seen.addresses[0]))
}

fn right(seen: &Seen) -> Ipv6Addr {
    host6(2, host(seen.addresses[1]))
}

fn host(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(address) => u128::from(address.to_bits() as u16),
    }
}

/// UDP over IPv6 to the router; a frame of 64 bytes has two bytes of payload.
fn frame6(length: u16, number: usize) -> [u8; KEPT] {
    let [source, destination] =
        [host6(1, 10 + (number % HOSTS) as u128), host6(2, 0x100 + (number % 200) as u128)];
    let ethernet =
        Ethernet { destination: INSIDE, source: station(source.into()), ethertype: EtherType::IPV6 };
    let payload = length - HEADERS6 as u16 + Udp::LEN as u16;
    let ip = Ipv6 {
        payload_length: payload.into(),
        next_header: Protocol::UDP,
        hop_limit: 64,
        source: source.to_bits().into(),
        destination: destination.to_bits().into(),
        ..Ipv6::EMPTY
    };
    let ports = [1024 + (number / HOSTS) as u16, 53];
    let mut udp = Udp {
        source_port: ports[0].into(),
        destination_port: ports[1].into(),
        length: payload.into(),
        ..Udp::default()
    };
    // The payload is zeros.
    let mut sum = ip.pseudo_header(Protocol::UDP, payload.into());
    sum.add(udp.bytes());
    udp.checksum = sum.finish_nonzero().into();
    let mut frame = [0; KEPT];
    let all = [ethernet.bytes(), ip.bytes(), udp.bytes()].concat();
    frame[..all.len()].copy_from_slice(&all);
    frame
}

/// A subscriber's frame.
fn subscribed(length: u16, subscribers: &Subscribers, from: usize, to: usize) -> [u8; KEPT] {
    let (session, address) = subscribers.session(from);
    let flow = Flow { addresses: [address, server(to)], ports: [1024, 80], opens: false };
    let mut frame = in_session(length, session, flow);
    frame[..6].copy_from_slice(&INSIDE.0);
    frame
}

/// Ethernet, IPv6 and UDP, in bytes.
const HEADERS6: usize = Ethernet::LEN + Ipv6::LEN + Udp::LEN;

impl Traffic {
    /// Whether frames are segments of streams.
    pub fn is_stream(&self) -> bool {
        matches!(self, Traffic::Text)
    }

    /// Opens what frames need; returns them, uniform over flows.
    pub fn open(&self, ends: &mut Ends<'_>, length: Length) -> Result<Frames, Failure> {
        let mut numbers = Numbers(37);
        let mut any = |count: usize| numbers.below(count as u64) as usize;
        match self {
            Traffic::Flows(count, flow, to) => {
                let first = (0..FIRST).map(|number| frame(KEPT as u16, flow(number), *to));
                ends.open(&mut Once::of(first.collect()))?;
                Ok(Frames::made(length, HEADERS, frames(*count), |_, bytes| {
                    frame(bytes, flow(any(*count)), *to)
                }))
            }
            Traffic::Connections(count, flow, to) => {
                ends.open(&mut Connections::of((0..*count).map(flow).collect(), *to))?;
                Ok(Frames::made(length, HEADERS, frames(*count), |_, bytes| {
                    frame(bytes, flow(any(*count)), *to)
                }))
            }
            Traffic::Routes6 => {
                ends.open(&mut Once::of((0..FIRST).map(|number| frame6(KEPT as u16, number)).collect()))?;
                Ok(Frames::made(length, HEADERS6, frames(CONNECTIONS), |_, bytes| {
                    frame6(bytes, any(CONNECTIONS))
                }))
            }
            Traffic::Sessions => {
                let mut subscribers = Subscribers::new(SESSIONS, INSIDE, ["alice", "wonderland"]);
                ends.open(&mut subscribers)?;
                // The gateway's address is resolved.
                ends.open(&mut Once::of(vec![subscribed(KEPT as u16, &subscribers, 0, 0)]))?;
                Ok(Frames::made(length, HEADERS + PPPOE, frames(SESSIONS), |_, bytes| {
                    subscribed(bytes, &subscribers, any(SESSIONS), any(SESSIONS))
                }))
            }
            Traffic::Text => {
                let first = (0..FIRST).map(|number| frame(KEPT as u16, flow(number as u64), None));
                ends.open(&mut Once::of(first.collect()))?;
                Ok(middlebox::searched(5, length))
            }
        }
    }
}

/// Number of frames for so many flows: most flows have one.
fn frames(flows: usize) -> usize {
    (2 * flows).max(LEAST)
}
