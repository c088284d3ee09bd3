//! Tests of anti-spoofing: frames of a guest that is honest, of one that is not, and random ones.

use super::*;
use proptest::prelude::*;
use ringway_frame::Needs;
use ringway_spec::Policy;

/// The station of the port, and another one.
pub(crate) const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const V4: [u8; 4] = [10, 0, 0, 2];
const OTHER_V4: [u8; 4] = [10, 0, 0, 3];
const V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const OTHER_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
/// Made from the port's MAC address.
const LINK_LOCAL_V6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 0];
const ROUTERS: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// What the port may send from.
pub(crate) fn policy() -> Policy {
    let allow = ["10.0.0.2/32", "10.0.1.0/24", "2001:db8::/64"].map(|net| net.parse().unwrap());
    Policy { allow_mac: Some(MacAddress(OWN)), allow: allow.to_vec(), ..Policy::default() }
}

fn rules() -> SenderRules {
    SenderRules::of(policy().allow_mac, &policy().allow).unwrap()
}

/// A frame from the port's station to everybody.
fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&[0xff; 6][..], &OWN, &kind.to_be_bytes(), payload].concat()
}

fn arp_packet(operation: u8, sender: [u8; 6], from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    [&[0, 1, 8, 0, 6, 4, 0, operation][..], &sender, &from, &[0; 6], &to].concat()
}

/// An IPv4 packet with so many bytes of options; `fragment` is its word of flags and offset.
fn ipv4(from: [u8; 4], fragment: u16, options: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = 20 + u16::from(options) + payload.len() as u16;
    let [[a, b], [c, d]] = [total, fragment].map(u16::to_be_bytes);
    let start = [0x45 + options / 4, 0, a, b, 0, 0, c, d, 64, protocol, 0, 0];
    [&start[..], &from, &[255; 4], &vec![1; options.into()], payload].concat()
}

/// An IPv6 packet with extension headers, each with its type and bytes, of which the first is filled in.
fn ipv6(from: [u8; 16], extensions: &[(u8, Vec<u8>)], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut next = protocol;
    let mut body = payload.to_vec();
    for (kind, bytes) in extensions.iter().rev() {
        let mut header = bytes.clone();
        header[0] = next;
        body = [header, body].concat();
        next = *kind;
    }
    let [high, low] = (body.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, high, low, next, 255][..], &from, &ROUTERS, &body].concat()
}

fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let words = [from, to, 8 + payload.len() as u16, 0].map(u16::to_be_bytes);
    [words.as_flattened(), payload].concat()
}

/// A DHCP message, up to its options and their end.
fn dhcp(op: u8, client: [u8; 6]) -> Vec<u8> {
    let mut message = vec![0; 241];
    message[..3].copy_from_slice(&[op, 1, 6]);
    message[28..34].copy_from_slice(&client);
    message[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63, 255]);
    message
}

/// A message of neighbor discovery: with a target, if there is one, and options of a link-layer address.
fn discovery(kind: u8, target: Option<[u8; 16]>, options: &[(u8, [u8; 6])]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.into_iter().flatten());
    for (option, mac) in options {
        message.extend([*option, 1]);
        message.extend(mac);
    }
    message
}

/// The frame with tags in front of its payload.
fn tagged(frame: &[u8], tags: &[u16]) -> Vec<u8> {
    let tags: Vec<u8> = tags.iter().flat_map(|kind| [(kind >> 8) as u8, *kind as u8, 0, 10]).collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

/// The head of a frame, zero behind its end, as a burst has it.
fn head(frame: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..frame.len().min(HEAD)].copy_from_slice(&frame[..frame.len().min(HEAD)]);
    head
}

fn checked_with(rules: &SenderRules, frame: &[u8], offload: Offload) -> Checked {
    match rules.check(&head(frame), frame.len(), offload) {
        Err(Refusal::Beyond) => rules.check_start(&frame[..frame.len().min(DEEPEST)], frame.len(), offload),
        checked => checked,
    }
}

fn checked(frame: &[u8]) -> Checked {
    checked_with(&rules(), frame, Offload::default())
}

