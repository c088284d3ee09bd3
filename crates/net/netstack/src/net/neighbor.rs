//! Neighbours: link-layer addresses learned by ARP (RFC 826) and neighbour discovery (RFC 4861).

use crate::settings::SECOND;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use ringway_wire::MacAddress;

/// How long an address counts without confirmation.
const REACHABLE: u64 = 30 * SECOND;
/// Time between requests (`retrans_time_ms`), and their number (`mcast_solicit`).
const RETRANS: u64 = SECOND;
pub(crate) const TRIES: u32 = 3;
/// How long a confirmed address is not replaced (Linux's `locktime`).
const LOCKED: u64 = SECOND;
/// Packets that wait for one neighbour. Attack: a program or peer that makes us send to addresses that don't
/// exist (RFC 4861, 7.2.2 requires at least one).
const WAITING: usize = 8;

/// Why an entry is in the cache. One is replaced by those of a higher rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// The neighbour asked for our address.
    Heard,
    /// Something is sent to it that others may have caused: answers, SYN-ACKs, datagrams.
    Answer,
    /// A connection uses it that a program requested, or whose handshake is complete.
    Used,
}

#[derive(Debug)]
enum State {
    /// Requests were sent; IP packets with room for an Ethernet header wait.
    Incomplete { tries: u32, next: u64, waiting: Vec<Vec<u8>> },
    Known {
        mac: MacAddress,
        /// When its address was confirmed last, and how long it counts.
        confirmed: u64,
        until: u64,
        /// When a request was sent last.
        asked: Option<u64>,
    },
}

#[derive(Debug)]
struct Entry {
    state: State,
    rank: Rank,
    /// When the entry was last used, to a second; for an entry that was only heard, when it was made.
    used: u64,
}

/// What to do to reach a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Its address; with `true`, it should be confirmed by a request.
    Known(MacAddress, bool),
    /// A request is outstanding; with `true`, it is to be sent now.
    Pending(bool),
    /// The cache is full.
    Full,
}

/// What a neighbour says about its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub mac: MacAddress,
    /// This is an answer to a request, believed only if one was sent.
    pub solicited: bool,
    /// The address replaces another one (RFC 4861, 4.4). ARP's always do.
    pub overrides: bool,
    /// The sender asks for our address, so that an answer will follow.
    pub asks: bool,
}

/// What is known about a neighbour, in the words of RFC 4861, 7.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// Requests were sent, and none was answered yet.
    Incomplete,
    /// Its address was confirmed lately.
    Reachable,
    /// Its address is used, but was not confirmed lately.
    Stale,
    /// A request that is to confirm its address was sent lately.
    Probe,
}

/// The neighbours of one interface.
#[derive(Debug, Default)]
pub(crate) struct Neighbors {
    entries: BTreeMap<IpAddr, Entry>,
    /// The entries in the order in which they are replaced.
    order: BTreeSet<(Rank, u64, IpAddr)>,
    limit: usize,
    /// Incomplete entries of [`Rank::Answer`]. Attack: SYNs from addresses that nobody has; half of the cache is left.
    unresolved: usize,
    /// The earliest deadline of an incomplete entry.
    due: Option<u64>,
    /// When those that found the cache full try again.
    retry: Option<u64>,
}

/// What [`Neighbors::expire`] found.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    pub ask: Vec<IpAddr>,
    pub failed: Vec<IpAddr>,
    /// Whether connections that found the cache full try again.
    pub retry: bool,
}

impl Neighbors {
    pub(crate) fn new(limit: usize) -> Neighbors {
        Neighbors { limit, ..Neighbors::default() }
    }

    /// Whether its link-layer address is known.
    pub(crate) fn is_known(&self, address: IpAddr) -> bool {
        self.entries.get(&address).is_some_and(|entry| matches!(entry.state, State::Known { .. }))
    }

