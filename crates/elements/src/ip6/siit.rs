//! Translation of IPv4 headers to IPv6's and back, without state (RFC 7915). An IPv4 address is an IPv4-mapped one of
//! IPv6, so that checksums which cover addresses stay as they are: the mapped ones add nothing to a sum.
use crate::ip::transport::Transport;
use crate::packet::{fill_ip_checksum, header_length, prepend, put, u16_at, u32_at};
use core::net::{Ipv4Addr, Ipv6Addr};
use ringway_click::Packet;
use ringway_wire::checksum::{Sum, checksum};
use ringway_wire::{ip::Protocol, ipv6};

/// Bytes of headers.
const FOUR: usize = 20;
const SIX: usize = ipv6::HEADER_LEN;
/// Packets up to so long every IPv6 link takes.
const LEAST_MTU: u32 = 1280;
const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// An IPv6 header.
fn six(source: u32, destination: u32, [tos, next, hops]: [u8; 3], length: u16) -> [u8; SIX] {
    let mut header = [0; SIX];
    (header[0], header[1]) = (0x60 | tos >> 4, tos << 4);
    put(&mut header, 4, length.to_be_bytes());
    (header[6], header[7]) = (next, hops);
    put(&mut header, 8, Ipv4Addr::from_bits(source).to_ipv6_mapped().octets());
    put(&mut header, 24, Ipv4Addr::from_bits(destination).to_ipv6_mapped().octets());
    header
}

/// An IPv4 header.
fn four(source: u32, destination: u32, [tos, protocol, ttl]: [u8; 3], length: u16) -> [u8; FOUR] {
    let mut header = [0; FOUR];
    (header[0], header[1], header[8], header[9]) = (0x45, tos, ttl, protocol);
    put(&mut header, 2, length.to_be_bytes());
    put(&mut header, 12, source.to_be_bytes());
    put(&mut header, 16, destination.to_be_bytes());
    header
}

/// The IPv4 address in a mapped or compatible one (RFC 4291, 2.5.5).
fn embedded(address: Ipv6Addr) -> Option<u32> {
    let bits = address.to_bits();
    matches!(bits >> 32, 0 | 0xffff).then_some(bits as u32).filter(|address| *address > 1)
}

/// Makes an IPv4 packet one of IPv6. Nothing, and the packet is spoilt, if it can't be.
pub(super) fn to_six(packet: &mut Packet) -> Option<()> {
    let data = packet.data();
    let transport = Transport::of(data).filter(|_| data[0] >> 4 == 4)?;
    let (header, length) = (transport.header, transport.length);
    let whole = transport.slice(data)?;
    let (id, fragment) = (u16_at(data, 4), u16_at(data, 6));
    let is_fragment = transport.later || transport.more;
    let (tos, ttl) = (data[1], data[8]);
    // IPv6 has no UDP without checksum; a fragment's can't be made (RFC 7915, 4.5).
    let bare = transport.protocol == UDP && !transport.later && u16_at(whole, 6) == 0;
    if bare && (is_fragment || whole.len() < 8) || transport.protocol == ICMP && is_fragment {
        return None;
    }
    packet.take(packet.len() - header - length);
    packet.pull(header);
    let (source, destination) = (transport.source, transport.destination);
    let pseudo = |protocol, length: usize| {
        let mapped = |address| Ipv4Addr::from_bits(address).to_ipv6_mapped();
        Sum::pseudo_v6(mapped(source), mapped(destination), protocol, length as u32)
    };
    let protocol = if transport.protocol == ICMP { ICMP6 } else { transport.protocol };
    if transport.protocol == ICMP {
        icmp_to_six(packet)?;
        let message = packet.data_mut();
        put(message, 2, [0, 0]);
        let mut sum = pseudo(ICMP6, message.len());
        sum.add(message);
        put(message, 2, sum.finish().to_be_bytes());
    } else if bare {
        let datagram = packet.data_mut();
        let mut sum = pseudo(UDP, datagram.len());
        sum.add(datagram);
        put(datagram, 6, sum.finish_nonzero().to_be_bytes());
    }
    if is_fragment {
        let mut header = [protocol, 0, 0, 0, 0, 0, 0, 0];
        put(&mut header, 2, ((fragment & 0x1fff) << 3 | u16::from(transport.more)).to_be_bytes());
        put(&mut header, 6, id.to_be_bytes());
        if !prepend(packet, &header) {
            return None;
        }
    }
    let next = if is_fragment { Protocol::FRAGMENT.0 } else { protocol };
    let length = u16::try_from(packet.len()).ok()?;
    if !prepend(packet, &six(source, destination, [tos, next, ttl], length)) {
        return None;
    }
    packet.set_network_header(0, SIX);
    Some(())
}

