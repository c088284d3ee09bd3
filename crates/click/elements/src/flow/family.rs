//! The code of a load balancer that is common to IPv4 and IPv6.
use super::connection::{Connection, Connection6, Headers};
use super::table::{Key, fold};
use crate::rewriter::key::FlowKey;
use core::fmt::{Debug, Display};
use core::net::{Ipv4Addr, Ipv6Addr};
use ringway_click::arg::Arg;
use ringway_click::prelude::*;
use ringway_wire::checksum::{update_u32, update_u128};
use ringway_wire::{Header, Ipv4, Ipv6, Protocol, U16};

/// An address type, and access to packets of its IP version.
pub(super) trait Family: Arg + Copy + Eq + Debug + Display + 'static {
    /// The key of a connection.
    type Connection: Key + Debug;
    /// The unspecified address.
    const NONE: Self;

    /// The headers of a packet, if it has ports.
    fn headers(packet: &Packet) -> Option<Headers<Self::Connection>>;

    /// Builds a connection from its parts.
    fn connection(ends: [(Self, u16); 2], protocol: Protocol) -> Self::Connection;

    /// Source and destination, each with its port, and the protocol.
    fn ends(connection: &Self::Connection) -> ([(Self, u16); 2], Protocol);

    /// The address as a number.
    fn number(self) -> u64;

    /// Writes the address into a packet as its source, or destination, with the checksums that cover it (RFC 1624).
    fn set(self, packet: &mut Packet, headers: &Headers<Self::Connection>, destination: bool);

    /// Sets the packet's destination annotation to this address.
    fn annotate_destination(self, packet: &mut Packet);
}

/// Updates the checksum of an IP packet's transport header.
#[inline]
fn mend(ip: &mut [u8], transport: usize, protocol: Protocol, update: impl FnOnce(u16) -> u16) {
    let is_udp = protocol == Protocol::UDP;
    let place = protocol.checksum_at().and_then(|at| U16::of_mut(ip.get_mut(transport + at..)?));
    // A UDP checksum of 0 means no checksum; a computed 0 is written as 0xffff.
    if let Some(checksum) = place.filter(|sum| !is_udp || sum.get() != 0) {
        checksum.set(match update(checksum.get()) {
            0 if is_udp => u16::MAX,
            sum => sum,
        });
    }
}

impl Family for Ipv4Addr {
    type Connection = Connection;
    const NONE: Self = Self::UNSPECIFIED;

    #[inline]
    fn headers(packet: &Packet) -> Option<Headers> {
        Headers::of(packet).filter(|headers| headers.has_ports)
    }

    #[inline]
    fn connection([source, destination]: [(Self, u16); 2], protocol: Protocol) -> Connection {
        let ends = FlowKey {
            source: source.0.to_bits(),
            source_port: source.1,
            destination: destination.0.to_bits(),
            destination_port: destination.1,
        };
        Connection { ends, protocol }
    }

    #[inline]
    fn ends(Connection { ends, protocol }: &Connection) -> ([(Self, u16); 2], Protocol) {
        let source = (Self::from_bits(ends.source), ends.source_port);
        ([source, (Self::from_bits(ends.destination), ends.destination_port)], *protocol)
    }

    fn number(self) -> u64 {
        self.to_bits().into()
    }

    #[inline]
    fn set(self, packet: &mut Packet, headers: &Headers, destination: bool) {
        let Some(data) = packet.network_data_mut() else { return };
        let Some(ip) = Ipv4::of_mut(data) else { return };
        let field = if destination { &mut ip.destination } else { &mut ip.source };
        let (old, new) = (field.get(), self.to_bits());
        field.set(new);
        ip.checksum.set(update_u32(ip.checksum.get(), old, new));
        mend(data, headers.transport, headers.connection.protocol, |sum| update_u32(sum, old, new));
    }

    #[inline]
    fn annotate_destination(self, packet: &mut Packet) {
        packet.notes_mut().set_dst_ip(self.octets());
    }
}

impl Family for Ipv6Addr {
    type Connection = Connection6;
    const NONE: Self = Self::UNSPECIFIED;

    fn headers(packet: &Packet) -> Option<Headers<Connection6>> {
        Headers::of_ip6(packet).filter(|headers| headers.has_ports)
    }

    fn connection([source, destination]: [(Self, u16); 2], protocol: Protocol) -> Connection6 {
        Connection6 {
            source: source.0.to_bits(),
            destination: destination.0.to_bits(),
            source_port: source.1,
            destination_port: destination.1,
            protocol,
        }
    }

    fn ends(connection: &Connection6) -> ([(Self, u16); 2], Protocol) {
        let source = (Self::from_bits(connection.source), connection.source_port);
        let destination = (Self::from_bits(connection.destination), connection.destination_port);
        ([source, destination], connection.protocol)
    }

    fn number(self) -> u64 {
        let bits = self.to_bits();
        fold((bits >> 64) as u64 ^ 0x9e37_79b9_7f4a_7c15, bits as u64 ^ 0xd6e8_feb8_6659_fd93)
    }

    fn set(self, packet: &mut Packet, headers: &Headers<Connection6>, destination: bool) {
        let Some(data) = packet.network_data_mut() else { return };
        let Some(ip) = Ipv6::of_mut(data) else { return };
        let field = if destination { &mut ip.destination } else { &mut ip.source };
        let (old, new) = (field.get(), self.to_bits());
        field.set(new);
        mend(data, headers.transport, headers.connection.protocol, |sum| update_u128(sum, old, new));
    }

    fn annotate_destination(self, packet: &mut Packet) {
        packet.notes_mut().set(Annotations::DST_IP6, self.octets());
    }
}
