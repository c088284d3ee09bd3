//! Frames of any kind into a TCP/IP stack: ARP, neighbour discovery, router advertisements, ICMP, UDP, DHCP, TCP, IPv6
//! with extension headers, fragments.
//!
//! The stack has static, autoconfigured and DHCP addresses, a listener, a connection and datagrams to send. Whatever
//! arrives, each frame that it sends has valid headers and checksums and its own link-layer address, no answer goes to
//! a group, it stops sending, and its next deadline is not in the past.

use ringway_frame::{Needs, Offload};
use ringway_netstack::{Cidr, Frames, InterfaceConfig, MS, SECOND, Settings, SocketId, Stack};
use ringway_wire::icmp::{LinkOption, Neighbor, Prefix, v4, v6};
use ringway_wire::tcp::Flags;
use ringway_wire::{
    Arp, Bootp, EtherType, Ethernet, Header, Icmp, Ipv4, Ipv6, MacAddress, Protocol, Sum, Tcp, U16, U32,
    U128, Udp, arp, bootp, ipv4, ipv6,
};
use std::net::Ipv6Addr;

/// Flags, time, and the frame's length.
const STEP: usize = 4;
/// Flags: lengths and checksums are made valid; a program sends; the time is in seconds; the stack sends nothing; the
/// acknowledgment number is made that of the last SYN.
const REPAIR: u8 = 1;
const SEND: u8 = 2;
const SECONDS: u8 = 4;
const ASLEEP: u8 = 8;
const ACKNOWLEDGE: u8 = 16;

/// Option: there is little memory for buffers.
const LITTLE: u8 = 4;
/// Memory, size of receive buffers, and size of their chunks, of a run with limits.
const FULL: usize = 16 << 10;
const BUFFER: usize = 48 << 10;
const CHUNK: usize = 32 << 10;
/// More connections than the listeners accept.
const CONNECTIONS: usize = 16;

const MTU: usize = 1500;
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);

struct World {
    now: u64,
    stack: Stack,
    datagrams: [SocketId; 2],
    received: u64,
    has_little: bool,
    numbers: Numbers,
}

/// Numbers that an input can't know.
#[derive(Clone, Copy, Default)]
struct Numbers {
    /// The transaction of the DHCP client.
    transaction: u32,
    /// The sequence number after the last SYN.
    after_syn: Option<u32>,
}

impl World {
    fn new(options: u8) -> World {
        let has_little = options & LITTLE != 0;
        let mut settings = Settings {
            gc_thresh3: 4 + usize::from(options >> 4),
            ipfrag_high_thresh: 100_000,
            tcp_syncookies: options & 3,
            ..Settings::default()
        };
        if has_little {
            settings.tcp_mem = [4 << 10, 8 << 10, FULL];
            settings.tcp_rmem = [2 << 10, BUFFER, BUFFER];
        }
        let mut stack = Stack::new(settings, [1, 2]);
        stack.add_interface(InterfaceConfig {
            mac: MAC,
            mtu: MTU,
            addresses: vec![Cidr::new([10, 0, 0, 1], 24), Cidr::new(OWN, 64)],
            offloads: Needs::NONE,
        });
        stack.enable_slaac(0, 0);
        stack.enable_dhcp(0, 0);
        stack.listen("[::]:80".parse().expect("an address"), 4).expect("the port is free");
        stack.listen("0.0.0.0:80".parse().expect("an address"), 4).expect("the port is free");
        let datagrams = ["0.0.0.0:7", "[::]:7"]
            .map(|address| stack.bind(address.parse().expect("an address")).expect("the port is free"));
        stack.connect(0, ([10, 0, 0, 2], 81).into()).expect("there is a route");
        let mut world =
            World { now: 0, stack, datagrams, received: 0, has_little, numbers: Numbers::default() };
        world.settle();
        world
    }

