//! Which ports get the packets to groups of a burst, on a switch that snoops.

use super::ETHERNET;
use super::policing::{Frames, Policing, guards_senders};
use super::tags::TAGGED;
use crate::topology::{Port, Switch};
use arrayvec::ArrayVec;
use ringway_frame::{BURST, Burst, HEAD};
use ringway_switch::snooping::{Packet, Scope, Snooping};
use ringway_switch::{FLOOD, PortId, Verdicts, vlan};
use ringway_wire::EtherType;
use std::net::IpAddr;

/// Bytes of a message that are read: those of a report with as many groups as fit in a frame.
const LONGEST: usize = 1_600;

/// The ports that get flooded frames, of one burst.
#[derive(Default)]
pub(super) struct Scopes {
    scopes: ArrayVec<Scope, BURST>,
    bytes: Vec<u8>,
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
        self.scopes.clear();
        for frame in 0..burst.len().min(BURST) {
            let is_flooded = verdicts.get(frame) == Some(&FLOOD);
            let is_customers = policing.is_some_and(|policing| policing.has_customers_tag(burst, frame));
            let packet = if is_flooded && !is_customers { self.packet(burst, frame) } else { Packet::Other };
            let vlan = match policing {
                Some(policing) => policing.vlan(frame),
                None => vlan(burst.head(frame)).unwrap_or(0),
            };
            // Attack: a guest that claims to be a router, to get what others send.
            let is_claim = matches!(packet, Packet::Query { .. }) && guards_senders(port);
            let scope = match packet {
                Packet::Other => Scope::All,
                packet => snooping.scope(&packet, (vlan, from), now, !is_traced && !is_claim),
            };
            self.scopes.push(scope);
        }
    }

    /// What a flooded frame is. A frame with two tags is a customer's, whose groups are not the switch's.
    fn packet(&mut self, burst: &Burst<'_>, frame: usize) -> Packet {
        let (head, len) = (burst.head(frame), burst.meta(frame).len);
        let Some(ip) = ip_offset(head).filter(|_| is_ip_group(head) && len > TAGGED) else {
            return Packet::Other;
        };
        self.bytes.resize(LONGEST.min(len as usize), 0);
        let count = burst.read(frame, 0, &mut self.bytes);
        let ethertype = EtherType::new(u16::from_be_bytes([head[ip - 2], head[ip - 1]]));
        Packet::parse(ethertype, self.bytes.get(ip..count).unwrap_or_default())
    }

    /// Whether all ports get every frame.
    fn are_all(&self) -> bool {
        self.scopes.iter().all(|scope| *scope == Scope::All)
    }

    /// Whether a port gets a frame.
    pub(super) fn has(&self, frame: u16, port: PortId) -> bool {
        self.scopes.get(usize::from(frame)).is_none_or(|scope| scope.has(port))
    }

    /// The frames that a port gets.
    pub(super) fn within(&self, frames: &Frames, port: PortId) -> Frames {
        frames.iter().copied().filter(|frame| self.has(*frame, port)).collect()
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
        let group = match self.packet(burst, 0) {
            Packet::Other => return None,
            Packet::Data(group) => Some(group),
            Packet::Query { .. } | Packet::Report(_) => None,
        };
        let ports = match self.scopes.first()? {
            Scope::All => None,
            Scope::Ports(ports) => Some(ports.to_vec()),
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
    use super::super::policing::tests::{access, customer, got, trunk};
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
        let len = 20 + message.len() as u8;
        let mut ip = vec![0x45, 0, 0, len, 0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, from];
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
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [0, 2]);
        assert_eq!(reached(&mut bench, 2, tagged(data(9, GROUP), q, 10)), [0]);
        assert_eq!(reached(&mut bench, 2, tagged(data(9, GROUP), q, 20)), [3], "no router in this VLAN");
        let mut bench = Bench::new(3);
        bench.snoop();
        bench.set_policies(&[customer(10), customer(10), customer(10)]);
        reached(&mut bench, 2, query(2));
        reached(&mut bench, 0, tagged(report(0, GROUP), q, 7));
        assert_eq!(reached(&mut bench, 1, tagged(data(1, GROUP), q, 7)), [0, 2]);
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [2]);
    }

    /// Attack: a guest that says that it is a router gets what is for others.
    #[test]
    fn a_guarded_port_is_no_router() {
        let mut bench = Bench::new(4);
        bench.snoop();
        let free = Policy::default;
        let guarded = Policy { allow: vec!["10.0.0.2/32".parse().unwrap()], ..free() };
        bench.set_policies(&[free(), free(), guarded, free()]);
        assert_eq!(reached(&mut bench, 2, query(2)), [0, 1, 3]);
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [0, 2, 3], "nobody has asked");
        reached(&mut bench, 2, report(2, GROUP));
        reached(&mut bench, 3, query(3));
        assert_eq!(reached(&mut bench, 1, data(1, GROUP)), [2, 3], "it may be a member");
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
