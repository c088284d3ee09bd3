//! Frame headers.

use ringway_wire::ethernet::{EtherType, Frame};
use ringway_wire::ip::Protocol;
use ringway_wire::{Sum, arp, ethernet, flow::Flow, icmpv4, icmpv6, ipv4, ipv6, tcp, tcp_option, udp, vlan};
use std::fmt::Debug;

/// Asserts that what was read is read again from what is written of it.
fn again<R: PartialEq + Debug>(first: R, second: Option<R>) {
    assert_eq!(Some(first), second, "what was written differs from what was read");
}

/// Reads `data` as a frame, and every header in it; writes what it read and reads that again.
pub fn run(data: &[u8]) {
    let flow = Flow::parse(data);
    assert_eq!(flow.is_some(), data.len() >= ethernet::HEADER_LEN);
    if let Some(flow) = flow {
        assert_eq!(flow.symmetric_hash(1), flow.reversed().symmetric_hash(1));
    }
    let Ok(frame) = Frame::new_checked(data) else { return };
    let mut out = vec![0; data.len() + 64];
    let repr = ethernet::Repr::parse(&frame);
    if repr.emit(&mut out).is_ok() {
        again(repr, Frame::new_checked(&out).ok().map(|frame| ethernet::Repr::parse(&frame)));
    }
    let Ok(inner) = vlan::untag(frame.ethertype(), frame.payload()) else { return };
    match inner.ethertype {
        EtherType::ARP => arp_packet(inner.payload, &mut out),
        EtherType::IPV4 => ipv4_packet(inner.payload, &mut out),
        EtherType::IPV6 => ipv6_packet(inner.payload, &mut out),
        _ => (),
    }
}

fn arp_packet(bytes: &[u8], out: &mut [u8]) {
    let Ok(packet) = arp::Packet::new_checked(bytes) else { return };
    let repr = arp::Repr::parse(&packet);
    if repr.emit(out).is_ok() {
        again(repr, arp::Packet::new_checked(out).ok().map(|packet| arp::Repr::parse(&packet)));
    }
}

fn ipv4_packet(bytes: &[u8], out: &mut [u8]) {
    let Ok((packet, whole)) = ipv4::Packet::new_prefix(bytes) else { return };
    assert_eq!(whole, ipv4::Packet::new_checked(bytes).is_ok());
    assert!(ipv4::IpOptions::new(packet.options()).count() <= ipv4::OPTIONS_LEN);
    if let Ok(repr) = ipv4::Repr::parse(&packet)
        && repr.emit(out).is_ok()
    {
        let again_read = ipv4::Packet::new_prefix(out).ok();
        again(repr, again_read.and_then(|(packet, _)| ipv4::Repr::parse(&packet).ok()));
    }
    let len = packet.payload().len() as u16;
    upper(packet.protocol(), packet.payload(), packet.pseudo_header(len), out);
}

fn ipv6_packet(bytes: &[u8], out: &mut [u8]) {
    let Ok((packet, whole)) = ipv6::Packet::new_prefix(bytes) else { return };
    assert_eq!(whole, ipv6::Packet::new_checked(bytes).is_ok());
    assert!(packet.extensions().count() <= ipv6::EXTENSIONS + 1);
    if let Ok(repr) = ipv6::Repr::parse(&packet)
        && repr.emit(out).is_ok()
    {
        let again_read = ipv6::Packet::new_prefix(out).ok();
        again(repr, again_read.and_then(|(packet, _)| ipv6::Repr::parse(&packet).ok()));
    }
    if let Ok(found) = packet.upper() {
        assert!(packet.payload().ends_with(found.payload));
        let pseudo = packet.pseudo_header(found.protocol, found.payload.len() as u32);
        upper(found.protocol, found.payload, pseudo, out);
    }
}

fn upper(protocol: Protocol, bytes: &[u8], pseudo: Sum, out: &mut [u8]) {
    match protocol {
        Protocol::TCP => tcp_segment(bytes, pseudo, out),
        Protocol::UDP => udp_datagram(bytes, pseudo, out),
        Protocol::ICMP => icmpv4_message(bytes, out),
        Protocol::ICMPV6 => icmpv6_message(bytes, pseudo, out),
        _ => (),
    }
}