/// Makes an IPv6 packet one of IPv4. Nothing, and the packet is spoilt, if it can't be.
pub(super) fn to_four(packet: &mut Packet) -> Option<()> {
    let data = packet.data();
    let ip = ipv6::Packet::new_checked(data).ok()?;
    let upper = ip.upper().ok().filter(|upper| !upper.routed)?;
    let (source, destination) = (embedded(ip.source())?, embedded(ip.destination())?);
    let fragment = ip.extensions().flatten().find_map(|extension| extension.fragment());
    let payload = ip.payload().len();
    let (headers, tos, hops) = (SIX + payload - upper.payload.len(), ip.traffic_class(), ip.hop_limit());
    let protocol = if upper.protocol == Protocol::ICMPV6 { ICMP } else { upper.protocol.0 };
    if protocol == ICMP && fragment.is_some_and(|(offset, more, _)| offset > 0 || more) {
        return None;
    }
    packet.take(packet.len() - SIX - payload);
    packet.pull(headers);
    if protocol == ICMP {
        icmp_to_four(packet)?;
        let message = packet.data_mut();
        put(message, 2, [0, 0]);
        let sum = checksum(message);
        put(message, 2, sum.to_be_bytes());
    }
    let length = u16::try_from(packet.len() + FOUR).ok()?;
    let mut header = four(source, destination, [tos, protocol, hops], length);
    let (id, flags) = match fragment {
        // Who fragments in IPv4 makes up its own; what came whole must not be cut.
        None => (0, 0x4000),
        Some((offset, more, id)) => (id as u16, u16::from(more) << 13 | offset >> 3),
    };
    put(&mut header, 4, id.to_be_bytes());
    put(&mut header, 6, flags.to_be_bytes());
    fill_ip_checksum(&mut header);
    if !prepend(packet, &header) {
        return None;
    }
    packet.set_network_header(0, FOUR);
    packet.notes_mut().set_dst_ip(destination.to_be_bytes());
    Some(())
}

/// Type, code and the four bytes behind the checksum (RFC 7915, 4.2).
fn icmp_to_six(packet: &mut Packet) -> Option<()> {
    let message = packet.data();
    let (kind, code) = (*message.first()?, *message.get(1)?);
    let rest = u32_at(message, 4);
    let (kind, code, rest) = match (kind, code) {
        (8, _) => (128, 0, rest),
        (0, _) => (129, 0, rest),
        (3, 0 | 1 | 5..=8 | 11 | 12) => (1, 0, 0),
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        (3, 4) => (2, 0, ((rest & 0xffff) + (SIX - FOUR) as u32).max(LEAST_MTU)),
        (3, 9 | 10 | 13 | 15) => (1, 1, 0),
        (11, _) => (3, code, 0),
        (12, 0 | 2) => {
            let pointer = match rest >> 24 {
                pointer @ 0..=1 => pointer,
                2 | 3 => 4,
                8 => 7,
                9 => 6,
                12..=15 => 8,
                16..=19 => 24,
                _ => return None,
            };
            (4, 0, pointer)
        }
        _ => return None,
    };
    if kind < 128 {
        // The packet that it is about, as far as it is there.
        let quoted = message.get(8..)?;
        let header = header_length(quoted)?;
        let protocol = if quoted[9] == ICMP { ICMP6 } else { quoted[9] };
        let length = u16_at(quoted, 2).saturating_sub(header as u16);
        let new = six(u32_at(quoted, 12), u32_at(quoted, 16), [quoted[1], protocol, quoted[8]], length);
        replace(packet, 8 + header, &new)?;
        echo(packet, 8 + SIX, protocol == ICMP6, [(8, 128), (0, 129)]);
    }
    finish(packet, kind, code, rest)
}

/// The same the other way (RFC 7915, 5.2).
fn icmp_to_four(packet: &mut Packet) -> Option<()> {
    let message = packet.data();
    let (kind, code) = (*message.first()?, *message.get(1)?);
    let rest = u32_at(message, 4);
    let error = kind < 128;
    let (kind, code, rest) = match (kind, code) {
        (128, _) => (8, 0, rest),
        (129, _) => (0, 0, rest),
        (1, 0 | 2 | 3) => (3, 1, 0),
        (1, 1) => (3, 10, 0),
        (1, 4) => (3, 3, 0),
        (2, _) => (3, 4, rest.saturating_sub((SIX - FOUR) as u32).min(0xffff)),
        (3, _) => (11, code, 0),
        (4, 1) => (3, 2, 0),
        (4, 0) => {
            let pointer = match rest {
                pointer @ 0..=1 => pointer,
                4 | 5 => 2,
                6 => 9,
                7 => 8,
                8..=23 => 12,
                24..=39 => 16,
                _ => return None,
            };
            (12, 0, pointer << 24)
        }
        _ => return None,
    };
    if error {
        let quoted = message.get(8..)?;
        let (ip, _) = ipv6::Packet::new_prefix(quoted).ok()?;
        let protocol = if ip.next_header() == Protocol::ICMPV6 { ICMP } else { ip.next_header().0 };
        let (source, destination) = (embedded(ip.source())?, embedded(ip.destination())?);
        let length = ip.payload_len().saturating_add(FOUR as u16);
        let mut new = four(source, destination, [ip.traffic_class(), protocol, ip.hop_limit()], length);
        fill_ip_checksum(&mut new);
        replace(packet, 8 + SIX, &new)?;
        echo(packet, 8 + FOUR, protocol == ICMP, [(128, 8), (129, 0)]);
    }
    finish(packet, kind, code, rest)
}

/// Puts another header, and room for ICMP's before it, in the place of the first bytes.
fn replace(packet: &mut Packet, old: usize, header: &[u8]) -> Option<()> {
    packet.pull(old);
    prepend(packet, header).then_some(())?;
    prepend(packet, &[0; 8]).then_some(())
}

/// Gives the echo that an error is about its type in the other version.
fn echo(packet: &mut Packet, at: usize, is_icmp: bool, kinds: [(u8, u8); 2]) {
    if let Some(kind) = packet.data_mut().get_mut(at).filter(|_| is_icmp)
        && let Some((_, new)) = kinds.into_iter().find(|(old, _)| old == kind)
    {
        *kind = new;
    }
}

fn finish(packet: &mut Packet, kind: u8, code: u8, rest: u32) -> Option<()> {
    let message = packet.data_mut();
    let header = message.first_chunk_mut::<8>()?;
    (header[0], header[1]) = (kind, code);
    put(header, 4, rest.to_be_bytes());
    Some(())
}
