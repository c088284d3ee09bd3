//! ICMP echo, IPv6 extension headers and fragments.
#![allow(clippy::unwrap_used)]

use ringway_frame::{Needs, Offload};
use ringway_netstack::{Frames, SECOND, Settings, SocketError, SocketId, Stack};
use ringway_wire::icmp::{v4, v6};
use ringway_wire::{
    Arp, EtherType, Ethernet, Header, Icmp, Ipv4, Ipv6, MacAddress, Protocol, Sum, U16, U32, U128, Udp, arp,
    ipv4, ipv6,
};
use std::net::{Ipv4Addr, Ipv6Addr};

const OWN_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const PEER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

fn v4_packet(protocol: Protocol, destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut ip = Ipv4 {
        total_length: U16::new((Ipv4::LEN + payload.len()) as u16),
        ttl: 64,
        protocol,
        source: U32::from_bytes([10, 0, 0, 2]),
        destination: U32::from_bytes(destination),
        ..Ipv4::EMPTY
    };
    ip.fill_checksum(&[]);
    [ip.bytes(), payload].concat()
}

fn v6_packet(next_header: Protocol, destination: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let ip = Ipv6 {
        payload_length: U16::new(payload.len() as u16),
        next_header,
        hop_limit: 64,
        source: U128::new(PEER.to_bits()),
        destination: U128::new(destination.to_bits()),
        ..Ipv6::EMPTY
    };
    [ip.bytes(), payload].concat()
}

/// A stack that knows its peer, and a socket on port 7.
struct Host {
    stack: Stack,
    socket: SocketId,
    now: u64,
}

impl Host {
    fn new(settings: Settings) -> Host {
        let mut stack = crate::common::host(1, settings, Needs::NONE);
        let socket = stack.bind("[::]:7".parse().unwrap()).unwrap();
        let mut host = Host { stack, socket, now: 0 };
        let known = Arp {
            sender_hardware: PEER_MAC,
            sender_protocol: U32::from_bytes([10, 0, 0, 2]),
            target_protocol: U32::from_bytes([10, 0, 0, 1]),
            ..Arp::new(arp::REQUEST)
        };
        host.receive(OWN_MAC, EtherType::ARP, known.bytes());
        host.sent();
        host
    }

    fn receive(&mut self, destination: MacAddress, ethertype: EtherType, packet: &[u8]) {
        let ethernet = Ethernet { destination, source: PEER_MAC, ethertype };
        self.stack.receive(self.now, 0, &[ethernet.bytes(), packet].concat(), Offload::default());
    }

    fn receive_v6(&mut self, next_header: Protocol, payload: &[u8]) {
        self.receive(OWN_MAC, EtherType::IPV6, &v6_packet(next_header, OWN, payload));
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Frames::default();
        self.stack.expire(self.now);
        self.stack.transmit(self.now, 0, &mut frames);
        frames.iter().map(|(frame, _)| frame.to_vec()).collect()
    }

    /// The datagram that has arrived.
    fn datagram(&mut self) -> Option<Vec<u8>> {
        match self.stack.recv_from(self.socket) {
            Ok((bytes, from)) => {
                assert_eq!(from, (PEER, 9).into());
                Some(bytes)
            }
            Err(error) => {
                assert_eq!(error, SocketError::WouldBlock);
                None
            }
        }
    }
}

fn echo(kind: u8, sum: Sum) -> Vec<u8> {
    let icmp = Icmp { kind, identifier: U16::new(77), sequence_number: U16::new(3), ..Icmp::default() };
    let body: Vec<u8> = (0..100).map(crate::common::byte).collect();
    let mut message = [icmp.bytes(), &body].concat();
    Icmp::fill_checksum(&mut message, sum).unwrap();
    message
}

