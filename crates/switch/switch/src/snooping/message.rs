//! What IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810) messages say.

use super::SECOND;
use ringway_wire::{EtherType, Header, Ipv4, Ipv6, Protocol, Sum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The query interval, in seconds, if a query does not say it (RFC 3376, 8.2; RFC 3810, 9.2).
const INTERVAL: u64 = 125;
/// The robustness variable, if a query does not say it (RFC 3376, 8.1; RFC 3810, 9.1).
const ROBUSTNESS: u64 = 2;
/// Maximum response time of a query of IGMPv1, in tenths of a second (RFC 2236, 4).
const FIRST_VERSION: u64 = 100;
/// Length of a message of IGMPv2 and of MLDv1; queries of the next versions are longer.
const IGMP: usize = 8;
const MLD: usize = 24;
/// Where general queries go.
const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The groups of a report, each with whether its host joins it (or leaves).
pub type Records = Vec<(IpAddr, bool)>;

/// A query which groups have members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The group of a specific query; none: a general query.
    pub group: Option<IpAddr>,
    /// Nanoseconds in which members answer.
    pub response: u64,
    /// Whether a router sent it, and not a switch that has no address.
    pub is_router: bool,
    /// Whether it is of MLD.
    pub is_v6: bool,
    /// Whether the timers of the group's members are lowered: not by a query about sources, nor by one with the flag S
    /// (RFC 3376, 6.6.1).
    pub lowers_timers: bool,
    /// The querier's robustness variable.
    pub robustness: u64,
    /// The querier's query interval, in nanoseconds.
    pub interval: u64,
}

/// A message, or what else is known of a packet to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A query that hosts answer.
    Query(Query),
    /// Groups that a host joins or leaves.
    Report {
        /// Whether it is of MLD.
        is_v6: bool,
    },
    /// A packet to a group that is forwarded to members.
    Data(IpAddr),
    /// It goes to all: to a group of one link, or no packet that can be read, or a query that hosts ignore.
    Other,
}

impl Packet {
    /// What the start of a packet behind the Ethernet header and tags says, an IP header's length at least; none if it
    /// may be a message, which must be read on.
    pub fn of_head(ethertype: EtherType, head: &[u8]) -> Option<Packet> {
        match destination(ethertype, head) {
            Some((_, true)) => None,
            Some((to, false)) => Some(data(to)),
            None => Some(Packet::Other),
        }
    }

