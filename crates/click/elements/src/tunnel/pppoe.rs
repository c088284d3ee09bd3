//! Session frames of PPP over Ethernet (RFC 2516).
use ringway_click::prelude::*;
use ringway_wire::tunnel::Pppoe;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Ipv6, MacAddress};

/// The headers of a session frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionFrame {
    pub(crate) destination: MacAddress,
    pub(crate) source: MacAddress,
    pub(crate) session: u16,
    pub(crate) protocol: u16,
    /// Length of the PPP payload.
    pub(crate) length: usize,
}

/// Why a frame is not a session frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The frame has another EtherType.
    Other,
    /// The frame's headers are invalid.
    Malformed,
}

impl SessionFrame {
    /// Parses a packet that begins with its Ethernet header.
    #[inline]
    pub(crate) fn of(data: &[u8]) -> Result<Self, Wrong> {
        if Ethernet::of(data).is_none_or(|header| header.ethertype != EtherType::PPPOE_SESSION) {
            return Err(Wrong::Other);
        }
        let (headers, rest) = Pppoe::split(data).ok_or(Wrong::Malformed)?;
        let length = usize::from(headers.length.get()).checked_sub(2).ok_or(Wrong::Malformed)?;
        if headers.version_type != Pppoe::VERSION_TYPE || headers.code != 0 || length > rest.len() {
            return Err(Wrong::Malformed);
        }
        Ok(Self {
            destination: headers.ethernet.destination,
            source: headers.ethernet.source,
            session: headers.session.get(),
            protocol: headers.protocol.get(),
            length,
        })
    }

    /// Removes all headers before the PPP payload, and marks the network header of IPv4 or IPv6.
    #[inline]
    pub(crate) fn strip(&self, packet: &mut Packet) {
        packet.set_mac_header(0);
        packet.pull(Pppoe::LEN);
        packet.take(packet.len().saturating_sub(self.length));
        let data = packet.data();
        if let (Pppoe::IPV4, Some(ip)) = (self.protocol, Ipv4::of(data)) {
            let (header, destination) = (ip.header_len(), ip.destination.to_bytes());
            packet.set_network_header(0, header);
            packet.notes_mut().set_dst_ip(destination);
        } else if let (Pppoe::IPV6, Some(ip)) = (self.protocol, Ipv6::of(data)) {
            let destination = ip.destination.to_bytes();
            packet.set_network_header(0, Ipv6::LEN);
            packet.notes_mut().set(Annotations::DST_IP6, destination);
        }
    }
}

/// Prepends the headers of a session frame to an IP packet. False if the packet is too long.
#[inline]
pub(super) fn wrap(packet: &mut Packet, to: MacAddress, from: MacAddress, session: u16) -> bool {
    let is_six = packet.data().first().is_some_and(|first| first >> 4 == 6);
    let Ok(length) = u16::try_from(packet.len() + 2) else { return false };
    let grown = packet.push_header(&Pppoe {
        ethernet: Ethernet { destination: to, source: from, ethertype: EtherType::PPPOE_SESSION },
        version_type: Pppoe::VERSION_TYPE,
        code: 0,
        session: session.into(),
        length: length.into(),
        protocol: if is_six { Pppoe::IPV6 } else { Pppoe::IPV4 }.into(),
    });
    packet.set_mac_header(0);
    grown
}
