//! What is known of groups, queriers and routers.

use super::message::Query;
use super::{Group, Membership, SECOND, Scope};
use crate::PortId;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The group membership interval: how long a member is one after its report (RFC 3376, 8.4), with the default values of
/// the protocol. A querier with a longer query interval has a longer one.
pub(super) const MEMBERSHIP_INTERVAL: u64 = 260 * SECOND;
/// The other querier present interval: how long a router is one after its query (RFC 3376, 8.5), as above.
pub(super) const QUERIER_INTERVAL: u64 = 255 * SECOND;
/// The longest of such intervals. Attack: a query after which, as it says, no other one comes for two days: who joins
/// meanwhile without a report would get nothing. VLANs with such a querier are flooded.
pub(super) const LONGEST_INTERVAL: u64 = 7_200 * SECOND;
/// The least last member query count: how many answers to queries for one group may be lost (RFC 3376, 8.9).
pub(super) const LAST_MEMBER_QUERY_COUNT: u64 = 2;
/// How often memberships of another port that have expired are removed while the table is full. Attack: reports for
/// which no room is found, each of which would search the table.
const SWEEP: u64 = SECOND / 1000;

/// Most memberships of a port. Attack: a guest that joins every group, so that others find no room.
pub const PORT_MEMBERSHIPS: usize = 256;
/// Most memberships of a switch.
pub const MEMBERSHIPS: usize = 16_384;
/// Most VLANs in which a port is a router's. Attack: a guest that sends queries in 4094 VLANs, so that the routers of
/// others find no room.
pub const PORT_ROUTERS: usize = 64;
/// Most ports with routers, each VLAN for itself.
pub const ROUTERS: usize = 512;

/// The port was attached, or attached again, since the last general query.
const SINCE_LAST_QUERY: u64 = u64::MAX;

/// Ports, and when they expire; in order.
type Ports = Vec<(PortId, u64)>;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) groups: HashMap<Group, Ports>,
    pub(super) ports: BTreeMap<PortId, Port>,
    /// Number of memberships.
    pub(super) total: usize,
    /// Ports with routers, by VLAN.
    pub(super) routers: HashMap<u16, Ports>,
    pub(super) router_count: usize,
    /// By VLAN and whether it is one of IPv6.
    queriers: HashMap<(u16, bool), Querier>,
    /// Ports that may get all groups.
    pub(super) unfiltered: BTreeSet<PortId>,
    /// Those of them that were attached since the last general query.
    attached: Vec<PortId>,
    /// The port whose memberships were looked at last for those that have expired, and when others may be.
    swept: PortId,
    next_sweep: u64,
    next_router_sweep: u64,
    next_unfiltered_sweep: u64,
}

/// What is known of a port.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) groups: HashSet<Group>,
    /// VLANs in which it is a router's.
    pub(super) routers: BTreeSet<u16>,
    /// Until when it may be a member of a group that found no room, so that it gets all groups.
    refused: u64,
    /// When it was attached: it gets all groups until it has answered a general query after that.
    attached: u64,
    /// When its memberships that have expired may be looked for again.
    next_sweep: u64,
}

/// The querier of a VLAN.
#[derive(Debug)]
struct Querier {
    /// Where its queries came from, unless that was detached.
    port: Option<PortId>,
    /// When it expires.
    until: u64,
    /// The time of a general query, and until when hosts answer it.
    asked: u64,
    answered: u64,
    /// The time of the one before that, if there was one.
    before: Option<u64>,
    /// Until when there may be a router that found no room.
    refused: u64,
    membership_interval: u64,
}

impl Querier {
    /// The time of the last general query that all hosts have answered.
    fn complete(&self, now: u64) -> Option<u64> {
        if now >= self.answered { Some(self.asked) } else { self.before }
    }
}

/// The group membership interval and the other querier present interval of a querier, unless they are too long.
fn intervals(query: &Query) -> Option<(u64, u64)> {
    let queries = query.robustness.saturating_mul(query.interval);
    let membership = queries.saturating_add(query.response).max(MEMBERSHIP_INTERVAL);
    let querier = queries.saturating_add(query.response / 2).max(QUERIER_INTERVAL);
    (membership <= LONGEST_INTERVAL).then_some((membership, querier))
}

fn find(ports: &Ports, port: PortId) -> Result<usize, usize> {
    ports.binary_search_by_key(&port, |(port, _)| *port)
}

impl State {
    fn querier(&self, vlan: u16, is_v6: bool, now: u64) -> Option<&Querier> {
        self.queriers.get(&(vlan, is_v6)).filter(|querier| querier.until > now)
    }

    /// The ports that get a report. Hosts that hear another one's would not send theirs (RFC 4541, 2.1.1).
    pub(super) fn of_report(&self, vlan: u16, is_v6: bool, now: u64, ports: &mut Vec<PortId>) -> Scope {
        let Some(querier) = self.querier(vlan, is_v6, now).filter(|querier| querier.refused <= now) else {
            return Scope::All;
        };
        let start = ports.len();
        ports.extend(present(self.routers.get(&vlan), now).chain(querier.port));
        if ports.len() == start { Scope::All } else { Scope::sorted(ports, start) }
    }

