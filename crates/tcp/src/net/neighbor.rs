//! Neighbours: link-layer addresses learned by ARP (RFC 826) and neighbour discovery (RFC 4861).

use crate::settings::SECOND;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use ringway_wire::MacAddress;

/// How long an address counts without confirmation.
const REACHABLE: u64 = 30 * SECOND;
/// Time between requests (`retrans_time_ms`), and their number (`mcast_solicit`).
const RETRANS: u64 = SECOND;
const TRIES: u32 = 3;
/// Packets that wait for one neighbour. Attack: a program or peer that makes us send to addresses that don't
/// exist (RFC 4861, 7.2.2 requires at least one).
const WAITING: usize = 8;

#[derive(Debug)]
enum Entry {
    /// Requests were sent; IP packets with room for an Ethernet header wait.
    Incomplete {
        tries: u32,
        next: u64,
        waiting: Vec<Vec<u8>>,
    },
    Known {
        mac: MacAddress,
        until: u64,
        asked: u64,
    },
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

/// The neighbours of one interface.
#[derive(Debug, Default)]
pub(crate) struct Neighbors {
    entries: BTreeMap<IpAddr, Entry>,
    limit: usize,
    /// The earliest deadline of an incomplete entry.
    due: Option<u64>,
}

/// What [`Neighbors::expire`] found.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    pub ask: Vec<IpAddr>,
    pub failed: Vec<IpAddr>,
}

impl Neighbors {
    pub(crate) fn new(limit: usize) -> Neighbors {
        Neighbors { limit, ..Neighbors::default() }
    }

    pub(crate) fn lookup(&mut self, now: u64, address: IpAddr) -> Lookup {
        match self.entries.get_mut(&address) {
            Some(Entry::Known { mac, until, asked }) => {
                let ask = now >= *until && now >= *asked + RETRANS;
                if ask {
                    *asked = now;
                }
                return Lookup::Known(*mac, ask);
            }
            Some(Entry::Incomplete { .. }) => return Lookup::Pending(false),
            None => {}
        }
        // Attack: a scan of a large network through us fills the cache; known neighbours stay.
        if self.entries.len() >= self.limit && !self.evict(now) {
            return Lookup::Full;
        }
        let next = now + RETRANS;
        self.entries.insert(address, Entry::Incomplete { tries: 1, next, waiting: Vec::new() });
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
        Lookup::Pending(true)
    }

    /// Removes an entry that is not confirmed.
    fn evict(&mut self, now: u64) -> bool {
        let stale = self.entries.iter().find(|(_, entry)| match entry {
            Entry::Known { until, .. } => *until <= now,
            Entry::Incomplete { .. } => false,
        });
        let stale = stale.map(|(address, _)| *address);
        stale.is_some_and(|address| self.entries.remove(&address).is_some())
    }

    /// Keeps a packet until its neighbour answers. `false`: it is dropped.
    pub(crate) fn wait(&mut self, address: IpAddr, packet: Vec<u8>) -> bool {
        match self.entries.get_mut(&address) {
            Some(Entry::Incomplete { waiting, .. }) if waiting.len() < WAITING => {
                waiting.push(packet);
                true
            }
            _ => false,
        }
    }

    /// A neighbour said its address. Only expected ones are stored, or changed if known already (RFC 826);
    /// with `answer`, it was asked for. Returns the packets that waited, if this is what they waited for.
    /// Attack: unsolicited announcements would fill the cache, or redirect traffic; the latter can't be
    /// prevented on a shared medium.
    pub(crate) fn learn(
        &mut self,
        now: u64,
        address: IpAddr,
        mac: MacAddress,
        wanted: bool,
    ) -> Option<Vec<Vec<u8>>> {
        if !mac.is_unicast() {
            return None;
        }
        let known = Entry::Known { mac, until: now + REACHABLE, asked: now };
        if let Some(entry) = self.entries.get_mut(&address) {
            return match core::mem::replace(entry, known) {
                Entry::Incomplete { waiting, .. } => Some(waiting),
                Entry::Known { .. } => None,
            };
        }
        if wanted && (self.entries.len() < self.limit || self.evict(now)) {
            self.entries.insert(address, known);
        }
        None
    }

    /// The neighbour's connection makes progress, so it is reachable (RFC 4861, 7.3.1).
    pub(crate) fn confirm(&mut self, now: u64, address: IpAddr) {
        if let Some(Entry::Known { until, .. }) = self.entries.get_mut(&address) {
            *until = now + REACHABLE;
        }
    }

    pub(crate) fn due(&self) -> Option<u64> {
        self.due
    }

    /// Repeats requests; gives up after some.
    pub(crate) fn expire(&mut self, now: u64) -> Expired {
        let mut expired = Expired::default();
        if self.due.is_none_or(|due| due > now) {
            return expired;
        }
        self.due = None;
        self.entries.retain(|address, entry| {
            let Entry::Incomplete { tries, next, .. } = entry else { return true };
            if *next <= now {
                if *tries >= TRIES {
                    expired.failed.push(*address);
                    return false;
                }
                (*tries, *next) = (*tries + 1, now + RETRANS);
                expired.ask.push(*address);
            }
            self.due = Some(self.due.map_or(*next, |due: u64| due.min(*next)));
            true
        });
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn packets_wait_for_an_answer_and_requests_are_repeated() {
        let mut neighbors = Neighbors::new(4);
        assert_eq!(neighbors.lookup(0, address(1)), Lookup::Pending(true));
        assert_eq!(neighbors.lookup(1, address(1)), Lookup::Pending(false));
        assert!((0..WAITING).all(|_| neighbors.wait(address(1), vec![1])));
        assert!(!neighbors.wait(address(1), vec![1]));
        assert_eq!(neighbors.due(), Some(RETRANS));
        assert_eq!(neighbors.expire(RETRANS).ask, [address(1)]);
        assert_eq!(neighbors.learn(RETRANS, address(1), MAC, false).map(|w| w.len()), Some(WAITING));
        assert_eq!(neighbors.lookup(RETRANS, address(1)), Lookup::Known(MAC, false));
        assert_eq!(neighbors.lookup(RETRANS + REACHABLE, address(1)), Lookup::Known(MAC, true));
    }

    #[test]
    fn an_address_that_does_not_answer_is_given_up() {
        let mut neighbors = Neighbors::new(4);
        neighbors.lookup(0, address(1));
        let failed: Vec<_> = (1..=3).flat_map(|n| neighbors.expire(n * RETRANS).failed).collect();
        assert_eq!((failed, neighbors.due()), (vec![address(1)], None));
    }

    #[test]
    fn the_cache_is_bounded_and_unsolicited_addresses_are_not_stored() {
        let mut neighbors = Neighbors::new(2);
        assert_eq!(neighbors.learn(0, address(1), MAC, false), None);
        assert_eq!(neighbors.lookup(0, address(1)), Lookup::Pending(true));
        neighbors.learn(0, address(2), MAC, true);
        assert_eq!(neighbors.lookup(0, address(3)), Lookup::Full);
        assert_eq!(neighbors.lookup(REACHABLE, address(3)), Lookup::Pending(true));
    }
}
