//! Addresses that the network assigns, in virtual time: by router advertisements (RFC 4862) and by DHCP (RFC 2131).
#![allow(clippy::unwrap_used)]

use ringway_frame::{Needs, Offload};
use ringway_netstack::{Cidr, ConnectionError, Frames, InterfaceConfig, SECOND, Settings, Stack};
use ringway_wire::icmp::{LinkOption, Neighbor, Prefix, v6};
use ringway_wire::{
    Arp, Bootp, EtherType, Ethernet, Header, Icmp, Ipv4, Ipv6, MacAddress, Protocol, Sum, U16, U32, U128,
    Udp, arp, bootp, ipv4, ipv6,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const ROUTER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const LOCAL: &str = "fe80::ff:fe00:1";
const GLOBAL: &str = "2001:db8::ff:fe00:1";
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);

/// The address that a frame announces: an ARP request for the sender's own, an advertisement to all nodes.
fn announced(frame: &[u8]) -> Option<IpAddr> {
    if let Some((packet, _)) = Arp::split(&frame[14..]).filter(|_| frame[12..14] == [8, 6]) {
        assert_eq!(packet.sender_hardware, MAC);
        let (sender, target) = (packet.sender_protocol.get(), packet.target_protocol.get());
        return (packet.operation.get() == arp::REQUEST && sender == target)
            .then(|| Ipv4Addr::from_bits(target).into());
    }
    let packet = ipv6::Packet::parse(&frame[14..]).filter(|_| frame[12..14] == [0x86, 0xdd])?;
    let (neighbor, options) = Neighbor::split(packet.payload)?;
    if neighbor.icmp.kind != v6::NEIGHBOR_ADVERTISEMENT {
        return None;
    }
    let target = Ipv6Addr::from_bits(neighbor.target.get());
    assert_eq!(packet.header.destination_addr().to_string(), "ff02::1");
    assert_eq!((packet.header.source_addr(), packet.header.hop_limit), (target, 255));
    assert_eq!(neighbor.icmp.rest(), Neighbor::OVERRIDE);
    assert_eq!(LinkOption::find(LinkOption::TARGET, options), Some(Some(MAC)));
    Some(target.into())
}

struct Host {
    stack: Stack,
    now: u64,
    /// What was announced, and when.
    announced: Vec<(u64, IpAddr)>,
}

impl Host {
    fn new() -> Host {
        let mut stack = Stack::new(Settings::default(), [1, 2]);
        let addresses = Vec::new();
        stack.add_interface(InterfaceConfig { mac: MAC, mtu: 1500, addresses, offloads: Needs::NONE });
        Host { stack, now: 0, announced: Vec::new() }
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Frames::default();
        self.stack.expire(self.now);
        self.stack.transmit(self.now, 0, &mut frames);
        let mut sent: Vec<Vec<u8>> = frames.iter().map(|(frame, _)| frame.to_vec()).collect();
        sent.retain(|frame| {
            let address = announced(frame);
            self.announced.extend(address.map(|address| (self.now, address)));
            address.is_none()
        });
        sent
    }

    /// Goes to the stack's next deadline, except those of repeated announcements; what it sends then, without
    /// announcements.
    fn next(&mut self) -> Vec<Vec<u8>> {
        loop {
            self.now = self.stack.next_deadline().unwrap();
            let (count, before) = (self.announced.len(), self.announced.clone());
            let sent = self.sent();
            let is_repeated = |(_, address): &(u64, IpAddr)| before.iter().any(|(_, other)| other == address);
            if !sent.is_empty() || !self.announced[count..].iter().any(is_repeated) {
                return sent;
            }
        }
    }

    fn addresses(&self) -> Vec<String> {
        let show = |cidr: &Cidr| format!("{}/{}", cidr.address, cidr.prefix);
        self.stack.interface_addresses(0).iter().map(show).collect()
    }

    fn receive(&mut self, ethertype: EtherType, destination: MacAddress, packet: &[u8]) {
        let ethernet = Ethernet { destination, source: ROUTER_MAC, ethertype };
        self.stack.receive(self.now, 0, &[ethernet.bytes(), packet].concat(), Offload::default());
    }