    /// The ports that get a packet to a group, if a general query since `since` was answered.
    pub(super) fn of_data(&self, group: Group, (since, now): (u64, u64), ports: &mut Vec<PortId>) -> Scope {
        let querier = self.querier(group.0, group.1.is_ipv6(), now);
        let querier = querier.filter(|querier| querier.refused <= now);
        let complete = querier.and_then(|querier| querier.complete(now)).filter(|asked| *asked >= since);
        let Some(complete) = complete else { return Scope::All };
        let start = ports.len();
        ports.extend(present(self.groups.get(&group), now));
        ports.extend(present(self.routers.get(&group.0), now));
        let gets_all = |port: &&PortId| {
            self.ports.get(port).is_some_and(|port| port.attached > complete || port.refused > now)
        };
        ports.extend(self.unfiltered.iter().filter(gets_all));
        Scope::sorted(ports, start)
    }

    pub(super) fn query(&mut self, (vlan, port): (u16, PortId), query: &Query, now: u64) {
        if let Some(group) = query.group.filter(|_| query.lowers_timers) {
            // The last member query time: who does not answer until then is no member any more.
            let count = query.robustness.max(LAST_MEMBER_QUERY_COUNT);
            let end = now + (query.response * count).max(SECOND);
            let ports = self.groups.get_mut(&(vlan, group)).into_iter().flatten();
            ports.for_each(|(_, until)| *until = end.min(*until));
        }
        let intervals = intervals(query);
        // RFC 4541, 2.1.1: a query without an address may be a switch's.
        let has_room = match intervals {
            None => false,
            Some((_, querier)) => !query.is_router || self.add_router((vlan, port), now + querier, now),
        };
        if let Some(intervals) = intervals.filter(|_| has_room) {
            if query.group.is_none() {
                self.general_query((vlan, port), query, intervals, now);
            }
        } else if let Some(querier) = self.queriers.get_mut(&(vlan, query.is_v6)) {
            // The VLAN is flooded, as it is without a querier.
            querier.refused = now + QUERIER_INTERVAL;
        }
    }

    fn general_query(
        &mut self,
        (vlan, port): (u16, PortId),
        query: &Query,
        (membership_interval, querier_interval): (u64, u64),
        now: u64,
    ) {
        for port in std::mem::take(&mut self.attached) {
            self.ports.entry(port).and_modify(|port| port.attached = port.attached.min(now));
        }
        let (until, answered) = (now + querier_interval, now + query.response.max(SECOND));
        match self.queriers.get_mut(&(vlan, query.is_v6)).filter(|querier| querier.until > now) {
            Some(querier) => {
                if querier.answered <= now {
                    querier.before = Some(querier.asked);
                    (querier.asked, querier.answered) = (now, answered);
                }
                querier.port = Some(port);
                (querier.until, querier.membership_interval) = (until, membership_interval);
            }
            None => {
                let port = Some(port);
                let (asked, before, refused) = (now, None, 0);
                let querier = Querier { port, until, asked, answered, before, refused, membership_interval };
                self.queriers.insert((vlan, query.is_v6), querier);
            }
        }
        if now >= self.next_unfiltered_sweep && !self.unfiltered.is_empty() {
            self.next_unfiltered_sweep = now + SECOND;
            self.filter_again(now);
        }
    }

    /// Forgets which ports got all groups until they had answered a general query, or until now.
    fn filter_again(&mut self, now: u64) {
        let queriers = self.queriers.values().filter(|querier| querier.until > now);
        let complete = queriers.map(|querier| querier.complete(now).unwrap_or(0)).min().unwrap_or(0);
        let State { unfiltered, ports, .. } = self;
        unfiltered.retain(|port| {
            ports.get(port).is_some_and(|port| port.attached > complete || port.refused > now)
        });
    }

    /// Makes a port a router's; whether there is room.
    fn add_router(&mut self, (vlan, port): (u16, PortId), until: u64, now: u64) -> bool {
        if let Some(ports) = self.routers.get_mut(&vlan)
            && let Ok(at) = find(ports, port)
        {
            ports[at].1 = until;
            return true;
        }
        let is_full = |state: &State| {
            let own = state.ports.get(&port).map_or(0, |port| port.routers.len());
            own >= PORT_ROUTERS || state.router_count >= ROUTERS
        };
        // Attack: queries for which no room is found, each of which would search the table.
        if is_full(self) && now >= self.next_router_sweep {
            self.next_router_sweep = now + SECOND;
            self.expire_routers(now);
        }
        if is_full(self) {
            return false;
        }
        let ports = self.routers.entry(vlan).or_default();
        if let Err(at) = find(ports, port) {
            ports.insert(at, (port, until));
            self.router_count += 1;
        }
        self.ports.entry(port).or_default().routers.insert(vlan);
        true
    }