    /// Reads a packet to a MAC address, `bytes` of which are there behind the Ethernet header and tags. The groups of a
    /// report are in `records` then.
    pub fn parse(ethertype: EtherType, mac: [u8; 6], bytes: &[u8], records: &mut Records) -> Packet {
        records.clear();
        match (destination(ethertype, bytes), ethertype) {
            (None, _) => Packet::Other,
            (Some((to, false)), _) => data(to),
            (Some(_), EtherType::IPV4) => of_ipv4(bytes, mac, records).unwrap_or(Packet::Other),
            (Some((to, true)), _) => of_ipv6(bytes, (to, mac), records).unwrap_or(Packet::Other),
        }
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

fn data(to: IpAddr) -> Packet {
    if is_local(to) { Packet::Other } else { Packet::Data(to) }
}

/// The group to which a packet is, and whether it may be a message of IGMP or MLD.
fn destination(ethertype: EtherType, bytes: &[u8]) -> Option<(IpAddr, bool)> {
    let (version, to, is_message): (u8, IpAddr, bool) = match ethertype {
        EtherType::IPV4 => {
            let (header, _) = Ipv4::split(bytes)?;
            (header.version(), header.destination_addr().into(), header.protocol == Protocol::IGMP)
        }
        EtherType::IPV6 => {
            let (header, _) = Ipv6::split(bytes)?;
            let is_message = matches!(header.next_header, Protocol::HOP_BY_HOP | Protocol::ICMPV6);
            (header.version(), header.destination_addr().into(), is_message)
        }
        _ => return None,
    };
    let is_right = to.is_multicast() && version == if to.is_ipv4() { 4 } else { 6 };
    is_right.then_some((to, is_message))
}

/// The MAC address of a group (RFC 1112, 6.4; RFC 2464, 7).
fn mac_of(group: IpAddr) -> [u8; 6] {
    match group {
        IpAddr::V4(group) => {
            let [_, a, b, c] = group.octets();
            [1, 0, 0x5e, a & 0x7f, b, c]
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    }
}

fn of_ipv4(bytes: &[u8], mac: [u8; 6], records: &mut Records) -> Option<Packet> {
    let (header, options, rest) = Ipv4::parse(bytes)?;
    let payload = usize::from(header.total_length.get()).checked_sub(header.header_len())?;
    let message = rest.get(..payload)?;
    // A message that can't be read is forwarded as any other packet, and teaches nothing.
    let is_whole =
        header.is_checksum_valid(options) && !header.is_fragment() && is_valid(Sum::new(), message);
    is_whole.then(|| igmp(message, (header, mac), records)).flatten()
}

fn is_valid(mut sum: Sum, message: &[u8]) -> bool {
    sum.add(message);
    sum.finish() == 0
}

fn igmp(message: &[u8], ip: (&Ipv4, [u8; 6]), records: &mut Records) -> Option<Packet> {
    let kind = *message.first()?;
    let address = |at: usize| message.get(at..at + 4)?.first_chunk().copied().map(Ipv4Addr::from);
    let is_group = |group: &Ipv4Addr| group.is_multicast();
    let group = address(4)?;
    match kind {
        0x11 => return igmp_query(message, group, ip).map(Packet::Query),
        0x12 | 0x16 | 0x17 if is_group(&group) => records.push((group.into(), kind != 0x17)),
        0x22 => {
            let read = |at: usize| (address(at + 4).filter(is_group).map(IpAddr::from), 4);
            read_records(message, read, records)?;
        }
        _ => return None,
    }
    Some(Packet::Report { is_v6: false })
}

/// A query, unless hosts ignore it. Attack: one that only the switch believes, so that all members seem to be silent.
fn igmp_query(message: &[u8], group: Ipv4Addr, (ip, mac): (&Ipv4, [u8; 6])) -> Option<Query> {
    let (from, to) = (ip.source_addr(), ip.destination_addr());
    let expected = if group.is_unspecified() { ALL_SYSTEMS } else { group };
    let is_addressed = to == expected && mac == mac_of(to.into());
    if !is_addressed || ip.ttl != 1 || from.is_multicast() || from.is_broadcast() {
        return None;
    }
    let code = *message.get(1)?;
    let (lowers_timers, robustness, interval) = variables(message.get(IGMP..)?, 4)?;
    let tenths = match code {
        0 if message.len() == IGMP => FIRST_VERSION,
        _ if message.len() == IGMP => code.into(),
        _ => floating(code),
    };
    Some(Query {
        group: (!group.is_unspecified()).then_some(group.into()),
        response: tenths * (SECOND / 10),
        is_router: !from.is_unspecified(),
        is_v6: false,
        lowers_timers,
        robustness,
        interval,
    })
}

/// What only queries of IGMPv3 and MLDv2 say, behind the group (RFC 3376, 4.1.5 to 4.1.9): whether they lower timers,
/// the robustness variable, and the query interval. None if the sources, of `len` bytes each, end early.
fn variables(rest: &[u8], len: usize) -> Option<(bool, u64, u64)> {
    let Some(&[flags, qqic, high, low]) = rest.first_chunk() else {
        return rest.is_empty().then_some((true, ROBUSTNESS, INTERVAL * SECOND));
    };
    let sources = usize::from(u16::from_be_bytes([high, low]));
    if rest.len() < 4 + sources * len {
        return None;
    }
    let or = |value, default| if value == 0 { default } else { value };
    let (suppresses, robustness) = (flags & 8 != 0, or(u64::from(flags & 7), ROBUSTNESS));
    Some((sources == 0 && !suppresses, robustness, or(floating(qqic), INTERVAL) * SECOND))
}

/// A number of tenths or seconds (RFC 3376, 4.1.1 and 4.1.7).
fn floating(code: u8) -> u64 {
    match code {
        128.. => u64::from(code & 0xf | 0x10) << ((code >> 4 & 7) + 3),
        _ => code.into(),
    }
}

/// Reads the groups in the records of a report of version 3 or 2. `read` gives the group of the record at a place, and
/// the length of an address.
fn read_records(
    message: &[u8],
    read: impl Fn(usize) -> (Option<IpAddr>, usize),
    records: &mut Records,
) -> Option<()> {
    let count = u16::from_be_bytes([*message.get(6)?, *message.get(7)?]);
    let mut at = 8;
    for _ in 0..count {
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
            (1 | 3, 0) => records.push((group, false)),
            (1..=4, _) | (5, 1..) => records.push((group, true)),
            _ => {}
        }
    }
    Some(())
}

fn of_ipv6(bytes: &[u8], (to, mac): (IpAddr, [u8; 6]), records: &mut Records) -> Option<Packet> {
    let (header, rest) = Ipv6::split(bytes)?;
    let found =
        rest.get(..usize::from(header.payload_length.get())).and_then(|payload| icmp(header, payload));
    let Some((message, has_alert)) = found else { return Some(data(to)) };
    if !matches!(message.first(), Some(130..=132 | 143)) {
        return Some(data(to));
    }
    let sum = header.pseudo_header(Protocol::ICMPV6, u32::try_from(message.len()).ok()?);
    let is_near = header.hop_limit == 1 && has_alert;
    (is_near && is_valid(sum, message)).then(|| mld(message, (header, mac), records)).flatten()
}

/// An ICMPv6 message, and whether the option "router alert" is before it, in a hop-by-hop header (RFC 3810, 5).
fn icmp<'p>(header: &Ipv6, payload: &'p [u8]) -> Option<(&'p [u8], bool)> {
    if header.next_header == Protocol::ICMPV6 {
        return Some((payload, false));
    }
    let len = 8 + 8 * usize::from(*payload.get(1)?);
    let (options, message) = payload.split_at_checked(len)?;
    (Protocol(*payload.first()?) == Protocol::ICMPV6).then(|| (message, has_router_alert(&options[2..])))
}

/// Whether options of IPv6 have a router alert for MLD (RFC 2711, 2.1).
fn has_router_alert(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (0, rest) => rest,
            (5, [2, 0, 0, ..]) => return true,
            (_, [len, rest @ ..]) => rest.get(usize::from(*len)..).unwrap_or_default(),
            _ => return false,
        };
    }
    false
}

