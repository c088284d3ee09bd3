use super::*;
use crate::pcap::{self, Header, Reader};
use alloc::vec::Vec;
use proptest::prelude::*;
use std::io::Write;
use std::process::{Command, Stdio};

const WORDS: &[&str] = &[
    "tcp",
    "udp",
    "ip",
    "ip6",
    "arp",
    "icmp",
    "ether",
    "host",
    "net",
    "port",
    "portrange",
    "proto",
    "src",
    "dst",
    "and",
    "or",
    "not",
    "vlan",
    "len",
    "less",
    "greater",
    "multicast",
    "broadcast",
    "10.0.0.1",
    "10.1",
    "fe80::1",
    "02:00:00:00:00:01",
    "80",
    "0x10",
    "65536",
    "(",
    ")",
    "[",
    "]",
    ":",
    "/",
    "=",
    "!=",
    "&",
    "-",
    "!",
    "http",
    "tcpflags",
    "tcp-syn",
    "gateway",
    "mask",
    "255.0.0.0",
    "inbound",
    "\\tcp",
    "<<",
    "\u{e9}",
];

/// Expressions that libpcap accepts too.
const EXPRESSIONS: &[&str] = &[
    "ip",
    "ip6",
    "arp",
    "rarp",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "igmp",
    "esp",
    "not ip",
    "tcp or udp",
    "host 10.0.0.1",
    "src host 10.0.0.1",
    "dst 10.0.0.2",
    "src or dst host 10.0.0.2",
    "src and dst host 10.0.0.1",
    "ip host 10.0.0.1",
    "arp host 10.0.0.1",
    "host 10.0.0.1 or 10.0.0.9",
    "host fe80::1",
    "dst host fe80::2",
    "net 10",
    "net 10.0.0.0/24",
    "src net 10.0.0.0 mask 255.255.255.0",
    "net fe80::/16",
    "ip6 net fe80::/64",
    "ether host 02:00:00:00:00:01",
    "ether src 02:00:00:00:00:01",
    "ether dst 2:0:0:0:0:2",
    "port 80",
    "tcp port 80",
    "tcp port http or https",
    "tcp dst port 80",
    "src port 80 or 1000",
    "udp portrange 1-100",
    "port (53 or 80)",
    "portrange 80-90 and not udp",
    "not port 80",
    "ip proto 6",
    "ip proto \\udp",
    "ip6 proto 6",
    "proto 17",
    "ether proto 0x806",
    "ether proto \\ip6",
    "broadcast",
    "ether multicast",
    "ip multicast",
    "ip6 multicast",
    "multicast",
    "less 60",
    "greater 61",
    "len > 60 and len < 1000",
    "ip[8] = 64",
    "ip[0] & 0xf != 5",
    "ip[6:2] & 0x1fff = 0",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "(tcp[13] & 2) != 0",
    "tcp[tcpflags] == tcp-syn",
    "icmp[icmptype] = icmp-echo",
    "ether[0] & 1 = 1 and ip[16] >= 224",
    "tcp[((tcp[12] & 0xf0) >> 2)] = 0x47",
    "ip[2:2] - ((ip[0] & 0xf) << 2) > 20",
    "1 + 2 * 3 = 7",
    "tcp and (port 80 or port 443) and not host 10.0.0.2",
    "ip or arp and udp",
    "ip && !tcp || arp",
    "vlan",
    "vlan 5",
    "vlan and ip",
    "vlan 5 and tcp port 80",
    "vlan and vlan and ip",
    "not vlan",
    "port 80 or vlan and port 80",
];

/// An Ethernet frame around a payload.
fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn ipv4(protocol: u8, fragment: u16, options: usize, to: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = std::vec![0x45 + (options / 4) as u8, 0];
    packet.extend_from_slice(&((20 + options + payload.len()) as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 1]);
    packet.extend_from_slice(&fragment.to_be_bytes());
    packet.extend_from_slice(&[64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, to]);
    packet.resize(20 + options, 1);
    packet.extend_from_slice(payload);
    packet
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = std::vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[next, 64]);
    for last in [1, 2] {
        packet.extend_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend_from_slice(payload);
    packet
}