    /// The stack sends what it has.
    fn settle(&mut self) {
        self.stack.expire(self.now);
        for round in 0.. {
            assert!(round < 64, "it does not stop sending");
            let mut frames = Frames::new(256);
            self.stack.transmit(self.now, 0, &mut frames);
            if frames.is_empty() {
                break;
            }
            frames.iter().for_each(|(frame, _)| self.check(frame));
        }
        assert!(self.stack.next_timer().is_none_or(|at| at > self.now), "a deadline is in the past");
    }

    /// A sent frame is valid.
    fn check(&mut self, frame: &[u8]) {
        let (ethernet, payload) = Ethernet::split(frame).expect("an Ethernet header");
        assert!(ethernet.source == MAC && payload.len() <= MTU && ethernet.destination != MAC);
        match ethernet.ethertype {
            EtherType::ARP => {
                let arp = Arp::parse(payload).expect("an ARP packet");
                assert_eq!(arp.sender_hardware, MAC);
            }
            EtherType::IPV4 => {
                let packet = ipv4::Packet::parse(payload).filter(|packet| packet.whole).expect("a packet");
                assert!(packet.header.is_checksum_valid(packet.options));
                // What is not sent to a group by the stack itself answers somebody.
                let group = ethernet.destination.is_group();
                assert!(!group || packet.header.protocol == Protocol::UDP, "an answer to a group");
                if !packet.header.is_fragment() {
                    let sum = packet.header.pseudo_header(packet.payload.len() as u16);
                    check_upper(packet.header.protocol, packet.payload, sum);
                    self.note(packet.header.protocol, packet.payload);
                }
            }
            EtherType::IPV6 => {
                let packet = ipv6::Packet::parse(payload).filter(|packet| packet.whole).expect("a packet");
                let upper = packet.upper().expect("extension headers");
                let group = ethernet.destination.is_group();
                let discovers = matches!(upper.payload.first(), Some(133..=137));
                let permitted = upper.protocol == Protocol::ICMPV6 && discovers && !upper.fragment;
                assert!(!group || permitted, "an answer to a group");
                if !upper.fragment {
                    let (source, destination) =
                        (packet.header.source_addr(), packet.header.destination_addr());
                    let len = upper.payload.len() as u32;
                    let sum = Sum::pseudo_v6(source, destination, upper.protocol.0, len);
                    check_upper(upper.protocol, upper.payload, sum);
                }
            }
            other => panic!("a frame of type {other:?}"),
        }
    }

    /// The DHCP client's transaction, and the number of a SYN.
    fn note(&mut self, protocol: Protocol, payload: &[u8]) {
        if protocol == Protocol::TCP
            && let Some(tcp) = Tcp::of(payload)
            && tcp.flags.has(Flags::SYN)
        {
            self.numbers.after_syn = Some(tcp.sequence_number.get().wrapping_add(1));
        }
        if protocol == Protocol::UDP
            && let Some((udp, message)) = Udp::split(payload)
            && udp.source_port.get() == bootp::CLIENT_PORT
            && let Some((message, _)) = Bootp::parse(message)
        {
            self.numbers.transaction = message.xid.get();
        }
    }

    fn step(&mut self, flags: u8, time: u8, frame: &[u8]) {
        self.now += u64::from(time) * if flags & SECONDS != 0 { SECOND } else { MS };
        if flags & SEND != 0 {
            for (socket, to) in self.datagrams.into_iter().zip(["10.0.0.2:9", "[fd00::2]:9"]) {
                // Without room the datagram is dropped.
                let to = to.parse().expect("an address");
                let _ = self.stack.send_to(self.now, socket, &[7; 2000], to);
            }
        }
        let mut frame = frame.to_vec();
        if flags & REPAIR != 0 {
            let known = self.numbers.after_syn.filter(|_| flags & ACKNOWLEDGE != 0);
            repair(&mut frame, Numbers { after_syn: known, ..self.numbers });
        }
        self.stack.receive(self.now, 0, &frame, Offload::default());
        self.received += 1;
        for socket in self.datagrams {
            while self.stack.recv_from(socket).is_ok() {}
        }
        while self.stack.next_event().is_some() {}
        if flags & ASLEEP == 0 {
            self.settle();
        }
        // A chunk for the least that each connection has, and one that is read in part.
        let most = FULL + CONNECTIONS * 2 * CHUNK;
        assert!(!self.has_little || self.stack.memory() <= most, "{}", self.stack.memory());
        // The stack also receives what it sends to its own addresses.
        assert!(self.stack.statistics().frames_in >= self.received);
    }
}