    /// A message of neighbour discovery from the router to all nodes.
    fn discovery(&mut self, source: Ipv6Addr, icmp: Icmp, body: &[u8]) {
        let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let mut message = [icmp.bytes(), body].concat();
        let sum = Sum::pseudo_v6(source, to, Protocol::ICMPV6.0, message.len() as u32);
        Icmp::fill_checksum(&mut message, sum).unwrap();
        let ip = Ipv6 {
            payload_length: U16::new(message.len() as u16),
            next_header: Protocol::ICMPV6,
            hop_limit: 255,
            source: U128::new(source.to_bits()),
            destination: U128::new(to.to_bits()),
            ..Ipv6::EMPTY
        };
        self.receive(EtherType::IPV6, ipv6::multicast_mac(to), &[ip.bytes(), &message].concat());
    }

    /// A router advertisement of 2001:db8::/64.
    fn advertise(&mut self, router_lifetime: u16, valid: u32, preferred: u32) {
        let prefix = Prefix {
            kind: Prefix::KIND,
            length: 4,
            prefix_length: 64,
            flags: Prefix::ON_LINK | Prefix::AUTONOMOUS,
            valid_lifetime: U32::new(valid),
            preferred_lifetime: U32::new(preferred),
            reserved: U32::ZERO,
            prefix: U128::new(0x2001_0db8 << 96),
        };
        let icmp = Icmp {
            kind: v6::ROUTER_ADVERTISEMENT,
            sequence_number: U16::new(router_lifetime),
            ..Icmp::default()
        };
        self.discovery(ROUTER, icmp, &[&[0; 8], prefix.bytes()].concat());
    }
}

/// The only frame: an ICMPv6 message, its source, its destination, its type and what follows its header.
fn message(frames: &[Vec<u8>]) -> (String, String, u8, Vec<u8>) {
    assert_eq!(frames.len(), 1, "{frames:?}");
    let packet = ipv6::Packet::parse(&frames[0][14..]).unwrap();
    let (source, destination) = (packet.header.source_addr(), packet.header.destination_addr());
    assert_eq!(packet.header.hop_limit, 255);
    let mut sum = Sum::pseudo_v6(source, destination, Protocol::ICMPV6.0, packet.payload.len() as u32);
    sum.add(packet.payload);
    assert!(sum.is_valid());
    let (icmp, body) = Icmp::split(packet.payload).unwrap();
    (source.to_string(), destination.to_string(), icmp.kind, body.to_vec())
}

/// A host with a link-local address that has asked for routers.
fn with_local_address() -> Host {
    let mut host = Host::new();
    host.stack.enable_slaac(0, 0);
    let (source, destination, kind, body) = message(&host.next());
    assert!(host.now <= SECOND && host.addresses().is_empty());
    assert_eq!((&source[..], &destination[..], kind), ("::", "ff02::1:ff00:1", v6::NEIGHBOR_SOLICITATION));
    assert_eq!(body, LOCAL.parse::<Ipv6Addr>().unwrap().octets());
    let probed = host.now;
    let (source, destination, kind, body) = message(&host.next());
    assert_eq!((host.now - probed, host.addresses()), (SECOND, vec![format!("{LOCAL}/64")]));
    assert_eq!((&source[..], &destination[..], kind), (LOCAL, "ff02::2", v6::ROUTER_SOLICITATION));
    assert_eq!(LinkOption::find(LinkOption::SOURCE, &body), Some(Some(MAC)));
    host
}

#[test]
fn addresses_are_announced_twice_and_anew_after_each_call() {
    let mut host = Host::new();
    let addresses = ["10.0.0.1/24", "127.0.0.2/8", "fd00::1/64"].map(|cidr| cidr.parse().unwrap());
    host.stack.add_interface(InterfaceConfig {
        mac: MAC,
        mtu: 1500,
        addresses: addresses.to_vec(),
        offloads: Needs::NONE,
    });
    let own: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    let announce = |host: &mut Host| {
        let mut frames = Frames::default();
        host.stack.expire(host.now);
        host.stack.transmit(host.now, 1, &mut frames);
        frames.iter().map(|(frame, _)| announced(frame).unwrap()).collect::<Vec<_>>()
    };
    host.stack.announce(0, 1);
    assert_eq!(announce(&mut host), own);
    // Again, before the second time is due: it starts over, and no more is stored.
    host.now = SECOND;
    host.stack.announce(SECOND, 1);
    assert_eq!(announce(&mut host), own);
    assert_eq!(host.stack.next_deadline(), Some(3 * SECOND));
    host.now = 3 * SECOND;
    assert_eq!(announce(&mut host), own);
    host.now = 5 * SECOND;
    assert_eq!((announce(&mut host), host.stack.next_deadline()), (vec![], None));
    // An interface that there is not.
    host.stack.announce(host.now, 7);
}

