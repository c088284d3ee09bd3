//! Tests of snooping, in virtual time.

use super::SECOND;
use super::state::{LONGEST_INTERVAL, MEMBERSHIP_INTERVAL, QUERIER_INTERVAL};
use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 1, 1));
/// The maximum response time of these queries.
const RESPONSE: u64 = 10 * SECOND;

fn general() -> Query {
    Query {
        group: None,
        response: RESPONSE,
        is_router: true,
        is_v6: false,
        lowers_timers: true,
        robustness: 2,
        interval: 125 * SECOND,
    }
}

fn specific(group: IpAddr) -> Query {
    Query { group: Some(group), response: SECOND, ..general() }
}

/// A switch whose VLAN is 0 unless a test says another.
struct Bench(Snooping);

impl Bench {
    fn new(fast_leave: bool) -> Bench {
        Bench(Snooping::new(fast_leave))
    }

    /// A switch at whose port 9 a router queries at 0 and at `RESPONSE`.
    fn queried() -> Bench {
        let bench = Bench::new(false);
        bench.query(9, general(), 0);
        bench
    }

    fn query(&self, port: PortId, query: Query, now: u64) {
        self.query_in((0, port), query, now);
    }

    fn query_in(&self, at: (u16, PortId), query: Query, now: u64) {
        self.0.learn((&Packet::Query(query), &Records::new()), at, now, &mut Vec::new());
    }

    /// The ports that get a report; none: all.
    fn report(&self, port: PortId, records: &[(IpAddr, bool)], now: u64) -> Option<Vec<PortId>> {
        self.report_in((0, port), records, now)
    }

    fn report_in(&self, at: (u16, PortId), records: &[(IpAddr, bool)], now: u64) -> Option<Vec<PortId>> {
        let mut ports = vec![77];
        let packet = Packet::Report { is_v6: records.iter().any(|(group, _)| group.is_ipv6()) };
        let scope = self.0.learn((&packet, &records.to_vec()), at, now, &mut ports);
        listed(scope, &ports)
    }

    fn join(&self, port: PortId, group: IpAddr, now: u64) {
        self.report(port, &[(group, true)], now);
    }

    /// The ports that get a packet to a group; none: all.
    fn data(&self, group: IpAddr, now: u64) -> Option<Vec<PortId>> {
        self.data_in(0, group, now)
    }

    fn data_in(&self, vlan: u16, group: IpAddr, now: u64) -> Option<Vec<PortId>> {
        let mut ports = vec![77];
        let scope = self.0.view().scope(&Packet::Data(group), vlan, now, &mut ports);
        listed(scope, &ports)
    }

    fn members_of(&self, port: PortId, now: u64) -> usize {
        self.0.memberships(now).iter().filter(|row| row.port == port && row.group.is_some()).count()
    }
}

fn listed(scope: Scope, ports: &[PortId]) -> Option<Vec<PortId>> {
    match scope {
        Scope::All => None,
        Scope::Ports(range) => Some(ports[range].to_vec()),
    }
}

fn some(ports: &[PortId]) -> Option<Vec<PortId>> {
    Some(ports.to_vec())
}

fn group(number: u32) -> IpAddr {
    Ipv4Addr::from(0xef00_0000 + number).into()
}

#[test]
fn groups_go_to_members_and_routers_once_a_query_was_answered() {
    let bench = Bench::new(false);
    assert_eq!(bench.report(1, &[(GROUP, true)], 0), None);
    assert_eq!(bench.data(GROUP, 0), None, "no query");
    bench.query(9, general(), SECOND);
    assert_eq!(bench.report(2, &[(GROUP, true)], 2 * SECOND), some(&[9]), "reports are for routers");
    assert_eq!(bench.data(GROUP, RESPONSE), None, "others may answer still");
    let now = SECOND + RESPONSE;
    assert_eq!(bench.data(GROUP, now), some(&[1, 2, 9]));
    assert_eq!(bench.data(group(7), now), some(&[9]));
    assert_eq!(bench.data_in(20, GROUP, now), None, "another VLAN");
    let six = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1);
    assert_eq!(bench.data(six.into(), now), None, "no query of IPv6");
    // Members go after their time, and at last the querier does.
    bench.query(9, general(), 200 * SECOND);
    assert_eq!(bench.data(GROUP, MEMBERSHIP_INTERVAL), some(&[2, 9]));
    assert_eq!(bench.data(GROUP, MEMBERSHIP_INTERVAL + 2 * SECOND), some(&[9]));
    assert_eq!(bench.data(GROUP, 200 * SECOND + QUERIER_INTERVAL), None);
    assert!(bench.0.memberships(200 * SECOND + QUERIER_INTERVAL).is_empty());
    // Then it begins anew.
    bench.query(9, general(), 1000 * SECOND);
    assert_eq!(bench.data(GROUP, 1009 * SECOND), None);
    assert_eq!(bench.data(GROUP, 1010 * SECOND), some(&[9]));
}