fn check_upper(protocol: Protocol, payload: &[u8], mut sum: Sum) {
    if protocol == Protocol::ICMP {
        sum = Sum::new();
    }
    let is_summed = matches!(protocol, Protocol::ICMP | Protocol::ICMPV6 | Protocol::UDP | Protocol::TCP);
    sum.add(payload);
    assert!(is_summed && sum.is_valid(), "{protocol:?}");
}

/// Makes lengths and checksums valid; an answer to the DHCP client belongs to its transaction, and a segment may
/// acknowledge the SYN.
fn repair(frame: &mut [u8], numbers: Numbers) {
    let Some((ethernet, packet)) = Ethernet::split_mut(frame) else { return };
    match ethernet.ethertype {
        EtherType::IPV4 => {
            let len = packet.len().min(65_535) as u16;
            let Some(ip) = Ipv4::of_mut(packet) else { return };
            (ip.total_length, ip.version_ihl) = (U16::new(len), 0x45);
            ip.fill_checksum(&[]);
            let (ip, fragment) = (*ip, ip.is_fragment());
            if !fragment {
                let payload = &mut packet[Ipv4::LEN..];
                repair_upper(ip.protocol, payload, |len| ip.pseudo_header(len as u16), numbers);
            }
        }
        EtherType::IPV6 => {
            let Some(len) = packet.len().checked_sub(Ipv6::LEN) else { return };
            let Some(ip) = Ipv6::of_mut(packet) else { return };
            ip.payload_length = U16::new(len.min(65_535) as u16);
            let (source, destination) = (ip.source_addr(), ip.destination_addr());
            let Some(parsed) = ipv6::Packet::parse(packet) else { return };
            let Some(upper) = parsed.upper().filter(|upper| !upper.fragment) else { return };
            let (protocol, start) = (upper.protocol, packet.len() - upper.payload.len());
            let sum = |len: usize| Sum::pseudo_v6(source, destination, protocol.0, len as u32);
            repair_upper(protocol, &mut packet[start..], sum, numbers);
        }
        _ => {}
    }
}

fn repair_upper(protocol: Protocol, payload: &mut [u8], sum: impl Fn(usize) -> Sum, numbers: Numbers) {
    let len = payload.len();
    let _ = match protocol {
        Protocol::ICMP => Icmp::fill_checksum(payload, Sum::new()),
        Protocol::ICMPV6 => Icmp::fill_checksum(payload, sum(len)),
        Protocol::TCP => {
            if let Some(number) = numbers.after_syn
                && let Some(tcp) = Tcp::of_mut(payload)
            {
                tcp.acknowledgment_number = U32::new(number);
            }
            Tcp::fill_checksum(payload, sum(len))
        }
        Protocol::UDP => {
            if let Some((udp, rest)) = Udp::split_mut(payload) {
                udp.length = U16::new(len.min(65_535) as u16);
                if let Some(message) = Bootp::of_mut(rest) {
                    message.xid = U32::new(numbers.transaction);
                }
            }
            Udp::fill_checksum(payload, sum(len))
        }
        _ => None,
    };
}