#[test]
fn routers_are_asked_three_times() {
    let mut host = with_local_address();
    for _ in 0..2 {
        let asked = host.now;
        assert_eq!((message(&host.next()).2, host.now - asked), (v6::ROUTER_SOLICITATION, 4 * SECOND));
    }
    assert_eq!(host.stack.next_deadline(), None);
    // The address, when it was verified and two seconds later.
    let [(first, one), (second, two)] = host.announced[..] else { unreachable!("{:?}", host.announced) };
    assert_eq!((one, two, second - first), (LOCAL.parse().unwrap(), one, 2 * SECOND));
}

#[test]
fn an_advertised_prefix_gives_an_address_and_a_route() {
    let mut host = with_local_address();
    host.advertise(1800, 86_400, 14_400);
    let (source, _, kind, body) = message(&host.sent());
    assert_eq!((&source[..], kind), ("::", v6::NEIGHBOR_SOLICITATION));
    assert_eq!(body, GLOBAL.parse::<Ipv6Addr>().unwrap().octets());
    assert!(host.next().is_empty());
    assert_eq!(host.addresses(), [format!("{LOCAL}/64"), format!("{GLOBAL}/64")]);
    // A connection to another network: the router is its next hop, and the global address its source.
    let socket = host.stack.connect(host.now, "[2001:db8:1::1]:80".parse().unwrap()).unwrap();
    assert_eq!(host.stack.addresses(socket).unwrap().0.ip().to_string(), GLOBAL);
    let (source, _, kind, body) = message(&host.sent());
    assert_eq!((&source[..], kind, &body[..16]), (LOCAL, v6::NEIGHBOR_SOLICITATION, &ROUTER.octets()[..]));
    // The router gives up: there is no route. Its prefix stays.
    host.advertise(0, 86_400, 14_400);
    assert!(host.stack.connect(host.now, "[2001:db8:1::1]:80".parse().unwrap()).is_err());
    assert_eq!(host.addresses().len(), 2);
}

#[test]
fn addresses_end_with_their_lifetime_but_not_by_a_forged_one() {
    let mut host = with_local_address();
    host.advertise(1800, 86_400, 86_400);
    host.sent();
    host.next();
    let socket = host.stack.connect(host.now, "[2001:db8::7]:80".parse().unwrap()).unwrap();
    // Attack: a lifetime of a second. Two hours remain (RFC 4862, 5.5.3 e).
    let told = host.now;
    host.advertise(1800, 1, 0);
    while host.addresses().len() > 1 {
        host.next();
    }
    assert_eq!(host.now - told, 7200 * SECOND);
    assert_eq!(host.stack.error(socket), Ok(Some(ConnectionError::Unreachable)));
}

#[test]
fn an_address_that_was_never_preferred_leaves_no_deadline_behind() {
    let mut host = with_local_address();
    host.advertise(1800, 86_400, 0);
    host.sent();
    host.next();
    assert_eq!(host.addresses().len(), 2);
    assert!(host.stack.next_deadline().is_some_and(|at| at > host.now));
}

#[test]
fn an_address_of_another_host_is_not_used() {
    for answers in [true, false] {
        let mut host = Host::new();
        host.stack.enable_slaac(0, 0);
        host.next();
        // Another host has the address, or verifies it at the same time.
        let local: Ipv6Addr = LOCAL.parse().unwrap();
        let kind = if answers { v6::NEIGHBOR_ADVERTISEMENT } else { v6::NEIGHBOR_SOLICITATION };
        let source = if answers { local } else { Ipv6Addr::UNSPECIFIED };
        let link = LinkOption { kind: LinkOption::TARGET, length: 1, address: ROUTER_MAC };
        let option: &[u8] = if answers { link.bytes() } else { &[] };
        let neighbor = Neighbor { icmp: Icmp::default(), target: U128::new(local.to_bits()) };
        let body = [&neighbor.bytes()[8..], option].concat();
        host.discovery(source, Icmp { kind, ..Icmp::default() }, &body);
        host.now += 100 * SECOND;
        assert_eq!((host.sent(), host.addresses().len()), (vec![], 0));
    }
}

