//! Sources that no other host has, and frames to groups: they are counted, not answered.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_frame::{Needs, Offload};
use ringway_netstack::{
    Cidr, ConnectionError, Frames, InterfaceConfig, Settings, SocketError, SocketId, Stack,
};
use ringway_wire::icmp::{LinkOption, Neighbor, v4, v6};
use ringway_wire::tcp::Flags;
use ringway_wire::{
    Arp, EtherType, Ethernet, Header, Icmp, Ipv4, Ipv6, MacAddress, Protocol, Sum, Tcp, U16, U32, U128, Udp,
    arp,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const GROUP: MacAddress = MacAddress([1, 0, 0x5e, 0, 0, 1]);

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host with two interfaces, and its listeners.
fn host() -> (Stack, [SocketId; 2]) {
    let mut stack = Stack::new(Settings::default(), [1, 2]);
    for (last, addresses) in [(1, ["10.0.0.1/24", "fd00::1/64"]), (9, ["192.168.5.1/24", "fd05::1/64"])] {
        stack.add_interface(InterfaceConfig {
            mac: [2, 0, 0, 0, 0, last].into(),
            mtu: 1500,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            offloads: Needs::NONE,
        });
    }
    stack.add_route(Cidr::new([0, 0, 0, 0], 0), address("10.0.0.254"), 0);
    stack.add_route(Cidr::new(Ipv6Addr::UNSPECIFIED, 0), address("fd00::fe"), 0);
    let listeners = ["0.0.0.0:80", "[::]:80"].map(|text| stack.listen(text.parse().unwrap(), 16).unwrap());
    (stack, listeners)
}

/// What a host answers, with its checksum.
fn requests(source: IpAddr, destination: IpAddr) -> Vec<(Protocol, Vec<u8>)> {
    let sum = |protocol: Protocol, len: usize| match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(to)) => Sum::pseudo_v4(source, to, protocol.0, len as u16),
        (IpAddr::V6(source), IpAddr::V6(to)) => Sum::pseudo_v6(source, to, protocol.0, len as u32),
        _ => unreachable!("both addresses are of one family"),
    };
    let segment = |port: u16, flags: Flags| {
        let tcp = Tcp {
            source_port: U16::new(1234),
            destination_port: U16::new(port),
            data_offset: 5 << 4,
            flags,
            window: U16::new(1000),
            ..Tcp::EMPTY
        };
        let mut bytes = tcp.bytes().to_vec();
        Tcp::fill_checksum(&mut bytes, sum(Protocol::TCP, Tcp::LEN)).unwrap();
        (Protocol::TCP, bytes)
    };
    let udp = Udp { source_port: U16::new(9), destination_port: U16::new(9), ..Udp::default() };
    let mut datagram = Udp { length: U16::new(Udp::LEN as u16), ..udp }.bytes().to_vec();
    Udp::fill_checksum(&mut datagram, sum(Protocol::UDP, Udp::LEN)).unwrap();
    let icmp = |kind: u8, protocol: Protocol, sum: Sum| {
        let mut message = Icmp { kind, ..Icmp::default() }.bytes().to_vec();
        Icmp::fill_checksum(&mut message, sum).unwrap();
        (protocol, message)
    };
    let echo = match source {
        IpAddr::V4(_) => icmp(v4::ECHO, Protocol::ICMP, Sum::new()),
        IpAddr::V6(_) => icmp(v6::ECHO, Protocol::ICMPV6, sum(Protocol::ICMPV6, Icmp::LEN)),
    };
    vec![
        echo,
        segment(80, Flags::SYN),
        segment(81, Flags::SYN),
        segment(80, Flags::ACK),
        (Protocol::UDP, datagram),
        (Protocol(200), vec![0; 8]),
    ]
}