/// Runs a stack under the frames in `data`.
pub fn run(data: &[u8]) {
    let [options, data @ ..] = data else { return };
    let mut world = World::new(*options);
    let mut rest = data;
    for _ in 0..200 {
        let Some((&[flags, time, low, high], after)) = rest.split_first_chunk::<STEP>() else { break };
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        world.step(flags, time, &after[..len]);
        rest = &after[len..];
    }
    for _ in 0..16 {
        world.settle();
        let Some(next) = world.stack.next_deadline() else { break };
        assert!(next > world.now, "it waits to send");
        world.now = next;
    }
}

/// A step of an input.
fn step(flags: u8, time: u8, frame: &[u8]) -> Vec<u8> {
    let [low, high] = (frame.len() as u16).to_le_bytes();
    [&[flags, time, low, high], frame].concat()
}

fn frame(to: MacAddress, ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let ethernet = Ethernet { destination: to, source: PEER, ethertype };
    [ethernet.bytes(), packet].concat()
}

fn arp_frame(operation: u16) -> Vec<u8> {
    let packet = Arp {
        sender_hardware: PEER,
        sender_protocol: U32::from_bytes([10, 0, 0, 2]),
        target_protocol: U32::from_bytes([10, 0, 0, 1]),
        ..Arp::new(operation)
    };
    frame(MAC, EtherType::ARP, packet.bytes())
}

fn ipv4_frame(protocol: Protocol, destination: [u8; 4], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let ip = Ipv4 {
        ttl: 64,
        protocol,
        fragment: U16::new(fragment),
        source: U32::from_bytes([10, 0, 0, 2]),
        destination: U32::from_bytes(destination),
        ..Ipv4::EMPTY
    };
    let to = if destination == [255; 4] { MacAddress::BROADCAST } else { MAC };
    frame(to, EtherType::IPV4, &[ip.bytes(), payload].concat())
}

fn ipv6_frame(source: Ipv6Addr, destination: Ipv6Addr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let ip = Ipv6 {
        next_header: protocol,
        hop_limit: 255,
        source: U128::new(source.to_bits()),
        destination: U128::new(destination.to_bits()),
        ..Ipv6::EMPTY
    };
    let to = if destination.is_multicast() { ipv6::multicast_mac(destination) } else { MAC };
    frame(to, EtherType::IPV6, &[ip.bytes(), payload].concat())
}

fn discovery(kind: u8, source: Ipv6Addr, target: Ipv6Addr, option: u8) -> Vec<u8> {
    let mut icmp = Icmp { kind, ..Icmp::default() };
    if kind == v6::NEIGHBOR_ADVERTISEMENT {
        icmp.set_rest(Neighbor::SOLICITED | Neighbor::OVERRIDE);
    }
    let link = LinkOption { kind: option, length: 1, address: PEER };
    let message = [icmp.bytes(), U128::new(target.to_bits()).bytes(), link.bytes()].concat();
    ipv6_frame(source, OWN, Protocol::ICMPV6, &message)
}

fn router_advertisement() -> Vec<u8> {
    let prefix = Prefix {
        kind: Prefix::KIND,
        length: 4,
        prefix_length: 64,
        flags: Prefix::ON_LINK | Prefix::AUTONOMOUS,
        valid_lifetime: U32::new(9000),
        preferred_lifetime: U32::new(9000),
        reserved: U32::ZERO,
        prefix: U128::new(0x2001_0db8 << 96),
    };
    let icmp = Icmp { kind: v6::ROUTER_ADVERTISEMENT, sequence_number: U16::new(1800), ..Icmp::default() };
    let message = [icmp.bytes(), &[0; 8], prefix.bytes()].concat();
    ipv6_frame(ROUTER, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), Protocol::ICMPV6, &message)
}

fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let header =
        Udp { source_port: U16::new(source), destination_port: U16::new(destination), ..Udp::default() };
    [header.bytes(), payload].concat()
}