    /// Whether there is an entry.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.entries.contains_key(&address)
    }

    pub(crate) fn lookup(&mut self, now: u64, address: IpAddr, rank: Rank) -> Lookup {
        self.touch(now, address, rank);
        match self.entries.get_mut(&address).map(|entry| &mut entry.state) {
            Some(State::Known { mac, until, asked, .. }) => {
                let ask = now >= *until && asked.is_none_or(|asked| now >= asked + RETRANS);
                if ask {
                    *asked = Some(now);
                }
                return Lookup::Known(*mac, ask);
            }
            Some(State::Incomplete { .. }) => return Lookup::Pending(false),
            None => {}
        }
        let is_flooded = rank < Rank::Used && self.unresolved >= self.limit.div_ceil(2);
        if is_flooded || !self.make_room(now, rank) {
            self.retry = self.retry.or(Some(now + RETRANS));
            return Lookup::Full;
        }
        let next = now + RETRANS;
        self.insert(now, address, rank, State::Incomplete { tries: 1, next, waiting: Vec::new() });
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
        Lookup::Pending(true)
    }

    fn insert(&mut self, now: u64, address: IpAddr, rank: Rank, state: State) {
        self.unresolved += usize::from(rank < Rank::Used && matches!(state, State::Incomplete { .. }));
        self.order.insert((rank, now, address));
        self.entries.insert(address, Entry { state, rank, used: now });
    }

    fn remove(&mut self, address: IpAddr) -> Option<Entry> {
        let entry = self.entries.remove(&address)?;
        self.order.remove(&(entry.rank, entry.used, address));
        let is_incomplete = matches!(entry.state, State::Incomplete { .. });
        self.unresolved -= usize::from(entry.rank < Rank::Used && is_incomplete);
        Some(entry)
    }

    /// Notes that an entry is used.
    fn touch(&mut self, now: u64, address: IpAddr, rank: Rank) {
        if let Some(entry) = self.entries.get_mut(&address)
            // What others cause does not keep an entry that a connection had.
            && (entry.rank < rank || (entry.rank == rank && now >= entry.used + SECOND))
        {
            self.order.remove(&(entry.rank, entry.used, address));
            let is_incomplete = matches!(entry.state, State::Incomplete { .. });
            self.unresolved -= usize::from(is_incomplete && entry.rank < Rank::Used && rank == Rank::Used);
            (entry.rank, entry.used) = (entry.rank.max(rank), now);
            self.order.insert((entry.rank, now, address));
        }
    }

    /// The entry that one of this rank may replace: the lowest of those with a lower rank, else one that has not been
    /// used for some time. Attack: floods of requests, of SYNs with forged sources, or a scan through us; an entry that
    /// is heard replaces only others that are heard. Those of connections that are over would fill the cache too.
    fn replaceable(&self, now: u64, rank: Rank) -> Option<IpAddr> {
        let &(lowest, _, address) = self.order.first()?;
        if lowest < rank || lowest == Rank::Heard {
            return Some(address);
        }
        let idle = |of: Rank| {
            let from = (of, 0, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            let first = self.order.range(from..).next();
            let is_idle = |rank: Rank, used: u64| rank == of && used + REACHABLE <= now;
            first.filter(|(rank, used, _)| is_idle(*rank, *used)).map(|(.., address)| *address)
        };
        let ranks: &[Rank] = if rank == Rank::Heard { &[] } else { &[Rank::Answer, Rank::Used] };
        ranks.iter().find_map(|of| idle(*of))
    }

    /// Removes an entry if there are too many and one may be replaced. Whether there is room then.
    fn make_room(&mut self, now: u64, rank: Rank) -> bool {
        if self.entries.len() < self.limit {
            return true;
        }
        let Some(address) = self.replaceable(now, rank) else { return false };
        let removed = self.remove(address);
        if removed.is_some_and(|entry| matches!(entry.state, State::Incomplete { .. })) {
            // Sockets may wait for it.
            self.retry = self.retry.or(Some(now + RETRANS));
        }
        true
    }

    /// Keeps a packet until its neighbour answers. `false`: a packet is dropped, the one that has waited longest.
    pub(crate) fn wait(&mut self, address: IpAddr, packet: Vec<u8>) -> bool {
        let Some(State::Incomplete { waiting, .. }) =
            self.entries.get_mut(&address).map(|entry| &mut entry.state)
        else {
            return false;
        };
        let has_room = waiting.len() < WAITING;
        if !has_room {
            waiting.remove(0);
        }
        waiting.push(packet);
        has_room
    }

    /// A neighbour said its address. An address that nobody wants is stored only if the neighbour asks for ours.
    /// Returns the packets that waited, if this is what they waited for.
    ///
    /// Attack: a forged announcement redirects traffic. That can't be prevented on a shared medium, but one that
    /// nobody asked for is verified when the neighbour is used next, and none replaces an address that a connection
    /// has confirmed in the last second.
    pub(crate) fn learn(&mut self, now: u64, address: IpAddr, claim: Claim) -> Option<Vec<Vec<u8>>> {
        if !claim.mac.is_unicast() {
            return None;
        }
        let Some(entry) = self.entries.get_mut(&address) else {
            if claim.asks && self.make_room(now, Rank::Heard) {
                let state =
                    State::Known { mac: claim.mac, confirmed: now, until: now + REACHABLE, asked: None };
                self.insert(now, address, Rank::Heard, state);
            }
            return None;
        };
        match &mut entry.state {
            State::Incomplete { waiting, .. } => {
                let waiting = core::mem::take(waiting);
                // A request is outstanding: a neighbour that asks for our address at this moment is reachable, too.
                let until = if claim.solicited || claim.asks { now + REACHABLE } else { now };
                entry.state = State::Known { mac: claim.mac, confirmed: now, until, asked: Some(now) };
                self.unresolved -= usize::from(entry.rank < Rank::Used);
                Some(waiting)
            }
            State::Known { mac, confirmed, until, asked } => {
                let is_answer = claim.solicited && asked.is_some_and(|asked| now < asked + 3 * RETRANS);
                if *mac != claim.mac {
                    let locked = *confirmed + LOCKED;
                    if now < locked {
                        // If the connection does not go on, the neighbour is asked then.
                        *until = (*until).min(locked);
                        return None;
                    }
                    if !claim.overrides {
                        // RFC 4861, 7.2.5: it is only verified.
                        *until = (*until).min(now);
                        return None;
                    }
                    (*mac, *until) = (claim.mac, now);
                }
                if is_answer {
                    (*confirmed, *until) = (now, now + REACHABLE);
                }
                None
            }
        }
    }

    /// The neighbour's connection makes progress, so it is reachable (RFC 4861, 7.3.1).
    pub(crate) fn confirm(&mut self, now: u64, address: IpAddr) {
        if let Some(Entry { state: State::Known { confirmed, until, .. }, .. }) =
            self.entries.get_mut(&address)
        {
            (*confirmed, *until) = (now, now + REACHABLE);
        }
    }

    /// All neighbours, their addresses, and what is known about each.
    pub(crate) fn entries(
        &self,
        now: u64,
    ) -> impl Iterator<Item = (IpAddr, Option<MacAddress>, Reachability)> {
        self.entries.iter().map(move |(address, entry)| match entry.state {
            State::Incomplete { .. } => (*address, None, Reachability::Incomplete),
            State::Known { mac, until, asked, .. } => {
                let is_asked = asked.is_some_and(|asked| now < asked + RETRANS);
                let state = match (now < until, is_asked) {
                    (true, _) => Reachability::Reachable,
                    (false, true) => Reachability::Probe,
                    (false, false) => Reachability::Stale,
                };
                (*address, Some(mac), state)
            }
        })
    }

    pub(crate) fn due(&self) -> Option<u64> {
        self.due.into_iter().chain(self.retry).min()
    }

    /// Repeats requests; gives up after some.
    pub(crate) fn expire(&mut self, now: u64) -> Expired {
        let retry = self.retry.take_if(|at| *at <= now).is_some();
        let mut expired = Expired { retry, ..Expired::default() };
        if self.due.is_none_or(|due| due > now) {
            return expired;
        }
        self.due = None;
        for (address, entry) in &mut self.entries {
            let State::Incomplete { tries, next, .. } = &mut entry.state else { continue };
            if *next <= now {
                if *tries >= TRIES {
                    expired.failed.push(*address);
                    continue;
                }
                (*tries, *next) = (*tries + 1, now + RETRANS);
                expired.ask.push(*address);
            }
            self.due = Some(self.due.map_or(*next, |due: u64| due.min(*next)));
        }
        for address in &expired.failed {
            self.remove(*address);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 66]);
    const ANSWER: Claim = Claim { mac: MAC, solicited: true, overrides: true, asks: false };
    const REQUEST: Claim = Claim { mac: MAC, solicited: false, overrides: true, asks: true };
    const UNASKED: Claim = Claim { mac: MAC, solicited: false, overrides: true, asks: false };

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn packets_wait_for_an_answer_and_requests_are_repeated() {
        let mut neighbors = Neighbors::new(4);
        assert_eq!(neighbors.lookup(0, address(1), Rank::Used), Lookup::Pending(true));
        assert_eq!(neighbors.lookup(1, address(1), Rank::Used), Lookup::Pending(false));
        assert!((0..WAITING).all(|_| neighbors.wait(address(1), vec![1])));
        assert!(!neighbors.wait(address(1), vec![1]));
        assert_eq!(neighbors.due(), Some(RETRANS));
        assert_eq!(neighbors.expire(RETRANS).ask, [address(1)]);
        assert_eq!(neighbors.learn(RETRANS, address(1), ANSWER).map(|w| w.len()), Some(WAITING));
        assert_eq!(neighbors.lookup(RETRANS, address(1), Rank::Used), Lookup::Known(MAC, false));
        let later = RETRANS + REACHABLE;
        assert_eq!(neighbors.lookup(later, address(1), Rank::Used), Lookup::Known(MAC, true));
    }

    #[test]
    fn an_address_that_does_not_answer_is_given_up() {
        let mut neighbors = Neighbors::new(4);
        neighbors.lookup(0, address(1), Rank::Answer);
        let failed: Vec<_> = (1..=3).flat_map(|n| neighbors.expire(n * RETRANS).failed).collect();
        assert_eq!((failed, neighbors.due(), neighbors.unresolved), (vec![address(1)], None, 0));
    }

    #[test]
    fn requests_that_are_overdue_are_sent_once() {
        let mut neighbors = Neighbors::new(4);
        neighbors.lookup(0, address(1), Rank::Used);
        // Nobody called for an hour: the address has not been silent so long.
        for number in [1, 2] {
            let expired = neighbors.expire(number * 3600 * SECOND);
            assert_eq!((expired.ask, expired.failed), (vec![address(1)], vec![]));
            assert_eq!(neighbors.due(), Some(number * 3600 * SECOND + RETRANS));
        }
        assert_eq!(neighbors.expire(3 * 3600 * SECOND).failed, [address(1)]);
    }

    #[test]
    fn an_entry_is_replaced_by_one_of_a_higher_rank() {
        let mut neighbors = Neighbors::new(2);
        assert_eq!(neighbors.learn(0, address(1), UNASKED), None);
        assert!(!neighbors.has(address(1)), "nobody wants it");
        neighbors.learn(0, address(1), REQUEST);
        neighbors.learn(1, address(2), REQUEST);
        neighbors.learn(2, address(3), REQUEST);
        assert!(!neighbors.has(address(1)) && neighbors.has(address(2)), "the oldest is replaced");
        assert_eq!(neighbors.lookup(3, address(4), Rank::Used), Lookup::Pending(true));
        assert_eq!(neighbors.lookup(4, address(5), Rank::Used), Lookup::Pending(true));
        // Entries that a connection uses stay for a time, also if their neighbours have not answered.
        neighbors.learn(5, address(6), REQUEST);
        assert_eq!(neighbors.lookup(6, address(7), Rank::Answer), Lookup::Full);
        assert_eq!(neighbors.lookup(7, address(7), Rank::Used), Lookup::Full);
        assert!(neighbors.has(address(4)) && neighbors.has(address(5)) && !neighbors.has(address(6)));
        neighbors.learn(8, address(4), ANSWER);
        neighbors.learn(8, address(5), ANSWER);
        neighbors.lookup(REACHABLE, address(4), Rank::Used);
        assert_eq!(neighbors.lookup(REACHABLE + 7, address(7), Rank::Used), Lookup::Pending(true));
        assert!(neighbors.has(address(4)) && !neighbors.has(address(5)));
    }

    #[test]
    fn entries_of_connections_that_are_over_are_replaced() {
        let mut neighbors = Neighbors::new(2);
        for last in [1, 2] {
            neighbors.lookup(0, address(last), Rank::Used);
            neighbors.learn(0, address(last), ANSWER);
        }
        // What others cause, such as pings of them, does not keep them.
        for second in 1..30 {
            neighbors.lookup(second * SECOND, address(1), Rank::Answer);
        }
        assert_eq!(neighbors.lookup(REACHABLE - 1, address(3), Rank::Used), Lookup::Full);
        assert_eq!(neighbors.lookup(REACHABLE, address(3), Rank::Answer), Lookup::Pending(true));
        assert_eq!(neighbors.lookup(REACHABLE, address(4), Rank::Used), Lookup::Pending(true));
        assert!(neighbors.has(address(2)) && neighbors.has(address(4)), "the lowest rank goes first");
    }

    #[test]
    fn answers_that_nobody_takes_leave_half_of_the_cache() {
        let mut neighbors = Neighbors::new(8);
        let found: Vec<_> = (1..=6).map(|last| neighbors.lookup(0, address(last), Rank::Answer)).collect();
        assert_eq!(found, [[Lookup::Pending(true); 4].as_slice(), &[Lookup::Full; 2]].concat());
        assert_eq!(neighbors.expire(RETRANS).ask.len(), 4);
        // A connection wants one of them: the place is free for another.
        neighbors.lookup(RETRANS, address(1), Rank::Used);
        assert_eq!(neighbors.lookup(RETRANS, address(5), Rank::Answer), Lookup::Pending(true));
        neighbors.learn(RETRANS, address(5), ANSWER);
        assert_eq!(neighbors.unresolved, 3);
    }

    #[test]
    fn what_an_announcement_changes() {
        let known = |claim: Claim, at: u64| {
            let mut neighbors = Neighbors::new(8);
            neighbors.lookup(0, address(1), Rank::Used);
            neighbors.learn(0, address(1), ANSWER);
            neighbors.confirm(10 * SECOND, address(1));
            neighbors.learn(at, address(1), claim);
            (neighbors.lookup(at, address(1), Rank::Used), neighbors)
        };
        let forged = Claim { mac: OTHER, ..UNASKED };
        // Within a second of a confirmation nothing; if no other follows, the neighbour is asked.
        let (found, mut neighbors) = known(forged, 10 * SECOND + 1);
        assert_eq!(found, Lookup::Known(MAC, false));
        assert_eq!(neighbors.lookup(11 * SECOND, address(1), Rank::Used), Lookup::Known(MAC, true));
        neighbors.confirm(11 * SECOND, address(1));
        assert_eq!(neighbors.lookup(13 * SECOND, address(1), Rank::Used), Lookup::Known(MAC, false));
        // Later it is used, and the neighbour is asked, though the announcement claims to be an answer.
        for solicited in [false, true] {
            assert_eq!(known(Claim { solicited, ..forged }, 12 * SECOND).0, Lookup::Known(OTHER, true));
        }
        // Without the Override flag the neighbour is only asked (RFC 4861, 7.2.5); its answer counts.
        let unsure = Claim { overrides: false, ..forged };
        let (found, mut neighbors) = known(unsure, 12 * SECOND);
        assert_eq!(found, Lookup::Known(MAC, true));
        neighbors.learn(12 * SECOND, address(1), ANSWER);
        assert_eq!(neighbors.lookup(14 * SECOND, address(1), Rank::Used), Lookup::Known(MAC, false));
    }

    proptest! {
        #[test]
        fn the_cache_is_bounded_and_in_order(
            steps in prop::collection::vec((0u8..6, 0u8..12, 0u64..8), 0..200),
        ) {
            let (mut neighbors, mut now) = (Neighbors::new(5), 0);
            for (what, last, time) in steps {
                now += time * SECOND;
                match what {
                    0 => drop(neighbors.lookup(now, address(last), Rank::Answer)),
                    1 => drop(neighbors.lookup(now, address(last), Rank::Used)),
                    2 => drop(neighbors.learn(now, address(last), REQUEST)),
                    3 => drop(neighbors.learn(now, address(last), ANSWER)),
                    4 => neighbors.confirm(now, address(last)),
                    _ => drop(neighbors.expire(now)),
                }
                prop_assert!(neighbors.entries.len() <= 5);
                let mut order: Vec<_> =
                    neighbors.entries.iter().map(|(at, entry)| (entry.rank, entry.used, *at)).collect();
                order.sort();
                prop_assert!(order.into_iter().eq(neighbors.order.iter().copied()));
                let unresolved = neighbors.entries.values().filter(|entry| {
                    entry.rank < Rank::Used && matches!(entry.state, State::Incomplete { .. })
                });
                prop_assert_eq!(unresolved.count(), neighbors.unresolved);
            }
        }
    }
}
