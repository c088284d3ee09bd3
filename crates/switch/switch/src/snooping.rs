//! Multicast snooping (RFC 4541): which ports have members of a group, and behind which there are routers, from what
//! IGMP and MLD messages say.
//!
//! Groups are forwarded by their IP address, in each VLAN for itself. Before a router has asked for members nothing is
//! known of them, and all groups are flooded; so a switch that has just started, or has no router, loses no packet.

mod message;

pub use message::{Packet, is_local};

use crate::PortId;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

const SECOND: u64 = 1_000_000_000;
/// How long a member is one after its report (RFC 3376, 8.4: twice the interval of queries, and the time to answer).
const MEMBER: u64 = 260 * SECOND;
/// How long a router is one after its query (RFC 3376, 8.5).
const ROUTER: u64 = 255 * SECOND;
/// How many answers to a router's question for one group may be lost (RFC 3376, 8.9).
const LOST: u64 = 2;

/// Most memberships of a port. Attack: a guest that joins every group, so that others find no room.
pub const PORT_MEMBERSHIPS: usize = 256;
/// Most memberships of a switch. A group that finds no room is flooded, as all unknown ones are meanwhile.
pub const MEMBERSHIPS: usize = 16_384;
/// Most ports with routers, each VLAN for itself. Attack: a guest that sends queries in 4094 VLANs.
pub const ROUTERS: usize = 512;

/// A group in a VLAN.
pub type Group = (u16, IpAddr);

/// Ports, and until when they are meant.
type Ports = Vec<(PortId, u64)>;

#[derive(Debug, Default)]
struct State {
    groups: HashMap<Group, Ports>,
    /// Number of memberships of each port.
    counts: BTreeMap<PortId, usize>,
    total: usize,
    /// Ports with routers, by VLAN.
    routers: HashMap<u16, Ports>,
    router_count: usize,
    /// Until when a querier is known, by VLAN and whether it is one of IPv6.
    queriers: HashMap<(u16, bool), u64>,
    /// Until when a group may be one that found no room.
    overflown: u64,
    /// When what has expired may be looked for again.
    next_sweep: u64,
}

/// What is known of groups.
#[derive(Debug)]
pub struct Snooping {
    state: RwLock<State>,
    /// Whether a port has one host, so that no other one is a member if that leaves.
    fast_leave: bool,
}

/// The ports that get a packet to a group, besides the routers'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every port.
    All,
    /// These, in order.
    Ports(Arc<[PortId]>),
}

impl Scope {
    /// Whether a port gets it.
    pub fn has(&self, port: PortId) -> bool {
        match self {
            Scope::All => true,
            Scope::Ports(ports) => ports.binary_search(&port).is_ok(),
        }
    }
}

/// A question.
struct Query {
    response: u64,
    is_router: bool,
    is_v6: bool,
}

/// A group, a port, and for how many more seconds it is a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Membership {
    /// The VLAN; 0: none.
    pub vlan: u16,
    /// The group; none of a router's port, which gets all groups.
    pub group: Option<IpAddr>,
    /// The port.
    pub port: PortId,
    /// Seconds.
    pub left: u64,
}

impl Snooping {
    /// Nothing is known yet.
    pub fn new(fast_leave: bool) -> Snooping {
        Snooping { state: RwLock::default(), fast_leave }
    }

    /// The ports that get a packet which arrived at a port. What it says is learned if `is_learned`.
    pub fn scope(&self, packet: &Packet, (vlan, port): (u16, PortId), now: u64, is_learned: bool) -> Scope {
        match packet {
            Packet::Other => return Scope::All,
            Packet::Data(group) => return self.read(|state| state.members((vlan, *group), now)),
            Packet::Query { .. } | Packet::Report(_) if !is_learned => {}
            Packet::Query { group, response, is_router, is_v6 } => {
                let query = Query { response: *response, is_router: *is_router, is_v6: *is_v6 };
                self.write(|state| state.ask((vlan, port), *group, query, now));
            }
            Packet::Report(groups) => self.write(|state| {
                for (group, joins) in groups.iter().filter(|(group, _)| !is_local(*group)) {
                    match joins {
                        true => state.join((vlan, *group), port, now),
                        false if self.fast_leave => state.leave((vlan, *group), port),
                        // The router asks whether there are others.
                        false => {}
                    }
                }
            }),
        }
        match packet {
            // Hosts that hear another one's report would not send theirs (RFC 4541, 2.1.1).
            Packet::Report(groups) => {
                let is_v6 = groups.first().is_some_and(|(group, _)| group.is_ipv6());
                self.read(|state| state.routers_only(vlan, is_v6, now))
            }
            _ => Scope::All,
        }
    }