fn dhcp(kind: u8) -> Vec<u8> {
    let fields =
        Bootp { op: bootp::REPLY, yiaddr: U32::from_bytes([10, 0, 0, 9]), htype: 1, hlen: 6, ..Bootp::EMPTY };
    let mut options = vec![bootp::MESSAGE_TYPE, 1, kind];
    for (option, word) in [
        (bootp::SERVER_IDENTIFIER, [10, 0, 0, 2]),
        (bootp::SUBNET_MASK, [255, 255, 255, 0]),
        (bootp::ROUTER, [10, 0, 0, 254]),
        (bootp::LEASE_TIME, [0, 0, 30, 0]),
    ] {
        options.extend([&[option, 4][..], &word].concat());
    }
    options.push(bootp::END);
    let message = udp(67, 68, &[fields.bytes(), &options].concat());
    ipv4_frame(Protocol::UDP, [255; 4], 0, &message)
}

fn syn() -> Vec<u8> {
    let tcp = Tcp {
        source_port: U16::new(1234),
        destination_port: U16::new(80),
        data_offset: 5 << 4,
        flags: Flags::SYN,
        window: U16::new(1000),
        ..Tcp::EMPTY
    };
    tcp.bytes().to_vec()
}

/// A segment of the connection that the SYN opens, with bytes from `at` on.
fn data(at: u32, len: usize) -> Vec<u8> {
    let tcp = Tcp {
        source_port: U16::new(1234),
        destination_port: U16::new(80),
        sequence_number: U32::new(1 + at),
        data_offset: 5 << 4,
        flags: Flags::ACK,
        window: U16::new(1000),
        ..Tcp::EMPTY
    };
    ipv4_frame(Protocol::TCP, [10, 0, 0, 1], 0, &[tcp.bytes(), &vec![4; len]].concat())
}

/// An error about a packet that the stack may have sent.
fn too_big() -> [Vec<u8>; 2] {
    let quoted = &ipv4_frame(Protocol::TCP, [10, 0, 0, 2], 0, &syn())[Ethernet::LEN..];
    let icmp = Icmp {
        kind: v4::UNREACHABLE,
        code: v4::NEEDS_FRAGMENTATION,
        sequence_number: U16::new(600),
        ..Icmp::default()
    };
    let quoted_v6 = &ipv6_frame(OWN, OTHER, Protocol::TCP, &syn())[Ethernet::LEN..];
    let mut icmp_v6 = Icmp { kind: v6::PACKET_TOO_BIG, ..Icmp::default() };
    icmp_v6.set_rest(1280);
    [
        ipv4_frame(Protocol::ICMP, [10, 0, 0, 1], 0, &[icmp.bytes(), quoted].concat()),
        ipv6_frame(OTHER, OWN, Protocol::ICMPV6, &[icmp_v6.bytes(), quoted_v6].concat()),
    ]
}

/// Packets with hop-by-hop and destination options, and two fragments, the second first.
fn extended() -> Vec<Vec<u8>> {
    let message = udp(9, 7, b"hello");
    let padding = |next: Protocol| [next.0, 0, 1, 4, 0, 0, 0, 0];
    let options = [&padding(Protocol::DESTINATION)[..], &padding(Protocol::UDP), &message].concat();
    let part = |offset: u16, more: bool, bytes: &[u8]| {
        let header = ipv6::Fragment {
            next_header: Protocol::UDP,
            reserved: 0,
            offset: U16::new(offset | u16::from(more)),
            identification: U32::new(5),
        };
        ipv6_frame(OTHER, OWN, Protocol::FRAGMENT, &[header.bytes(), bytes].concat())
    };
    vec![
        ipv6_frame(OTHER, OWN, Protocol::HOP_BY_HOP, &options),
        part(8, false, &message[8..]),
        part(0, true, &message[..8]),
    ]
}