fn segment(ports: (u16, u16), flags: u8) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend_from_slice(&ports.0.to_be_bytes());
    segment.extend_from_slice(&ports.1.to_be_bytes());
    segment.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    segment.extend_from_slice(b"GET / HTTP/1.1");
    segment
}

fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for ports in [(1000, 80), (80, 1000), (443, 1), (53, 53), (90, 9)] {
        for flags in [2, 0x12, 0x10, 1] {
            frames.push(ethernet(0x800, &ipv4(6, 0, 0, 2, &segment(ports, flags))));
        }
        frames.push(ethernet(0x800, &ipv4(17, 0, 8, 9, &segment(ports, 0))));
        frames.push(ethernet(0x800, &ipv4(132, 0x4000, 4, 2, &segment(ports, 0))));
        frames.push(ethernet(0x800, &ipv4(6, 7, 0, 2, &segment(ports, 2))));
        frames.push(ethernet(0x86dd, &ipv6(6, &segment(ports, 2))));
        frames.push(ethernet(0x86dd, &ipv6(17, &segment(ports, 2))));
        let tagged = [&[0u8, 5, 8, 0][..], &ipv4(6, 0, 0, 2, &segment(ports, 2))].concat();
        frames.push(ethernet(0x8100, &tagged));
        frames.push(ethernet(0x88a8, &[&[0u8, 6, 0x81, 0][..], &tagged].concat()));
    }
    for protocol in [1, 2, 50, 51, 103, 112] {
        frames.push(ethernet(0x800, &ipv4(protocol, 0, 0, 1, &[8, 0, 0, 0, 0, 1, 0, 1])));
        frames.push(ethernet(0x86dd, &ipv6(protocol, &[8; 20])));
    }
    frames.push(ethernet(0x86dd, &ipv6(58, &[128; 8])));
    frames.push(ethernet(0x86dd, &ipv6(44, &[6, 0, 0, 0, 0, 0, 0, 1])));
    for kind in [0x806, 0x8035] {
        let body = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9];
        let mut frame = ethernet(kind, &body);
        frame[..6].fill(0xff);
        frames.push(frame);
    }
    let mut group = ethernet(0x800, &ipv4(17, 0, 0, 2, &[0; 8]));
    group[0] = 1;
    group[30] = 224;
    frames.push(group);
    let mut group = ethernet(0x86dd, &ipv6(17, &[0; 8]));
    group[38] = 255;
    frames.push(group);
    frames.push(std::vec![0; 14]);
    frames.push(ethernet(0x800, &[0x45, 0, 0]));
    let long: Vec<_> = frames.iter().map(|frame| frame[..frame.len() / 2].to_vec()).collect();
    frames.extend(long.into_iter().filter(|frame| frame.len() >= 14));
    frames
}

fn matches(text: &str, frame: &[u8]) -> bool {
    let subject = Subject { data: frame, len: frame.len() as u32, direction: Direction::Inbound };
    Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).matches(&subject)
}

