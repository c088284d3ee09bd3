//! Which flow an IP packet belongs to.
use super::table::{Key, fold};
use crate::packet::{is_later_fragment, u16_at};
use crate::rewriter::key::FlowKey;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use ringway_click::Packet;
use ringway_wire::ipv6;

/// Protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// Protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// Addresses, ports and protocol of IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) ends: FlowKey,
    pub(crate) protocol: u8,
}

impl Key for Connection {
    #[inline]
    fn hash(self, seed: u64) -> u64 {
        self.ends.hash(self.protocol.into(), seed)
    }
}

/// Addresses, ports and protocol of IPv6; for who keeps both in one table, of IPv4 too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connection6 {
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) protocol: u8,
}

impl Key for Connection6 {
    #[inline]
    fn hash(self, seed: u64) -> u64 {
        let halves = |address: u128| ((address >> 64) as u64, address as u64);
        let ((a, b), (c, d)) = (halves(self.source), halves(self.destination));
        let ports = u64::from(self.source_port) << 16 | u64::from(self.destination_port);
        let first = fold(a ^ seed, b ^ 0x9e37_79b9_7f4a_7c15);
        let second = fold(c ^ seed.rotate_left(32), d ^ 0xd6e8_feb8_6659_fd93);
        let third = u64::from(self.protocol) << 32 | ports;
        fold(first ^ second.rotate_left(21) ^ third, 0xa076_1d64_78bd_642f ^ seed)
    }
}

impl From<Connection> for Connection6 {
    /// With IPv4-mapped addresses (RFC 4291, 2.5.5.2).
    fn from(Connection { ends, protocol }: Connection) -> Self {
        let mapped = |address: u32| Ipv4Addr::from_bits(address).to_ipv6_mapped().to_bits();
        Self {
            source: mapped(ends.source),
            destination: mapped(ends.destination),
            source_port: ends.source_port,
            destination_port: ends.destination_port,
            protocol,
        }
    }
}

/// What a packet's headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers<C = Connection> {
    pub(crate) connection: C,
    /// The IP packet's length by its header.
    pub(crate) length: u32,
    /// Type of service, or traffic class.
    pub(crate) tos: u8,
    /// Of TCP; 0 else.
    pub(crate) flags: u8,
    /// Where what follows the IP headers begins, from the first of them on.
    pub(crate) transport: usize,
    /// Whether there are ports, so that packets of one connection can be told from another's.
    pub(crate) has_ports: bool,
}

impl Headers {
    /// Of a packet whose IPv4 header is noted and sound; ports are 0 where there are none, as in later fragments.
    #[inline]
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let ip = packet.network_data()?;
        let (first, header) = (*ip.first()?, usize::from(ip.first()? & 15) * 4);
        if first >> 4 != 4 || header < 20 || ip.len() < header {
            return None;
        }
        let protocol = ip[9];
        let has_ports = matches!(protocol, TCP | UDP) && !is_later_fragment(ip) && ip.len() >= header + 4;
        let mut ends = FlowKey::of(ip, if has_ports { header } else { 12 })?;
        if !has_ports {
            (ends.source_port, ends.destination_port) = (0, 0);
        }
        Some(Self {
            connection: Connection { ends, protocol },
            length: u16_at(ip, 2).into(),
            tos: ip[1],
            flags: tcp_flags(protocol, ip.get(header..).filter(|_| has_ports)),
            transport: header,
            has_ports: has_ports && (ends.source_port | ends.destination_port) != 0,
        })
    }
}

impl Headers<Connection6> {
    /// Of a packet whose IPv6 header is noted and sound; ports are 0 where there are none, as in all fragments.
    pub(crate) fn of_ip6(packet: &Packet) -> Option<Self> {
        let data = packet.network_data().filter(|data| data.first().is_some_and(|first| first >> 4 == 6))?;
        let (ip, _) = ipv6::Packet::new_prefix(data).ok()?;
        let upper = ip.upper().ok()?;
        let (protocol, segment) = (upper.protocol.0, upper.payload);
        let has_ports = matches!(protocol, TCP | UDP) && !upper.fragment && segment.len() >= 4;
        let port = |at| if has_ports { u16_at(segment, at) } else { 0 };
        Some(Self {
            connection: Connection6 {
                source: ip.source().to_bits(),
                destination: ip.destination().to_bits(),
                source_port: port(0),
                destination_port: port(2),
                protocol,
            },
            length: ipv6::HEADER_LEN as u32 + u32::from(ip.payload_len()),
            tos: ip.traffic_class(),
            flags: tcp_flags(protocol, has_ports.then_some(segment)),
            transport: ipv6::HEADER_LEN + ip.payload().len() - segment.len(),
            has_ports: has_ports && (port(0) | port(2)) != 0,
        })
    }
}

fn tcp_flags(protocol: u8, segment: Option<&[u8]>) -> u8 {
    let flags = segment.filter(|_| protocol == TCP).and_then(|segment| segment.get(13));
    flags.copied().unwrap_or(0)
}

/// What flows are told apart by, and how IPFIX tells it.
pub(super) trait Ends: Key + core::fmt::Debug {
    /// The number of the template of their records.
    const TEMPLATE: u16;
    /// The information elements of source and destination address, and the bytes of each.
    const ADDRESSES: ([u16; 2], u16);

    /// Both addresses and both ports, in network order.
    fn write(&self, out: &mut Vec<u8>);

    /// The protocol.
    fn protocol(&self) -> u8;

    /// For people: `SADDR SPORT DADDR DPORT PROTO`.
    fn text(&self) -> String;
}

impl Ends for Connection {
    const TEMPLATE: u16 = 256;
    // sourceIPv4Address, destinationIPv4Address
    const ADDRESSES: ([u16; 2], u16) = ([8, 12], 4);

    fn write(&self, out: &mut Vec<u8>) {
        let FlowKey { source, source_port, destination, destination_port } = self.ends;
        out.extend(source.to_be_bytes().into_iter().chain(destination.to_be_bytes()));
        out.extend(source_port.to_be_bytes().into_iter().chain(destination_port.to_be_bytes()));
    }

    fn protocol(&self) -> u8 {
        self.protocol
    }

    fn text(&self) -> String {
        let FlowKey { source, source_port, destination, destination_port } = self.ends;
        let (from, to) = (Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination));
        format!("{from} {source_port} {to} {destination_port} {}", self.protocol)
    }
}

impl Ends for Connection6 {
    const TEMPLATE: u16 = 257;
    // sourceIPv6Address, destinationIPv6Address
    const ADDRESSES: ([u16; 2], u16) = ([27, 28], 16);

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.source.to_be_bytes().into_iter().chain(self.destination.to_be_bytes()));
        out.extend(self.source_port.to_be_bytes().into_iter().chain(self.destination_port.to_be_bytes()));
    }

    fn protocol(&self) -> u8 {
        self.protocol
    }

    fn text(&self) -> String {
        let (from, to) = (Ipv6Addr::from_bits(self.source), Ipv6Addr::from_bits(self.destination));
        let Self { source_port, destination_port, protocol, .. } = self;
        format!("{from} {source_port} {to} {destination_port} {protocol}")
    }
}
