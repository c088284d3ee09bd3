//! Forged and flooding messages of ARP and neighbour discovery, in virtual time.
#![allow(clippy::unwrap_used)]

use crate::common::{Line, Network, Pair};
use ringway_frame::{Needs, Offload};
use ringway_netstack::{
    Cidr, ConnectionError, Frames, InterfaceConfig, MS, SECOND, Settings, SocketId, Stack,
};
use ringway_wire::icmp::{LinkOption, Neighbor, v6};
use ringway_wire::tcp::Flags;
use ringway_wire::{
    Arp, EtherType, Ethernet, Header, Icmp, Ipv4, Ipv6, MacAddress, Protocol, Sum, Tcp, U16, U32, U128, arp,
    ipv6,
};
use std::net::{IpAddr, Ipv6Addr};

const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const FORGER: MacAddress = MacAddress([2, 0, 0, 0, 0, 66]);

fn v6(network: u16, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(network, 0, 0, 0, 0, 0, 0, last)
}

/// A frame of a forger to a host's address, or to all.
fn frame(to: MacAddress, ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let ethernet = Ethernet { destination: to, source: FORGER, ethertype };
    [ethernet.bytes(), packet].concat()
}

/// An ARP packet to 10.0.0.`own` or about another address.
fn arp_frame(operation: u16, mac: MacAddress, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let packet = Arp {
        sender_hardware: mac,
        sender_protocol: U32::from_bytes(sender),
        target_protocol: U32::from_bytes(target),
        ..Arp::new(operation)
    };
    frame(MacAddress::BROADCAST, EtherType::ARP, packet.bytes())
}

/// A message of neighbour discovery.
#[derive(Clone, Copy)]
struct Discovery {
    kind: u8,
    flags: u32,
    hop_limit: u8,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    target: Ipv6Addr,
    mac: Option<MacAddress>,
}

impl Discovery {
    fn solicitation(source: Ipv6Addr, target: Ipv6Addr, mac: MacAddress) -> Discovery {
        let group = 0xff02 << 112 | 0x1_ff00_0000 | target.to_bits() & 0xff_ffff;
        Discovery {
            kind: v6::NEIGHBOR_SOLICITATION,
            flags: 0,
            hop_limit: 255,
            source,
            destination: group.into(),
            target,
            mac: Some(mac),
        }
    }

    fn advertisement(flags: u32, target: Ipv6Addr, to: Ipv6Addr, mac: MacAddress) -> Discovery {
        Discovery {
            kind: v6::NEIGHBOR_ADVERTISEMENT,
            flags,
            hop_limit: 255,
            source: target,
            destination: to,
            target,
            mac: Some(mac),
        }
    }

    fn message(&self) -> Vec<u8> {
        let kind =
            if self.kind == v6::NEIGHBOR_SOLICITATION { LinkOption::SOURCE } else { LinkOption::TARGET };
        let mut icmp = Icmp { kind: self.kind, ..Icmp::default() };
        icmp.set_rest(self.flags);
        let neighbor = Neighbor { icmp, target: U128::new(self.target.to_bits()) };
        let option = self.mac.map(|address| LinkOption { kind, length: 1, address });
        let option = option.as_ref().map_or(&[][..], |option| option.bytes());
        let mut message = [neighbor.bytes(), option].concat();
        let sum = Sum::pseudo_v6(self.source, self.destination, Protocol::ICMPV6.0, message.len() as u32);
        Icmp::fill_checksum(&mut message, sum).unwrap();
        message
    }

    fn packet(&self, next_header: Protocol, payload: &[u8]) -> Vec<u8> {
        let ip = Ipv6 {
            payload_length: U16::new(payload.len() as u16),
            next_header,
            hop_limit: self.hop_limit,
            source: U128::new(self.source.to_bits()),
            destination: U128::new(self.destination.to_bits()),
            ..Ipv6::EMPTY
        };
        let group = self.destination.is_multicast();
        let to = if group { ipv6::multicast_mac(self.destination) } else { OWN };
        frame(to, EtherType::IPV6, &[ip.bytes(), payload].concat())
    }

