//! What IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810) messages say.

use ringway_wire::{EtherType, Header, Ipv4, Ipv6, Protocol, Sum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most records of a report that are read. Attack: a report of 64 KB, each of whose records is another group.
const RECORDS: usize = 64;

/// A message, or what else is known of a packet to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A router asks which groups have members; `None`: any.
    Query {
        /// The group that is asked for.
        group: Option<IpAddr>,
        /// Nanoseconds in which members answer.
        response: u64,
        /// Whether a router sent it, and not a switch that has no address.
        is_router: bool,
        /// Whether it is of MLD.
        is_v6: bool,
    },
    /// Groups that a host joins (`true`) or leaves.
    Report(Vec<(IpAddr, bool)>),
    /// A packet to a group that is forwarded to members.
    Data(IpAddr),
    /// It goes to all: to a group of one link, or no packet that can be read.
    Other,
}

impl Packet {
    /// Reads a packet behind the Ethernet header and tags, `bytes` of which are there.
    pub fn parse(ethertype: EtherType, bytes: &[u8]) -> Packet {
        match ethertype {
            EtherType::IPV4 => of_ipv4(bytes),
            EtherType::IPV6 => of_ipv6(bytes),
            _ => None,
        }
        .unwrap_or(Packet::Other)
    }
}

/// Whether a group's packets are never forwarded beyond a link, so that hosts may get them without a report:
/// 224.0.0.0/24 (RFC 4541, 2.1.2), and IPv6's scopes 1 and 2.
pub fn is_local(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
        IpAddr::V6(group) => group.octets()[1] & 0xf <= 2,
    }
}

fn of_ipv4(bytes: &[u8]) -> Option<Packet> {
    let (header, options, rest) = Ipv4::parse(bytes)?;
    let to = header.destination_addr();
    if !to.is_multicast() || header.version() != 4 {
        return None;
    }
    if header.protocol != Protocol::IGMP {
        return (!is_local(to.into())).then_some(Packet::Data(to.into()));
    }
    let payload = usize::from(header.total_length.get()).checked_sub(header.header_len())?;
    let message = rest.get(..payload)?;
    // A message that can't be read is forwarded as any other packet, and teaches nothing.
    let is_whole =
        header.is_checksum_valid(options) && !header.is_fragment() && is_valid(Sum::new(), message);
    is_whole.then(|| igmp(message, header.source_addr())).flatten()
}

fn is_valid(mut sum: Sum, message: &[u8]) -> bool {
    sum.add(message);
    sum.finish() == 0
}

fn igmp(message: &[u8], from: Ipv4Addr) -> Option<Packet> {
    let (kind, code) = (*message.first()?, *message.get(1)?);
    let address = |at: usize| message.get(at..at + 4)?.first_chunk().copied().map(Ipv4Addr::from);
    let group = address(4)?;
    let is_group = |group: &Ipv4Addr| group.is_multicast();
    match kind {
        0x11 => Some(Packet::Query {
            group: (!group.is_unspecified()).then_some(group.into()),
            // Tenths of a second; version 1 has none, and means ten.
            response: tenths(code, message.len()) * 100_000_000,
            is_router: !from.is_unspecified(),
            is_v6: false,
        }),
        0x12 | 0x16 if is_group(&group) => Some(Packet::Report(vec![(group.into(), true)])),
        0x17 if is_group(&group) => Some(Packet::Report(vec![(group.into(), false)])),
        0x22 => {
            let count = usize::from(u16::from_be_bytes([*message.get(6)?, *message.get(7)?]));
            let read = |at: usize| {
                let group = address(at + 4).filter(is_group);
                (group.map(IpAddr::from), 4)
            };
            Some(Packet::Report(records(message, count, 8, read)))
        }
        _ => None,
    }
}

/// The time to answer of a query of `len` bytes (RFC 3376, 4.1.1).
fn tenths(code: u8, len: usize) -> u64 {
    match code {
        0 => 100,
        128.. if len >= 12 => u64::from(code & 0xf | 0x10) << ((code >> 4 & 7) + 3),
        _ => code.into(),
    }
}

/// The groups in the records of a report of version 3 or 2, which begin at `at`. `read` gives the group of the record
/// at a place, and the length of an address.
fn records(
    message: &[u8],
    count: usize,
    mut at: usize,
    read: impl Fn(usize) -> (Option<IpAddr>, usize),
) -> Vec<(IpAddr, bool)> {
    let mut groups = Vec::new();
    for _ in 0..count.min(RECORDS) {
        let Some(&[kind, auxiliary, high, low]) = message.get(at..).and_then(|rest| rest.first_chunk())
        else {
            break;
        };
        let sources = usize::from(u16::from_be_bytes([high, low]));
        let (group, size) = read(at);
        at += 4 + size + sources * size + 4 * usize::from(auxiliary);
        if at > message.len() {
            break;
        }
        let Some(group) = group else { continue };
        match (kind, sources) {
            // To include no source is to leave (RFC 3376, 4.2.16).
            (1 | 3, 0) => groups.push((group, false)),
            (1..=4, _) | (5, 1..) => groups.push((group, true)),
            _ => {}
        }
    }
    groups
}

