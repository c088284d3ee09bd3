//! Outcomes of recent flows, so that most of their packets need no search among many rules.
use super::area::FIELDS;
use ringway_click::prelude::*;
use ringway_frame::prefetch;

/// Sets of a cache: with four entries each, 262,144 flows in 4 MB.
const SETS: usize = 1 << 16;
/// Entries of a set, which share a cache line.
const WAYS: usize = 4;
/// Bits of an outcome in an entry.
const OUTCOME_BITS: u32 = 23;
/// Flows added in a period, and packets that do without the cache after a period in which fewer were found. Attack:
/// flows that never come again, or that all share a set. A lookup costs a small part of the search that a hit
/// saves, so the other lookups, one packet in 17 at most besides as many as found, slow the filter little.
const PERIOD: u32 = (SETS * WAYS) as u32;
const PAUSE: u32 = 16 * PERIOD;

/// A flow: addresses and ports, then the protocol's field and the outcome plus 1; 0 if unused.
type Entry = [u64; 2];

/// Outcomes by flow. All rules must depend on nothing but the fields. Attack: any number of flows; the memory is
/// that of `SETS`, and a flow takes the place of another.
#[derive(Debug)]
pub(super) struct Cache {
    /// Memory that the system zeroes when it is first used, and not while packets wait for the filter to be built.
    entries: Vec<Entry>,
    /// The first set's first entry.
    first: usize,
    /// Flows added and packets found in this period.
    added: u32,
    found: u32,
    /// Packets until the next period.
    pause: u32,
}

/// The place of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    flow: Entry,
    /// The first entry of its set.
    set: usize,
}

impl Cache {
    pub(super) fn new() -> Self {
        let entries = vec![Entry::default(); SETS * WAYS + WAYS - 1];
        let first = entries.as_ptr().align_offset(WAYS * size_of::<Entry>()).min(WAYS - 1);
        Self { entries, first, added: 0, found: 0, pause: 0 }
    }

    /// Whether a burst of packets is to be looked up. Packets of ever new flows are not, since they would never be
    /// found.
    pub(super) fn is_used(&mut self, packets: usize) -> bool {
        if self.pause > 0 {
            self.pause = self.pause.saturating_sub(packets as u32);
            return false;
        }
        if self.added >= PERIOD {
            self.pause = if self.found < self.added { PAUSE } else { 0 };
            (self.added, self.found) = (0, 0);
        }
        self.pause == 0
    }

    /// The place of a flow, which is prefetched.
    #[inline]
    pub(super) fn approach(&self, [source, destination, from, to, protocol]: [u32; FIELDS]) -> Place {
        let addresses = u64::from(source) << 32 | u64::from(destination);
        let rest = u64::from(from << 16 | to) << 32 | u64::from(protocol) << OUTCOME_BITS;
        // Flows that collide are searched for as without the cache, so senders may know the multipliers.
        let mixed = addresses.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ rest.wrapping_mul(0xb504_f333_f9de_6485);
        let set = ((mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SETS;
        let set = self.first + set * WAYS;
        prefetch(&self.entries[set]);
        Place { flow: [addresses, rest], set }
    }

    /// The outcome of a flow's packets, if known.
    #[inline]
    pub(super) fn find(&mut self, place: &Place) -> Option<u32> {
        // The comparison has no branches: the matching entry can't be predicted.
        let outcome = |[addresses, rest]: &Entry| {
            let differ = (addresses ^ place.flow[0]) | (rest ^ place.flow[1]) >> OUTCOME_BITS;
            if differ == 0 { *rest as u32 & ((1 << OUTCOME_BITS) - 1) } else { 0 }
        };
        let found = self.entries[place.set..][..WAYS].iter().fold(0, |found, entry| found | outcome(entry));
        self.found = self.found.saturating_add(u32::from(found > 0));
        found.checked_sub(1)
    }

    /// Adds a flow that is not in the cache, in place of any other if its set is full: of flows that come in turn and
    /// don't all fit, most are found.
    pub(super) fn add(&mut self, place: &Place, outcome: u32) {
        let [addresses, rest] = place.flow;
        if outcome + 1 < 1 << OUTCOME_BITS {
            let set = &mut self.entries[place.set..][..WAYS];
            let unused = set.iter().position(|[_, outcome]| *outcome == 0);
            let way = unused.unwrap_or((self.added.wrapping_mul(0x9e37_79b1) >> 30) as usize);
            set[way] = [addresses, rest | u64::from(outcome + 1)];
        }
        self.added += 1;
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> [u32; FIELDS] {
        [0x0a00_0000 + number / 7, 0xac10_0000, 1024 + number % 7, 80, 6 << 1]
    }

    #[test]
    fn flows_are_found_until_others_take_their_place() {
        let mut cache = Cache::new();
        for number in 0..40_000 {
            let place = cache.approach(key(number));
            assert_eq!(cache.find(&place), None);
            cache.add(&place, number);
        }
        let known = (0..40_000).filter(|number| {
            let place = cache.approach(key(*number));
            cache.find(&place).inspect(|outcome| assert_eq!(outcome, number)).is_some()
        });
        assert!(known.count() > 39_000);
        // Other protocols, ports and addresses are other flows.
        for change in 0..FIELDS {
            let mut other = key(20_000);
            other[change] ^= 1;
            let place = cache.approach(other);
            assert_ne!(cache.find(&place), Some(20_000), "{change}");
        }
    }

    /// Looks up packets of these flows; returns the numbers of those that were found, and not found.
    fn pass(cache: &mut Cache, flows: impl Iterator<Item = u32>) -> [u32; 2] {
        let mut looked = [0; 2];
        for flow in flows {
            if cache.is_used(1) {
                let place = cache.approach(key(flow));
                let found = cache.find(&place);
                looked[usize::from(found.is_none())] += 1;
                if found.is_none() {
                    cache.add(&place, 1);
                }
            }
        }
        looked
    }

    #[test]
    fn no_flows_make_many_lookups_fail_or_the_cache_grow() {
        let mut cache = Cache::new();
        let memory = cache.memory();
        let packets = 20 * PERIOD;
        let set = |flow: u32| cache.approach(key(flow)).set;
        let colliding: Vec<u32> = (0..2_000_000).filter(|flow| set(*flow) == set(0)).collect();
        assert!(colliding.len() > 16);
        let in_turn = |number: u32| colliding[number as usize % colliding.len()];
        let mut check = |flows: &mut dyn Iterator<Item = u32>| {
            let [found, others] = pass(&mut cache, flows);
            assert!(others <= found + packets / 16 + PERIOD, "{others} not found, {found} found");
        };
        check(&mut (0..packets).map(in_turn));
        for known in [0, 30, 48, 52, 70] {
            check(&mut (0..packets).map(|number| if number % 100 < known { number % 10 } else { number }));
        }
        assert_eq!(cache.memory(), memory);
        // The cache is used again once flows repeat.
        let [found, others] = pass(&mut cache, (0..40 * PERIOD).map(|number| number % 1000));
        assert!(found > 20 * PERIOD && others < 2 * PERIOD, "{others} not found, {found} found");
    }
}