    fn frame(&self) -> Vec<u8> {
        self.packet(Protocol::ICMPV6, &self.message())
    }

    /// Two frames with the fragments of the message.
    fn fragments(&self) -> [Vec<u8>; 2] {
        let message = self.message();
        [(0, &message[..16]), (16, &message[16..])].map(|(offset, part)| {
            let header = ipv6::Fragment {
                next_header: Protocol::ICMPV6,
                reserved: 0,
                offset: U16::new(offset | u16::from(offset == 0)),
                identification: U32::new(7),
            };
            self.packet(Protocol::FRAGMENT, &[header.bytes(), part].concat())
        })
    }
}

/// A SYN to port 80 of a host.
fn syn(source: IpAddr, destination: IpAddr, to: MacAddress) -> Vec<u8> {
    let tcp = Tcp {
        source_port: U16::new(1234),
        destination_port: U16::new(80),
        data_offset: 5 << 4,
        flags: Flags::SYN,
        window: U16::new(1000),
        ..Tcp::EMPTY
    };
    let mut segment = tcp.bytes().to_vec();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = Ipv4 {
                total_length: U16::new(40),
                ttl: 64,
                protocol: Protocol::TCP,
                source: U32::new(source.to_bits()),
                destination: U32::new(destination.to_bits()),
                ..Ipv4::EMPTY
            };
            ip.fill_checksum(&[]);
            Tcp::fill_checksum(&mut segment, ip.pseudo_header(20)).unwrap();
            frame(to, EtherType::IPV4, &[ip.bytes(), &segment].concat())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let sum = Sum::pseudo_v6(source, destination, Protocol::TCP.0, 20);
            Tcp::fill_checksum(&mut segment, sum).unwrap();
            let ip = Ipv6 {
                payload_length: U16::new(20),
                next_header: Protocol::TCP,
                hop_limit: 64,
                source: U128::new(source.to_bits()),
                destination: U128::new(destination.to_bits()),
                ..Ipv6::EMPTY
            };
            frame(to, EtherType::IPV6, &[ip.bytes(), &segment].concat())
        }
        _ => unreachable!("both addresses are of one family"),
    }
}

/// A connection whose second host, to which frames are forged, sends.
fn connected(address: &str, settings: &Settings) -> Pair {
    let line = Line { delay: MS, ..Line::default() };
    Pair::new(Network::new(settings, line, 1), address, 1)
}

impl Pair {
    fn receive(&mut self, frame: &[u8]) {
        let now = self.network.now;
        self.network.hosts[1].receive(now, 0, frame, Offload::default());
    }
}

/// Settings with a small cache, so that the addresses of a small network fill it.
fn small_cache() -> Settings {
    Settings { gc_thresh3: 64, ..Settings::default() }
}