/// The only frame, a message of the DHCP client: its source and destination, and its fields and options.
fn dhcp(frames: &[Vec<u8>]) -> (Ipv4Addr, Ipv4Addr, Bootp, Vec<u8>) {
    assert_eq!(frames.len(), 1, "{frames:?}");
    let packet = ipv4::Packet::parse(&frames[0][14..]).unwrap();
    let (udp, payload) = Udp::split(packet.payload).unwrap();
    assert_eq!((udp.source_port.get(), udp.destination_port.get()), (68, 67));
    let (bootp, options) = Bootp::parse(payload).unwrap();
    (packet.header.source_addr(), packet.header.destination_addr(), *bootp, options.to_vec())
}

fn kind(options: &[u8]) -> u8 {
    bootp::option(options, bootp::MESSAGE_TYPE).unwrap()[0]
}

/// The server's answer of a type to a message.
fn answer(host: &mut Host, asked: &Bootp, kind: u8, address: [u8; 4]) {
    answer_with(host, asked, kind, address, [255, 255, 255, 0]);
}

fn answer_with(host: &mut Host, asked: &Bootp, kind: u8, address: [u8; 4], mask: [u8; 4]) {
    let reply = Bootp { op: bootp::REPLY, yiaddr: U32::from_bytes(address), ..*asked };
    let mut options = vec![bootp::MESSAGE_TYPE, 1, kind];
    let words = [
        (bootp::SERVER_IDENTIFIER, SERVER.octets()),
        (bootp::SUBNET_MASK, mask),
        (bootp::ROUTER, [192, 168, 7, 254]),
        (bootp::DNS, [192, 168, 7, 53]),
        (bootp::LEASE_TIME, 8000u32.to_be_bytes()),
    ];
    words.iter().for_each(|(option, word)| options.extend([&[*option, 4][..], word].concat()));
    options.push(bootp::END);
    let payload = [reply.bytes(), &options].concat();
    let udp = Udp {
        source_port: U16::new(67),
        destination_port: U16::new(68),
        length: U16::new(8 + payload.len() as u16),
        ..Udp::default()
    };
    let mut ip = Ipv4 {
        total_length: U16::new(28 + payload.len() as u16),
        ttl: 64,
        protocol: Protocol::UDP,
        source: U32::from_bytes(SERVER.octets()),
        destination: U32::new(u32::MAX),
        ..Ipv4::EMPTY
    };
    ip.fill_checksum(&[]);
    host.receive(EtherType::IPV4, MacAddress::BROADCAST, &[ip.bytes(), udp.bytes(), &payload].concat());
}

const OFFER: u8 = 2;
const ACK: u8 = 5;
const NAK: u8 = 6;

/// A host with a lease, and when it got it.
fn with_lease() -> (Host, u64) {
    let mut host = Host::new();
    host.stack.enable_dhcp(0, 0);
    let (source, destination, discover, options) = dhcp(&host.sent());
    assert_eq!((source, destination), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST));
    assert_eq!((kind(&options), discover.flags.get(), &discover.chaddr[..6]), (1, 0x8000, &MAC.0[..]));
    // Nobody answers: again after 4 to 5 s, then 8 to 9 s.
    for least in [4, 8] {
        let before = host.now;
        assert_eq!(kind(&dhcp(&host.next()).3), 1);
        assert!((least * SECOND..=(least + 1) * SECOND).contains(&(host.now - before)));
    }
    // Attack: an offer of another transaction.
    answer(&mut host, &Bootp { xid: U32::new(discover.xid.get() + 1), ..discover }, OFFER, [192, 168, 7, 66]);
    assert!(host.sent().is_empty());
    answer(&mut host, &discover, OFFER, [192, 168, 7, 20]);
    let (_, destination, request, options) = dhcp(&host.sent());
    assert_eq!((kind(&options), destination, request.xid), (3, Ipv4Addr::BROADCAST, discover.xid));
    assert_eq!(bootp::option(&options, bootp::REQUESTED_ADDRESS), Some(&[192, 168, 7, 20][..]));
    assert_eq!(bootp::option(&options, bootp::SERVER_IDENTIFIER), Some(&SERVER.octets()[..]));
    answer(&mut host, &request, ACK, [192, 168, 7, 20]);
    assert_eq!((host.sent(), host.addresses()), (vec![], vec!["192.168.7.20/24".to_string()]));
    assert_eq!(host.stack.dns_servers(0), [Ipv4Addr::new(192, 168, 7, 53)]);
    let socket = host.stack.connect(host.now, "10.1.2.3:80".parse().unwrap()).unwrap();
    assert_eq!(host.stack.addresses(socket).unwrap().0.ip(), IpAddr::from([192, 168, 7, 20]));
    host.stack.abort(host.now, socket).unwrap();
    let bound = host.now;
    (host, bound)
}