/// What a guest sends that has the port's addresses.
pub(crate) fn honest() -> Vec<(&'static str, Vec<u8>)> {
    let [tcp, hop_by_hop] = [vec![0; 20], vec![0, 0, 5, 2, 0, 0, 0, 0]];
    let request = |from| ipv4(from, 0, 0, 17, &udp(68, 67, &dhcp(1, OWN)));
    let unspecified = [0; 16];
    let solicited = discovery(135, Some(V6), &[]);
    vec![
        ("TCP", ethernet(0x800, &ipv4(V4, 0, 0, 6, &tcp))),
        ("options", ethernet(0x800, &ipv4(V4, 0, 40, 6, &tcp))),
        ("of a network", ethernet(0x800, &ipv4([10, 0, 1, 77], 0, 0, 17, &udp(1000, 53, &[0; 30])))),
        ("padded", [ethernet(0x800, &ipv4(V4, 0, 0, 17, &udp(1000, 53, b"x"))), vec![0; 14]].concat()),
        ("first fragment", ethernet(0x800, &ipv4(V4, 0x2000, 0, 17, &udp(1000, 53, &[0; 30])))),
        ("later fragment", ethernet(0x800, &ipv4(V4, 3, 0, 17, &[0, 67, 0, 68, 0, 0, 0, 0]))),
        ("a report of IGMP", ethernet(0x800, &ipv4(V4, 0, 4, 2, &[0x16, 0, 0, 0, 239, 1, 1, 1]))),
        ("DHCP without an address", ethernet(0x800, &request([0; 4]))),
        ("DHCP with one", ethernet(0x800, &request(V4))),
        ("ARP request", ethernet(0x806, &arp_packet(1, OWN, V4, OTHER_V4))),
        ("ARP reply", ethernet(0x806, &arp_packet(2, OWN, [10, 0, 1, 9], OTHER_V4))),
        ("ARP probe", ethernet(0x806, &arp_packet(1, OWN, [0; 4], V4))),
        ("announcement", ethernet(0x8035, &arp_packet(3, OWN, [0; 4], [0; 4]))),
        ("TCP over IPv6", ethernet(0x86dd, &ipv6(V6, &[], 6, &tcp))),
        ("nothing over IPv6", ethernet(0x86dd, &ipv6(V6, &[], 59, &[]))),
        ("echo", ethernet(0x86dd, &ipv6(LINK_LOCAL_V6, &[], 58, &[128, 0, 0, 0, 0, 1, 0, 1]))),
        (
            "extensions",
            ethernet(
                0x86dd,
                &ipv6(V6, &[(0, hop_by_hop.clone()), (60, vec![0, 0, 1, 4, 0, 0, 0, 0])], 6, &tcp),
            ),
        ),
        (
            "fragment of IPv6",
            ethernet(0x86dd, &ipv6(V6, &[(44, vec![0, 0, 0, 1, 0, 0, 0, 9])], 17, &udp(1, 2, &[0; 8]))),
        ),
        ("later one", ethernet(0x86dd, &ipv6(V6, &[(44, vec![0, 0, 0, 8, 0, 0, 0, 9])], 58, &[134; 8]))),
        ("solicitation", ethernet(0x86dd, &ipv6(V6, &[], 58, &discovery(135, Some(OTHER_V6), &[(1, OWN)])))),
        ("advertisement", ethernet(0x86dd, &ipv6(V6, &[], 58, &discovery(136, Some(V6), &[(2, OWN)])))),
        ("duplicate address detection", ethernet(0x86dd, &ipv6(unspecified, &[], 58, &solicited))),
        ("that of the link-local address", {
            ethernet(0x86dd, &ipv6(unspecified, &[], 58, &discovery(135, Some(LINK_LOCAL_V6), &[])))
        }),
        ("router solicitation", ethernet(0x86dd, &ipv6(unspecified, &[], 58, &discovery(133, None, &[])))),
        (
            "with an address",
            ethernet(0x86dd, &ipv6(LINK_LOCAL_V6, &[], 58, &discovery(133, None, &[(1, OWN)]))),
        ),
        (
            "membership",
            ethernet(0x86dd, &ipv6(unspecified, &[(0, hop_by_hop)], 58, &[143, 0, 0, 0, 0, 0, 0, 0])),
        ),
        ("DHCPv6", ethernet(0x86dd, &ipv6(LINK_LOCAL_V6, &[], 17, &udp(546, 547, &[1, 0, 0, 0])))),
    ]
}

#[test]
fn an_honest_guest_is_not_disturbed() {
    for (what, frame) in honest() {
        assert!(!is_harmful(&frame), "{what}");
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x8100, 0x9100]] {
            assert_eq!(checked(&tagged(&frame, tags)), Ok(()), "{what} {tags:x?}");
        }
    }
}

/// What a hostile guest sends, and how it is refused.
pub(crate) fn hostile() -> Vec<Hostile> {
    [hostile_v4(), hostile_arp(), hostile_v6(), hostile_discovery()].concat()
}

