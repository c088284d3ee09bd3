//! Answers to frames that are too long for where they go: "fragmentation needed" (RFC 1191) and "packet too big" (RFC
//! 4443), from the address that the packet was for, as Linux's tunnels send them.

use ringway_frame::fnv1a;
use ringway_wire::icmp::{v4, v6};
use ringway_wire::{EtherType, Ethernet, Header, Icmp, Ipv4, Ipv6, Protocol, Sum, ipv4, ipv6, vlan};
use std::cell::Cell;

/// Length of two VLAN tags.
const TAGS: usize = 8;
/// Bytes of the packet that an answer quotes: all answers fit into the smallest MTU (RFC 1812, 4.3.2.3; RFC 4443, 2.4).
const QUOTED_V4: usize = 576 - Ipv4::LEN - Icmp::LEN;
const QUOTED_V6: usize = 1280 - Ipv6::LEN - Icmp::LEN;
/// Longest answer, with two tags.
pub const LONGEST: usize = Ethernet::LEN + TAGS + 1280;
/// Smallest MTU of a way of IPv4 (RFC 791, 3.2).
const SMALLEST: usize = 68;
/// Smallest MTU of a way of IPv6 (RFC 8200, 5).
const SMALLEST_V6: usize = 1280;
/// TTL and hop limit of answers.
const TTL: u8 = 64;
/// Nanoseconds between two answers to senders with one place.
pub const EVERY: u64 = 1_000_000;
/// Places of the senders behind a queue.
pub const SENDERS: usize = 16;

/// The answer to a frame that begins with `frame`, at least [`LONGEST`] bytes of it, for a way that carries frames of
/// `most` bytes. `None` if the packet may be fragmented, must not be answered, or is short enough itself: its frame is
/// padded.
pub fn answer(frame: &[u8], most: usize) -> Option<Vec<u8>> {
    answer_with(frame, |link| most.checked_sub(link))
}

/// As [`answer`], for a port whose frames may have `largest` bytes, of which `framing` are for what precedes a packet,
/// whether a frame has all of it or not.
pub fn answer_for_port(frame: &[u8], largest: usize, framing: usize) -> Option<Vec<u8>> {
    answer_with(frame, |link| largest.checked_sub(framing.max(link)).filter(|mtu| *mtu >= SMALLEST))
}

/// When the senders behind a queue were answered, in nanoseconds; 0: never. One that sends long packets all the time
/// does not keep the others from being answered.
#[derive(Debug, Default)]
pub struct Answered([Cell<u64>; SENDERS]);

impl Answered {
    /// Where the time of an answer to the sender of a frame that begins with `head` is written, unless that, or another
    /// one with its place, was answered less than a millisecond ago.
    ///
    /// Attack: a sender of long frames at its full rate, each of which would cost another frame; also from many
    /// addresses.
    pub fn due(&self, head: &[u8], now: u64) -> Option<&Cell<u64>> {
        let cell = &self.0[place_of_sender(head)];
        let last = cell.get();
        (last == 0 || now.saturating_sub(last) >= EVERY).then_some(cell)
    }
}

/// The place of the sender of the packet in a frame that begins with `head`, by the addresses that it is from.
fn place_of_sender(head: &[u8]) -> usize {
    let Some((ethernet, rest)) = Ethernet::split(head) else { return 0 };
    let address = vlan::untag(ethernet.ethertype, rest).and_then(|inner| match inner.ethertype {
        EtherType::IPV4 => inner.payload.get(12..16),
        EtherType::IPV6 => inner.payload.get(8..24),
        _ => None,
    });
    let bytes = ethernet.source.0.iter().chain(address.unwrap_or_default());
    (fnv1a(bytes.copied()) % SENDERS as u64) as usize
}