    fn expire_routers(&mut self, now: u64) {
        let State { routers, ports, .. } = self;
        routers.retain(|vlan, list| {
            list.retain(|(port, until)| {
                let is_present = *until > now;
                if !is_present && let Some(port) = ports.get_mut(port) {
                    port.routers.remove(vlan);
                }
                is_present
            });
            !list.is_empty()
        });
        self.router_count = routers.values().map(Vec::len).sum();
        self.queriers.retain(|_, querier| querier.until > now);
    }

    pub(super) fn join(&mut self, group: Group, port: PortId, now: u64) {
        let querier = self.querier(group.0, group.1.is_ipv6(), now);
        let until = now + querier.map_or(MEMBERSHIP_INTERVAL, |querier| querier.membership_interval);
        if let Some(ports) = self.groups.get_mut(&group)
            && let Ok(at) = find(ports, port)
        {
            ports[at].1 = until;
            return;
        }
        let own = self.ports.entry(port).or_default();
        if own.groups.len() >= PORT_MEMBERSHIPS && now >= own.next_sweep {
            own.next_sweep = now + SECOND;
            self.expire(port, now);
        }
        if self.total >= MEMBERSHIPS && now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            let mut others = self.ports.range(self.swept.saturating_add(1)..).chain(self.ports.iter());
            self.swept = others.find(|(_, port)| !port.groups.is_empty()).map_or(0, |(port, _)| *port);
            self.expire(self.swept, now);
        }
        let own = self.ports.entry(port).or_default();
        if self.total >= MEMBERSHIPS || own.groups.len() >= PORT_MEMBERSHIPS {
            own.refused = until;
            self.unfiltered.insert(port);
            return;
        }
        own.groups.insert(group);
        let ports = self.groups.entry(group).or_default();
        if let Err(at) = find(ports, port) {
            ports.insert(at, (port, until));
            self.total += 1;
        }
    }

    pub(super) fn leave(&mut self, group: Group, port: PortId) {
        let Some(ports) = self.groups.get_mut(&group) else { return };
        if let Ok(at) = find(ports, port) {
            ports.remove(at);
            self.total -= 1;
            if let Some(port) = self.ports.get_mut(&port) {
                port.groups.remove(&group);
            }
        }
        if ports.is_empty() {
            self.groups.remove(&group);
        }
    }

    /// Removes a port's memberships that have expired.
    fn expire(&mut self, port: PortId, now: u64) {
        let groups = self.ports.get(&port).map(|port| &port.groups).into_iter().flatten();
        let is_past = |group: &&Group| {
            let ports = self.groups.get(*group);
            ports.and_then(|ports| find(ports, port).ok().map(|at| ports[at].1 <= now)).unwrap_or(true)
        };
        let past: Vec<Group> = groups.filter(is_past).copied().collect();
        past.into_iter().for_each(|group| self.leave(group, port));
    }

    /// Makes a port get all groups until it has answered a general query.
    pub(super) fn attach(&mut self, port: PortId) {
        let own = self.ports.entry(port).or_default();
        if own.attached != SINCE_LAST_QUERY {
            own.attached = SINCE_LAST_QUERY;
            self.attached.push(port);
        }
        self.unfiltered.insert(port);
    }

    /// Removes some of what is known of a port; whether that was all. Attack: ports with many memberships that are
    /// detached again and again, so that nobody else gets at the table.
    pub(super) fn forget(&mut self, port: PortId, most: usize) -> bool {
        for querier in self.queriers.values_mut().filter(|querier| querier.port == Some(port)) {
            querier.port = None;
        }
        let Some(own) = self.ports.get_mut(&port) else { return true };
        own.refused = 0;
        let routers = std::mem::take(&mut own.routers);
        let groups: Vec<Group> = own.groups.iter().take(most).copied().collect();
        let is_all = groups.len() == own.groups.len();
        for vlan in routers {
            let Some(ports) = self.routers.get_mut(&vlan) else { continue };
            if let Ok(at) = find(ports, port) {
                ports.remove(at);
                self.router_count -= 1;
            }
            if ports.is_empty() {
                self.routers.remove(&vlan);
            }
        }
        groups.into_iter().for_each(|group| self.leave(group, port));
        is_all
    }

    /// The memberships of a port, and the VLANs in which it is a router's.
    pub(super) fn memberships(&self, port: PortId, now: u64, all: &mut Vec<Membership>) {
        let Some(own) = self.ports.get(&port) else { return };
        let mut add = |ports: Option<&Ports>, vlan, group| {
            let until = ports.and_then(|ports| find(ports, port).ok().map(|at| ports[at].1));
            if let Some(until) = until.filter(|until| *until > now) {
                all.push(Membership { vlan, group, port, left: (until - now) / SECOND });
            }
        };
        own.groups.iter().for_each(|group| add(self.groups.get(group), group.0, Some(group.1)));
        own.routers.iter().for_each(|vlan| add(self.routers.get(vlan), *vlan, None));
    }
}

/// The ports that have not expired.
fn present(ports: Option<&Ports>, now: u64) -> impl Iterator<Item = PortId> {
    ports.into_iter().flatten().filter(move |(_, until)| *until > now).map(|(port, _)| *port)
}