/// Goes on until the client sends; the message.
fn next_message(host: &mut Host) -> (Ipv4Addr, Ipv4Addr, Bootp, Vec<u8>) {
    loop {
        let mut frames = host.next();
        if let Some(arp) = frames.iter().find(|frame| frame[12..14] == [8, 6]) {
            let request = *ringway_wire::Arp::parse(&arp[14..]).unwrap();
            let reply = ringway_wire::Arp {
                sender_hardware: ROUTER_MAC,
                sender_protocol: request.target_protocol,
                target_hardware: MAC,
                target_protocol: request.sender_protocol,
                ..ringway_wire::Arp::new(ringway_wire::arp::REPLY)
            };
            host.receive(EtherType::ARP, MAC, reply.bytes());
            frames.retain(|frame| frame[12..14] == [8, 0]);
            frames.extend(host.sent());
        }
        if !frames.is_empty() {
            return dhcp(&frames);
        }
    }
}

#[test]
fn a_lease_is_renewed_and_a_refused_one_given_up() {
    let (mut host, bound) = with_lease();
    let (source, destination, renewal, options) = next_message(&mut host);
    assert_eq!((host.now - bound, kind(&options)), (4000 * SECOND, 3));
    assert_eq!((source.octets(), destination), ([192, 168, 7, 20], SERVER));
    assert_eq!(renewal.ciaddr.get(), u32::from_be_bytes([192, 168, 7, 20]));
    answer(&mut host, &renewal, ACK, [192, 168, 7, 20]);
    let renewed = host.now;
    let (.., renewal, _) = next_message(&mut host);
    assert_eq!(host.now - renewed, 4000 * SECOND);
    answer(&mut host, &renewal, NAK, [0; 4]);
    assert_eq!((host.addresses().len(), kind(&dhcp(&host.sent()).3)), (0, 1));
}

#[test]
fn a_lease_that_nobody_renews_is_rebound_and_ends() {
    let (mut host, bound) = with_lease();
    let mut messages = Vec::new();
    while host.addresses().len() == 1 {
        let (_, destination, ..) = next_message(&mut host);
        messages.push(((host.now - bound) / SECOND, destination == SERVER));
    }
    assert_eq!(messages[0], (4000, true));
    // T2 is 7/8 of the lease: from there on by broadcast.
    assert!(messages.iter().all(|&(at, to_server)| to_server == (at < 7000)), "{messages:?}");
    assert!(messages.windows(2).all(|pair| pair[1].0 >= pair[0].0 + 60 || pair[1].0 >= 7000), "{messages:?}");
    assert_eq!(messages.last(), Some(&(8000, false)));
}

#[test]
fn a_renewed_lease_with_another_prefix_ends_connections_to_its_broadcast_address() {
    let (mut host, _) = with_lease();
    let connect = |host: &mut Host, to: &str| host.stack.connect(host.now, to.parse().unwrap()).unwrap();
    let (.., renewal, _) = next_message(&mut host);
    let [to_last, to_other] = ["192.168.7.127:80", "192.168.7.126:80"].map(|to| connect(&mut host, to));
    answer_with(&mut host, &renewal, ACK, [192, 168, 7, 20], [255, 255, 255, 128]);
    assert_eq!(host.addresses(), ["192.168.7.20/25"]);
    assert_eq!(host.stack.error(to_last), Ok(Some(ConnectionError::Unreachable)));
    assert_eq!(host.stack.error(to_other), Ok(None));
    // Only the other connection's next hop is asked for.
    let asked: Vec<u32> = host.sent().iter().map(|frame| target(frame)).collect();
    assert_eq!(asked, [u32::from_be_bytes([192, 168, 7, 126])]);
    host.stack.abort(host.now, to_other).unwrap();
    // The former prefix is gone: nothing of the lease stays behind.
    let (.., renewal, _) = next_message(&mut host);
    answer(&mut host, &renewal, NAK, [0; 4]);
    assert!(host.addresses().is_empty());
}

/// The address that an ARP request asks for.
fn target(frame: &[u8]) -> u32 {
    assert_eq!(frame[12..14], [8, 6]);
    ringway_wire::Arp::parse(&frame[14..]).unwrap().target_protocol.get()
}
