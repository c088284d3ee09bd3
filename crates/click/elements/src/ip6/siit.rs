//! Stateless translation between IPv4 and IPv6 headers (RFC 7915). IPv4 addresses become IPv4-mapped ones of IPv6, so
//! that checksums over addresses stay valid: the mapped prefix adds nothing to a sum.
use crate::ip::transport::Transport;
use core::net::{Ipv4Addr, Ipv6Addr};
use ringway_click::Packet;
use ringway_wire::icmp::{v4, v6};
use ringway_wire::ipv4::DONT_FRAGMENT;
use ringway_wire::ipv6::{self, Fragment};
use ringway_wire::{Header, Icmp, Ipv4, Ipv6, Protocol, Sum, Udp};

/// Maximum packet length that every IPv6 link accepts.
const LEAST_MTU: u32 = 1280;

fn mapped(address: u32) -> Ipv6Addr {
    Ipv4Addr::from_bits(address).to_ipv6_mapped()
}

/// Builds an IPv6 header.
fn six(
    source: u32,
    destination: u32,
    (tos, next_header, hop_limit): (u8, Protocol, u8),
    length: u16,
) -> Ipv6 {
    let mut header = Ipv6 {
        payload_length: length.into(),
        next_header,
        hop_limit,
        source: mapped(source).to_bits().into(),
        destination: mapped(destination).to_bits().into(),
        ..Ipv6::EMPTY
    };
    header.set_traffic_class(tos);
    header
}

/// Builds an IPv4 header.
fn four(source: u32, destination: u32, (tos, protocol, ttl): (u8, Protocol, u8), length: u16) -> Ipv4 {
    let (source, destination) = (source.into(), destination.into());
    Ipv4 { tos, total_length: length.into(), ttl, protocol, source, destination, ..Ipv4::EMPTY }
}

/// The IPv4 address embedded in an IPv4-mapped or IPv4-compatible address (RFC 4291, 2.5.5).
fn embedded(bits: u128) -> Option<u32> {
    matches!(bits >> 32, 0 | 0xffff).then_some(bits as u32).filter(|address| *address > 1)
}

/// Translates an IPv4 packet to IPv6. On failure (`None`) the packet is left corrupt.
pub(super) fn to_six(packet: &mut Packet) -> Option<()> {
    let data = packet.data();
    let (ip, ..) = Ipv4::parse(data).filter(|(ip, ..)| ip.version() == 4)?;
    let (ip, transport) = (*ip, Transport::of(data)?);
    let (header, length) = (transport.header, transport.length);
    let whole = transport.slice(data)?;
    let (is_icmp, is_fragment) = (ip.protocol == Protocol::ICMP, ip.is_fragment());
    // UDP over IPv6 requires a checksum, which cannot be computed for a fragment (RFC 7915, 4.5).
    let bare = ip.protocol == Protocol::UDP && !transport.later && Udp::padded(whole).checksum == 0;
    if bare && (is_fragment || whole.len() < Udp::LEN) || is_icmp && is_fragment {
        return None;
    }
    packet.take(packet.len() - header - length);
    packet.pull(header);
    let (source, destination) = (transport.source, transport.destination);
    let pseudo = |protocol: Protocol, length: usize| {
        Sum::pseudo_v6(mapped(source), mapped(destination), protocol.0, length as u32)
    };
    let protocol = if is_icmp { Protocol::ICMPV6 } else { ip.protocol };
    if is_icmp {
        icmp_to_six(packet)?;
        let sum = pseudo(protocol, packet.len());
        Icmp::fill_checksum(packet.data_mut(), sum)?;
    } else if bare {
        let sum = pseudo(protocol, packet.len());
        Udp::fill_checksum(packet.data_mut(), sum)?;
    }
    if is_fragment {
        let header = Fragment {
            next_header: protocol,
            reserved: 0,
            offset: (ip.fragment_offset() | u16::from(transport.more)).into(),
            identification: u32::from(ip.identification.get()).into(),
        };
        if !packet.push_header(&header) {
            return None;
        }
    }
    let next = if is_fragment { Protocol::FRAGMENT } else { protocol };
    let length = u16::try_from(packet.len()).ok()?;
    if !packet.push_header(&six(source, destination, (ip.tos, next, ip.ttl), length)) {
        return None;
    }
    packet.set_network_header(0, Ipv6::LEN);
    Some(())
}