fn packet(source: IpAddr, destination: IpAddr, protocol: Protocol, payload: &[u8]) -> (EtherType, Vec<u8>) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = Ipv4 {
                total_length: U16::new((Ipv4::LEN + payload.len()) as u16),
                ttl: 64,
                protocol,
                source: U32::new(source.to_bits()),
                destination: U32::new(destination.to_bits()),
                ..Ipv4::EMPTY
            };
            ip.fill_checksum(&[]);
            (EtherType::IPV4, [ip.bytes(), payload].concat())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = Ipv6 {
                payload_length: U16::new(payload.len() as u16),
                next_header: protocol,
                hop_limit: 255,
                source: U128::new(source.to_bits()),
                destination: U128::new(destination.to_bits()),
                ..Ipv6::EMPTY
            };
            (EtherType::IPV6, [ip.bytes(), payload].concat())
        }
        _ => unreachable!("both addresses are of one family"),
    }
}

/// Passes a frame to the first interface; the frames that the stack then sends on both.
fn answers(stack: &mut Stack, macs: [MacAddress; 2], (ethertype, payload): (EtherType, Vec<u8>)) -> usize {
    let [source, destination] = macs;
    let ethernet = Ethernet { destination, source, ethertype };
    stack.receive(0, 0, &[ethernet.bytes(), &payload].concat(), Offload::default());
    stack.expire(0);
    (0..2)
        .map(|interface| {
            let mut frames = Frames::default();
            stack.transmit(0, interface, &mut frames);
            frames.iter().count()
        })
        .sum()
}

/// The frames that answer everything that a host answers, sent from one address to another; and how many packets were
/// counted because of their source.
fn answers_from(source: IpAddr, destination: IpAddr, macs: [MacAddress; 2]) -> ([usize; 6], u64) {
    let mut sent = [0; 6];
    let mut counted = 0;
    for (count, (protocol, payload)) in sent.iter_mut().zip(requests(source, destination)) {
        let (mut stack, listeners) = host();
        *count = answers(&mut stack, macs, packet(source, destination, protocol, &payload));
        assert!(listeners.iter().all(|listener| !stack.has_connections(*listener)));
        counted += stack.statistics().bad_source;
    }
    (sent, counted)
}

#[test]
fn no_protocol_answers_a_source_that_no_host_has() {
    let v4 = [
        "10.0.0.255",      // the broadcast address of the interface's network
        "192.168.5.255",   // that of another interface's
        "255.255.255.255", // all hosts
        "224.0.0.1",
        "239.1.2.3",
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.9.9.9",
        "10.0.0.1",    // the interface's own
        "192.168.5.1", // another interface's
    ];
    let v6 = ["ff02::1", "ff05::1:3", "::", "::1", "::ffff:10.0.0.2", "fd00::1", "fd05::1"];
    for (sources, own) in [(&v4[..], "10.0.0.1"), (&v6[..], "fd00::1")] {
        for source in sources {
            let (sent, counted) = answers_from(address(source), address(own), [PEER, OWN]);
            assert_eq!((sent, counted), ([0; 6], 6), "{source}");
        }
    }
    // Hosts of other networks, of class E as in Linux, and the first address of a network: the next hop is asked for.
    for (source, own) in [
        ("10.0.0.2", "10.0.0.1"),
        ("10.0.0.0", "10.0.0.1"),
        ("10.0.1.255", "10.0.0.1"),
        ("240.0.0.9", "10.0.0.1"),
        ("fd00::2", "fd00::1"),
        ("fe80::2", "fd00::1"),
        ("2001:db8::1", "fd00::1"),
    ] {
        let (sent, counted) = answers_from(address(source), address(own), [PEER, OWN]);
        assert_eq!((sent, counted), ([1; 6], 0), "{source}");
    }
}