fn of_ipv6(bytes: &[u8]) -> Option<Packet> {
    let (header, rest) = Ipv6::split(bytes)?;
    let to = header.destination_addr();
    if !to.is_multicast() || header.version() != 6 {
        return None;
    }
    let payload = rest.get(..usize::from(header.payload_length.get()));
    // MLD messages have the option "router alert" in a hop-by-hop header (RFC 3810, 5).
    let (next, message) = match (header.next_header, payload) {
        (Protocol::HOP_BY_HOP, Some(payload)) => {
            let (next, len) = (*payload.first()?, 8 + 8 * usize::from(*payload.get(1)?));
            (Protocol(next), payload.get(len..))
        }
        (next, payload) => (next, payload),
    };
    if let (Protocol::ICMPV6, Some(message)) = (next, message)
        && matches!(message.first(), Some(130..=132 | 143))
    {
        let sum = header.pseudo_header(Protocol::ICMPV6, u32::try_from(message.len()).ok()?);
        let from = header.source_addr();
        let is_near = from.is_unicast_link_local() || from.is_unspecified();
        let is_whole = header.hop_limit == 1 && is_near && is_valid(sum, message);
        return is_whole.then(|| mld(message, from)).flatten();
    }
    (!is_local(to.into())).then_some(Packet::Data(to.into()))
}