type Hostile = (&'static str, Vec<u8>, &'static str);

fn v4(from: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(0x800, &ipv4(from, 0, 0, protocol, payload))
}

fn v6(from: [u8; 16], extensions: &[(u8, Vec<u8>)], protocol: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(0x86dd, &ipv6(from, extensions, protocol, payload))
}

/// An IPv6 extension header of a type, with padding only.
fn padded(kind: u8) -> (u8, Vec<u8>) {
    (kind, vec![0, 0, 1, 4, 0, 0, 0, 0])
}

fn fragment(offset_and_more: u8) -> (u8, Vec<u8>) {
    (44, vec![0, 0, 0, offset_and_more, 0, 0, 0, 9])
}

fn hostile_v4() -> Vec<Hostile> {
    let tcp = [0; 20];
    let mut other_mac = v4(V4, 6, &tcp);
    other_mac[6..12].copy_from_slice(&OTHER);
    let mut relayed = dhcp(1, OWN);
    relayed[24] = 10;
    let request = |client| udp(68, 67, &dhcp(1, client));
    let first = |payload: &[u8]| ethernet(0x800, &ipv4(V4, 0x2000, 0, 17, payload));
    let later = ethernet(0x800, &ipv4([0; 4], 2, 0, 17, &udp(68, 67, b"")));
    vec![
        ("another MAC address", other_mac, "spoofed"),
        ("another address", v4(OTHER_V4, 6, &tcp), "spoofed"),
        ("no address", v4([0; 4], 6, &tcp), "spoofed"),
        ("no address and UDP", v4([0; 4], 17, &udp(1000, 53, b"")), "spoofed"),
        ("no address, a later fragment", later, "spoofed"),
        ("a request from another port", v4([0; 4], 17, &udp(1000, 67, &dhcp(1, OWN))), "spoofed"),
        ("another client's DHCP", v4([0; 4], 17, &request(OTHER)), "spoofed"),
        ("with options", ethernet(0x800, &ipv4(V4, 0, 40, 17, &request(OTHER))), "spoofed"),
        ("a DHCP server", v4(V4, 17, &udp(67, 68, &dhcp(2, OTHER))), "rogue"),
        ("of another port", v4(V4, 17, &udp(1000, 68, &dhcp(2, OTHER))), "rogue"),
        ("an answer to the server's port", v4(V4, 17, &udp(68, 67, &dhcp(2, OWN))), "rogue"),
        ("a relay", v4(V4, 17, &udp(68, 67, &relayed)), "rogue"),
        ("a short request", v4(V4, 17, &udp(68, 67, &dhcp(1, OWN)[..30])), "unreadable"),
        ("DHCP in fragments", first(&request(OWN)), "unreadable"),
        ("a fragment without ports", first(&[0]), "unreadable"),
        ("a redirect of IPv4", v4(V4, 1, &[5, 1, 0, 0, 10, 0, 0, 2, 0x45]), "rogue"),
        ("a router of IPv4", v4(V4, 1, &[9, 0, 0, 0, 1, 2, 0, 60]), "rogue"),
        ("a query of IGMP", v4(V4, 2, &[0x11, 100, 0, 0, 0, 0, 0, 0]), "rogue"),
        ("with options", ethernet(0x800, &ipv4(V4, 0, 4, 2, &[0x11, 100, 0, 0, 0, 0, 0, 0])), "rogue"),
        ("a fragment without a type", ethernet(0x800, &ipv4(V4, 0x2000, 0, 1, &[])), "unreadable"),
        ("another version", ethernet(0x800, &ipv6(OTHER_V6, &[], 6, &tcp)), "unreadable"),
        ("a packet that ends early", v4(V4, 6, &tcp)[..50].to_vec(), "unreadable"),
        ("a header that ends early", v4(V4, 6, &tcp)[..30].to_vec(), "unreadable"),
        ("no header", ethernet(0x800, &[]), "unreadable"),
    ]
}

