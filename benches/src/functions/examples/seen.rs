//! A received frame's addresses.

use crate::click::frames::PPPOE;
use ringway_wire::checksum::Sum;
use ringway_wire::tcp::Flags;
use ringway_wire::{EtherType, Ethernet, Header, Ipv6, MacAddress, Protocol, Tcp, ipv4};
use std::net::{IpAddr, Ipv4Addr};

/// The addresses of a frame with IPv4, also in a session of PPP over Ethernet, or IPv6, and whether its checksums are
/// valid.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Destination and source.
    pub stations: [MacAddress; 2],
    /// Source and destination.
    pub addresses: [IpAddr; 2],
    /// Source and destination port of TCP or UDP.
    pub ports: [u16; 2],
    /// TCP's flags.
    pub flags: Flags,
    /// TCP's sequence number.
    pub sequence: u32,
    /// TTL or hop limit.
    pub hops: u8,
    /// Whether IPv4's checksum is valid.
    pub is_sound: bool,
    /// Whether TCP's or UDP's checksum is valid.
    pub is_whole: bool,
}

impl Seen {
    /// `None` for other frames.
    pub fn of(frame: &[u8]) -> Option<Seen> {
        let (ethernet, rest) = Ethernet::split(frame)?;
        let stations = [ethernet.destination, ethernet.source];
        let (kind, rest) = match ethernet.ethertype {
            EtherType::PPPOE_SESSION => (EtherType::IPV4, rest.get(PPPOE..)?),
            kind => (kind, rest),
        };
        let (addresses, hops, protocol, is_sound, payload) = match kind {
            EtherType::IPV4 => {
                let packet = ipv4::Packet::parse(rest)?;
                let ip = packet.header;
                let addresses = [IpAddr::V4(ip.source_addr()), IpAddr::V4(ip.destination_addr())];
                (addresses, ip.ttl, ip.protocol, ip.is_checksum_valid(packet.options), packet.payload)
            }
            EtherType::IPV6 => {
                let (ip, payload) = Ipv6::split(rest)?;
                let payload = payload.get(..usize::from(ip.payload_length.get()))?;
                let addresses = [IpAddr::V6(ip.source_addr()), IpAddr::V6(ip.destination_addr())];
                (addresses, ip.hop_limit, ip.next_header, true, payload)
            }
            _ => return None,
        };
        let mut sum = pseudo(addresses, protocol, payload.len())?;
        sum.add(payload);
        let tcp = if protocol == Protocol::TCP { *Tcp::of(payload)? } else { Tcp::padded(payload) };
        let is_tcp = protocol == Protocol::TCP;
        Some(Seen {
            stations,
            addresses,
            ports: [tcp.source_port.get(), tcp.destination_port.get()],
            flags: if is_tcp { tcp.flags } else { Flags(0) },
            sequence: if is_tcp { tcp.sequence_number.get() } else { 0 },
            hops,
            is_sound,
            is_whole: sum.is_valid(),
        })
    }

    /// An IPv4 source or destination.
    pub fn v4(&self, at: usize) -> Ipv4Addr {
        match self.addresses[at] {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        }
    }
}

fn pseudo(addresses: [IpAddr; 2], protocol: Protocol, length: usize) -> Option<Sum> {
    match addresses {
        [IpAddr::V4(from), IpAddr::V4(to)] => Some(Sum::pseudo_v4(from, to, protocol.0, length as u16)),
        [IpAddr::V6(from), IpAddr::V6(to)] => Some(Sum::pseudo_v6(from, to, protocol.0, length as u32)),
        _ => None,
    }
}
