//! The IPv4 header that elements prepend to packets.
use core::fmt;
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, ArgError, Scope};
use ringway_click::prelude::*;
use ringway_wire::{Header, Ipv4, Protocol, Sum, ipv4};

/// The destination: one address, or each packet's destination annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Address(Ipv4Addr),
    Noted,
}

impl Default for Destination {
    fn default() -> Self {
        Self::Address(Ipv4Addr::UNSPECIFIED)
    }
}

impl Arg for Destination {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        match text {
            "DST_ANNO" => Ok(Self::Noted),
            _ => Ipv4Addr::parse(text, scope).map(Self::Address),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Noted => f.write_str("DST_ANNO"),
        }
    }
}

impl Destination {
    /// The address for a packet, which is also stored in the annotation.
    #[inline]
    pub(crate) fn of(self, packet: &mut Packet) -> [u8; 4] {
        match self {
            Self::Address(address) => {
                packet.notes_mut().set_dst_ip(address.octets());
                address.octets()
            }
            Self::Noted => packet.notes().dst_ip(),
        }
    }
}

/// A header to prepend to packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encap {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Destination,
    pub(crate) protocol: Protocol,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) dont_fragment: bool,
    pub(crate) id: u16,
}

impl Default for Encap {
    fn default() -> Self {
        Self {
            source: Ipv4Addr::UNSPECIFIED,
            destination: Destination::default(),
            protocol: Protocol(0),
            tos: 0,
            ttl: 250,
            dont_fragment: false,
            id: 0,
        }
    }
}

impl Encap {
    /// The handlers `src` and `dst` of an element with a header.
    pub(crate) fn handlers<E: Element>(encap: fn(&mut E) -> &mut Self) -> [Handler; 2] {
        [
            Handler::field("src", move |e: &mut E| &mut encap(e).source),
            Handler::field("dst", move |e: &mut E| &mut encap(e).destination),
        ]
    }

    /// Prepends the header to a packet, and lets `fill` write the following `behind` bytes: it gets all bytes after
    /// the header, and the pseudo header's sum. False if the packet would be too long.
    #[inline]
    pub(crate) fn wrap(
        &mut self,
        packet: &mut Packet,
        behind: usize,
        fill: impl FnOnce(&mut [u8], Sum),
    ) -> bool {
        let Ok(length) = u16::try_from(packet.len() + behind + Ipv4::LEN) else { return false };
        if !packet.push(Ipv4::LEN + behind) {
            return false;
        }
        let destination = self.destination.of(packet);
        let Some((header, rest)) = Ipv4::split_mut(packet.data_mut()) else { return false };
        *header = Ipv4 {
            tos: self.tos,
            total_length: length.into(),
            identification: self.id.into(),
            fragment: if self.dont_fragment { ipv4::DONT_FRAGMENT } else { 0 }.into(),
            ttl: self.ttl,
            protocol: self.protocol,
            source: self.source.to_bits().into(),
            destination: destination.into(),
            ..Ipv4::EMPTY
        };
        header.fill_checksum(&[]);
        fill(rest, header.pseudo_header(length - Ipv4::LEN as u16));
        self.id = self.id.wrapping_add(1);
        packet.set_network_header(0, Ipv4::LEN);
        true
    }

    /// Encapsulates the packets of a burst; packets that would be too long are dropped.
    #[inline]
    pub(crate) fn wrap_all(
        &mut self,
        burst: &mut PacketBurst,
        behind: usize,
        mut fill: impl FnMut(&mut [u8], Sum),
    ) {
        burst.retain(|packet| self.wrap(packet, behind, &mut fill));
    }
}