fn hostile_arp() -> Vec<Hostile> {
    let arp = |operation, sender, from, to| ethernet(0x806, &arp_packet(operation, sender, from, to));
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 6][..], &arp_packet(2, OTHER, OTHER_V4, V4)].concat();
    vec![
        ("ARP of another", arp(2, OWN, OTHER_V4, V4), "spoofed"),
        ("ARP for another", arp(2, OTHER, V4, V4), "spoofed"),
        ("a probe for another's", arp(1, OWN, [0; 4], OTHER_V4), "spoofed"),
        ("a reply of nobody", arp(2, OWN, [0; 4], V4), "spoofed"),
        ("inverse ARP", arp(8, OWN, V4, V4), "unreadable"),
        ("an answer of reverse ARP", ethernet(0x8035, &arp_packet(4, OWN, V4, V4)), "unreadable"),
        ("ARP that ends early", ethernet(0x806, &arp_packet(2, OWN, V4, V4)[..27]), "unreadable"),
        ("ARP behind SNAP", ethernet(36, &snap), "unreadable"),
        ("a length that is a type", ethernet(0x5ff, &snap), "unreadable"),
        ("PPPoE", ethernet(0x8864, &[0x11, 0, 0, 1, 0, 42, 0, 0x21]), "unreadable"),
    ]
}

fn hostile_v6() -> Vec<Hostile> {
    let tcp = [0; 20];
    let mut other_link_local = LINK_LOCAL_V6;
    other_link_local[15] = 1;
    let router = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let query_options = (0, vec![0, 0, 5, 2, 0, 0, 1, 0]);
    let jumbo = [&[0x60, 0, 0, 0, 0, 0, 0, 255][..], &V6, &ROUTERS, &[58, 0, 0xc2, 4, 0, 1, 0, 0], &router];
    let long = (60, [&[0, 30, 1, 244][..], &[0; 244]].concat());
    let home = (60, [&[0, 2, 201, 16][..], &OTHER_V6, &[1, 2, 0, 0]].concat());
    let short = (60, vec![0, 9, 1, 4, 0, 0, 0, 0]);
    let behind = |extensions: &[(u8, Vec<u8>)]| v6(V6, extensions, 58, &router);
    vec![
        ("IPv6 of another", v6(OTHER_V6, &[], 6, &tcp), "spoofed"),
        ("of another link-local", v6(other_link_local, &[], 6, &tcp), "spoofed"),
        ("IPv6 of nobody", v6([0; 16], &[], 6, &tcp), "spoofed"),
        ("an echo of nobody", v6([0; 16], &[], 58, &[128; 8]), "spoofed"),
        ("a jumbogram", ethernet(0x86dd, &jumbo.concat()), "unreadable"),
        ("a router", v6(LINK_LOCAL_V6, &[], 58, &router), "rogue"),
        (
            "a query of MLD",
            v6(LINK_LOCAL_V6, &[query_options], 58, &[&[130, 0][..], &[0; 22]].concat()),
            "rogue",
        ),
        ("behind an extension", behind(&[padded(60)]), "rogue"),
        ("behind authentication", behind(&[(51, vec![0; 8])]), "rogue"),
        ("in a fragment", behind(&[fragment(1)]), "rogue"),
        ("behind an extension of a fragment", behind(&[fragment(1), padded(60)]), "unreadable"),
        ("a fragment that ends before its type", v6(V6, &[fragment(1)], 58, &[]), "unreadable"),
        ("extensions too many", behind(&[60; 12].map(padded)), "unreadable"),
        ("extensions too long", behind(&[long]), "unreadable"),
        ("an extension that ends early", v6(V6, &[short], 58, &[134]), "unreadable"),
        ("in the wrong order", behind(&[padded(60), padded(0)]), "unreadable"),
        ("an unknown extension", behind(&[(253, vec![0; 8])]), "unreadable"),
        ("a home address", v6(V6, &[home], 6, &tcp), "unreadable"),
        ("a DHCPv6 server", v6(V6, &[], 17, &udp(547, 546, &[2])), "rogue"),
        ("of another port of it", v6(V6, &[], 17, &udp(1000, 546, &[2])), "rogue"),
    ]
}

fn hostile_discovery() -> Vec<Hostile> {
    let nd =
        |from, kind, target, options: &[(u8, [u8; 6])]| v6(from, &[], 58, &discovery(kind, target, options));
    let advertisement = discovery(136, Some(V6), &[]);
    let without_length = [&advertisement[..], &[2, 0]].concat();
    vec![
        ("a redirect", nd(V6, 137, Some(V6), &[]), "rogue"),
        ("another's advertisement", nd(V6, 136, Some(OTHER_V6), &[(2, OWN)]), "spoofed"),
        ("with another's address", nd(V6, 136, Some(V6), &[(2, OTHER)]), "spoofed"),
        ("behind its own", nd(V6, 136, Some(V6), &[(2, OWN), (14, OTHER), (2, OTHER)]), "spoofed"),
        ("another's solicitation", nd(V6, 135, Some(OTHER_V6), &[(1, OTHER)]), "spoofed"),
        ("another router solicitation", nd(V6, 133, None, &[(1, OTHER)]), "spoofed"),
        ("inverse discovery", nd(V6, 142, None, &[(2, OTHER)]), "spoofed"),
        ("detection of another's", nd([0; 16], 135, Some(OTHER_V6), &[]), "spoofed"),
        ("with a link-layer address", nd([0; 16], 135, Some(V6), &[(1, OWN)]), "spoofed"),
        ("an advertisement of nobody", nd([0; 16], 136, Some(V6), &[]), "spoofed"),
        ("discovery in a fragment", v6(V6, &[fragment(0)], 58, &advertisement), "unreadable"),
        ("an option without length", v6(V6, &[], 58, &without_length), "unreadable"),
        ("a target that ends early", v6(V6, &[], 58, &advertisement[..20]), "unreadable"),
        ("many options", nd(V6, 136, Some(V6), &[(14, OWN); 40]), "unreadable"),
    ]
}