#[test]
fn frames_to_and_from_groups_are_not_answered() {
    for (source, own) in [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")] {
        for group in [MacAddress::BROADCAST, GROUP] {
            let (sent, _) = answers_from(address(source), address(own), [PEER, group]);
            assert_eq!(sent, [0; 6], "{source} to {group}");
            let (sent, counted) = answers_from(address(source), address(own), [group, OWN]);
            assert_eq!((sent, counted), ([0; 6], 6), "{source} from {group}");
        }
    }
}

fn arp_request(hardware: MacAddress, sender: &str) -> (EtherType, Vec<u8>) {
    let IpAddr::V4(sender) = address(sender) else { unreachable!("an IPv4 address") };
    let packet = Arp {
        sender_hardware: hardware,
        sender_protocol: U32::new(sender.to_bits()),
        target_protocol: U32::new(Ipv4Addr::new(10, 0, 0, 1).to_bits()),
        ..Arp::new(arp::REQUEST)
    };
    (EtherType::ARP, packet.bytes().to_vec())
}

fn solicitation(hardware: Option<MacAddress>, source: &str) -> (EtherType, Vec<u8>) {
    let (source, target) = (address(source), address("fd00::1"));
    let (IpAddr::V6(from), IpAddr::V6(target)) = (source, target) else { unreachable!("IPv6 addresses") };
    let group = Ipv6Addr::from(0xff02 << 112 | 0x1_ff00_0000 | target.to_bits() & 0xff_ffff);
    let icmp = Icmp { kind: v6::NEIGHBOR_SOLICITATION, ..Icmp::default() };
    let neighbor = Neighbor { icmp, target: U128::new(target.to_bits()) };
    let option = hardware.map(|address| LinkOption { kind: LinkOption::SOURCE, length: 1, address });
    let option = option.as_ref().map_or(&[][..], |option| option.bytes());
    let mut message = [neighbor.bytes(), option].concat();
    let sum = Sum::pseudo_v6(from, group, Protocol::ICMPV6.0, message.len() as u32);
    Icmp::fill_checksum(&mut message, sum).unwrap();
    packet(source, group.into(), Protocol::ICMPV6, &message)
}

#[test]
fn no_neighbour_is_answered_or_learned_with_an_address_that_no_host_has() {
    let arp = |hardware: MacAddress, sender: &str| arp_request(hardware, sender);
    let to_all = [PEER, MacAddress::BROADCAST];
    for sender in [
        "10.0.0.255",
        "192.168.5.255",
        "255.255.255.255",
        "224.0.0.1",
        "127.0.0.1",
        "10.0.0.1",
        "192.168.5.1",
    ] {
        let (mut stack, _) = host();
        assert_eq!(answers(&mut stack, to_all, arp(PEER, sender)), 0, "{sender}");
        assert_eq!(stack.statistics().bad_source, 1, "{sender}");
    }
    for hardware in [MacAddress::BROADCAST, GROUP, MacAddress::default(), OWN] {
        let (mut stack, _) = host();
        assert_eq!(answers(&mut stack, to_all, arp(hardware, "10.0.0.2")), 0, "{hardware}");
        assert_eq!(stack.statistics().bad_source, 1, "{hardware}");
    }
    // A neighbour, and a host that looks whether the address is free (RFC 5227).
    for sender in ["10.0.0.2", "0.0.0.0"] {
        assert_eq!(answers(&mut host().0, to_all, arp(PEER, sender)), 1, "{sender}");
    }
    let to_group = [PEER, MacAddress([0x33, 0x33, 0xff, 0, 0, 1])];
    for source in ["ff02::1", "::1", "::ffff:10.0.0.2", "fd00::1", "fd05::1"] {
        let (mut stack, _) = host();
        assert_eq!(answers(&mut stack, to_group, solicitation(Some(PEER), source)), 0, "{source}");
        assert_eq!(stack.statistics().bad_source, 1, "{source}");
    }
    for hardware in [MacAddress::BROADCAST, GROUP, MacAddress::default(), OWN] {
        let frame = solicitation(Some(hardware), "fd00::2");
        assert_eq!(answers(&mut host().0, to_group, frame), 0, "{hardware}");
    }
    for (hardware, source) in [(Some(PEER), "fd00::2"), (None, "::")] {
        assert_eq!(answers(&mut host().0, to_group, solicitation(hardware, source)), 1, "{source}");
    }
}