/// Translates an IPv6 packet to IPv4. On failure (`None`) the packet is left corrupt.
pub(super) fn to_four(packet: &mut Packet) -> Option<()> {
    let data = packet.data();
    let ip = ipv6::Packet::parse(data).filter(|ip| ip.whole)?;
    let upper = ip.upper().filter(|upper| !upper.routed)?;
    let (source, destination) = (embedded(ip.header.source.get())?, embedded(ip.header.destination.get())?);
    let fragment = ip.extensions().flatten().find_map(|extension| extension.fragment().copied());
    let payload = ip.payload.len();
    let headers = Ipv6::LEN + payload - upper.payload.len();
    let (tos, hops) = (ip.header.traffic_class(), ip.header.hop_limit);
    let is_icmp = upper.protocol == Protocol::ICMPV6 || upper.protocol == Protocol::ICMP;
    let protocol = if is_icmp { Protocol::ICMP } else { upper.protocol };
    if is_icmp && fragment.is_some_and(|fragment| fragment.offset() > 0 || fragment.more()) {
        return None;
    }
    packet.take(packet.len() - Ipv6::LEN - payload);
    packet.pull(headers);
    if is_icmp {
        icmp_to_four(packet)?;
        Icmp::fill_checksum(packet.data_mut(), Sum::new())?;
    }
    let length = u16::try_from(packet.len() + Ipv4::LEN).ok()?;
    let mut header = four(source, destination, (tos, protocol, hops), length);
    // A router that fragments in IPv4 chooses the identification; unfragmented IPv6 packets must not be fragmented.
    header.fragment.set(DONT_FRAGMENT);
    if let Some(fragment) = fragment {
        header.identification.set(fragment.identification.get() as u16);
        header.fragment.set(u16::from(fragment.more()) << 13 | fragment.offset() >> 3);
    }
    header.fill_checksum(&[]);
    if !packet.push_header(&header) {
        return None;
    }
    packet.set_network_header(0, Ipv4::LEN);
    packet.notes_mut().set_dst_ip(destination.to_be_bytes());
    Some(())
}

/// Translates the type, the code and the four bytes after the checksum (RFC 7915, 4.2).
fn icmp_to_six(packet: &mut Packet) -> Option<()> {
    let message = packet.data();
    let &Icmp { kind, code, .. } = Icmp::of(message)?;
    let rest = Icmp::of(message)?.rest();
    let (kind, code, rest) = match (kind, code) {
        (v4::ECHO, _) => (v6::ECHO, 0, rest),
        (v4::ECHO_REPLY, _) => (v6::ECHO_REPLY, 0, rest),
        (v4::UNREACHABLE, 0 | 1 | 5..=8 | 11 | 12) => (v6::UNREACHABLE, 0, 0),
        (v4::UNREACHABLE, 2) => (v6::PARAMETER_PROBLEM, 1, 6),
        (v4::UNREACHABLE, 3) => (v6::UNREACHABLE, 4, 0),
        (v4::UNREACHABLE, v4::NEEDS_FRAGMENTATION) => {
            let mtu = (rest & 0xffff) + (Ipv6::LEN - Ipv4::LEN) as u32;
            (v6::PACKET_TOO_BIG, 0, mtu.max(LEAST_MTU))
        }
        (v4::UNREACHABLE, 9 | 10 | 13 | 15) => (v6::UNREACHABLE, 1, 0),
        (v4::TIME_EXCEEDED, _) => (v6::TIME_EXCEEDED, code, 0),
        (v4::PARAMETER_PROBLEM, 0 | 2) => {
            let pointer = match rest >> 24 {
                pointer @ 0..=1 => pointer,
                2 | 3 => 4,
                8 => 7,
                9 => 6,
                12..=15 => 8,
                16..=19 => 24,
                _ => return None,
            };
            (v6::PARAMETER_PROBLEM, 0, pointer)
        }
        _ => return None,
    };
    if kind < 128 {
        // The packet quoted in the error, as far as it is present.
        let (ip, ..) = Ipv4::parse(message.get(Icmp::LEN..)?)?;
        let header = ip.header_len();
        let protocol = if ip.protocol == Protocol::ICMP { Protocol::ICMPV6 } else { ip.protocol };
        let length = ip.total_length.get().saturating_sub(header as u16);
        let new = six(ip.source.get(), ip.destination.get(), (ip.tos, protocol, ip.ttl), length);
        replace(packet, header, &new)?;
        let is_icmp = protocol == Protocol::ICMPV6;
        echo(packet, Ipv6::LEN, is_icmp, [(v4::ECHO, v6::ECHO), (v4::ECHO_REPLY, v6::ECHO_REPLY)]);
    }
    finish(packet, kind, code, rest)
}