fn mld(message: &[u8], from: Ipv6Addr) -> Option<Packet> {
    let kind = *message.first()?;
    let address = |at: usize| message.get(at..at + 16)?.first_chunk().copied().map(Ipv6Addr::from);
    let is_group = |group: &Ipv6Addr| group.is_multicast();
    match kind {
        130 => {
            let (group, code) = (address(8)?, u16::from_be_bytes([*message.get(4)?, *message.get(5)?]));
            let response = match code {
                0x8000.. if message.len() >= 28 => u64::from(code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
                _ => code.into(),
            };
            Some(Packet::Query {
                group: (!group.is_unspecified()).then_some(group.into()),
                response: response * 1_000_000,
                is_router: !from.is_unspecified(),
                is_v6: true,
            })
        }
        131 | 132 => {
            let group = address(8).filter(is_group)?;
            Some(Packet::Report(vec![(group.into(), kind == 131)]))
        }
        143 => {
            let count = usize::from(u16::from_be_bytes([*message.get(6)?, *message.get(7)?]));
            let read = |at: usize| (address(at + 4).filter(is_group).map(IpAddr::from), 16);
            Some(Packet::Report(records(message, count, 8, read)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v4(to: [u8; 4], from: [u8; 4], message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        let mut sum = Sum::new();
        sum.add(&message);
        let checksum = sum.finish().to_be_bytes();
        message[2..4].copy_from_slice(&checksum);
        let len = u16::try_from(24 + message.len()).unwrap().to_be_bytes();
        // With the option "router alert".
        let mut packet = vec![0x46, 0, len[0], len[1], 0, 0, 0, 0, 1, 2, 0, 0];
        packet.extend([from, to, [0x94, 4, 0, 0]].concat());
        let mut sum = Sum::new();
        sum.add(&packet);
        let checksum = sum.finish().to_be_bytes();
        packet[10..12].copy_from_slice(&checksum);
        packet.extend(message);
        packet.extend([0; 7]);
        packet
    }

    const GROUP: [u8; 4] = [239, 1, 2, 3];

    fn group() -> IpAddr {
        Ipv4Addr::from(GROUP).into()
    }

    fn igmp(message: &[u8]) -> Packet {
        Packet::parse(EtherType::IPV4, &v4([224, 0, 0, 22], [10, 0, 0, 1], message))
    }

    #[test]
    fn igmp_of_each_version_is_read() {
        let [a, b, c, d] = GROUP;
        let query = |group: Option<IpAddr>, tenths: u64| Packet::Query {
            group,
            response: tenths * 100_000_000,
            is_router: true,
            is_v6: false,
        };
        assert_eq!(igmp(&[0x11, 0, 0, 0, 0, 0, 0, 0]), query(None, 100));
        assert_eq!(igmp(&[0x11, 25, 0, 0, a, b, c, d]), query(Some(group()), 25));
        assert_eq!(igmp(&[0x11, 0x9f, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]), query(None, 0x1f << 4));
        let report = |joins| Packet::Report(vec![(group(), joins)]);
        assert_eq!(igmp(&[0x12, 0, 0, 0, a, b, c, d]), report(true));
        assert_eq!(igmp(&[0x16, 0, 0, 0, a, b, c, d]), report(true));
        assert_eq!(igmp(&[0x17, 0, 0, 0, a, b, c, d]), report(false));
        for (kind, sources, joins) in
            [(1, 0, Some(false)), (2, 0, Some(true)), (3, 0, Some(false)), (3, 1, Some(true))]
        {
            let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 2, kind, 0, 0, sources, a, b, c, d];
            message.extend(vec![9; 4 * usize::from(sources)]);
            // A second record, with auxiliary data, that blocks sources.
            message.extend([6, 1, 0, 1, 239, 9, 9, 9, 1, 2, 3, 4, 0, 0, 0, 0]);
            let expected = joins.map(|joins| (group(), joins)).into_iter().collect();
            assert_eq!(igmp(&message), Packet::Report(expected), "{kind} {sources}");
        }
        let from_nobody = v4([224, 0, 0, 1], [0; 4], &[0x11, 100, 0, 0, 0, 0, 0, 0]);
        let read = Packet::parse(EtherType::IPV4, &from_nobody);
        assert!(matches!(read, Packet::Query { is_router: false, .. }), "{read:?}");
    }

    #[test]
    fn mld_of_both_versions_is_read() {
        let group = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 9);
        let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let mld = |message: &[u8], limit: u8, from: Ipv6Addr| {
            let mut message = message.to_vec();
            let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
            let mut sum = Sum::pseudo_v6(from, to, 58, message.len() as u32);
            sum.add(&message);
            let checksum = sum.finish().to_be_bytes();
            message[2..4].copy_from_slice(&checksum);
            let len = u16::try_from(8 + message.len()).unwrap().to_be_bytes();
            let head = [0x60, 0, 0, 0, len[0], len[1], 0, limit];
            let hop_by_hop = [58, 0, 5, 2, 0, 0, 1, 0];
            let packet = [&head[..], &from.octets(), &to.octets(), &hop_by_hop, &message].concat();
            Packet::parse(EtherType::IPV6, &packet)
        };
        let v1 = |kind: u8, code: [u8; 2], group: Ipv6Addr| {
            [&[kind, 0, 0, 0, code[0], code[1], 0, 0][..], &group.octets()].concat()
        };
        let query = |group, millis: u64| Packet::Query {
            group,
            response: millis * 1_000_000,
            is_router: true,
            is_v6: true,
        };
        assert_eq!(mld(&v1(130, [0x27, 0x10], Ipv6Addr::UNSPECIFIED), 1, from), query(None, 10_000));
        assert_eq!(mld(&v1(130, [0, 100], group), 1, from), query(Some(group.into()), 100));
        let long = [v1(130, [0x80, 1], group), vec![2, 125, 0, 0]].concat();
        assert_eq!(mld(&long, 1, from), query(Some(group.into()), 0x1001 << 3));
        assert_eq!(mld(&v1(131, [0, 0], group), 1, from), Packet::Report(vec![(group.into(), true)]));
        assert_eq!(mld(&v1(132, [0, 0], group), 1, from), Packet::Report(vec![(group.into(), false)]));
        let record = [&[143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0][..], &group.octets()].concat();
        assert_eq!(mld(&record, 1, from), Packet::Report(vec![(group.into(), true)]));
        assert_eq!(mld(&record, 1, Ipv6Addr::UNSPECIFIED), Packet::Report(vec![(group.into(), true)]));
        // Attack: messages that were routed here.
        assert_eq!(mld(&record, 64, from), Packet::Other);
        assert_eq!(mld(&record, 1, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), Packet::Other);
    }

    #[test]
    fn groups_of_one_link_and_damaged_messages_go_to_all() {
        let [a, b, c, d] = GROUP;
        let udp = |to: [u8; 4]| {
            let mut packet = v4(to, [10, 0, 0, 1], &[0; 8]);
            packet[9] = 17;
            Packet::parse(EtherType::IPV4, &packet)
        };
        assert_eq!((udp(GROUP), udp([224, 0, 0, 251])), (Packet::Data(group()), Packet::Other));
        assert_eq!(udp([10, 0, 0, 2]), Packet::Other, "no group");
        let mut damaged = v4([224, 0, 0, 22], [10, 0, 0, 1], &[0x16, 0, 0, 0, a, b, c, d]);
        assert_ne!(Packet::parse(EtherType::IPV4, &damaged), Packet::Other);
        damaged[31] ^= 1;
        assert_eq!(Packet::parse(EtherType::IPV4, &damaged), Packet::Other);
        assert!(is_local("ff02::1:ff00:1".parse().unwrap()) && !is_local("ff05::2".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn anything_is_read(
            bytes in prop::collection::vec(any::<u8>(), 0..200), is_v6: bool, kind: u8, count: u16,
        ) {
            Packet::parse(if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 }, &bytes);
            let [high, low] = count.to_be_bytes();
            let message = [&[kind, 0, 0, 0, 0, 0, high, low][..], &bytes].concat();
            let packet = Packet::parse(EtherType::IPV4, &v4([224, 0, 0, 22], [10, 0, 0, 1], &message));
            if let Packet::Report(groups) = packet {
                prop_assert!(groups.len() <= RECORDS && groups.iter().all(|(group, _)| group.is_multicast()));
            }
        }
    }
}
