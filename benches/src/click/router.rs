//! An IP router with four ports to next hops, a network of hosts, and 200,000 routes.

use super::frames::{Flow, Frames, HEADERS, KEPT, Length, Numbers, head};
use ringway_wire::{Arp, EtherType, Ethernet, Header, Ipv4, MacAddress, arp, ipv4::option};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Prefixes of the table.
const PREFIXES: u64 = 200_000;
/// Ports to next hops; one more port leads to the hosts.
const PORTS: u8 = 4;
const HOSTS_PORT: u8 = PORTS;
/// Hosts that send.
const HOSTS: u8 = 16;
/// The frames' time to live: peers may decrement that of the same frame again and again.
const TTL: u8 = 255;

/// The router's address on a port.
fn own(port: u8) -> (Ipv4Addr, MacAddress) {
    (
        if port == HOSTS_PORT { [10, 0, 0, 1] } else { [10, 1, port, 1] }.into(),
        MacAddress([2, 0, 0, 0, 1, port]),
    )
}

/// A station that answers ARP: a next hop or a host.
fn station(number: u8) -> (Ipv4Addr, MacAddress) {
    match number.checked_sub(PORTS) {
        None => ([10, 1, number, 2].into(), MacAddress([2, 0, 0, 0, 2, number])),
        Some(host) => ([10, 0, 0, 2 + host].into(), MacAddress([2, 0, 0, 0, 3, host])),
    }
}

/// Prefix `number`, its length distributed as in Internet routing tables: more than half have 24 bits.
fn prefix(number: u64) -> (u32, u8) {
    let mut numbers = Numbers(number ^ 0x5eed);
    let bits = match numbers.below(100) {
        0..=57 => 24,
        58..=70 => 22,
        71..=79 => 23,
        80..=86 => 20,
        87..=92 => 21,
        93..=96 => 19,
        97..=98 => 16,
        _ => 18,
    };
    // 1.0.0.0 to 223.255.255.255, without reserved networks.
    let address = (1 + numbers.below(222) as u32) << 24 | numbers.below(1 << 24) as u32;
    let address = if matches!(address >> 24, 10 | 127 | 172 | 192) { address ^ 1 << 24 } else { address };
    (address & (u32::MAX << (32 - bits)), bits)
}

/// Frames from hosts to addresses uniform over the prefixes. Of 1000, 10 have one hop left, 10 record their
/// route, and two are ARP: a host's request and a station's reply.
pub fn frames(length: Length) -> Frames {
    let mut numbers = Numbers(7);
    Frames::made(length, HEADERS + 8, PREFIXES as usize, |number, length| {
        let (network, bits) = prefix(numbers.below(PREFIXES));
        let to = network | (1 + numbers.below((1 << (32 - bits)) - 2) as u32);
        let host = (number % usize::from(HOSTS)) as u8;
        let addresses = [station(PORTS + host).0, Ipv4Addr::from(to)];
        let frame = head(length, Flow { addresses, ports: [1024, 80], opens: false });
        match number % 1000 {
            33 => question(host),
            533 => answer((number / 1000 % usize::from(PORTS + HOSTS)) as u8),
            place if place % 100 == 7 => with_options(frame, 1, &[]),
            place if place % 100 == 57 => {
                with_options(frame, TTL, &[option::RECORD_ROUTE, 7, 4, 0, 0, 0, 0, option::END])
            }
            _ => with_options(frame, TTL, &[]),
        }
    })
}

/// The frame with a time to live, and with options between its headers.
fn with_options(mut frame: [u8; KEPT], ttl: u8, options: &[u8]) -> [u8; KEPT] {
    let behind = Ethernet::LEN + Ipv4::LEN;
    frame.copy_within(behind..KEPT - options.len(), behind + options.len());
    frame[behind..behind + options.len()].copy_from_slice(options);
    if let Some(header) = Ipv4::of_mut(&mut frame[Ethernet::LEN..]) {
        header.version_ihl += (options.len() / 4) as u8;
        header.ttl = ttl;
        header.fill_checksum(options);
    }
    frame
}

/// A host's ARP request for the router.
fn question(host: u8) -> [u8; KEPT] {
    let (ip, ether) = station(PORTS + host);
    let target = own(HOSTS_PORT).0.to_bits().into();
    let ask = Arp { sender_hardware: ether, sender_protocol: ip.to_bits().into(), ..Arp::new(arp::REQUEST) };
    arp_frame(MacAddress::BROADCAST, Arp { target_protocol: target, ..ask })
}