    /// Removes what is known of a port, whose peer is gone.
    pub fn forget_port(&self, port: PortId) {
        self.write(|state| {
            let groups: Vec<Group> = state.groups.keys().copied().collect();
            groups.into_iter().for_each(|group| state.leave(group, port));
            for ports in state.routers.values_mut() {
                ports.retain(|(own, _)| *own != port);
            }
            state.router_count = state.routers.values().map(Vec::len).sum();
        });
    }

    /// Members and routers, in order.
    pub fn memberships(&self, now: u64) -> Vec<Membership> {
        let row = |vlan, group, &(port, until): &(PortId, u64)| {
            (until > now).then(|| Membership { vlan, group, port, left: (until - now) / SECOND })
        };
        let mut all: Vec<Membership> = self.read(|state| {
            let members = state.groups.iter().flat_map(|(&(vlan, group), ports)| {
                ports.iter().filter_map(move |member| row(vlan, Some(group), member))
            });
            let routers = state.routers.iter();
            let routers =
                routers.flat_map(|(&vlan, ports)| ports.iter().filter_map(move |port| row(vlan, None, port)));
            members.chain(routers).collect()
        });
        all.sort();
        all
    }

    fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl State {
    fn has_querier(&self, vlan: u16, is_v6: bool, now: u64) -> bool {
        self.queriers.get(&(vlan, is_v6)).is_some_and(|until| *until > now)
    }

    fn routers_only(&self, vlan: u16, is_v6: bool, now: u64) -> Scope {
        match self.has_querier(vlan, is_v6, now) {
            true => Scope::Ports(present(self.routers.get(&vlan).into_iter().flatten(), now)),
            false => Scope::All,
        }
    }

    fn members(&self, (vlan, group): Group, now: u64) -> Scope {
        if !self.has_querier(vlan, group.is_ipv6(), now) {
            return Scope::All;
        }
        let members = self.groups.get(&(vlan, group));
        if members.is_none() && self.overflown > now {
            return Scope::All;
        }
        let routers = self.routers.get(&vlan);
        Scope::Ports(present(members.into_iter().chain(routers).flatten(), now))
    }

    /// A question which groups have members.
    fn ask(
        &mut self,
        (vlan, port): (u16, PortId),
        group: Option<IpAddr>,
        Query { response, is_router, is_v6 }: Query,
        now: u64,
    ) {
        if let Some(group) = group {
            // Who does not answer in time is no member any more.
            let end = now + (response * LOST).max(SECOND);
            let ports = self.groups.get_mut(&(vlan, group)).into_iter().flatten();
            ports.for_each(|(_, until)| *until = end.min(*until));
        }
        if self.router_count >= ROUTERS || self.queriers.len() >= 2 * ROUTERS {
            self.forget_routers(now);
        }
        if group.is_none() && self.queriers.len() < 2 * ROUTERS {
            self.queriers.insert((vlan, is_v6), now + ROUTER);
        }
        // RFC 4541, 2.1.1: a query without an address may be a switch's.
        if !is_router {
            return;
        }
        let ports = self.routers.entry(vlan).or_default();
        match ports.iter_mut().find(|(own, _)| *own == port) {
            Some((_, until)) => *until = now + ROUTER,
            None if self.router_count >= ROUTERS => {}
            None => {
                ports.push((port, now + ROUTER));
                self.router_count += 1;
            }
        }
    }

    fn forget_routers(&mut self, now: u64) {
        self.routers.retain(|_, ports| {
            ports.retain(|(_, until)| *until > now);
            !ports.is_empty()
        });
        self.queriers.retain(|_, until| *until > now);
        self.router_count = self.routers.values().map(Vec::len).sum();
    }

    fn join(&mut self, group: Group, port: PortId, now: u64) {
        if let Some((_, until)) =
            self.groups.get_mut(&group).and_then(|ports| ports.iter_mut().find(|(own, _)| *own == port))
        {
            *until = now + MEMBER;
            return;
        }
        let own = |state: &State| state.counts.get(&port).copied().unwrap_or(0);
        // Attack: a guest with as many memberships as it may have, for each of whose reports the table is searched.
        if (self.total >= MEMBERSHIPS || own(self) >= PORT_MEMBERSHIPS) && now >= self.next_sweep {
            self.next_sweep = now + SECOND;
            self.expire(now);
        }
        if own(self) >= PORT_MEMBERSHIPS {
            return;
        }
        if self.total >= MEMBERSHIPS {
            self.overflown = now + MEMBER;
            return;
        }
        self.groups.entry(group).or_default().push((port, now + MEMBER));
        *self.counts.entry(port).or_default() += 1;
        self.total += 1;
    }

    fn leave(&mut self, group: Group, port: PortId) {
        let Some(ports) = self.groups.get_mut(&group) else { return };
        let before = ports.len();
        ports.retain(|(own, _)| *own != port);
        if ports.len() < before {
            self.total -= 1;
            self.counts.entry(port).and_modify(|count| *count -= 1);
        }
        if ports.is_empty() {
            self.groups.remove(&group);
        }
    }

    fn expire(&mut self, now: u64) {
        self.groups.retain(|_, ports| {
            ports.retain(|(_, until)| *until > now);
            !ports.is_empty()
        });
        self.counts.clear();
        for (port, _) in self.groups.values().flatten() {
            *self.counts.entry(*port).or_default() += 1;
        }
        self.total = self.counts.values().sum();
    }
}

/// The ports that are meant still, each once and in order.
fn present<'p>(ports: impl Iterator<Item = &'p (PortId, u64)>, now: u64) -> Arc<[PortId]> {
    let mut present: Vec<PortId> = ports.filter(|(_, until)| *until > now).map(|(port, _)| *port).collect();
    present.sort_unstable();
    present.dedup();
    present.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 1, 1));

    fn query(group: Option<IpAddr>) -> Packet {
        Packet::Query { group, response: 10 * SECOND, is_router: true, is_v6: false }
    }

    fn report(group: IpAddr, joins: bool) -> Packet {
        Packet::Report(vec![(group, joins)])
    }

    fn ports(list: &[PortId]) -> Scope {
        Scope::Ports(list.into())
    }

    #[test]
    fn groups_go_to_members_and_routers_once_a_router_has_asked() {
        let snooping = Snooping::new(false);
        let data = Packet::Data(GROUP);
        let scope = |packet: &Packet, port, now| snooping.scope(packet, (10, port), now, true);
        assert_eq!(scope(&report(GROUP, true), 1, 0), Scope::All);
        assert_eq!(scope(&data, 5, 0), Scope::All, "no router asks");
        assert_eq!(scope(&query(None), 9, SECOND), Scope::All);
        assert_eq!(scope(&data, 5, SECOND), ports(&[1, 9]));
        assert_eq!(scope(&report(GROUP, true), 2, SECOND), ports(&[9]), "reports are for routers");
        assert_eq!(scope(&data, 5, 2 * SECOND), ports(&[1, 2, 9]));
        let unknown = Packet::Data(Ipv4Addr::new(239, 1, 1, 2).into());
        assert_eq!(scope(&unknown, 5, SECOND), ports(&[9]));
        let other = snooping.scope(&data, (20, 5), SECOND, true);
        assert_eq!(other, Scope::All, "another VLAN");
        let six = Packet::Data(Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1).into());
        assert_eq!(scope(&six, 5, SECOND), Scope::All, "no router of IPv6");
        // A traced report teaches nothing.
        snooping.scope(&report(GROUP, true), (10, 4), SECOND, false);
        assert_eq!(scope(&data, 5, 2 * SECOND), ports(&[1, 2, 9]));
        // Members go after their time, and at last the router does.
        assert_eq!(scope(&query(None), 9, 200 * SECOND), Scope::All);
        assert_eq!(scope(&data, 5, MEMBER), ports(&[2, 9]));
        assert_eq!(scope(&data, 5, MEMBER + SECOND), ports(&[9]));
        assert_eq!(scope(&data, 5, 200 * SECOND + ROUTER), Scope::All);
        assert!(snooping.memberships(200 * SECOND + ROUTER).is_empty());
    }

    #[test]
    fn a_port_leaves_when_nobody_answers_or_at_once() {
        for is_fast in [false, true] {
            let snooping = Snooping::new(is_fast);
            let scope = |packet: &Packet, port, now| snooping.scope(packet, (0, port), now, true);
            scope(&query(None), 9, 0);
            (1..=2).for_each(|port| drop(scope(&report(GROUP, true), port, 0)));
            assert_eq!(scope(&report(GROUP, false), 1, 0), ports(&[9]));
            let left: &[PortId] = if is_fast { &[2, 9] } else { &[1, 2, 9] };
            assert_eq!(scope(&Packet::Data(GROUP), 5, 0), ports(left));
            let asked = Packet::Query { group: Some(GROUP), response: SECOND, is_router: true, is_v6: false };
            scope(&asked, 9, 0);
            scope(&report(GROUP, true), 2, SECOND);
            assert_eq!(scope(&Packet::Data(GROUP), 5, 2 * SECOND), ports(&[2, 9]));
            snooping.forget_port(2);
            snooping.forget_port(9);
            assert_eq!(scope(&Packet::Data(GROUP), 5, 2 * SECOND), ports(&[]));
        }
    }

    /// Attack: a guest that joins every group, or claims to be a router in every VLAN.
    #[test]
    fn nobody_fills_the_table_for_others() {
        let snooping = Snooping::new(false);
        snooping.scope(&query(None), (0, 9), 0, true);
        let group = |number: u32| IpAddr::from(Ipv4Addr::from(0xef00_0000 + number));
        for number in 0..10_000 {
            snooping.scope(&report(group(number), true), (0, 1), 0, true);
        }
        let of = |port: PortId| {
            snooping.memberships(0).iter().filter(|row| row.port == port && row.group.is_some()).count()
        };
        assert_eq!(of(1), PORT_MEMBERSHIPS);
        snooping.scope(&report(GROUP, true), (0, 2), 0, true);
        assert_eq!((of(2), snooping.scope(&Packet::Data(GROUP), (0, 5), 0, true)), (1, ports(&[2, 9])));
        for vlan in 1..4095 {
            snooping.scope(&query(None), (vlan, 1), 0, true);
        }
        assert!(snooping.memberships(0).iter().filter(|row| row.group.is_none()).count() <= ROUTERS);
        // Many ports together: what finds no room is flooded.
        for port in 10..200 {
            for number in 0..PORT_MEMBERSHIPS as u32 {
                snooping.scope(&report(group(number + 1_000 * u32::from(port)), true), (0, port), 0, true);
            }
        }
        let all = snooping.memberships(0);
        assert_eq!(all.iter().filter(|row| row.group.is_some()).count(), MEMBERSHIPS);
        assert_eq!(snooping.scope(&Packet::Data(group(199_001)), (0, 5), 0, true), Scope::All);
        // After their time others find room.
        let later = MEMBER + SECOND;
        snooping.scope(&query(None), (0, 9), later, true);
        snooping.scope(&report(GROUP, true), (0, 3), later, true);
        assert_eq!(snooping.memberships(later).iter().filter(|row| row.group.is_some()).count(), 1);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_memberships(
            steps in prop::collection::vec((0u16..4, 0u32..20, 0u8..4, 0u64..100), 0..200),
        ) {
            let snooping = Snooping::new(true);
            let mut now = 0;
            for (port, group, what, time) in steps {
                now += time * SECOND;
                let group = IpAddr::from(Ipv4Addr::from(0xef00_0000 + group));
                match what {
                    0 => snooping.forget_port(port),
                    1 => drop(snooping.scope(&query(Some(group)), (0, port), now, true)),
                    _ => drop(snooping.scope(&report(group, what == 2), (0, port), now, true)),
                }
                let state = snooping.state.read().unwrap();
                let all: usize = state.groups.values().map(Vec::len).sum();
                prop_assert_eq!(state.total, all);
                prop_assert_eq!(state.counts.values().sum::<usize>(), all);
                prop_assert_eq!(state.router_count, state.routers.values().map(Vec::len).sum::<usize>());
            }
        }
    }
}
