//! The flow of an IP packet.
use super::table::{Key, fold};
use crate::rewriter::key::FlowKey;
use core::mem::offset_of;
use core::net::{Ipv4Addr, Ipv6Addr};
use ringway_click::prelude::*;
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Ipv4, Ipv6, Protocol, Tcp, U16, ipv6};

/// Addresses, ports and protocol of IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) ends: FlowKey,
    pub(crate) protocol: Protocol,
}

impl Key for Connection {
    #[inline]
    fn hash(self, seed: u64) -> u64 {
        self.ends.hash(self.protocol.0.into(), seed)
    }
}

/// Addresses, ports and protocol of IPv6; also of IPv4, for tables that hold both versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connection6 {
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) protocol: Protocol,
}

impl Key for Connection6 {
    #[inline]
    fn hash(self, seed: u64) -> u64 {
        let halves = |address: u128| ((address >> 64) as u64, address as u64);
        let ((a, b), (c, d)) = (halves(self.source), halves(self.destination));
        let ports = u64::from(self.source_port) << 16 | u64::from(self.destination_port);
        let first = fold(a ^ seed, b ^ 0x9e37_79b9_7f4a_7c15);
        let second = fold(c ^ seed.rotate_left(32), d ^ 0xd6e8_feb8_6659_fd93);
        let third = u64::from(self.protocol.0) << 32 | ports;
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

/// Fields read from a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers<C = Connection> {
    pub(crate) connection: C,
    /// Length of the IP packet according to its header.
    pub(crate) length: u32,
    /// Type of service, or traffic class.
    pub(crate) tos: u8,
    /// TCP flags; 0 for other protocols.
    pub(crate) flags: Flags,
    /// Offset of the transport header from the start of the first IP header.
    pub(crate) transport: usize,
    /// Whether the packet has ports, so that its connection can be identified.
    pub(crate) has_ports: bool,
}

impl Headers {
    /// Parses a packet with a marked, valid IPv4 header; ports are 0 if absent, as in later fragments.
    #[inline]
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let (ip, _, segment) = Ipv4::parse(packet.network_data()?).filter(|(ip, ..)| ip.version() == 4)?;
        let (protocol, header) = (ip.protocol, ip.header_len());
        let has_ports = matches!(protocol, Protocol::TCP | Protocol::UDP) && !ip.is_later_fragment();
        let ports = <[U16; 2]>::of(segment).filter(|_| has_ports);
        let [source_port, destination_port] = ports.map_or([0; 2], |ports| ports.map(U16::get));
        let (source, destination) = (ip.source.get(), ip.destination.get());
        let ends = FlowKey { source, source_port, destination, destination_port };
        Some(Self {
            connection: Connection { ends, protocol },
            length: u32::from(ip.total_length.get()),
            tos: ip.tos,
            flags: tcp_flags(protocol, ports.map(|_| segment)),
            transport: header,
            has_ports: source_port | destination_port != 0,
        })
    }
}

impl Headers<Connection6> {
    /// Parses a packet with a marked, valid IPv6 header; ports are 0 if absent, as in all fragments.
    pub(crate) fn of_ip6(packet: &Packet) -> Option<Self> {
        let ip = ipv6::Packet::parse(packet.network_data()?)?;
        let upper = ip.upper()?;
        let (protocol, segment) = (upper.protocol, upper.payload);
        let has_ports = matches!(protocol, Protocol::TCP | Protocol::UDP) && !upper.fragment;
        let ports = <[U16; 2]>::of(segment).filter(|_| has_ports);
        let [source_port, destination_port] = ports.map_or([0; 2], |ports| ports.map(U16::get));
        let (source, destination) = (ip.header.source.get(), ip.header.destination.get());
        Some(Self {
            connection: Connection6 { source, destination, source_port, destination_port, protocol },
            length: Ipv6::LEN as u32 + u32::from(ip.header.payload_length.get()),
            tos: ip.header.traffic_class(),
            flags: tcp_flags(protocol, ports.map(|_| segment)),
            transport: Ipv6::LEN + ip.payload.len() - segment.len(),
            has_ports: source_port | destination_port != 0,
        })
    }
}

fn tcp_flags(protocol: Protocol, segment: Option<&[u8]>) -> Flags {
    let flags =
        segment.filter(|_| protocol == Protocol::TCP).and_then(|segment| segment.get(offset_of!(Tcp, flags)));
    Flags(flags.copied().unwrap_or(0))
}

/// The key of a flow, and its encoding in IPFIX.
pub(super) trait Ends: Key + core::fmt::Debug {
    /// Template ID of these flows' records.
    const TEMPLATE: u16;
    /// Information elements of the source and destination addresses, and the length of each in bytes.
    const ADDRESSES: ([u16; 2], u16);

    /// Both addresses and both ports, in network byte order.
    fn write(&self, out: &mut Vec<u8>);

    /// The protocol.
    fn protocol(&self) -> Protocol;

    /// Human-readable form: `SADDR SPORT DADDR DPORT PROTO`.
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

    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn text(&self) -> String {
        let FlowKey { source, source_port, destination, destination_port } = self.ends;
        let (from, to) = (Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination));
        format!("{from} {source_port} {to} {destination_port} {:?}", self.protocol)
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

    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn text(&self) -> String {
        let (from, to) = (Ipv6Addr::from_bits(self.source), Ipv6Addr::from_bits(self.destination));
        let Self { source_port, destination_port, protocol, .. } = self;
        format!("{from} {source_port} {to} {destination_port} {protocol:?}")
    }
}