#[test]
fn a_host_without_an_address_reaches_a_program_that_gives_one() {
    let (mut stack, _) = host();
    let server = stack.bind("0.0.0.0:9".parse().unwrap()).unwrap();
    for (destination, mac) in
        [("255.255.255.255", MacAddress::BROADCAST), ("10.0.0.255", MacAddress::BROADCAST)]
    {
        let (source, destination) = (address("0.0.0.0"), address(destination));
        let (protocol, payload) = requests(source, destination).swap_remove(4);
        assert_eq!(answers(&mut stack, [PEER, mac], packet(source, destination, protocol, &payload)), 0);
    }
    assert_eq!(
        stack.recv_from(server).map(|(bytes, from)| (bytes.len(), from.ip())),
        Ok((0, address("0.0.0.0")))
    );
    assert_eq!((stack.recv_from(server), stack.statistics().bad_source), (Err(SocketError::WouldBlock), 1));
}

#[test]
fn no_connection_is_made_to_a_group() {
    let (mut stack, _) = host();
    for remote in [
        "10.0.0.255",
        "192.168.5.255",
        "255.255.255.255",
        "224.0.0.1",
        "0.0.0.0",
        "ff02::1",
        "::",
        "::ffff:10.0.0.2",
    ] {
        let refused = stack.connect(0, (address(remote), 80).into());
        assert_eq!(refused, Err(SocketError::Unreachable), "{remote}");
    }
    for remote in ["10.0.0.2", "10.0.0.1", "192.168.5.1", "127.0.0.1", "::1", "fd05::1", "240.0.0.9"] {
        assert!(stack.connect(0, (address(remote), 80).into()).is_ok(), "{remote}");
    }
}

/// What the stack sends on all of its interfaces until nothing is left to do.
fn sent_until_idle(stack: &mut Stack, interfaces: usize) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    while let Some(now) = stack.next_deadline() {
        stack.expire(now);
        for interface in 0..interfaces {
            let mut frames = Frames::default();
            stack.transmit(now, interface, &mut frames);
            sent.extend(frames.iter().map(|(frame, _)| frame.to_vec()));
        }
    }
    sent
}

fn sent_now(stack: &mut Stack) -> Vec<Vec<u8>> {
    let mut frames = Frames::default();
    stack.expire(0);
    stack.transmit(0, 0, &mut frames);
    frames.iter().map(|(frame, _)| frame.to_vec()).collect()
}

fn receive(stack: &mut Stack, (ethertype, payload): (EtherType, Vec<u8>)) {
    let ethernet = Ethernet { destination: OWN, source: PEER, ethertype };
    stack.receive(0, 0, &[ethernet.bytes(), &payload].concat(), Offload::default());
}