/// A station's ARP reply to the router.
fn answer(number: u8) -> [u8; KEPT] {
    let ((ip, ether), (own_ip, own_ether)) = (station(number), own(number.min(HOSTS_PORT)));
    let reply = Arp { sender_hardware: ether, sender_protocol: ip.to_bits().into(), ..Arp::new(arp::REPLY) };
    let target_protocol = own_ip.to_bits().into();
    arp_frame(own_ether, Arp { target_hardware: own_ether, target_protocol, ..reply })
}

fn arp_frame(destination: MacAddress, arp: Arp) -> [u8; KEPT] {
    let mut frame = [0; KEPT];
    let header = Ethernet { destination, source: arp.sender_hardware, ethertype: EtherType::ARP };
    frame[..Ethernet::LEN].copy_from_slice(header.bytes());
    frame[Ethernet::LEN..Ethernet::LEN + Arp::LEN].copy_from_slice(arp.bytes());
    frame
}

/// The IP router of Click's paper (Kohler et al., TOCS 2000, figure 8) without queues: it sends and answers ARP
/// requests, checks headers, processes options, and reports errors by ICMP.
pub fn text(lookup: &str, source: &str, sink: &str) -> String {
    let mut text = format!("out :: Null -> {sink}; bad :: Discard; rt :: {lookup}(");
    for number in 0..PREFIXES {
        let (network, bits) = prefix(number);
        let port = number % u64::from(PORTS);
        let _ = write!(text, "{}/{bits} 10.1.{port}.2 {port}, ", Ipv4Addr::from(network));
    }
    let ports = 0..=HOSTS_PORT;
    let own_ips: Vec<_> = ports.clone().map(|port| own(port).0).collect();
    for ip in &own_ips {
        let _ = write!(text, "{ip}/32 {}, ", HOSTS_PORT + 1);
    }
    let (ip, ether) = own(HOSTS_PORT);
    let interfaces: Vec<_> = own_ips.iter().map(|ip| format!("{ip}/24")).collect();
    let _ = writeln!(
        text,
        "10.0.0.0/24 {HOSTS_PORT}, 0.0.0.0/0 10.1.0.2 0);
         kinds :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
         {source} -> kinds; kinds[0] -> ARPResponder({ip} {ether}) -> out; kinds[1] -> answers :: Tee({});
         kinds[2] -> Paint({HOSTS_PORT}) -> Strip(14) -> CheckIPHeader(INTERFACES {}) -> rt; kinds[3] -> bad;
         rt[{}] -> bad;",
        PORTS + 1,
        interfaces.join(" "),
        HOSTS_PORT + 1,
    );
    for port in ports {
        let (ip, ether) = own(port);
        let _ = writeln!(
            text,
            "rt[{port}] -> DropBroadcasts -> paint{port} :: PaintTee({port}) \
             -> options{port} :: IPGWOptions({ip}) -> FixIPSrc({ip}) -> ttl{port} :: DecIPTTL \
             -> fragment{port} :: IPFragmenter(1500) -> arp{port} :: ARPQuerier({ip}, {ether}) -> out; \
             answers[{port}] -> [1] arp{port}; paint{port}[1] -> ICMPError({ip}, redirect, host) -> rt; \
             options{port}[1] -> ICMPError({ip}, parameterproblem) -> rt; \
             ttl{port}[1] -> ICMPError({ip}, timeexceeded) -> rt; \
             fragment{port}[1] -> ICMPError({ip}, unreachable, needfrag) -> rt;"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_wire::ipv4;

    #[test]
    fn frames_are_of_all_kinds() {
        let frames = frames(Length::Fixed(64));
        let packet = |number: usize| ipv4::Packet::parse(&frames.get(number).0[14..]).unwrap();
        assert!((0..100).filter(|number| *number != 33).all(|number| {
            let packet = packet(number);
            packet.header.is_checksum_valid(packet.options)
        }));
        assert_eq!((packet(7).header.ttl, packet(57).options.len(), packet(58).header.ttl), (1, 8, TTL));
        let arp = |number: usize| Arp::parse(&frames.get(number).0[14..]).unwrap().operation.get();
        assert_eq!((arp(33), arp(533)), (arp::REQUEST, arp::REPLY));
    }
}