fn word(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Spoofed(_) => "spoofed",
        Refusal::Rogue(_) => "rogue",
        Refusal::Unreadable(_) | Refusal::Beyond => "unreadable",
        Refusal::Offload(_) => "offload",
    }
}

#[test]
fn a_hostile_guest_passes_as_nobody_else() {
    for (what, frame, expected) in hostile() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            let refused = checked(&tagged(&frame, tags)).map_err(word);
            assert_eq!(refused, Err(expected), "{what} {tags:x?}");
        }
        let refused = checked(&tagged(&frame, &[0x88a8, 0x8100, 0x8100])).map_err(word);
        assert!(matches!(refused, Err("unreadable" | "spoofed")), "{what} behind three tags");
    }
    assert_eq!(checked(&OWN).map_err(word), Err("unreadable"));
    let harmful = hostile().iter().filter(|(_, frame, _)| is_harmful(frame)).count();
    assert!(harmful > 30, "{harmful} would deceive a receiver that checks nothing");
}

#[test]
fn what_is_pending_changes_nothing_that_was_checked() {
    let gso = |gso_type, start| Offload { gso_type, gso_size: 100, ..Offload::checksum(start, 16) };
    let tcp = ethernet(0x800, &ipv4(V4, 0, 0, 6, &[0; 500]));
    let tcp6 = ethernet(0x86dd, &ipv6(V6, &[], 6, &[0; 500]));
    let uso = Offload { gso_type: 5, gso_size: 100, ..Offload::checksum(34, 6) };
    let plain = ethernet(0x800, &ipv4(V4, 0, 0, 17, &udp(1000, 53, &[0; 500])));
    let request = ethernet(0x800, &ipv4(V4, 0, 0, 17, &udp(68, 67, &dhcp(1, OWN))));
    let advertisement = ethernet(0x86dd, &ipv6(V6, &[], 58, &discovery(136, Some(V6), &[(2, OWN)])));
    let report = ethernet(0x800, &ipv4(V4, 0, 0, 2, &[0x16, 0, 0, 0, 239, 1, 1, 1]));
    let arp = ethernet(0x806, &arp_packet(1, OWN, V4, OTHER_V4));
    let later = ethernet(0x800, &ipv4(V4, 1, 0, 17, &[0; 40]));
    for (frame, offload, passes) in [
        (&tcp, Offload::checksum(34, 16), true),
        (&tcp, gso(1, 34), true),
        (&tcp6, gso(4, 54), true),
        (&plain, uso, true),
        (&plain, Offload::checksum(34, 6), true),
        (&request, Offload::checksum(34, 6), true),
        (&advertisement, Offload::checksum(54, 2), true),
        (&report, Offload::checksum(34, 2), true),
        // A checksum over the source address, the type, the ports, the target, and a message in segments.
        (&tcp, Offload::checksum(14, 12), false),
        (&tcp, Offload::checksum(0, 6), false),
        (&plain, Offload::checksum(34, 2), false),
        (&report, Offload::checksum(34, 0), false),
        (&request, Offload::checksum(34, 36), false),
        (&advertisement, Offload::checksum(54, 8), false),
        (&arp, Offload::checksum(14, 14), false),
        (&tcp, gso(1, 22), false),
        (&tcp, gso(4, 34), false),
        (&tcp6, gso(1, 54), false),
        (&plain, gso(1, 34), false),
        (&request, uso, false),
        (&later, Offload::checksum(34, 6), false),
    ] {
        let refused = checked_with(&rules(), frame, offload).map_err(word);
        assert_eq!(refused, if passes { Ok(()) } else { Err("offload") }, "{offload:?} {frame:x?}");
    }
}