#[test]
fn a_port_that_was_attached_gets_all_groups_until_it_has_answered_a_query() {
    let bench = Bench::queried();
    bench.join(1, GROUP, SECOND);
    bench.query_in((20, 9), general(), 0);
    assert_eq!(bench.data(GROUP, RESPONSE), some(&[1, 9]));
    // The guest stays, and does not notice that its port was forgotten.
    bench.0.forget_port(1);
    assert_eq!(bench.data(GROUP, 20 * SECOND), some(&[1, 9]));
    assert_eq!(bench.data(group(7), 20 * SECOND), some(&[1, 9]));
    bench.0.attach_port(3);
    assert_eq!(bench.data(group(7), 20 * SECOND), some(&[1, 3, 9]));
    bench.query(9, general(), 125 * SECOND);
    bench.join(1, GROUP, 130 * SECOND);
    assert_eq!(bench.data(group(7), 134 * SECOND), some(&[1, 3, 9]), "it may answer still");
    assert_eq!(bench.data(group(7), 135 * SECOND), some(&[9]));
    assert_eq!(bench.data(GROUP, 135 * SECOND), some(&[1, 9]));
    // In the other VLAN there was no query since.
    assert_eq!(bench.data_in(20, GROUP, 135 * SECOND), some(&[1, 3, 9]));
    // Queries that follow one another faster than they are answered.
    for second in 200..230 {
        bench.query(9, general(), second * SECOND);
        bench.query_in((20, 9), general(), second * SECOND);
    }
    assert_eq!(bench.data_in(20, GROUP, 230 * SECOND), some(&[9]));
    bench.query(9, general(), 240 * SECOND);
    assert!(bench.0.state.read().unwrap().unfiltered.is_empty());
    // A port that goes, and comes again after a query that it did not get.
    bench.0.forget_port(1);
    bench.query(9, general(), 300 * SECOND);
    bench.0.attach_port(1);
    assert_eq!(bench.data(GROUP, 320 * SECOND), some(&[1, 9]));
}

#[test]
fn a_port_leaves_when_nobody_answers_or_at_once() {
    for is_fast in [false, true] {
        let bench = Bench::new(is_fast);
        bench.query(9, general(), 0);
        (1..=2).for_each(|port| bench.join(port, GROUP, 0));
        assert_eq!(bench.report(1, &[(GROUP, false)], RESPONSE), some(&[9]));
        let left: &[PortId] = if is_fast { &[2, 9] } else { &[1, 2, 9] };
        assert_eq!(bench.data(GROUP, RESPONSE), some(left));
        bench.query(9, specific(GROUP), RESPONSE);
        bench.join(2, GROUP, 11 * SECOND);
        assert_eq!(bench.data(GROUP, 12 * SECOND), some(&[2, 9]));
    }
}

#[test]
fn queries_about_sources_and_suppressed_ones_end_no_membership() {
    let bench = Bench::queried();
    bench.join(1, GROUP, 0);
    bench.query(9, Query { lowers_timers: false, ..specific(GROUP) }, RESPONSE);
    assert_eq!(bench.data(GROUP, 60 * SECOND), some(&[1, 9]));
    // The last member query count is the robustness variable.
    bench.query(9, Query { robustness: 5, ..specific(GROUP) }, 60 * SECOND);
    assert_eq!(bench.data(GROUP, 64 * SECOND), some(&[1, 9]));
    assert_eq!(bench.data(GROUP, 65 * SECOND), some(&[9]));
}