#[test]
fn floods_do_not_end_a_quiet_connection_nor_keep_out_another() {
    let second = MacAddress([2, 0, 0, 0, 0, 2]);
    let v4 = |last: u16| [10, 0, 0, 3 + (last % 250) as u8];
    let arp_flood = |last: u16| arp_frame(arp::REQUEST, FORGER, v4(last), [10, 0, 0, 2]);
    let syn_flood = |last: u16| syn(v4(last).into(), [10, 0, 0, 2].into(), second);
    let solicitations =
        |last: u16| Discovery::solicitation(v6(0xfd00, 100 + last), v6(0xfd00, 2), FORGER).frame();
    let local_solicitations =
        |last: u16| Discovery::solicitation(v6(0xfe80, 100 + last), v6(0xfd00, 2), FORGER).frame();
    let syn_flood_v6 = |last: u16| syn(v6(0xfd00, 100 + last).into(), v6(0xfd00, 2).into(), second);
    type Flood<'a> = (&'a str, &'a dyn Fn(u16) -> Vec<u8>);
    let floods: [Flood<'_>; 5] = [
        ("10.0.0.2:80", &arp_flood),
        ("10.0.0.2:80", &syn_flood),
        ("[fd00::2]:80", &solicitations),
        ("[fd00::2]:80", &local_solicitations),
        ("[fd00::2]:80", &syn_flood_v6),
    ];
    for (address, flood) in floods {
        let mut pair = connected(address, &small_cache());
        pair.pass(10_000);
        // Longer than an entry counts without confirmation.
        pair.wait(100 * SECOND);
        for round in 0..4 {
            for number in 0..250 {
                pair.receive(&flood(round * 250 + number));
            }
            pair.wait(MS);
        }
        pair.pass(10_000);
        let now = pair.network.now;
        let other = pair.network.hosts[0].connect(now, address.parse().unwrap()).unwrap();
        for number in 0..1000 {
            pair.receive(&flood(number));
            pair.wait(2 * MS);
        }
        pair.wait(5 * SECOND);
        assert!(pair.network.hosts[0].info(other).unwrap().tcpi_bytes_acked > 0, "{address}: no connection");
        pair.pass(10_000);
        for side in 0..2 {
            assert_eq!(pair.network.hosts[side].error(pair.sockets[side]), Ok(None));
        }
    }
}

#[test]
fn a_program_that_scans_a_network_does_not_end_its_other_connections() {
    let mut pair = connected("10.0.0.2:80", &small_cache());
    pair.wait(100 * SECOND);
    let now = pair.network.now;
    let scan: Vec<SocketId> = (3..=202)
        .map(|last| pair.network.hosts[1].connect(now, ([10, 0, 0, last], 80).into()).unwrap())
        .collect();
    pair.wait(MS);
    assert!(pair.network.hosts[1].statistics().neighbor_full > 0);
    // The quiet connection waits for room, and goes on.
    pair.pass(10_000);
    pair.wait(30 * SECOND);
    for socket in scan {
        assert_eq!(pair.network.hosts[1].error(socket), Ok(Some(ConnectionError::Unreachable)));
    }
    pair.pass(10_000);
}

/// A host whose datagrams show which link-layer address it uses for a neighbour.
struct Victim {
    stack: Stack,
    now: u64,
    socket: SocketId,
    peer: IpAddr,
}

/// Where a datagram went, and whether the neighbour was asked.
type Sent = (Option<MacAddress>, bool);

impl Victim {
    fn new(peer: IpAddr) -> Victim {
        let mut stack = Stack::new(Settings::default(), [1, 2]);
        stack.add_interface(InterfaceConfig {
            mac: OWN,
            mtu: 1500,
            addresses: vec![Cidr::new([10, 0, 0, 1], 24), Cidr::new(v6(0xfd00, 1), 64)],
            offloads: Needs::NONE,
        });
        let any = if peer.is_ipv4() { "0.0.0.0:7" } else { "[::]:7" };
        let socket = stack.bind(any.parse().unwrap()).unwrap();
        let mut victim = Victim { stack, now: 0, socket, peer };
        assert_eq!(victim.send(), (None, true));
        victim.receive(&victim.announce(PEER, true, true));
        assert_eq!(victim.frames(), (Some(PEER), false));
        victim
    }

    /// A host that is to be asked again, since its neighbour was not confirmed for a time.
    fn new_after(peer: IpAddr, time: u64) -> Victim {
        let mut victim = Victim::new(peer);
        victim.now += time;
        victim
    }

    fn receive(&mut self, frame: &[u8]) {
        self.stack.receive(self.now, 0, frame, Offload::default());
    }

