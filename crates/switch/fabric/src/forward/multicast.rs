//! Which ports get the packets to groups of a burst, on a switch that snoops.

use super::ETHERNET;
use super::policing::{Frames, Policing, is_isolated};
use super::tags::TAGGED;
use crate::topology::{Port, Switch};
use arrayvec::ArrayVec;
use ringway_frame::{BURST, Burst, HEAD};
use ringway_switch::snooping::{Packet, Records, Scope, Snooping};
use ringway_switch::{FLOOD, PortId, Verdicts, vlan};
use ringway_wire::EtherType;
use std::net::IpAddr;

/// Most bytes of a message that are read. Attack: frames of 64 KB that seem to be messages; those are of one frame each
/// (RFC 3376, 4.2.16), which are no longer on a network.
const LONGEST: usize = 9_216;

/// The ports that get flooded frames, of one burst.
#[derive(Default)]
pub(super) struct Scopes {
    scopes: ArrayVec<Scope, BURST>,
    /// The ports of which the scopes are parts.
    ports: Vec<PortId>,
    message: Message,
}

/// Memory for a message that is read.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
    records: Records,
}

impl Scopes {
    /// The ports that get the flooded frames of a burst, unless all do.
    #[inline]
    pub(super) fn of<'s>(
        &'s mut self,
        switch: Option<&Switch>,
        port: (&Port, PortId),
        frames: (&Burst<'_>, Option<&Policing>),
        at: (u64, &Verdicts),
    ) -> Option<&'s Scopes> {
        let snooping = switch?.snooping.as_ref()?;
        let verdicts = at.1.get(..frames.0.len()).unwrap_or(at.1);
        if !verdicts.contains(&FLOOD) {
            return None;
        }
        self.find(snooping, port, frames, at, false);
        (!self.are_all()).then_some(self)
    }

    /// Finds the ports that get each frame which is flooded; those that say something teach it, unless it is traced.
    #[cold]
    pub(super) fn find(
        &mut self,
        snooping: &Snooping,
        (port, from): (&Port, PortId),
        (burst, policing): (&Burst<'_>, Option<&Policing>),
        (now, verdicts): (u64, &Verdicts),
        is_traced: bool,
    ) {
        let Scopes { scopes, ports, message } = self;
        scopes.clear();
        ports.clear();
        // What is known is looked at once, and not each time.
        let mut view = None;
        let mut last = None;
        for frame in 0..burst.len().min(BURST) {
            let is_flooded = verdicts.get(frame) == Some(&FLOOD);
            let is_customers = policing.is_some_and(|policing| policing.has_customers_tag(burst, frame));
            let packet = if is_flooded && !is_customers { message.read(burst, frame) } else { Packet::Other };
            if packet == Packet::Other {
                scopes.push(Scope::All);
                continue;
            }
            let vlan = match policing {
                Some(policing) => policing.vlan(frame),
                None => vlan(burst.head(frame)).unwrap_or(0),
            };
            let is_query = matches!(packet, Packet::Query(_));
            let is_message = is_query || matches!(packet, Packet::Report { .. });
            // Attack: queries from an isolated port, which other isolated ports do not get and so do not answer.
            let is_ignored = is_traced || is_query && is_isolated(port);
            let scope = match &last {
                Some((key, scope)) if *key == (vlan, packet) && !is_message => Scope::clone(scope),
                _ if is_message && !is_ignored => {
                    view = None;
                    snooping.learn((&packet, &message.records), (vlan, from), now, ports)
                }
                _ => view.get_or_insert_with(|| snooping.view()).scope(&packet, vlan, now, ports),
            };
            last = (!is_message).then(|| ((vlan, packet), scope.clone()));
            scopes.push(scope);
        }
    }

    /// Whether all ports get every frame.
    fn are_all(&self) -> bool {
        self.scopes.iter().all(|scope| *scope == Scope::All)
    }

    /// Whether a port gets a frame.
    pub(super) fn has(&self, frame: u16, port: PortId) -> bool {
        self.scopes.get(usize::from(frame)).is_none_or(|scope| scope.has(&self.ports, port))
    }

    /// The frames that a port gets.
    pub(super) fn within(&self, frames: &Frames, port: PortId) -> Frames {
        frames.iter().copied().filter(|frame| self.has(*frame, port)).collect()
    }
}