#[test]
fn intervals_are_the_querier_s() {
    let bench = Bench::new(false);
    bench.query(9, Query { interval: 1000 * SECOND, robustness: 3, ..general() }, 0);
    bench.join(1, GROUP, SECOND);
    assert_eq!(bench.data(GROUP, 3000 * SECOND), some(&[1, 9]));
    assert_eq!(bench.data(GROUP, 3006 * SECOND), None, "the querier is gone");
    assert_eq!(bench.members_of(1, 3010 * SECOND), 1);
    assert_eq!(bench.members_of(1, 3011 * SECOND), 0);
    // Shorter ones than the default are no shorter here.
    let bench = Bench::new(false);
    bench.query(9, Query { interval: SECOND, robustness: 1, ..general() }, 0);
    bench.join(1, GROUP, 0);
    assert_eq!(bench.data(GROUP, 250 * SECOND), some(&[1, 9]));
    // Attack: who joins silently within days would get nothing.
    let bench = Bench::new(false);
    bench.query(9, Query { interval: LONGEST_INTERVAL, ..general() }, 0);
    assert_eq!(bench.data(GROUP, 20 * SECOND), None);
    bench.query(8, general(), 30 * SECOND);
    assert_eq!(bench.data(GROUP, 40 * SECOND), some(&[8]));
    bench.query(9, Query { interval: LONGEST_INTERVAL, ..general() }, 50 * SECOND);
    assert_eq!(bench.data(GROUP, 60 * SECOND), None);
}

#[test]
fn reports_reach_a_querier_without_an_address() {
    let bench = Bench::new(false);
    bench.query(9, Query { is_router: false, ..general() }, 0);
    assert_eq!(bench.report(1, &[(GROUP, true)], SECOND), some(&[9]));
    assert_eq!(bench.data(GROUP, RESPONSE), some(&[1]), "it is no router");
    bench.0.forget_port(9);
    assert_eq!(bench.report(1, &[(GROUP, true)], RESPONSE), None, "nobody knows where it is");
}

/// Attack: a guest that joins every group.
#[test]
fn nobody_fills_the_table_for_others() {
    let bench = Bench::queried();
    (0..10_000).for_each(|number| bench.join(1, group(number), 0));
    assert_eq!(bench.members_of(1, 0), PORT_MEMBERSHIPS);
    assert_eq!(bench.data(group(9_999), RESPONSE), some(&[1, 9]), "it may be a member");
    bench.join(2, GROUP, 0);
    assert_eq!(bench.members_of(2, 0), 1);
    assert_eq!(bench.data(group(20_000), RESPONSE), some(&[1, 9]));
    // Many ports together: those that find no room get all groups, one that has a member too.
    for port in 10..200 {
        for number in 0..PORT_MEMBERSHIPS as u32 {
            bench.join(port, group(number + 1_000 * u32::from(port)), 0);
        }
    }
    let all = bench.0.memberships(0);
    assert_eq!(all.iter().filter(|row| row.group.is_some()).count(), MEMBERSHIPS);
    bench.join(300, GROUP, 0);
    let ports = bench.data(GROUP, RESPONSE).unwrap();
    assert!([2, 9, 199, 300].iter().all(|port| ports.contains(port)), "{ports:?}");
    assert!(!ports.contains(&301));
    // After their time others find room, and they get what they are members of.
    let later = MEMBERSHIP_INTERVAL + SECOND;
    bench.query(9, general(), later);
    bench.join(3, GROUP, later);
    assert_eq!(bench.data(GROUP, later + RESPONSE), some(&[3, 9]));
    assert_eq!(bench.0.memberships(later).iter().filter(|row| row.group.is_some()).count(), 1);
}

