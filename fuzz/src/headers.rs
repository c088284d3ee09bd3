//! Frame headers.

use ringway_wire::icmp::{LinkOption, Neighbor};
use ringway_wire::{Arp, EtherType, Ethernet, Header, Ipv4, Protocol, Tcp, flow::Flow, ipv4, ipv6, vlan};

/// Reads `data` as a frame, and every header in it.
pub fn run(data: &[u8]) {
    let flow = Flow::parse(data);
    assert_eq!(flow.is_some(), data.len() >= Ethernet::LEN);
    if let Some(flow) = flow {
        assert_eq!(flow.symmetric_hash(1), flow.reversed().symmetric_hash(1));
    }
    let Some((frame, payload)) = Ethernet::split(data) else { return };
    let Some(inner) = vlan::untag(frame.ethertype, payload) else { return };
    assert!(payload.ends_with(inner.payload));
    match inner.ethertype {
        EtherType::ARP => {
            let arp = Arp::parse(inner.payload);
            assert!(arp.is_none_or(|arp| inner.payload.starts_with(arp.bytes())));
        }
        EtherType::IPV4 => ipv4_packet(inner.payload),
        EtherType::IPV6 => ipv6_packet(inner.payload),
        _ => (),
    }
}

fn ipv4_packet(bytes: &[u8]) {
    let Some(packet) = ipv4::Packet::parse(bytes) else { return };
    let header = *packet.header;
    assert_eq!(header.header_len(), Ipv4::LEN + packet.options.len());
    let shown = header.header_len() + packet.payload.len();
    assert_eq!(packet.whole, shown == usize::from(header.total_length.get()));
    let mut bytes = bytes.to_vec();
    let (header, ..) = Ipv4::parse_mut(&mut bytes).expect("it was read");
    header.set_ttl(2);
    header.decrement_ttl();
    assert_eq!(header.ttl, 1);
    upper(header.protocol, packet.payload);
}

fn ipv6_packet(bytes: &[u8]) {
    let Some(packet) = ipv6::Packet::parse(bytes) else { return };
    assert!(packet.extensions().count() <= ipv6::EXTENSIONS + 1);
    if let Some(found) = packet.upper() {
        assert!(packet.payload.ends_with(found.payload));
        upper(found.protocol, found.payload);
    }
}

fn upper(protocol: Protocol, bytes: &[u8]) {
    match (protocol, Tcp::parse(bytes), Neighbor::split(bytes)) {
        (Protocol::TCP, Some((tcp, options, payload)), _) => {
            assert_eq!(tcp.header_len(), Tcp::LEN + options.len());
            assert!(bytes.ends_with(payload));
        }
        (Protocol::ICMPV6, _, Some((_, options))) => {
            for kind in [LinkOption::SOURCE, LinkOption::TARGET] {
                let _ = LinkOption::find(kind, options);
            }
        }
        _ => (),
    }
}

/// A frame for each combination of headers.
pub fn seeds() -> Vec<Vec<u8>> {
    let link = |ethertype: u16, behind: &[u8]| {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame.extend_from_slice(behind);
        frame
    };
    let four = |protocol: u8, behind: &[u8]| {
        let mut header = Ipv4 {
            total_length: (20 + behind.len() as u16).into(),
            fragment: ipv4::DONT_FRAGMENT.into(),
            ttl: 64,
            protocol: Protocol(protocol),
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            ..Ipv4::EMPTY
        };
        header.fill_checksum(&[]);
        link(0x0800, &[header.bytes(), behind].concat())
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