/// A host that has connected through its gateway to 10.0.5.255, an ordinary address as long as no interface is in
/// 10.0.5.0/24, and the connection.
fn connected() -> (Stack, SocketId) {
    let (mut stack, _) = host();
    let (own, peer) = (address("10.0.0.1"), address("10.0.5.255"));
    let socket = stack.connect(0, (peer, 80).into()).unwrap();
    assert_eq!(sent_now(&mut stack).len(), 1);
    let (ethertype, mut reply) = arp_request(PEER, "10.0.0.254");
    Arp::split_mut(&mut reply).unwrap().0.operation = U16::new(arp::REPLY);
    receive(&mut stack, (ethertype, reply));
    let frames = sent_now(&mut stack);
    let (syn, _) = Tcp::split(&frames[0][34..]).unwrap();
    assert_eq!(syn.flags, Flags::SYN);
    let tcp = Tcp {
        source_port: U16::new(80),
        destination_port: syn.source_port,
        sequence_number: U32::new(1),
        acknowledgment_number: U32::new(syn.sequence_number.get().wrapping_add(1)),
        data_offset: 5 << 4,
        flags: Flags::SYN.with(Flags::ACK),
        window: U16::new(1000),
        ..Tcp::EMPTY
    };
    let mut bytes = tcp.bytes().to_vec();
    let IpAddr::V4(from) = peer else { unreachable!("an IPv4 address") };
    let sum = Sum::pseudo_v4(from, Ipv4Addr::new(10, 0, 0, 1), Protocol::TCP.0, Tcp::LEN as u16);
    Tcp::fill_checksum(&mut bytes, sum).unwrap();
    receive(&mut stack, packet(peer, own, Protocol::TCP, &bytes));
    assert_eq!(sent_now(&mut stack).len(), 1);
    (stack, socket)
}

/// Adds an interface with an address.
fn add(stack: &mut Stack, cidr: &str) {
    let addresses = vec![cidr.parse().unwrap()];
    stack.add_interface(InterfaceConfig {
        mac: MacAddress([2, 0, 0, 0, 0, 7]),
        mtu: 1500,
        addresses,
        offloads: Needs::NONE,
    });
}

#[test]
fn a_connection_ends_when_its_peer_can_be_no_host_any_more() {
    // The address that is added: its broadcast address is the peer's, or it is the peer's itself.
    for cidr in ["10.0.5.1/24", "10.0.5.255/16"] {
        let (mut stack, socket) = connected();
        assert_eq!(stack.send(0, socket, &[1; 100]), Ok(100));
        add(&mut stack, cidr);
        assert_eq!(stack.error(socket), Ok(Some(ConnectionError::Unreachable)), "{cidr}");
        assert_eq!(sent_until_idle(&mut stack, 3), [[0u8; 0]; 0], "{cidr}");
        // So does a connection that closes,
        let (mut stack, socket) = connected();
        assert_eq!(stack.send(0, socket, &[1; 100]), Ok(100));
        assert_eq!(sent_now(&mut stack).len(), 1);
        stack.close(0, socket).unwrap();
        add(&mut stack, cidr);
        assert_eq!(sent_until_idle(&mut stack, 3), [[0u8; 0]; 0], "{cidr}");
        // and one that opens, from either side.
        let (mut stack, _) = host();
        let opening = stack.connect(0, (address("10.0.5.255"), 80).into()).unwrap();
        let (protocol, syn) = requests(address("10.0.5.255"), address("10.0.0.1")).swap_remove(1);
        receive(&mut stack, packet(address("10.0.5.255"), address("10.0.0.1"), protocol, &syn));
        add(&mut stack, cidr);
        assert_eq!(stack.error(opening), Ok(Some(ConnectionError::Unreachable)), "{cidr}");
        let sent = sent_until_idle(&mut stack, 3);
        assert!(sent.iter().all(|frame| frame[12..14] == [8, 6]), "{cidr}: {sent:?}");
    }
    // Another host of the new network keeps its connection.
    let (mut stack, socket) = connected();
    add(&mut stack, "10.0.5.1/16");
    assert_eq!(stack.error(socket), Ok(None));
}

/// Frames that a host has sent to others than one neighbour, except requests for its address.
fn not_to(gateway: IpAddr, sent: &[Vec<u8>]) -> Vec<&Vec<u8>> {
    let asks = |frame: &[u8]| {
        let arp = Arp::parse(&frame[14..]).filter(|_| frame[12..14] == [8, 6]);
        arp.is_some_and(|arp| IpAddr::from(arp.target_protocol.get().to_be_bytes()) == gateway)
    };
    sent.iter().filter(|frame| !frame.starts_with(&PEER.0) && !asks(frame)).collect()
}