fn tcp_segment(bytes: &[u8], pseudo: Sum, out: &mut [u8]) {
    let Ok(segment) = tcp::Segment::new_checked(bytes) else { return };
    assert!(tcp_option::TcpOptions::new(segment.options()).count() <= tcp_option::OPTIONS_LEN);
    let Ok(repr) = tcp::Repr::parse(&segment) else { return };
    let Some(out) = out.get_mut(..repr.header_len()) else { return };
    if repr.emit(out, pseudo).is_ok() {
        let written = tcp::Segment::new_checked(out).ok();
        assert!(written.is_some_and(|segment| segment.is_checksum_valid(pseudo)));
        again(repr, written.and_then(|segment| tcp::Repr::parse(&segment).ok()));
    }
}

fn udp_datagram(bytes: &[u8], pseudo: Sum, out: &mut [u8]) {
    let Ok(datagram) = udp::Datagram::new_checked(bytes) else { return };
    let repr = udp::Repr::parse(&datagram);
    if repr.emit(out, pseudo).is_ok() {
        let written = udp::Datagram::new_checked(out).ok();
        assert!(written.is_some_and(|datagram| datagram.is_checksum_valid(pseudo)));
        again(repr, written.map(|datagram| udp::Repr::parse(&datagram)));
    }
}

fn icmpv4_message(bytes: &[u8], out: &mut [u8]) {
    let Ok(message) = icmpv4::Message::new_checked(bytes) else { return };
    let Ok(repr) = icmpv4::Repr::parse(&message) else { return };
    let Some(out) = out.get_mut(..repr.len()) else { return };
    if repr.emit(out).is_ok() {
        let written = icmpv4::Message::new_checked(out).ok();
        again(repr, written.and_then(|message| icmpv4::Repr::parse(&message).ok()));
    }
}

fn icmpv6_message(bytes: &[u8], pseudo: Sum, out: &mut [u8]) {
    let Ok(message) = icmpv6::Message::new_checked(bytes) else { return };
    let Ok(repr) = icmpv6::Repr::parse(&message) else { return };
    let Some(out) = out.get_mut(..repr.len()) else { return };
    if repr.emit(out, pseudo).is_ok() {
        let written = icmpv6::Message::new_checked(out).ok();
        again(repr, written.and_then(|message| icmpv6::Repr::parse(&message).ok()));
    }
}

/// One frame for each way through the headers.
pub fn seeds() -> Vec<Vec<u8>> {
    let link = |ethertype: u16, behind: &[u8]| {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame.extend_from_slice(behind);
        frame
    };
    let four = |protocol: u8, behind: &[u8]| {
        let mut packet = vec![0; 20];
        let repr = ipv4::Repr {
            dscp: 0,
            ecn: 0,
            identification: 1,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: Protocol(protocol),
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            options: &[],
            payload_len: behind.len() as u16,
        };
        let _ = repr.emit(&mut packet);
        packet.extend_from_slice(behind);
        link(0x0800, &packet)
    };
    let six = |protocol: u8, behind: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0, 0, behind.len() as u8, protocol, 64];
        packet.extend_from_slice(&[0xfe; 15]);
        packet.extend_from_slice(&[1; 17]);
        packet.extend_from_slice(behind);
        link(0x86dd, &packet)
    };
    let tcp = b"\xc0\x00\x00\x50\0\0\0\x01\0\0\0\x02\xa0\x02\xff\xff\0\0\0\0\
        \x02\x04\x05\xb4\x04\x02\x08\x0a\0\0\0\x01\0\0\0\0\x01\x03\x03\x07data";
    let extensions = b"\x2c\0\x01\x04\0\0\0\0\x2b\0\0\x01\0\0\0\x09\x3c\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
        \x11\0\x01\x04\0\0\0\0\x03\xe8\0\x35\0\x0a\0\0hi";
    let tagged = [&[0, 5, 0x08, 0][..], &four(17, b"\x03\xe8\0\x35\0\x0a\0\0hi")[14..]].concat();
    let mut solicitation = b"\x87\0\0\0\0\0\0\0".to_vec();
    solicitation.extend_from_slice(&[0x20; 16]);
    solicitation.extend_from_slice(b"\x01\x01\x02\0\0\0\0\x01");
    vec![
        link(0x0806, b"\0\x01\x08\0\x06\x04\0\x01\x02\0\0\0\0\x01\x0a\0\0\x01\0\0\0\0\0\0\x0a\0\0\x02"),
        four(6, tcp),
        four(17, b"\x03\xe8\0\x35\0\x0a\0\0hi"),
        four(1, b"\x08\0\x06\xfa\x12\x34\0\x01ping"),
        six(6, tcp),
        six(0, extensions),
        six(58, &solicitation),
        link(0x8100, &tagged),
    ]
}