impl Message {
    /// What a flooded frame is. A frame with two tags is a customer's, whose groups are not the switch's.
    fn read(&mut self, burst: &Burst<'_>, frame: usize) -> Packet {
        let (head, len) = (burst.head(frame), burst.meta(frame).len as usize);
        let Some(ip) = ip_offset(head).filter(|_| is_ip_group(head) && len > TAGGED as usize) else {
            return Packet::Other;
        };
        let ethertype = EtherType::new(u16::from_be_bytes([head[ip - 2], head[ip - 1]]));
        if let Some(packet) = Packet::of_head(ethertype, head.get(ip..len.min(HEAD)).unwrap_or_default()) {
            return packet;
        }
        self.bytes.resize(LONGEST.min(len), 0);
        let count = burst.read(frame, 0, &mut self.bytes);
        let [a, b, c, d, e, f, ..] = *head;
        let bytes = self.bytes.get(ip..count).unwrap_or_default();
        Packet::parse(ethertype, [a, b, c, d, e, f], bytes, &mut self.records)
    }
}

/// What a switch does with a packet to a group, in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastTrace {
    /// The group, unless it is a message.
    pub group: Option<IpAddr>,
    /// The ports that get it, besides those that policy refuses; none if all do.
    pub ports: Option<Vec<PortId>>,
}

impl Scopes {
    /// As `find`, of one frame that is traced; returns what is said of it, unless it is no packet to a group.
    pub(super) fn preview(
        &mut self,
        switch: &Switch,
        port: (&Port, PortId),
        (burst, policing): (&Burst<'_>, Option<&Policing>),
        at: (u64, &Verdicts),
    ) -> Option<MulticastTrace> {
        let snooping = switch.snooping.as_ref()?;
        self.find(snooping, port, (burst, policing), at, true);
        let group = match self.message.read(burst, 0) {
            Packet::Other => return None,
            Packet::Data(group) => Some(group),
            Packet::Query(_) | Packet::Report { .. } => None,
        };
        let ports = match self.scopes.first()? {
            Scope::All => None,
            Scope::Ports(range) => Some(self.ports.get(range.clone()).unwrap_or_default().to_vec()),
        };
        (at.1.first() == Some(&FLOOD)).then_some(MulticastTrace { group, ports })
    }
}

/// Whether a frame is for an IP group's MAC address (RFC 1112, 6.4; RFC 2464, 7).
fn is_ip_group(head: &[u8; HEAD]) -> bool {
    matches!(head, [1, 0, 0x5e, 0..0x80, ..] | [0x33, 0x33, ..])
}

/// Where the IP header is behind at most one tag.
fn ip_offset(head: &[u8; HEAD]) -> Option<usize> {
    let first = vlan(head).map_or(ETHERNET, |_| TAGGED) as usize;
    let ethertype = EtherType::new(u16::from_be_bytes([head[first - 2], head[first - 1]]));
    (!ethertype.is_tag()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::super::Served;
    use super::super::policing::tests::{access, customer, dropped, got, trunk};
    use super::super::tests::{Bench, frame};
    use proptest::prelude::*;
    use ringway_frame::Reason;
    use ringway_spec::Policy;
    use ringway_wire::Sum;

    /// A frame to a group, from a port's station.
    fn to_group(from: u8, group: [u8; 4], protocol: u8, message: &[u8]) -> &'static [u8] {
        let mut message = message.to_vec();
        let mut sum = Sum::new();
        sum.add(&message);
        let checksum = sum.finish().to_be_bytes();
        message[2..4].copy_from_slice(&checksum);
        let [high, low] = (20 + message.len() as u16).to_be_bytes();
        let mut ip = vec![0x45, 0, high, low, 0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, from];
        ip.extend(group);
        let mut sum = Sum::new();
        sum.add(&ip);
        let checksum = sum.finish().to_be_bytes();
        ip[10..12].copy_from_slice(&checksum);
        let mac = [1, 0, 0x5e, group[1] & 0x7f, group[2], group[3]];
        let mut bytes = [&mac[..], &[2, 0, 0, 0, 0, from, 8, 0], &ip, &message].concat();
        bytes.resize(bytes.len().max(60), 0);
        bytes.leak()
    }

    const GROUP: [u8; 4] = [239, 1, 1, 1];
    /// The maximum response time of queries.
    const RESPONSE: u64 = 10_000_000_000;

    fn query(from: u8) -> &'static [u8] {
        to_group(from, [224, 0, 0, 1], 2, &[0x11, 100, 0, 0, 0, 0, 0, 0])
    }