#[test]
fn a_gateway_that_can_be_no_host_any_more_is_not_used() {
    // Added: a network whose broadcast address the gateway 10.0.0.254 is not, one whose it is, and the address itself.
    for (cidr, is_used) in [("10.0.0.3/25", true), ("10.0.0.254/32", false), ("10.0.0.253/24", true)] {
        let (mut stack, socket) = connected();
        add(&mut stack, cidr);
        assert_eq!(stack.send(0, socket, &[1; 100]), Ok(100));
        let sent = sent_now(&mut stack);
        assert_eq!(!sent.is_empty(), is_used, "{cidr}: {sent:?}");
        assert!(not_to(address("10.0.0.254"), &sent).is_empty(), "{cidr}: {sent:?}");
    }
    // 10.0.0.255 is a host's address in 10.0.0.0/23, until a smaller network is added.
    let mut stack = Stack::new(Settings::default(), [1, 2]);
    add(&mut stack, "10.0.1.1/23");
    let any = Cidr::new([0, 0, 0, 0], 0);
    stack.add_route(any, address("10.0.0.255"), 0);
    let before = stack.connect(0, "192.0.2.1:80".parse().unwrap()).unwrap();
    assert_eq!(sent_now(&mut stack).len(), 1, "its request for the gateway's address");
    add(&mut stack, "10.0.0.1/24");
    let sent = sent_until_idle(&mut stack, 2);
    assert!(not_to(address("10.0.0.255"), &sent).is_empty(), "{sent:?}");
    assert!(stack.error(before).unwrap().is_some());
    let refused = stack.connect(0, "192.0.2.1:80".parse().unwrap());
    assert_eq!(refused, Err(SocketError::Unreachable));
    // Another gateway takes its place.
    stack.add_route(any, address("10.0.0.254"), 0);
    stack.connect(0, "192.0.2.1:80".parse().unwrap()).unwrap();
    let sent = sent_until_idle(&mut stack, 2);
    assert!(!sent.is_empty() && not_to(address("10.0.0.254"), &sent).is_empty(), "{sent:?}");
}

proptest! {
    #[test]
    fn what_goes_through_a_gateway_goes_to_another_host(
        own in prop::collection::vec((1u32..255, 24u8..=32), 1..4),
        gateway in (0u32..256, 0usize..4),
    ) {
        let net = 10 << 24;
        // Often an end of one of the networks, or an own address.
        let (first, prefix) = own[gateway.0 as usize % own.len()];
        let hosts = 1u32.checked_shl(32 - u32::from(prefix)).map_or(0, |size| size - 1);
        let gateway = net | [gateway.0, first | hosts, first, first & !hosts][gateway.1];
        let mut stack = Stack::new(Settings::default(), [1, 2]);
        for (number, (last, prefix)) in own.iter().enumerate() {
            stack.add_interface(InterfaceConfig {
                mac: [2, 0, 0, 0, 0, 10 + number as u8].into(),
                mtu: 1500,
                addresses: vec![Cidr::new((net | last).to_be_bytes(), *prefix)],
                offloads: Needs::NONE,
            });
        }
        stack.add_route(Cidr::new([0, 0, 0, 0], 0), gateway.to_be_bytes().into(), 0);
        let is_host = own.iter().all(|(last, prefix)| {
            let hosts = 1u32.checked_shl(32 - u32::from(*prefix)).map_or(0, |size| size - 1);
            let broadcast = (*prefix < 31).then_some(net | last | hosts);
            gateway != net | last && broadcast != Some(gateway)
        });
        let opened = stack.connect(0, "192.0.2.1:80".parse().unwrap());
        let sent = sent_until_idle(&mut stack, own.len());
        prop_assert_eq!(opened.is_ok(), is_host);
        prop_assert_eq!(!sent.is_empty(), is_host, "{:?}", sent);
        prop_assert!(not_to(gateway.to_be_bytes().into(), &sent).is_empty(), "{:?}", sent);
    }
}