#[test]
fn each_key_alone_restricts_what_it_names() {
    let mac = SenderRules::of(Some(MacAddress(OWN)), &[]).unwrap();
    let allow = SenderRules::of(None, &policy().allow).unwrap();
    let v4_only = SenderRules::of(None, &["10.0.0.2/32".parse().unwrap()]).unwrap();
    let check =
        |rules: &SenderRules, frame: &[u8]| checked_with(rules, frame, Offload::default()).map_err(word);
    let other = ethernet(0x800, &ipv4(OTHER_V4, 0, 0, 6, &[0; 20]));
    assert_eq!((check(&mac, &other), check(&allow, &other)), (Ok(()), Err("spoofed")));
    let mut from_other = ethernet(0x800, &ipv4(V4, 0, 0, 6, &[0; 20]));
    from_other[6..12].copy_from_slice(&OTHER);
    assert_eq!((check(&mac, &from_other), check(&allow, &from_other)), (Err("spoofed"), Ok(())));
    // Its own addresses must agree in either case.
    let arp = ethernet(0x806, &arp_packet(2, OTHER, V4, V4));
    assert_eq!([check(&mac, &arp), check(&allow, &arp)], [Err("spoofed"); 2]);
    let lldp = ethernet(0x88cc, &[2, 7, 4]);
    assert_eq!((check(&mac, &lldp), check(&allow, &lldp)), (Ok(()), Err("unreadable")));
    let router = ethernet(0x86dd, &ipv6(V6, &[], 58, &[134; 16]));
    assert_eq!([check(&mac, &router), check(&allow, &router)], [Err("rogue"); 2]);
    let solicitation = ethernet(0x86dd, &ipv6([0; 16], &[], 58, &discovery(133, None, &[])));
    assert_eq!([check(&mac, &solicitation), check(&allow, &solicitation)], [Ok(()); 2]);
    let link_local = ethernet(0x86dd, &ipv6(LINK_LOCAL_V6, &[], 6, &[0; 20]));
    // The address of a router whose MAC address the guest uses.
    assert_eq!((check(&mac, &link_local), check(&allow, &link_local)), (Ok(()), Err("spoofed")));
    assert_eq!([&solicitation, &link_local].map(|frame| check(&v4_only, frame)), [Err("spoofed"); 2]);
    assert!(SenderRules::of(None, &[]).is_none());
}

#[test]
fn ranges_may_overlap() {
    let nets = ["10.0.0.0/8", "10.1.0.0/16", "9.0.0.0/32", "255.255.255.255/32", "::/0"];
    let rules = SenderRules::of(None, &nets.map(|net| net.parse().unwrap())).unwrap();
    let allowed = |a: [u8; 4]| rules.allows_v4(u32::from_be_bytes(a));
    let found =
        [[9, 0, 0, 0], [9, 0, 0, 1], [10, 255, 255, 255], [11, 0, 0, 0], [255; 4], [0, 0, 0, 1]].map(allowed);
    assert_eq!(found, [true, false, true, false, true, false]);
    assert_eq!(rules.v4.len(), 3);
}

fn read<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..at + N)?.try_into().ok()
}

fn allows(address: [u8; 4]) -> bool {
    address == V4 || address[..3] == [10, 0, 1]
}

fn allows_v6(address: [u8; 16]) -> bool {
    address[..8] == V6[..8] || address == LINK_LOCAL_V6
}

/// Whether a receiver that reads as much as it can of a frame, and checks nothing, would take its sender for another
/// station, or for a router or server. It reads behind any number of tags and headers, and behind lengths.
pub(crate) fn is_harmful(frame: &[u8]) -> bool {
    if read::<6>(frame, 6).is_some_and(|source| source != OWN) {
        return true;
    }
    let mut at = 12;
    let mut kind = read::<2>(frame, at);
    while matches!(kind, Some([0x81 | 0x91 | 0x92, 0] | [0x88, 0xa8])) {
        at += 4;
        kind = read(frame, at);
    }
    if kind.is_some_and(|[high, _]| high < 6) && frame.get(at + 2) == Some(&0xaa) {
        at += 8;
        kind = read(frame, at);
    }
    let claims = match kind {
        Some([8, 0]) => claims_v4(frame, at + 2),
        Some([0x86, 0xdd]) => claims_v6(frame, at + 2),
        Some([8, 6] | [0x80, 0x35]) => claims_arp(frame, at + 2),
        _ => None,
    };
    claims.unwrap_or(false)
}

