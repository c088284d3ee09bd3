//! Received IP packets of both versions.

use super::fragment::Key;
use core::net::IpAddr;
use ringway_wire::{Protocol, ipv4, ipv6};

/// A packet with valid headers.
#[derive(Clone, Debug)]
pub(crate) struct Packet<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: Protocol,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// The upper-layer packet, or the part in this fragment.
    pub payload: &'a [u8],
    /// Offset in bytes, and whether more follow.
    pub fragment: Option<(Key, usize, bool)>,
    /// The whole packet, to be quoted in ICMP errors.
    pub bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses an IPv4 packet, its checksum included.
    pub(crate) fn parse_v4(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let packet = ipv4::Packet::parse(bytes).filter(|packet| packet.whole)?;
        let ip = packet.header;
        if !ip.is_checksum_valid(packet.options) {
            return None;
        }
        let (source, destination) = (ip.source_addr().into(), ip.destination_addr().into());
        let key = Key {
            source,
            destination,
            identification: ip.identification.get().into(),
            protocol: ip.protocol.0,
        };
        let fragment = (key, usize::from(ip.fragment_offset()), ip.more_fragments());
        Some(Packet {
            source,
            destination,
            protocol: ip.protocol,
            tos: ip.tos,
            ttl: ip.ttl,
            payload: packet.payload,
            fragment: ip.is_fragment().then_some(fragment),
            bytes: &bytes[..usize::from(ip.total_length.get())],
        })
    }

    /// A whole IPv4 packet of which the last `rest` bytes are elsewhere. `padded`: there may be bytes after the packet.
    pub(crate) fn head_v4(bytes: &'a [u8], rest: usize, padded: bool) -> Option<Packet<'a>> {
        let packet = ipv4::Packet::parse(bytes)?;
        let ip = packet.header;
        let (len, there) = (usize::from(ip.total_length.get()), bytes.len() + rest);
        let fits = len == there || padded && len < there;
        (fits && !ip.is_fragment() && ip.is_checksum_valid(packet.options)).then(|| Packet {
            source: ip.source_addr().into(),
            destination: ip.destination_addr().into(),
            protocol: ip.protocol,
            tos: ip.tos,
            ttl: ip.ttl,
            payload: packet.payload,
            fragment: None,
            bytes,
        })
    }

    /// A whole IPv6 packet without extension headers, of which the last `rest` bytes are elsewhere. `padded`: as for
    /// [`Packet::head_v4`].
    pub(crate) fn head_v6(bytes: &'a [u8], rest: usize, padded: bool) -> Option<Packet<'a>> {
        let packet = ipv6::Packet::parse(bytes)?;
        let ip = packet.header;
        let (len, there) = (ipv6::HEADER_LEN + usize::from(ip.payload_length.get()), bytes.len() + rest);
        let fits = len == there || padded && len < there;
        (fits && ip.next_header.has_ports()).then(|| Packet {
            source: ip.source_addr().into(),
            destination: ip.destination_addr().into(),
            protocol: ip.next_header,
            tos: ip.traffic_class(),
            ttl: ip.hop_limit,
            payload: packet.payload,
            fragment: None,
            bytes,
        })
    }

    /// Parses an IPv6 packet and its extension headers, whose number `wire` bounds.
    pub(crate) fn parse_v6(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let packet = ipv6::Packet::parse(bytes).filter(|packet| packet.whole)?;
        let ip = packet.header;
        let (source, destination) = (ip.source_addr().into(), ip.destination_addr().into());
        let mut parsed = Packet {
            source,
            destination,
            protocol: ip.next_header,
            tos: ip.traffic_class(),
            ttl: ip.hop_limit,
            payload: packet.payload,
            fragment: None,
            bytes: &bytes[..ipv6::HEADER_LEN + packet.payload.len()],
        };
        if ip.next_header.has_ports() {
            return Some(parsed);
        }
        let mut extensions = packet.extensions();
        for extension in &mut extensions {
            let extension = extension?;
            // Attack: a routing header makes hosts forward packets (RFC 5095).
            if extension.kind == Protocol::ROUTING && extension.bytes.get(3) != Some(&0) {
                return None;
            }
            if let Some(header) = extension.fragment() {
                let identification = header.identification.get();
                let key = Key { source, destination, identification, protocol: header.next_header.0 };
                let (offset, more) = (usize::from(header.offset()), header.more());
                // An unfragmented packet with this header is complete (RFC 6946).
                parsed.fragment = (offset > 0 || more).then_some((key, offset, more));
                if parsed.fragment.is_some() {
                    break;
                }
            }
        }
        let (protocol, payload) = extensions.remainder();
        (parsed.protocol, parsed.payload) = (protocol, payload);
        Some(parsed)
    }
}