/// Attack: a guest that claims to be a router in every VLAN.
#[test]
fn a_router_without_room_gets_all_groups() {
    let bench = Bench::new(false);
    bench.query_in((4000, 9), general(), 0);
    (1..4095).for_each(|vlan| bench.query_in((vlan, 1), general(), 0));
    let routers = |port: PortId, now| {
        bench.0.memberships(now).iter().filter(|row| row.port == port && row.group.is_none()).count()
    };
    assert_eq!((routers(1, 0), routers(9, 0)), (PORT_ROUTERS, 1));
    assert_eq!(bench.data_in(1, GROUP, RESPONSE), some(&[1]));
    assert_eq!(bench.data_in(2000, GROUP, RESPONSE), None, "where it found no room");
    assert_eq!(bench.data_in(4000, GROUP, RESPONSE), None, "it may be a router there");
    assert_eq!(bench.report_in((4000, 2), &[(GROUP, true)], RESPONSE), None);
    // Others have room, up to the bound of the switch.
    for port in 20..40 {
        (1..=40).for_each(|vlan| bench.query_in((vlan, port), general(), SECOND));
    }
    let all = bench.0.memberships(SECOND);
    assert_eq!(all.iter().filter(|row| row.group.is_none()).count(), ROUTERS);
    // After their time others find room.
    let later = QUERIER_INTERVAL + 2 * SECOND;
    (100..=120).for_each(|vlan| bench.query_in((vlan, 2), general(), later));
    assert_eq!((routers(1, later), routers(2, later)), (0, 21));
}

#[test]
fn who_is_busy_is_not_waited_for_and_nothing_is_lost() {
    let bench = Bench::queried();
    bench.join(1, GROUP, 0);
    let now = RESPONSE;
    let lock = bench.0.state.write().unwrap();
    assert_eq!(bench.data(GROUP, now), None, "another thread changes it");
    drop(lock);
    let lock = bench.0.state.read().unwrap();
    assert_eq!(bench.report(2, &[(GROUP, true)], now), some(&[9]));
    assert_eq!(bench.data(GROUP, now), some(&[1, 9]));
    drop(lock);
    assert_eq!(bench.data(GROUP, now), some(&[1, 2, 9]), "it was queued");
    // A report that goes to all keeps others back, so that members are unknown.
    let lock = bench.0.state.write().unwrap();
    assert_eq!(bench.report(3, &[(GROUP, true)], now), None);
    drop(lock);
    assert_eq!(bench.data(GROUP, now), None);
    bench.query(9, general(), 20 * SECOND);
    assert_eq!(bench.data(GROUP, 30 * SECOND), some(&[1, 2, 3, 9]));
    // Attack: more reports than the queue has room for.
    let lock = bench.0.state.read().unwrap();
    let many: Vec<(IpAddr, bool)> = (0..1000).map(|number| (group(number), true)).collect();
    (0..3).for_each(|_| drop(bench.report(4, &many, 40 * SECOND)));
    assert!(bench.0.queue.lock().unwrap().len() <= QUEUE);
    drop(lock);
    assert_eq!(bench.data(GROUP, 40 * SECOND), None, "another report was lost");
    bench.query(9, general(), 50 * SECOND);
    assert_eq!(bench.data(GROUP, 60 * SECOND), some(&[1, 2, 3, 4, 9]));
}

proptest! {
    #[test]
    fn counts_are_those_of_the_memberships(
        steps in prop::collection::vec((0u16..4, 0u32..20, 0u8..6, 0u64..100), 0..200),
    ) {
        let bench = Bench::new(true);
        let mut now = 0;
        for (port, number, what, time) in steps {
            now += time * SECOND;
            match what {
                0 => bench.0.forget_port(port),
                1 => bench.query(port, specific(group(number)), now),
                2 => bench.query_in((number as u16, port), general(), now),
                _ => drop(bench.report(port, &[(group(number), what > 3)], now)),
            }
            let state = bench.0.state.read().unwrap();
            let all: usize = state.groups.values().map(Vec::len).sum();
            prop_assert_eq!(state.total, all);
            prop_assert_eq!(state.ports.values().map(|port| port.groups.len()).sum::<usize>(), all);
            let routers = state.routers.values().map(Vec::len).sum::<usize>();
            prop_assert_eq!(state.router_count, routers);
            prop_assert_eq!(state.ports.values().map(|port| port.routers.len()).sum::<usize>(), routers);
            let sorted = state.groups.values().chain(state.routers.values());
            prop_assert!(sorted.into_iter().all(|ports| ports.is_sorted() && !ports.is_empty()));
        }
    }
}