/// Translates the type, the code and the four bytes after the checksum (RFC 7915, 5.2).
fn icmp_to_four(packet: &mut Packet) -> Option<()> {
    let message = packet.data();
    let &Icmp { kind, code, .. } = Icmp::of(message)?;
    let rest = Icmp::of(message)?.rest();
    let error = kind < 128;
    let (kind, code, rest) = match (kind, code) {
        (v6::ECHO, _) => (v4::ECHO, 0, rest),
        (v6::ECHO_REPLY, _) => (v4::ECHO_REPLY, 0, rest),
        (v6::UNREACHABLE, 0 | 2 | 3) => (v4::UNREACHABLE, 1, 0),
        (v6::UNREACHABLE, 1) => (v4::UNREACHABLE, 10, 0),
        (v6::UNREACHABLE, 4) => (v4::UNREACHABLE, 3, 0),
        (v6::PACKET_TOO_BIG, _) => {
            let mtu = rest.saturating_sub((Ipv6::LEN - Ipv4::LEN) as u32);
            (v4::UNREACHABLE, v4::NEEDS_FRAGMENTATION, mtu.min(0xffff))
        }
        (v6::TIME_EXCEEDED, _) => (v4::TIME_EXCEEDED, code, 0),
        (v6::PARAMETER_PROBLEM, 1) => (v4::UNREACHABLE, 2, 0),
        (v6::PARAMETER_PROBLEM, 0) => {
            let pointer = match rest {
                pointer @ 0..=1 => pointer,
                4 | 5 => 2,
                6 => 9,
                7 => 8,
                8..=23 => 12,
                24..=39 => 16,
                _ => return None,
            };
            (v4::PARAMETER_PROBLEM, 0, pointer << 24)
        }
        _ => return None,
    };
    if error {
        let ip = ipv6::Packet::parse(message.get(Icmp::LEN..)?)?.header;
        let protocol = if ip.next_header == Protocol::ICMPV6 { Protocol::ICMP } else { ip.next_header };
        let (source, destination) = (embedded(ip.source.get())?, embedded(ip.destination.get())?);
        let length = ip.payload_length.get().saturating_add(Ipv4::LEN as u16);
        let mut new = four(source, destination, (ip.traffic_class(), protocol, ip.hop_limit), length);
        new.fill_checksum(&[]);
        replace(packet, Ipv6::LEN, &new)?;
        let is_icmp = protocol == Protocol::ICMP;
        echo(packet, Ipv4::LEN, is_icmp, [(v6::ECHO, v4::ECHO), (v6::ECHO_REPLY, v4::ECHO_REPLY)]);
    }
    finish(packet, kind, code, rest)
}

/// Replaces the quoted packet's header of `old` bytes after the ICMP header, which is zeroed.
fn replace(packet: &mut Packet, old: usize, header: &impl Header) -> Option<()> {
    packet.pull(Icmp::LEN + old);
    packet.push_header(header).then_some(())?;
    packet.push_header(&Icmp::default()).then_some(())
}

/// Translates the type of a quoted echo message, `at` bytes after the ICMP header.
fn echo(packet: &mut Packet, at: usize, is_icmp: bool, kinds: [(u8, u8); 2]) {
    if let Some(kind) = packet.data_mut().get_mut(Icmp::LEN + at).filter(|_| is_icmp)
        && let Some((_, new)) = kinds.into_iter().find(|(old, _)| old == kind)
    {
        *kind = new;
    }
}

fn finish(packet: &mut Packet, kind: u8, code: u8, rest: u32) -> Option<()> {
    let icmp = Icmp::of_mut(packet.data_mut())?;
    (icmp.kind, icmp.code) = (kind, code);
    icmp.set_rest(rest);
    Some(())
}