fn claims_arp(frame: &[u8], at: usize) -> Option<bool> {
    let [operation, sender, from, to] = [7, 8, 14, 24].map(|offset| at + offset);
    let (sender, from): ([u8; 6], [u8; 4]) = (read(frame, sender)?, read(frame, from)?);
    let is_from_nobody = from == [0; 4];
    let is_probe = is_from_nobody && frame.get(operation) == Some(&1);
    let takes = is_probe && !allows(read(frame, to)?);
    Some(sender != OWN || takes || !is_from_nobody && !allows(from))
}

fn claims_v4(frame: &[u8], at: usize) -> Option<bool> {
    let from: [u8; 4] = read(frame, at + 12)?;
    let upper = at + usize::from(frame[at] & 15) * 4;
    let is_first = u16::from_be_bytes(read(frame, at + 6)?) & 0x1fff == 0;
    let ports = Some(()).filter(|()| is_first && frame[at + 9] == 17).and_then(|()| read::<4>(frame, upper));
    let is_request = ports == Some([0, 68, 0, 67]);
    if !(allows(from) || from == [0; 4] && is_request) {
        return Some(true);
    }
    let Some([a, b, c, d]) = ports else { return Some(false) };
    if [a, b] == [0, 67] || [c, d] == [0, 68] {
        return Some(true);
    }
    let is_forged =
        [c, d] == [0, 67] && (frame.get(upper + 8)? != &1 || read::<6>(frame, upper + 36)? != OWN);
    Some(is_forged)
}

fn claims_v6(frame: &[u8], at: usize) -> Option<bool> {
    let from: [u8; 16] = read(frame, at + 8)?;
    let is_from_nobody = from == [0; 16];
    let (mut next, mut upper) = (*frame.get(at + 6)?, at + 40);
    if !is_from_nobody && !allows_v6(from) {
        return Some(true);
    }
    while matches!(next, 0 | 43 | 44 | 51 | 60) {
        let [following, length] = read(frame, upper)?;
        if next == 44 && u16::from_be_bytes(read(frame, upper + 2)?) & !7 != 0 {
            return Some(is_from_nobody);
        }
        upper += match next {
            44 => 8,
            51 => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        next = following;
    }
    if next == 17 {
        let [a, b, c, d] = read(frame, upper)?;
        return Some(is_from_nobody || [a, b] == [2, 0x23] || [c, d] == [2, 0x22]);
    }
    if next != 58 {
        return Some(is_from_nobody);
    }
    let kind = *frame.get(upper)?;
    let target = || read::<16>(frame, upper + 8).is_some_and(|target| !allows_v6(target));
    let mut options = upper + if matches!(kind, 135 | 136) { 24 } else { 8 };
    let has_other = (133..=136).contains(&kind)
        && std::iter::from_fn(|| {
            let [option, length] = read(frame, options)?;
            let mac = read::<6>(frame, options + 2)?;
            options += usize::from(length.max(1)) * 8;
            Some(matches!(option, 1 | 2) && mac != OWN)
        })
        .any(|is_other| is_other);
    Some(match kind {
        134 | 137 => true,
        136 => target() || has_other,
        135 => is_from_nobody && target() || has_other,
        133 => has_other,
        131 | 132 | 143 => false,
        _ => is_from_nobody,
    })
}

fn pick<T: Clone + std::fmt::Debug + 'static>(often: T, seldom: &[T]) -> impl Strategy<Value = T> + use<T> {
    let seldom = seldom.to_vec();
    prop_oneof![3 => Just(often), 1 => prop::sample::select(seldom)]
}

fn upper_v4() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let ports = || prop::sample::select(vec![67u16, 68, 67, 1000, 53]);
    let message = (pick(1u8, &[2, 0]), pick(OWN, &[OTHER])).prop_map(|(op, client)| dhcp(op, client));
    let datagram = (ports(), ports(), message).prop_map(|(from, to, payload)| (17, udp(from, to, &payload)));
    prop_oneof![datagram, (0usize..90).prop_map(|len| (6, vec![0; len]))]
}

fn upper_v6() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let ports = || prop::sample::select(vec![546u16, 547, 1000]);
    let datagram = (ports(), ports()).prop_map(|(from, to)| (17, udp(from, to, &[0; 20])));
    let kinds = prop::sample::select(vec![128u8, 131, 133, 134, 135, 135, 136, 136, 137, 141, 143]);
    let options = prop::collection::vec((prop::sample::select(vec![1u8, 2, 14]), pick(OWN, &[OTHER])), 0..4);
    let target = pick(V6, &[OTHER_V6, LINK_LOCAL_V6]);
    let message = (kinds, target, options).prop_map(|(kind, target, options)| {
        let target = (135..=137).contains(&kind).then_some(target);
        (58, discovery(kind, target, &options))
    });
    prop_oneof![1 => datagram, 3 => message]
}