#[test]
fn an_echo_request_is_answered_but_not_if_everybody_gets_it() {
    let mut host = Host::new(Settings::default());
    let request = echo(v4::ECHO, Sum::new());
    host.receive(OWN_MAC, EtherType::IPV4, &v4_packet(Protocol::ICMP, [10, 0, 0, 1], &request));
    let sent = host.sent();
    let packet = ipv4::Packet::parse(&sent[0][14..]).unwrap();
    assert_eq!((sent.len(), packet.header.destination_addr()), (1, Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!(packet.payload, echo(v4::ECHO_REPLY, Sum::new()));
    for group in [[10, 0, 0, 255], [255; 4], [224, 0, 0, 1]] {
        let packet = v4_packet(Protocol::ICMP, group, &request);
        host.receive(MacAddress::BROADCAST, EtherType::IPV4, &packet);
    }
    let mut wrong = request.clone();
    wrong[20] ^= 1;
    host.receive(OWN_MAC, EtherType::IPV4, &v4_packet(Protocol::ICMP, [10, 0, 0, 1], &wrong));
    assert_eq!((host.sent(), host.stack.statistics().bad_checksum), (vec![], 1));
}

#[test]
fn an_icmpv6_echo_request_is_answered_to_a_neighbour_that_is_asked_first() {
    let mut host = Host::new(Settings::default());
    let sum = |from, to| Sum::pseudo_v6(from, to, Protocol::ICMPV6.0, 108);
    host.receive_v6(Protocol::ICMPV6, &echo(v6::ECHO, sum(PEER, OWN)));
    let solicitation = host.sent();
    assert_eq!((solicitation.len(), solicitation[0][54]), (1, v6::NEIGHBOR_SOLICITATION));
    // The neighbour asks for our address in its turn, which tells its own.
    let link = [1, 1, 2, 0, 0, 0, 0, 2];
    let icmp = Icmp { kind: v6::NEIGHBOR_SOLICITATION, ..Icmp::default() };
    let mut message = [icmp.bytes(), &OWN.octets(), &link].concat();
    let sum_of = Sum::pseudo_v6(PEER, OWN, Protocol::ICMPV6.0, message.len() as u32);
    Icmp::fill_checksum(&mut message, sum_of).unwrap();
    let mut packet = v6_packet(Protocol::ICMPV6, OWN, &message);
    packet[7] = 255;
    host.receive(OWN_MAC, EtherType::IPV6, &packet);
    let sent = host.sent();
    let reply = sent.iter().find(|frame| frame[54] == v6::ECHO_REPLY).unwrap();
    let packet = ipv6::Packet::parse(&reply[14..]).unwrap();
    assert_eq!((sent.len(), packet.header.destination_addr()), (2, PEER));
    assert_eq!(packet.payload, echo(v6::ECHO_REPLY, sum(OWN, PEER)));
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let request = echo(v6::ECHO, sum(PEER, group));
    let packet = v6_packet(Protocol::ICMPV6, group, &request);
    host.receive(ipv6::multicast_mac(group), EtherType::IPV6, &packet);
    assert!(host.sent().is_empty());
}

/// A datagram from port 9 to port 7.
fn datagram(len: usize) -> (Vec<u8>, Vec<u8>) {
    let payload: Vec<u8> = (0..len as u64).map(crate::common::byte).collect();
    let header = Udp {
        source_port: U16::new(9),
        destination_port: U16::new(7),
        length: U16::new((Udp::LEN + len) as u16),
        ..Udp::default()
    };
    let mut packet = [header.bytes(), &payload].concat();
    let sum = Sum::pseudo_v6(PEER, OWN, Protocol::UDP.0, packet.len() as u32);
    Udp::fill_checksum(&mut packet, sum).unwrap();
    (packet, payload)
}

/// `count` options headers before a protocol.
fn chain(count: usize, last: Protocol, payload: &[u8]) -> Vec<u8> {
    let header = |number: usize| {
        let next = if number + 1 == count { last } else { Protocol::DESTINATION };
        [next.0, 0, 1, 4, 0, 0, 0, 0]
    };
    let headers: Vec<u8> = (0..count).flat_map(header).collect();
    [&headers, payload].concat()
}

#[test]
fn extension_headers_are_passed_and_their_number_is_bounded() {
    let mut host = Host::new(Settings::default());
    let (packet, payload) = datagram(50);
    for count in [1, 2, ipv6::EXTENSIONS] {
        host.receive_v6(Protocol::HOP_BY_HOP, &chain(count, Protocol::UDP, &packet));
        assert_eq!(host.datagram().as_ref(), Some(&payload), "{count} headers");
    }
    for count in [ipv6::EXTENSIONS + 1, 100] {
        host.receive_v6(Protocol::HOP_BY_HOP, &chain(count, Protocol::UDP, &packet));
        assert_eq!(host.datagram(), None, "{count} headers");
    }
    // A routing header with segments left (RFC 5095), a length beyond the packet, and no upper layer.
    host.receive_v6(Protocol::ROUTING, &[&[Protocol::UDP.0, 0, 0, 1, 0, 0, 0, 0], &packet[..]].concat());
    host.receive_v6(
        Protocol::DESTINATION,
        &[&[Protocol::UDP.0, 200, 1, 4, 0, 0, 0, 0], &packet[..]].concat(),
    );
    host.receive_v6(Protocol::NONE, &packet);
    assert_eq!((host.datagram(), host.stack.statistics().bad_header), (None, 4));
}

/// The fragments of a packet: offsets and bytes.
fn fragments(packet: &[u8], size: usize, identification: u32) -> Vec<Vec<u8>> {
    let count = packet.len().div_ceil(size);
    let of =
        |(number, part): (usize, &[u8])| fragment(number * size, number + 1 < count, part, identification);
    packet.chunks(size).enumerate().map(of).collect()
}

fn fragment(offset: usize, more: bool, part: &[u8], identification: u32) -> Vec<u8> {
    let header = ipv6::Fragment {
        next_header: Protocol::UDP,
        reserved: 0,
        offset: U16::new(offset as u16 | u16::from(more)),
        identification: U32::new(identification),
    };
    [header.bytes(), part].concat()
}

#[test]
fn fragments_are_joined_in_any_order_also_behind_other_headers() {
    let mut host = Host::new(Settings::default());
    let (packet, payload) = datagram(3000);
    let parts = fragments(&packet, 1000, 1);
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        for part in order {
            assert_eq!(host.datagram(), None);
            host.receive_v6(Protocol::HOP_BY_HOP, &chain(2, Protocol::FRAGMENT, &parts[part]));
        }
        assert_eq!(host.datagram().as_ref(), Some(&payload));
    }
    // A packet in one fragment (RFC 6946), also while another one with its identification is incomplete.
    let (small, text) = datagram(10);
    host.receive_v6(Protocol::FRAGMENT, &parts[0]);
    host.receive_v6(Protocol::FRAGMENT, &fragment(0, false, &small, 1));
    assert_eq!(host.datagram(), Some(text));
}

#[test]
fn fragments_that_overlap_or_never_end_are_dropped() {
    let settings = Settings { ipfrag_high_thresh: 100_000, ..Settings::default() };
    let mut host = Host::new(settings);
    let (packet, payload) = datagram(3000);
    let parts = fragments(&packet, 1000, 1);
    // RFC 5722: with an overlap all of it is dropped, and what follows does not complete it.
    host.receive_v6(Protocol::FRAGMENT, &parts[0]);
    host.receive_v6(Protocol::FRAGMENT, &fragment(992, true, &packet[992..2000], 1));
    parts[1..].iter().for_each(|part| host.receive_v6(Protocol::FRAGMENT, part));
    assert_eq!(host.datagram(), None);
    // Beyond the largest packet, and a length that is not a multiple of eight.
    host.receive_v6(Protocol::FRAGMENT, &fragment(65_528, false, &[0; 100], 2));
    host.receive_v6(Protocol::FRAGMENT, &fragment(0, true, &[0; 101], 3));
    // Packets that are never complete: others are still joined, and their time ends.
    for number in 0..10_000 {
        host.receive_v6(
            Protocol::FRAGMENT,
            &fragment(8 * (number as usize % 4000), true, &[1; 80], 100 + number),
        );
    }
    host.now += 1;
    for part in fragments(&packet, 1000, 50) {
        host.receive_v6(Protocol::FRAGMENT, &part);
    }
    assert!(host.datagram() == Some(payload));
    assert!(host.stack.next_timer().is_some_and(|at| at <= 31 * SECOND));
    host.now += 30 * SECOND;
    host.sent();
    assert_eq!(host.stack.next_timer(), None);
}