    fn report(from: u8, group: [u8; 4]) -> &'static [u8] {
        let [a, b, c, d] = group;
        to_group(from, [224, 0, 0, 22], 2, &[0x22, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, a, b, c, d])
    }

    fn data(from: u8, group: [u8; 4]) -> &'static [u8] {
        to_group(from, group, 17, &[0; 30])
    }

    fn tagged(bytes: &[u8], kind: [u8; 2], vlan: u8) -> &'static [u8] {
        let mut bytes = bytes.to_vec();
        bytes.splice(12..12, [kind[0], kind[1], 0, vlan]);
        bytes.leak()
    }

    /// The ports that get a frame.
    fn reached(bench: &mut Bench, port: usize, bytes: &'static [u8]) -> Vec<usize> {
        got(bench, port, bytes).into_iter().map(|(port, _)| port).collect()
    }

    #[test]
    fn a_group_goes_to_members_and_routers() {
        let mut bench = Bench::new(5);
        bench.snoop();
        assert_eq!(reached(&mut bench, 0, report(0, GROUP)), [1, 2, 3, 4], "no router has asked");
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [0, 2, 3, 4]);
        assert_eq!(reached(&mut bench, 3, query(3)), [0, 1, 2, 4]);
        assert_eq!(reached(&mut bench, 0, report(0, GROUP)), [3]);
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [0, 2, 3, 4], "hosts may answer still");
        bench.now += RESPONSE;
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [0, 3]);
        assert_eq!(reached(&mut bench, 0, data(0, GROUP)), [3], "not back to the member");
        assert_eq!(reached(&mut bench, 1, data(1, [239, 9, 9, 9])), [3]);
        assert_eq!(reached(&mut bench, 1, data(1, [224, 0, 0, 251])), [0, 2, 3, 4]);
        assert_eq!(reached(&mut bench, 1, frame(0xff, 1, 60)), [0, 2, 3, 4]);
        let before = bench.all_counters();
        assert_eq!(reached(&mut bench, 3, data(3, [239, 9, 9, 9])), [0usize; 0]);
        assert_eq!(bench.drops_since(&before), [(3, Reason::NoPort)]);
        // Without snooping all get it.
        let mut plain = Bench::new(3);
        reached(&mut plain, 2, query(2));
        assert_eq!(reached(&mut plain, 1, data(1, GROUP)), [0, 2]);
    }

    #[test]
    fn groups_are_of_a_vlan_and_customers_have_their_own() {
        let mut bench = Bench::new(5);
        bench.snoop();
        bench.set_policies(&[access(10), access(10), trunk(&[10, 20], None), access(20), access(10)]);
        let q = [0x81, 0];
        reached(&mut bench, 2, tagged(query(2), q, 10));
        reached(&mut bench, 0, report(0, GROUP));
        bench.now += RESPONSE;
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [0, 2]);
        assert_eq!(reached(&mut bench, 2, tagged(data(9, GROUP), q, 10)), [0]);
        assert_eq!(reached(&mut bench, 2, tagged(data(9, GROUP), q, 20)), [3], "no router in this VLAN");
        let mut bench = Bench::new(3);
        bench.snoop();
        bench.set_policies(&[customer(10), customer(10), customer(10)]);
        reached(&mut bench, 2, query(2));
        reached(&mut bench, 0, tagged(report(0, GROUP), q, 7));
        bench.now += RESPONSE;
        assert_eq!(reached(&mut bench, 1, tagged(data(1, GROUP), q, 7)), [0, 2]);
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [2]);
    }

    /// Attack: a guest that claims to be a router gets what is for others, and wins the election of the querier.
    #[test]
    fn a_guarded_port_is_no_router() {
        let mut bench = Bench::new(4);
        bench.snoop();
        let free = Policy::default;
        let guarded = Policy { allow: vec!["10.0.0.2/32".parse().unwrap()], ..free() };
        bench.set_policies(&[free(), free(), guarded, free()]);
        assert_eq!(dropped(&mut bench, 2, query(2)), [Reason::Rogue]);
        bench.now += RESPONSE;
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [0, 2, 3], "nobody has asked");
        reached(&mut bench, 2, report(2, GROUP));
        reached(&mut bench, 3, query(3));
        bench.now += RESPONSE;
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [2, 3], "it may be a member");
    }

    /// Attack: queries that other isolated ports do not get, so that they do not answer.
    #[test]
    fn queries_of_isolated_ports_teach_nothing() {
        let mut bench = Bench::new(4);
        bench.snoop();
        let isolated = || Policy { isolated: true, ..Policy::default() };
        bench.set_policies(&[Policy::default(), isolated(), isolated(), Policy::default()]);
        assert_eq!(reached(&mut bench, 1, query(1)), [0, 3]);
        bench.now += RESPONSE;
        assert_eq!(reached(&mut bench, 0, data(0, GROUP)), [1, 2, 3]);
    }

    #[test]
    fn groups_at_the_end_of_a_long_report_are_learned() {
        let mut bench = Bench::new(3);
        bench.snoop();
        reached(&mut bench, 2, query(2));
        let mut message = vec![0x22, 0, 0, 0, 0, 0, 1, 1];
        // 257 would be more than a port may have, so the others are one group.
        (0..256).for_each(|_| message.extend([4, 0, 0, 0, 239, 9, 9, 9]));
        message.extend([4, 0, 0, 0, 239, 1, 1, 1]);
        assert_eq!(reached(&mut bench, 0, to_group(0, [224, 0, 0, 22], 2, &message)), [2]);
        bench.now += RESPONSE;
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [0, 2]);
    }

    proptest! {
        #[test]
        fn a_trace_is_what_happens_and_members_get_their_groups(
            steps in prop::collection::vec((0u8..4, 0u8..5, 0u8..3, 0u64..100), 1..40),
            policed: bool,
        ) {
            let mut bench = Bench::new(4);
            bench.snoop();
            if policed {
                bench.set_policies(&[access(10), access(10), access(10), access(10)]);
            }
            let mut members = [[0u64; 4]; 3];
            for (port, what, group, time) in steps {
                bench.now += time * 1_000_000_000;
                let address = [239, 1, 1, group];
                let bytes = match what {
                    0 => query(port),
                    1 => report(port, address),
                    2 => data(port, [224, 0, 0, 5]),
                    _ => data(port, address),
                };
                let traced = bench.trace(port.into(), bytes);
                prop_assert_eq!(&bench.trace(port.into(), bytes), &traced);
                let mut expected: Vec<usize> = traced.copies.iter().map(|copy| copy.port.into()).collect();
                expected.sort_unstable();
                bench.send(port.into(), &[bytes]);
                prop_assert_eq!(bench.serve(port.into()), Served::Moved(1));
                let got: Vec<usize> = (0..4).filter(|port| !bench.got(*port).is_empty()).collect();
                prop_assert_eq!(&got, &expected, "{:?}", traced);
                if what == 1 {
                    members[usize::from(group)][usize::from(port)] = bench.now + 260_000_000_000;
                }
                if what > 2 {
                    let members = members[usize::from(group)].iter().enumerate();
                    for (member, _) in members.filter(|(_, until)| **until > bench.now) {
                        let is_sender = member == usize::from(port);
                        prop_assert!(is_sender || got.contains(&member), "{member} {got:?}");
                    }
                }
            }
        }
    }
}