/// As [`answer`]; `mtu` is that for headers before the packet of so many bytes.
fn answer_with(frame: &[u8], mtu: impl FnOnce(usize) -> Option<usize>) -> Option<Vec<u8>> {
    let (ethernet, rest) = Ethernet::split(frame)?;
    if ethernet.source.is_group() || ethernet.destination.is_group() {
        return None;
    }
    let inner = vlan::untag(ethernet.ethertype, rest)?;
    let link = frame.len() - inner.payload.len();
    let mtu = mtu(link)?;
    let mut out = frame[..link].to_vec();
    let header = Ethernet::of_mut(&mut out)?;
    (header.source, header.destination) = (ethernet.destination, ethernet.source);
    match inner.ethertype {
        EtherType::IPV4 => answer_v4(inner.payload, mtu, out),
        EtherType::IPV6 => answer_v6(inner.payload, mtu, out),
        _ => None,
    }
}

fn answer_v4(packet: &[u8], mtu: usize, mut out: Vec<u8>) -> Option<Vec<u8>> {
    let (ip, options, payload) = Ipv4::parse(packet).filter(|(ip, ..)| ip.version() == 4)?;
    let is_error = ip.protocol == Protocol::ICMP && payload.first().is_none_or(|kind| v4::is_error(*kind));
    let may_fragment = ip.fragment.get() & ipv4::DONT_FRAGMENT == 0;
    let are_hosts = ipv4::is_host(ip.source_addr()) && ipv4::is_host(ip.destination_addr());
    let is_right = ip.is_checksum_valid(options);
    let is_long = usize::from(ip.total_length.get()) > mtu;
    if may_fragment || ip.is_later_fragment() || is_error || !are_hosts || !is_right || !is_long {
        return None;
    }
    let quoted = &packet[..packet.len().min(QUOTED_V4)];
    let mut header = Ipv4 {
        total_length: ((Ipv4::LEN + Icmp::LEN + quoted.len()) as u16).into(),
        fragment: ipv4::DONT_FRAGMENT.into(),
        ttl: TTL,
        protocol: Protocol::ICMP,
        source: ip.destination,
        destination: ip.source,
        ..Ipv4::EMPTY
    };
    header.fill_checksum(&[]);
    out.extend_from_slice(header.bytes());
    let message = out.len();
    let mut icmp = Icmp { kind: v4::UNREACHABLE, code: v4::NEEDS_FRAGMENTATION, ..Icmp::default() };
    icmp.sequence_number.set(mtu.min(usize::from(u16::MAX)) as u16);
    out.extend_from_slice(icmp.bytes());
    out.extend_from_slice(quoted);
    Icmp::fill_checksum(&mut out[message..], Sum::new())?;
    Some(out)
}