fn extensions() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let option = (prop::sample::select(vec![0u8, 43, 60]), 0usize..3)
        .prop_map(|(kind, more)| (kind, [&[0, more as u8, 1, 4][..], &vec![0; 4 + more * 8]].concat()));
    let fragment =
        prop::sample::select(vec![0u8, 1, 8, 9]).prop_map(|word| (44, vec![0, 0, 0, word, 0, 0, 0, 7]));
    let authentication = Just((51, vec![0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]));
    prop::collection::vec(prop_oneof![2 => option, 1 => fragment, 1 => authentication], 0..3)
}

/// Random frames that are nearly right, and what is pending of them.
pub(crate) fn frames() -> impl Strategy<Value = (Vec<u8>, Offload)> {
    let arp = (
        prop_oneof![Just(0x806u16), Just(0x8035)],
        pick(1u8, &[2, 3, 8]),
        pick(OWN, &[OTHER]),
        pick(V4, &[OTHER_V4, [0; 4]]),
    )
        .prop_flat_map(|(kind, op, sender, from)| {
            pick(V4, &[OTHER_V4]).prop_map(move |to| ethernet(kind, &arp_packet(op, sender, from, to)))
        });
    let fragment = pick(0u16, &[0x2000, 1, 0x4000]);
    let v4 = (pick(V4, &[OTHER_V4, [0; 4]]), fragment, pick(0u8, &[4, 40]), upper_v4()).prop_map(
        |(from, fragment, options, (protocol, payload))| {
            ethernet(0x800, &ipv4(from, fragment, options, protocol, &payload))
        },
    );
    let v6 = (pick(V6, &[OTHER_V6, [0; 16], LINK_LOCAL_V6]), extensions(), upper_v6()).prop_map(
        |(from, extensions, (protocol, payload))| {
            ethernet(0x86dd, &ipv6(from, &extensions, protocol, &payload))
        },
    );
    let tags = prop::collection::vec(prop::sample::select(vec![0x8100u16, 0x88a8, 0x9100]), 0..4);
    let tags = prop_oneof![2 => Just(vec![]), 1 => tags];
    let changes = prop::collection::vec((0usize..120, any::<u8>()), 0..3);
    let changes = prop_oneof![2 => Just(vec![]), 1 => changes];
    let offload = (any::<bool>(), prop::sample::select(vec![0u8, 0, 1, 4, 5]), 1u16..200, 0u16..90, 0u16..40);
    let frame = prop_oneof![arp, v4, v6.boxed()];
    (frame, tags, changes, pick(1000usize, &[60, 80]), pick(None, &[Some(())]), offload).prop_map(
        |(frame, tags, changes, len, has_offload, (has_checksum, gso_type, gso_size, start, offset))| {
            let mut frame = tagged(&frame, &tags);
            for (at, byte) in changes {
                frame.get_mut(at).into_iter().for_each(|old| *old = byte);
            }
            frame.truncate(len);
            let base = if has_checksum || gso_type > 0 {
                Offload::checksum(start, offset)
            } else {
                Offload::default()
            };
            let offload = Offload { gso_type, gso_size, ..base };
            let offload =
                offload.check(frame.len() as u32, Needs::ALL).ok().filter(|_| has_offload.is_some());
            (frame, offload.unwrap_or_default())
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]
    #[test]
    fn what_passes_is_harmless_to_a_receiver_that_checks_nothing(
        (frame, offload) in frames(),
        written: [u8; 2],
    ) {
        let passes = checked_with(&rules(), &frame, offload).is_ok();
        prop_assert!(!passes || !is_harmful(&frame), "{frame:02x?}");
        // Nor is it when its checksum is filled in.
        let mut filled = frame.clone();
        let at = usize::from(offload.csum_start) + usize::from(offload.csum_offset);
        if offload.needs_checksum() {
            filled[at..at + 2].copy_from_slice(&written);
        }
        prop_assert!(!passes || !is_harmful(&filled), "{offload:?} {frame:02x?}");
        // Its head alone says nothing else.
        let by_head = rules().check(&head(&frame), frame.len(), offload);
        let by_start = rules().check_start(&frame[..frame.len().min(DEEPEST)], frame.len(), offload);
        prop_assert!(by_head == Err(Refusal::Beyond) || by_head.is_ok() == by_start.is_ok());
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = checked(&bytes);
    }
}