fn mld(message: &[u8], ip: (&Ipv6, [u8; 6]), records: &mut Records) -> Option<Packet> {
    let kind = *message.first()?;
    let address = |at: usize| message.get(at..at + 16)?.first_chunk().copied().map(Ipv6Addr::from);
    let is_group = |group: &Ipv6Addr| group.is_multicast();
    let from = ip.0.source_addr();
    // Hosts that have no address yet report from the unspecified one (RFC 3810, 5.2.13).
    if !from.is_unicast_link_local() && (kind == 130 || !from.is_unspecified()) {
        return None;
    }
    match kind {
        130 => return mld_query(message, address(8)?, ip).map(Packet::Query),
        131 | 132 => records.push((address(8).filter(is_group)?.into(), kind == 131)),
        143 => {
            let read = |at: usize| (address(at + 4).filter(is_group).map(IpAddr::from), 16);
            read_records(message, read, records)?;
        }
        _ => return None,
    }
    Some(Packet::Report { is_v6: true })
}

/// As [`igmp_query`].
fn mld_query(message: &[u8], group: Ipv6Addr, (ip, mac): (&Ipv6, [u8; 6])) -> Option<Query> {
    let to = ip.destination_addr();
    let expected = if group.is_unspecified() { ALL_NODES } else { group };
    if to != expected || mac != mac_of(to.into()) {
        return None;
    }
    let code = u16::from_be_bytes([*message.get(4)?, *message.get(5)?]);
    let (lowers_timers, robustness, interval) = variables(message.get(MLD..)?, 16)?;
    let millis = match code {
        0x8000.. if message.len() > MLD => u64::from(code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
        _ => code.into(),
    };
    Some(Query {
        group: (!group.is_unspecified()).then_some(group.into()),
        response: millis * (SECOND / 1000),
        is_router: true,
        is_v6: true,
        lowers_timers,
        robustness,
        interval,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOST: [u8; 4] = [10, 0, 0, 1];

    fn v4(to: [u8; 4], (from, ttl): ([u8; 4], u8), message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        let mut sum = Sum::new();
        sum.add(&message);
        let checksum = sum.finish().to_be_bytes();
        message[2..4].copy_from_slice(&checksum);
        let len = u16::try_from(24 + message.len()).unwrap().to_be_bytes();
        // With the option "router alert".
        let mut packet = vec![0x46, 0, len[0], len[1], 0, 0, 0, 0, ttl, 2, 0, 0];
        packet.extend([from, to, [0x94, 4, 0, 0]].concat());
        let mut sum = Sum::new();
        sum.add(&packet);
        let checksum = sum.finish().to_be_bytes();
        packet[10..12].copy_from_slice(&checksum);
        packet.extend(message);
        packet.extend([0; 7]);
        packet
    }

    /// Reads a packet; its groups are there if it is a report.
    fn parse(ethertype: EtherType, mac: [u8; 6], packet: &[u8]) -> (Packet, Records) {
        let mut records = vec![(GROUP.into(), false)];
        let parsed = Packet::parse(ethertype, mac, packet, &mut records);
        (parsed, records)
    }

    const GROUP: [u8; 4] = [239, 1, 2, 3];

    /// Reads a message that was sent to an address, and to its MAC address.
    fn sent(to: [u8; 4], from: ([u8; 4], u8), message: &[u8]) -> (Packet, Records) {
        parse(EtherType::IPV4, mac_of(to.into()), &v4(to, from, message))
    }

    fn report(message: &[u8]) -> Records {
        let (packet, records) = sent([224, 0, 0, 22], (HOST, 1), message);
        assert_eq!(packet, Packet::Report { is_v6: false });
        records
    }

    fn first_version(group: Option<IpAddr>, response: u64) -> Query {
        Query {
            group,
            response,
            is_router: true,
            is_v6: group.is_some_and(|group| group.is_ipv6()),
            lowers_timers: true,
            robustness: 2,
            interval: 125 * SECOND,
        }
    }

    #[test]
    fn igmp_of_each_version_is_read() {
        let [a, b, c, d] = GROUP;
        let of_group = Some(GROUP.into());
        let general = |message: &[u8]| sent([224, 0, 0, 1], (HOST, 1), message).0;
        let specific = |message: &[u8]| sent(GROUP, (HOST, 1), message).0;
        let tenths = |tenths: u64| tenths * SECOND / 10;
        let expected = first_version(None, tenths(100));
        assert_eq!(general(&[0x11, 0, 0, 0, 0, 0, 0, 0]), Packet::Query(expected));
        let expected = first_version(of_group, tenths(200));
        assert_eq!(specific(&[0x11, 200, 0, 0, a, b, c, d]), Packet::Query(expected));
        // Version 3: response time, robustness and interval.
        let third = general(&[0x11, 0x9f, 0, 0, 0, 0, 0, 0, 3, 0x8f, 0, 0]);
        let expected =
            Query { robustness: 3, interval: 248 * SECOND, ..first_version(None, tenths(0x1f << 4)) };
        assert_eq!(third, Packet::Query(expected));
        let of_nothing = general(&[0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of_nothing, Packet::Query(first_version(None, 0)));
        // The flag S, and sources.
        let keeps = Query { lowers_timers: false, ..first_version(of_group, tenths(10)) };
        let suppressing = [0x11, 10, 0, 0, a, b, c, d, 0xa, 125, 0, 0];
        let about_sources = [0x11, 10, 0, 0, a, b, c, d, 2, 125, 0, 1, 1, 2, 3, 4];
        assert_eq!(specific(&suppressing), Packet::Query(keeps));
        assert_eq!(specific(&about_sources), Packet::Query(keeps));
        assert_eq!(report(&[0x12, 0, 0, 0, a, b, c, d]), [(GROUP.into(), true)]);
        assert_eq!(report(&[0x16, 0, 0, 0, a, b, c, d]), [(GROUP.into(), true)]);
        assert_eq!(report(&[0x17, 0, 0, 0, a, b, c, d]), [(GROUP.into(), false)]);
        for (kind, sources, joins) in
            [(1, 0, Some(false)), (2, 0, Some(true)), (3, 0, Some(false)), (3, 1, Some(true))]
        {
            let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 2, kind, 0, 0, sources, a, b, c, d];
            message.extend(vec![9; 4 * usize::from(sources)]);
            // A second record, with auxiliary data, that blocks sources.
            message.extend([6, 1, 0, 1, 239, 9, 9, 9, 1, 2, 3, 4, 0, 0, 0, 0]);
            let expected: Records = joins.map(|joins| (GROUP.into(), joins)).into_iter().collect();
            assert_eq!(report(&message), expected, "{kind} {sources}");
        }
        let (read, _) = sent([224, 0, 0, 1], ([0; 4], 1), &[0x11, 100, 0, 0, 0, 0, 0, 0]);
        assert!(matches!(read, Packet::Query(Query { is_router: false, .. })), "{read:?}");
    }

    #[test]
    fn a_report_has_as_many_groups_as_fit() {
        let mut message = vec![0x22, 0, 0, 0, 0, 0, 4, 0];
        let group = |number: u16| {
            let [high, low] = number.to_be_bytes();
            [239, 1, high, low]
        };
        (0..1024).for_each(|number| message.extend([&[4, 0, 0, 0][..], &group(number)].concat()));
        let expected: Records = (0..1024).map(|number| (group(number).into(), true)).collect();
        assert_eq!(report(&message), expected);
    }

    /// Attack: queries that only the switch believes.
    #[test]
    fn queries_that_hosts_ignore_are_none() {
        let [a, b, c, d] = GROUP;
        let (systems, other) = ([224, 0, 0, 1], [239, 1, 2, 4]);
        let (general, specific) = ([0x11, 100, 0, 0, 0, 0, 0, 0], [0x11, 10, 0, 0, a, b, c, d]);
        let read = |to: [u8; 4], from, message: &[u8]| sent(to, from, message).0;
        assert!(matches!(read(systems, (HOST, 1), &general), Packet::Query(_)));
        assert!(matches!(read(GROUP, (HOST, 1), &specific), Packet::Query(_)));
        for (to, from, message) in [
            (GROUP, (HOST, 1), &general[..]),
            ([224, 0, 0, 2], (HOST, 1), &general),
            (systems, (HOST, 1), &specific),
            (other, (HOST, 1), &specific),
            (systems, (HOST, 2), &general),
            (systems, ([224, 0, 0, 9], 1), &general),
            (systems, ([255; 4], 1), &general),
            // Of 9 to 11 bytes, and with fewer sources than it says.
            (systems, (HOST, 1), &[&general[..], &[0]].concat()),
            (systems, (HOST, 1), &[&general[..], &[2, 125, 0]].concat()),
            (GROUP, (HOST, 1), &[&specific[..], &[2, 125, 0, 2, 1, 2, 3, 4]].concat()),
        ] {
            assert_eq!(read(to, from, message), Packet::Other, "{to:?} {from:?} {message:?}");
        }
        // To another MAC address, which hosts do not listen to.
        let packet = v4(systems, (HOST, 1), &general);
        assert_eq!(parse(EtherType::IPV4, [1, 0, 0x5e, 0, 0, 2], &packet).0, Packet::Other);
        let group = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 9);
        let nobody = Ipv6Addr::UNSPECIFIED;
        let right = Mld::default();
        let (general, specific) = (mld_of(130, 100, nobody), mld_of(130, 100, group));
        let to_group = Mld { to: group, ..right };
        assert!(matches!(right.read(&general).0, Packet::Query(_)));
        assert!(matches!(to_group.read(&specific).0, Packet::Query(_)));
        for (how, message) in [
            (to_group, &general[..]),
            (Mld { to: Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2), ..right }, &general),
            (right, &specific),
            (Mld { limit: 2, ..right }, &general),
            (Mld { from: nobody, ..right }, &general),
            (Mld { from: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), ..right }, &general),
            (Mld { options: Some([1, 4, 0, 0, 0, 0]), ..right }, &general),
            (Mld { options: Some([5, 2, 0, 1, 1, 0]), ..right }, &general),
            (Mld { options: None, ..right }, &general),
            (Mld { mac: Some([0x33, 0x33, 0, 0, 0, 2]), ..right }, &general),
            (right, &[&general[..], &[0; 2]].concat()),
            (right, &general[..20]),
            (to_group, &[&specific[..], &[2, 125, 0, 1]].concat()),
        ] {
            assert_eq!(how.read(message).0, Packet::Other, "{how:?} {message:?}");
        }
    }

    /// How a message of MLD is sent.
    #[derive(Clone, Copy, Debug)]
    struct Mld {
        from: Ipv6Addr,
        to: Ipv6Addr,
        limit: u8,
        /// Those of the hop-by-hop header, if there is one.
        options: Option<[u8; 6]>,
        mac: Option<[u8; 6]>,
    }

    impl Default for Mld {
        fn default() -> Mld {
            let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
            Mld { from, to: ALL_NODES, limit: 1, options: Some([5, 2, 0, 0, 1, 0]), mac: None }
        }
    }

    impl Mld {
        fn read(&self, message: &[u8]) -> (Packet, Records) {
            let Mld { from, to, limit, options, mac } = *self;
            let mut message = message.to_vec();
            let mut sum = Sum::pseudo_v6(from, to, 58, message.len() as u32);
            sum.add(&message);
            let checksum = sum.finish().to_be_bytes();
            message[2..4].copy_from_slice(&checksum);
            let hop_by_hop = options.map(|options| [&[58, 0][..], &options].concat()).unwrap_or_default();
            let len = u16::try_from(hop_by_hop.len() + message.len()).unwrap().to_be_bytes();
            let next = if options.is_some() { 0 } else { 58 };
            let head = [0x60, 0, 0, 0, len[0], len[1], next, limit];
            let packet = [&head[..], &from.octets(), &to.octets(), &hop_by_hop, &message].concat();
            parse(EtherType::IPV6, mac.unwrap_or(mac_of(to.into())), &packet)
        }
    }

    fn mld_of(kind: u8, code: u16, group: Ipv6Addr) -> Vec<u8> {
        let [high, low] = code.to_be_bytes();
        [&[kind, 0, 0, 0, high, low, 0, 0][..], &group.octets()].concat()
    }

    #[test]
    fn mld_of_both_versions_is_read() {
        let group = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 9);
        let (right, to_group) = (Mld::default(), Mld { to: group, ..Mld::default() });
        let millis = |millis: u64| millis * SECOND / 1000;
        let expected = Query { is_v6: true, ..first_version(None, millis(10_000)) };
        assert_eq!(right.read(&mld_of(130, 10_000, Ipv6Addr::UNSPECIFIED)).0, Packet::Query(expected));
        let expected = first_version(Some(group.into()), millis(0x8001));
        assert_eq!(to_group.read(&mld_of(130, 0x8001, group)).0, Packet::Query(expected));
        let long = [mld_of(130, 0x8001, group), vec![5, 60, 0, 0]].concat();
        let base = first_version(Some(group.into()), millis(0x1001 << 3));
        let expected = Query { robustness: 5, interval: 60 * SECOND, ..base };
        assert_eq!(to_group.read(&long).0, Packet::Query(expected));
        let about = [mld_of(130, 0x8001, group), vec![2, 125, 0, 1], vec![0x20; 16]].concat();
        assert_eq!(to_group.read(&about).0, Packet::Query(Query { lowers_timers: false, ..base }));
        let report = |how: Mld, message: &[u8]| {
            let (packet, records) = how.read(message);
            (packet == Packet::Report { is_v6: true }).then_some(records)
        };
        let joins = |joins| Some(vec![(IpAddr::from(group), joins)]);
        assert_eq!(report(to_group, &mld_of(131, 0, group)), joins(true));
        assert_eq!(report(right, &mld_of(132, 0, group)), joins(false));
        let record = [&[143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0][..], &group.octets()].concat();
        assert_eq!(report(right, &record), joins(true));
        assert_eq!(report(Mld { from: Ipv6Addr::UNSPECIFIED, ..right }, &record), joins(true));
        // Attack: messages that were routed here.
        assert_eq!(report(Mld { limit: 64, ..right }, &record), None);
        assert_eq!(
            report(Mld { from: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), ..right }, &record),
            None
        );
    }

    #[test]
    fn groups_of_one_link_and_damaged_messages_go_to_all() {
        let [a, b, c, d] = GROUP;
        let udp = |to: [u8; 4]| {
            let mut packet = v4(to, (HOST, 1), &[0; 8]);
            packet[9] = 17;
            let read = parse(EtherType::IPV4, mac_of(to.into()), &packet).0;
            assert_eq!(Packet::of_head(EtherType::IPV4, &packet[..20]), Some(read));
            read
        };
        assert_eq!((udp(GROUP), udp([224, 0, 0, 251])), (Packet::Data(GROUP.into()), Packet::Other));
        assert_eq!(udp([10, 0, 0, 2]), Packet::Other, "no group");
        let mac = mac_of([224, 0, 0, 22].into());
        let mut damaged = v4([224, 0, 0, 22], (HOST, 1), &[0x16, 0, 0, 0, a, b, c, d]);
        assert_ne!(parse(EtherType::IPV4, mac, &damaged).0, Packet::Other);
        assert_eq!(Packet::of_head(EtherType::IPV4, &damaged[..20]), None);
        damaged[31] ^= 1;
        assert_eq!(parse(EtherType::IPV4, mac, &damaged).0, Packet::Other);
        assert!(is_local("ff02::1:ff00:1".parse().unwrap()) && !is_local("ff05::2".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn anything_is_read(
            bytes in prop::collection::vec(any::<u8>(), 0..200), is_v6: bool, kind: u8, count: u16,
            options: [u8; 6],
        ) {
            let kind_of = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
            let (read, _) = parse(kind_of, [0; 6], &bytes);
            prop_assert!(Packet::of_head(kind_of, &bytes).is_none_or(|head| head == read));
            let [high, low] = count.to_be_bytes();
            let message = [&[kind, 0, 0, 0, 0, 0, high, low][..], &bytes].concat();
            let (_, records) = sent([224, 0, 0, 22], (HOST, 1), &message);
            prop_assert!(records.iter().all(|(group, _)| group.is_multicast()));
            Mld { options: Some(options), ..Mld::default() }.read(&message);
        }
    }
}