/// Indices of the frames that tcpdump keeps; `None` if it is not installed.
fn tcpdump(text: &str, file: &[u8]) -> Option<Vec<u64>> {
    let mut command = Command::new("tcpdump");
    command.args(["-r", "-", "-w", "-", text]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().ok()?;
    let mut to = child.stdin.take()?;
    let file = file.to_vec();
    let writer = std::thread::spawn(move || drop(to.write_all(&file)));
    let output = child.wait_with_output().ok()?;
    writer.join().ok()?;
    let kept = Reader::new(&output.stdout).ok()?;
    Some(kept.map(|record| record.unwrap().time / 1_000_000_000).collect())
}

#[test]
fn frames_match_as_in_libpcap() {
    let frames = frames();
    let header = Header::ethernet();
    let mut file = header.to_bytes().to_vec();
    for (index, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        file.extend_from_slice(&header.record_header(index as u64 * 1_000_000_000, len, len));
        file.extend_from_slice(frame);
    }
    assert!(file.len() < pcap::LONGEST as usize);
    for text in EXPRESSIONS {
        let ours: Vec<u64> = (0..frames.len())
            .filter(|index| matches(text, &frames[*index]))
            .map(|index| index as u64)
            .collect();
        let Some(theirs) = tcpdump(text, &file) else { continue };
        assert_eq!(ours, theirs, "{text}");
    }
}

#[test]
fn some_frames_match() {
    let frames = frames();
    for text in EXPRESSIONS {
        let count = frames.iter().filter(|frame| matches(text, frame)).count();
        assert!(count > 0 || *text == "vlan and vlan and ip", "{text}");
    }
    assert!(Filter::parse(" ").unwrap().is_empty());
    assert!(matches("inbound", &frames[0]) && !matches("outbound", &frames[0]));
}

#[test]
fn errors_have_a_column_and_a_fix() {
    for (text, expected) in [
        ("tpc", "column 1: unknown word `tpc`; use a protocol such as `tcp`"),
        ("tcp and", "column 8: the expression ends here; use a protocol"),
        ("tcp prot 80", "column 5: unknown word `prot`; join conditions by `and` or `or`"),
        ("tcp port 99999", "column 10: a number or an address has no meaning here; a port is a number"),
        ("port web", "column 6: unknown name of a port `web`; use its number"),
        ("ip port 80", "column 9: only `tcp`, `udp` and `sctp` have ports"),
        ("host www.example.com", "column 6: `www.example.com`: names are not looked up; use an address"),
        ("host 02:00:00:00:00:01", "column 6: a MAC address follows `ether host`"),
        ("host 10.0.0", "column 6: a number or an address has no meaning here; an address of this"),
        ("net 10.0.0.1/8", "column 5: the address has bits outside of the net's"),
        ("net 10.0.0.0/33", "column 14: a length from 0 to 32 bits follows `/`"),
        ("gateway 1.2.3.4", "column 1: `gateway` is not supported"),
        ("(tcp", "column 5: the expression ends here; `)` is missing"),
        ("tcp[0:3] = 1", "column 7: a size is 1, 2 or 4 bytes"),
        ("tcp[13", "column 7: the expression ends here; `]` is missing"),
        ("tcp[0] + 1", "column 11: the expression ends here; compare the number"),
        ("1 / 0 = 1", "column 3: division by zero"),
        ("vlan 4096", "column 6: a VLAN is a number from 0 to 4095"),
        ("tcp $x", "column 5: `$` has no meaning here"),
        ("99999999999", "column 1: `99999999999` is no number and no IPv4 address"),
        ("host 1::2::3", "column 6: `1::2::3` is neither a MAC address"),
        ("ether", "column 6: the expression ends here; use `ether host ADDRESS`"),
        ("ether proto 70000", "column 13: a protocol is a number from 0 to 65535"),
    ] {
        let error = Filter::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let deep = "(".repeat(1000);
    assert!(Filter::parse(&deep).unwrap_err().what.contains("too deep"));
    let alternating = ["ip or ip and "; 200].concat() + "ip";
    assert!(Filter::parse(&alternating).unwrap_err().what.contains("too deep"));
    assert!(Filter::parse(&"ip or ".repeat(1000)).unwrap_err().what.contains("longer than"));
    assert!(Filter::parse(&("ip or ".repeat(600) + "ip")).is_ok());
}

proptest! {
    #[test]
    fn no_expression_and_no_frame_panics(
        words in prop::collection::vec(prop::sample::select(WORDS), 0..12),
        frame in prop::collection::vec(any::<u8>(), 0..80),
        len: u32,
        text in ".{0,40}",
    ) {
        for text in [words.join(" "), words.concat(), text] {
            if let Ok(filter) = Filter::parse(&text) {
                for data in [&frame[..], &frames()[0]] {
                    filter.matches(&Subject { data, len, direction: Direction::Outbound });
                }
            }
        }
    }
}