    fn frames(&mut self) -> Sent {
        let mut frames = Frames::default();
        self.stack.expire(self.now);
        self.stack.transmit(self.now, 0, &mut frames);
        let mut sent = (None, false);
        for (frame, _) in frames.iter() {
            let (ethernet, packet) = Ethernet::split(frame).unwrap();
            let is_udp = match ethernet.ethertype {
                EtherType::IPV4 => packet[9] == Protocol::UDP.0,
                EtherType::IPV6 => packet[6] == Protocol::UDP.0,
                _ => false,
            };
            if is_udp {
                sent.0 = Some(ethernet.destination);
            }
            sent.1 |= !is_udp;
        }
        sent
    }

    fn send(&mut self) -> Sent {
        let to = (self.peer, 9).into();
        self.stack.send_to(self.now, self.socket, b"hello", to).unwrap();
        self.frames()
    }

    /// An announcement of the peer's address: an answer or an unsolicited one.
    fn announce(&self, mac: MacAddress, answer: bool, overrides: bool) -> Vec<u8> {
        match self.peer {
            IpAddr::V4(peer) if answer => arp_frame(arp::REPLY, mac, peer.octets(), [10, 0, 0, 1]),
            IpAddr::V4(peer) => arp_frame(arp::REQUEST, mac, peer.octets(), peer.octets()),
            IpAddr::V6(peer) => {
                let solicited = if answer { Neighbor::SOLICITED } else { 0 };
                let flags = solicited | if overrides { Neighbor::OVERRIDE } else { 0 };
                let to = if answer { v6(0xfd00, 1) } else { v6(0xff02, 1) };
                Discovery::advertisement(flags, peer, to, mac).frame()
            }
        }
    }
}

fn peers() -> [IpAddr; 2] {
    [[10, 0, 0, 2].into(), v6(0xfd00, 2).into()]
}

#[test]
fn an_announcement_that_nobody_asked_for_is_verified() {
    for peer in peers() {
        for answer in [false, true] {
            // Soon after the neighbour answered, nothing changes.
            let mut victim = Victim::new_after(peer, SECOND / 2);
            victim.receive(&victim.announce(FORGER, answer, true));
            assert_eq!(victim.send(), (Some(PEER), false), "{peer}");
            // Later it is accepted, so that a host may move, and the neighbour is asked; its answer counts.
            let mut victim = Victim::new_after(peer, 10 * SECOND);
            victim.receive(&victim.announce(FORGER, answer, true));
            assert_eq!(victim.send(), (Some(FORGER), true), "{peer}");
            victim.receive(&victim.announce(PEER, true, true));
            assert_eq!(victim.send(), (Some(PEER), false), "{peer}");
        }
    }
}

#[test]
fn an_advertisement_without_the_override_flag_does_not_replace_an_address() {
    let mut victim = Victim::new_after(v6(0xfd00, 2).into(), 10 * SECOND);
    victim.receive(&victim.announce(FORGER, false, false));
    assert_eq!(victim.send(), (Some(PEER), true));
    victim.receive(&victim.announce(PEER, true, true));
    victim.now += 10 * SECOND;
    assert_eq!(victim.send(), (Some(PEER), false));
}

#[test]
fn messages_that_do_not_come_from_the_link_are_ignored() {
    let (own, peer) = (v6(0xfd00, 1), v6(0xfd00, 2));
    let mut victim = Victim::new_after(peer.into(), 10 * SECOND);
    let forged = Discovery::advertisement(Neighbor::OVERRIDE, peer, v6(0xff02, 1), FORGER);
    victim.receive(&Discovery { hop_limit: 254, ..forged }.frame());
    forged.fragments().iter().for_each(|fragment| victim.receive(fragment));
    // A solicited advertisement to a group, one of a group's address, a probe with an address (RFC 4861, 7.1).
    victim.receive(&Discovery { flags: forged.flags | Neighbor::SOLICITED, ..forged }.frame());
    victim.receive(&Discovery { target: v6(0xff02, 1), ..forged }.frame());
    let asks = Discovery::solicitation(peer, own, FORGER);
    victim.receive(&Discovery { source: Ipv6Addr::UNSPECIFIED, ..asks }.frame());
    victim.receive(&Discovery { hop_limit: 254, ..asks }.frame());
    asks.fragments().iter().for_each(|fragment| victim.receive(fragment));
    // The address of a group, and our own.
    victim.receive(&Discovery { mac: Some(MacAddress::BROADCAST), ..asks }.frame());
    victim.receive(&Discovery { mac: Some(OWN), ..forged }.frame());
    assert_eq!(victim.send(), (Some(PEER), false));
}