fn answer_v6(packet: &[u8], mtu: usize, mut out: Vec<u8>) -> Option<Vec<u8>> {
    let ip = ipv6::Packet::parse(packet)?;
    let (source, destination) = (ip.header.source_addr(), ip.header.destination_addr());
    // Packets to groups are answered too (RFC 4443, 2.4), but their answers need an address of our own.
    if !ipv6::is_host(source) || !ipv6::is_host(destination) {
        return None;
    }
    // What can't be read may be an error.
    let upper = ip.upper()?;
    let is_unanswered = |kind: &u8| *kind < v6::ECHO || *kind == v6::REDIRECT;
    if upper.protocol == Protocol::ICMPV6 && upper.payload.first().is_none_or(is_unanswered) {
        return None;
    }
    // Less is discarded (RFC 8201, 4).
    let mtu = mtu.max(SMALLEST_V6);
    if Ipv6::LEN + usize::from(ip.header.payload_length.get()) <= mtu {
        return None;
    }
    let quoted = &packet[..packet.len().min(QUOTED_V6)];
    let len = Icmp::LEN + quoted.len();
    let header = Ipv6 {
        payload_length: (len as u16).into(),
        next_header: Protocol::ICMPV6,
        hop_limit: TTL,
        source: ip.header.destination,
        destination: ip.header.source,
        ..Ipv6::EMPTY
    };
    out.extend_from_slice(header.bytes());
    let message = out.len();
    let mut icmp = Icmp { kind: v6::PACKET_TOO_BIG, ..Icmp::default() };
    icmp.set_rest(mtu as u32);
    out.extend_from_slice(icmp.bytes());
    out.extend_from_slice(quoted);
    Icmp::fill_checksum(&mut out[message..], header.pseudo_header(Protocol::ICMPV6, len as u32))?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_wire::{MacAddress, checksum};

    const HERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const THERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    fn frame(tags: usize, ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
        let mut types = vec![EtherType::VLAN; tags];
        types.push(ethertype);
        let mut out = Ethernet { destination: THERE, source: HERE, ethertype: types[0] }.bytes().to_vec();
        for ethertype in &types[1..] {
            out.extend_from_slice(&[0, 7]);
            out.extend_from_slice(ethertype.bytes());
        }
        out.extend_from_slice(packet);
        out
    }

    fn packet_v4(protocol: Protocol, fragment: u16, source: u32) -> Vec<u8> {
        let mut header = Ipv4 {
            total_length: 2000.into(),
            fragment: fragment.into(),
            ttl: 9,
            protocol,
            source: source.into(),
            destination: 0x0a00_0002.into(),
            ..Ipv4::EMPTY
        };
        header.fill_checksum(&[]);
        [header.bytes(), &[3; 1980]].concat()
    }

    #[test]
    fn a_packet_that_must_stay_whole_is_answered_by_its_destination() {
        for tags in 0..3 {
            let packet = packet_v4(Protocol::UDP, ipv4::DONT_FRAGMENT, 0x0a00_0001);
            let answer = answer(&frame(tags, EtherType::IPV4, &packet), 1464).unwrap();
            let (ethernet, rest) = Ethernet::split(&answer).unwrap();
            assert_eq!((ethernet.source, ethernet.destination), (THERE, HERE));
            let inner = vlan::untag(ethernet.ethertype, rest).unwrap();
            assert_eq!(inner.tags, tags);
            let (ip, options, message) = Ipv4::parse(inner.payload).unwrap();
            assert!(ip.is_checksum_valid(options) && checksum::checksum(message) == 0);
            assert_eq!((ip.source.get(), ip.destination.get()), (0x0a00_0002, 0x0a00_0001));
            assert_eq!(inner.payload.len(), 576);
            let (icmp, quoted) = Icmp::split(message).unwrap();
            assert_eq!((icmp.kind, icmp.code), (v4::UNREACHABLE, v4::NEEDS_FRAGMENTATION));
            assert_eq!(usize::from(icmp.sequence_number.get()), 1450 - 4 * tags);
            assert_eq!(quoted, &packet[..quoted.len()]);
        }
    }

    #[test]
    fn a_port_counts_tags_among_the_bytes_of_a_frame() {
        let packet = packet_v4(Protocol::UDP, ipv4::DONT_FRAGMENT, 0x0a00_0001);
        for tags in 0..3 {
            let at = 14 + 4 * tags + 20 + 6;
            for (largest, framing) in [(1522, 22), (1518, 18)] {
                let sent = frame(tags, EtherType::IPV4, &packet);
                let answer = answer_for_port(&sent, largest, framing).unwrap();
                // A second tag is not in the 18 bytes.
                let mtu = largest - framing.max(14 + 4 * tags);
                assert_eq!(answer[at..at + 2], (mtu as u16).to_be_bytes(), "{largest} bytes, {tags} tags");
            }
        }
        assert_eq!(answer_for_port(&frame(0, EtherType::IPV4, &packet), 22 + 67, 22), None);
    }

    #[test]
    fn a_packet_whose_frame_is_only_padded_is_not_answered() {
        let v4 = packet_v4(Protocol::UDP, ipv4::DONT_FRAGMENT, 0x0a00_0001);
        let ipv6 = Ipv6 {
            payload_length: 1960.into(),
            next_header: Protocol::UDP,
            source: (0xfd << 120 | 1).into(),
            destination: (0xfd << 120 | 2).into(),
            ..Ipv6::EMPTY
        };
        let v6 = [ipv6.bytes(), &[0; 1960]].concat();
        for (ethertype, packet) in [(EtherType::IPV4, v4), (EtherType::IPV6, v6)] {
            let padded = frame(0, ethertype, &[&packet[..], &[0; 500]].concat());
            assert!(answer(&padded, 14 + 2000).is_none(), "it has 2000 bytes");
            assert!(answer(&padded, 14 + 1999).is_some());
        }
    }

    #[test]
    fn senders_have_places_by_both_of_their_addresses() {
        let place = |mac: u8, source: u32, tags: usize| {
            let mut frame = frame(tags, EtherType::IPV4, &packet_v4(Protocol::UDP, 0, source));
            frame[11] = mac;
            place_of_sender(&frame)
        };
        let all =
            |places: &mut dyn Iterator<Item = usize>| places.collect::<std::collections::BTreeSet<_>>().len();
        assert!(all(&mut (0..=255).map(|mac| place(mac, 0x0a00_0001, 0))) == SENDERS);
        assert!(all(&mut (0..256).map(|host| place(1, 0x0a00_0000 + host, 1))) == SENDERS, "behind a router");
        assert_eq!(place(7, 9, 0), place(7, 9, 2), "one sender has one place");
        assert_eq!(place_of_sender(&[0; 9]), 0);
    }

    #[test]
    fn what_must_not_be_answered_is_not() {
        let df = ipv4::DONT_FRAGMENT;
        let host = 0x0a00_0001;
        let silent = |packet: Vec<u8>| answer(&frame(0, EtherType::IPV4, &packet), 1464).is_none();
        assert!(!silent(packet_v4(Protocol::TCP, df, host)));
        assert!(silent(packet_v4(Protocol::TCP, 0, host)), "it may be fragmented");
        assert!(silent(packet_v4(Protocol::TCP, df | 9, host)), "a later fragment");
        assert!(silent(packet_v4(Protocol::ICMP, df, host)), "an error: its type is 3");
        for source in [0xe000_0001, 0xffff_ffff, 0, 0x0001_0203, 0x7f00_0001] {
            assert!(silent(packet_v4(Protocol::TCP, df, source)), "from {source:#x}");
        }
        let packet = packet_v4(Protocol::TCP, df, host);
        let mut to_group = frame(0, EtherType::IPV4, &packet);
        to_group[0] |= 1;
        assert!(answer(&to_group, 1464).is_none());
        assert!(answer(&frame(0, EtherType::ARP, &packet), 1464).is_none());
        for len in 0..60 {
            let cut = frame(0, EtherType::IPV4, &packet)[..len].to_vec();
            assert_eq!(answer(&cut, 1464).is_some(), len >= 34, "{len}");
        }
    }

    #[test]
    fn a_packet_of_ipv6_is_answered_within_the_smallest_mtu() {
        let packet = |next_header, kind: u8| {
            let header = Ipv6 {
                payload_length: 1960.into(),
                next_header,
                hop_limit: 9,
                source: (0xfd << 120 | 1).into(),
                destination: (0xfd << 120 | 2).into(),
                ..Ipv6::EMPTY
            };
            let mut packet = [header.bytes(), &[0; 1960]].concat();
            packet[Ipv6::LEN] = kind;
            packet
        };
        let good = packet(Protocol::UDP, 0);
        let made = answer(&frame(1, EtherType::IPV6, &good), 1464).unwrap();
        let made = &made[18..];
        let (ip, message) = Ipv6::split(made).unwrap();
        assert_eq!(
            (made.len(), ip.source.get(), ip.destination.get()),
            (1280, 0xfd << 120 | 2, 0xfd << 120 | 1)
        );
        let mut sum = ip.pseudo_header(Protocol::ICMPV6, message.len() as u32);
        sum.add(message);
        assert!(sum.is_valid());
        let (icmp, quoted) = Icmp::split(message).unwrap();
        assert_eq!((icmp.kind, icmp.rest()), (v6::PACKET_TOO_BIG, 1446));
        assert_eq!(quoted, &good[..quoted.len()]);
        let of = |kind| answer(&frame(0, EtherType::IPV6, &packet(Protocol::ICMPV6, kind)), 1464);
        assert!(of(v6::ECHO).is_some() && of(v6::TIME_EXCEEDED).is_none());
    }
}