/// A connection, and bytes of its stream that are not in order.
fn scattered() -> Vec<(u8, u8, Vec<u8>)> {
    const VALID: u8 = REPAIR | ACKNOWLEDGE;
    vec![
        (0, 0, arp_frame(arp::REQUEST)),
        (REPAIR, 1, ipv4_frame(Protocol::TCP, [10, 0, 0, 1], 0, &syn())),
        (VALID, 1, data(40_000, 1400)),
        // Too far for the least that a connection has.
        (VALID, 1, data(2400, 1400)),
        (VALID, 1, data(0, 1400)),
        (VALID | ASLEEP, 1, data(1400, 1400)),
        (VALID, 1, data(39_000, 1400)),
        (SECONDS, 3, Vec::new()),
    ]
}

/// Each kind of frame, in conversations.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |options: u8, steps: &[(u8, u8, Vec<u8>)]| {
        let steps = steps.iter().flat_map(|(flags, time, frame)| step(*flags, *time, frame));
        [options].into_iter().chain(steps).collect::<Vec<u8>>()
    };
    let [echo, echo_v6] =
        [(v4::ECHO, Protocol::ICMP), (v6::ECHO, Protocol::ICMPV6)].map(|(kind, protocol)| {
            let message = [Icmp { kind, ..Icmp::default() }.bytes(), &[1; 56]].concat();
            match protocol {
                Protocol::ICMP => ipv4_frame(protocol, [10, 0, 0, 1], 0, &message),
                _ => ipv6_frame(OTHER, OWN, protocol, &message),
            }
        });
    let [too_big_v4, too_big_v6] = too_big();
    let message = udp(9, 7, &[3; 64]);
    let mut extended = extended();
    let (second, first) = (extended.split_off(1), extended.remove(0));
    let advertise = discovery(v6::NEIGHBOR_ADVERTISEMENT, OTHER, OTHER, LinkOption::TARGET);
    let solicit = discovery(v6::NEIGHBOR_SOLICITATION, OTHER, OWN, LinkOption::SOURCE);
    vec![
        seed(
            0x01,
            &[(SEND, 0, arp_frame(arp::REPLY)), (SEND, 1, arp_frame(arp::REQUEST)), (REPAIR, 1, echo)],
        ),
        seed(0x41, &[(REPAIR | SEND, 0, advertise), (REPAIR | SEND, 1, solicit), (REPAIR, 1, echo_v6)]),
        seed(
            0x01,
            &[
                (SECONDS, 2, Vec::new()),
                (SECONDS, 2, Vec::new()),
                (REPAIR, 1, router_advertisement()),
                (SECONDS, 2, Vec::new()),
                (SECONDS, 2, Vec::new()),
                (REPAIR, 1, dhcp(2)),
                (REPAIR, 1, dhcp(5)),
                (SECONDS, 200, Vec::new()),
            ],
        ),
        seed(
            0x02,
            &[
                (0, 0, arp_frame(arp::REQUEST)),
                (REPAIR, 1, ipv4_frame(Protocol::TCP, [10, 0, 0, 1], 0, &syn())),
                (REPAIR | ASLEEP, 1, ipv6_frame(OTHER, OWN, Protocol::TCP, &syn())),
                (REPAIR, 1, too_big_v4),
                (REPAIR, 1, too_big_v6),
            ],
        ),
        seed(LITTLE, &scattered()),
        seed(
            0x01,
            &[
                (REPAIR, 0, ipv4_frame(Protocol::UDP, [10, 0, 0, 1], 0x2000, &message[..40])),
                (REPAIR, 0, ipv4_frame(Protocol::UDP, [10, 0, 0, 1], 5, &message[40..])),
                (REPAIR, 0, ipv4_frame(Protocol(99), [10, 0, 0, 1], 0, &message)),
                (REPAIR, 0, first),
                (REPAIR, 0, second[0].clone()),
                (REPAIR, 1, second[1].clone()),
                (SECONDS, 40, Vec::new()),
            ],
        ),
    ]
}