#[test]
fn a_solicitation_from_another_network_is_answered_and_not_stored() {
    let mut victim = Victim::new(v6(0xfd00, 2).into());
    for last in 0..100 {
        let asks = Discovery::solicitation(v6(0x2001, last), v6(0xfd00, 1), FORGER);
        victim.receive(&asks.frame());
        let mut frames = Frames::default();
        victim.stack.transmit(victim.now, 0, &mut frames);
        let sent: Vec<_> = frames.iter().map(|(frame, _)| frame.to_vec()).collect();
        // One frame, an advertisement to the address that the solicitation names: it needs no request.
        assert_eq!(sent.len(), 1);
        assert_eq!((&sent[0][..6], sent[0][54]), (&FORGER.0[..], v6::NEIGHBOR_ADVERTISEMENT));
        // Without such an address there is nobody to answer.
        victim.receive(&Discovery { mac: None, ..asks }.frame());
        assert_eq!(victim.frames(), (None, false));
    }
}

#[test]
fn an_address_that_a_connection_confirms_is_not_replaced_until_it_stops() {
    for (address, peer) in ["10.0.0.2:80", "[fd00::2]:80"].into_iter().zip(peers()) {
        let mut pair = connected(address, &Settings::default());
        let own: IpAddr = if peer.is_ipv4() { [10, 0, 0, 1].into() } else { v6(0xfd00, 1).into() };
        let forged = match own {
            IpAddr::V4(own) => arp_frame(arp::REPLY, FORGER, own.octets(), [10, 0, 0, 2]),
            IpAddr::V6(own) => {
                let flags = Neighbor::OVERRIDE | Neighbor::SOLICITED;
                let mut frame = Discovery::advertisement(flags, own, v6(0xfd00, 2), FORGER).frame();
                frame[..6].copy_from_slice(&PEER.0);
                frame
            }
        };
        for _ in 0..300 {
            pair.receive(&forged);
            pair.pass(10_000);
            pair.wait(100 * MS);
        }
        let info = pair.network.hosts[1].info(pair.sockets[1]).unwrap();
        assert_eq!((info.tcpi_total_retrans, info.tcpi_total_rto), (0, 0), "{address}");
        // After a pause it is, and the answer to the request that follows corrects it.
        pair.wait(10 * SECOND);
        pair.receive(&forged);
        pair.pass(10_000);
        assert!(pair.network.hosts[1].info(pair.sockets[1]).unwrap().tcpi_total_retrans > 0, "{address}");
    }
}

#[test]
fn a_host_that_is_started_again_with_another_link_layer_address_is_reached_at_once() {
    for address in ["10.0.0.2:80", "[fd00::2]:80"] {
        let mut network = connected(address, &Settings::default()).network;
        // The cache's entry is fresh, and counts for 30 s.
        network.run(5 * SECOND);
        let mut restarted = Stack::new(Settings::default(), [7, 7]);
        restarted.add_interface(InterfaceConfig {
            mac: MacAddress([2, 0, 0, 0, 0, 77]),
            mtu: crate::common::MTU,
            addresses: vec![Cidr::new([10, 0, 0, 2], 24), Cidr::new(v6(0xfd00, 2), 64)],
            offloads: Needs::NONE,
        });
        restarted.announce(network.now, 0);
        network.hosts[1] = restarted;
        network.run(5 * SECOND + 10 * MS);
        let begin = network.now;
        network.connect(address);
        assert!(network.now - begin < 100 * MS, "{address}: {} ms", (network.now - begin) / MS);
    }
}
