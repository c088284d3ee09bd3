//! A bounded table of flows, or of other things that packets are counted by, with lookup by key and expiry by age.
//!
//! Chains of slots, each slot of one or a few cache lines; slots never move. The table grows without a pause
//! ([`Buckets`]). A clock hand passes over the slots; it finds expired entries, and the entry to evict when the table
//! is full: of the next few, the least recently used.
//!
//! A lookup takes two uncached lines: the bucket and the slot. A burst first prefetches all its buckets
//! ([`FlowTable::approach`]), then all its slots ([`FlowTable::near`]), and then does the lookups.
use super::blocks::Blocks;
use super::buckets::{Buckets, MOVES};
use ringway_frame::prefetch;

/// Slots examined to choose one for eviction.
const LOOKS: usize = 16;
/// Maximum number of flows. Attack: a configuration or a stream of new flows that exhausts memory.
pub(crate) const LARGEST: u32 = 1 << 24;
/// Default number of flows.
pub(crate) const USUAL: u32 = 1 << 20;

/// A key of a table.
pub(crate) trait Key: Copy + Eq + Default {
    /// The key's hash. Attack: keys chosen to collide; the sender does not know `seed`.
    fn hash(self, seed: u64) -> u64;
}

/// Combines two numbers into one.
#[inline]
pub(crate) fn fold(first: u64, second: u64) -> u64 {
    let product = u128::from(first) * u128::from(second);
    product as u64 ^ (product >> 64) as u64
}

impl Key for u64 {
    #[inline]
    fn hash(self, seed: u64) -> u64 {
        fold(fold(self ^ seed, 0x9e37_79b9_7f4a_7c15) ^ seed.rotate_left(32), 0xd6e8_feb8_6659_fd93)
    }
}

impl Key for u32 {
    #[inline]
    fn hash(self, seed: u64) -> u64 {
        u64::from(self).hash(seed)
    }
}

/// In this order: with keys of eight bytes, a lookup finds what it needs, and the first 40 bytes of the value, in one
/// cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct FlowEntry<K, V> {
    key: K,
    /// Next entry of the chain, plus 1; 0 at the end.
    next: u32,
    live: bool,
    seen: u64,
    value: V,
}

#[derive(Debug)]
pub(crate) struct FlowTable<K, V> {
    slots: Blocks<FlowEntry<K, V>>,
    live: u32,
    capacity: u32,
    seed: u64,
    buckets: Buckets,
    hand: u32,
    evictions: u64,
}

impl<K: Key, V: Default> Default for FlowTable<K, V> {
    fn default() -> Self {
        Self::new(USUAL, 0)
    }
}

impl<K: Key, V: Default> FlowTable<K, V> {
    /// An empty table with this capacity, at least 1.
    pub(crate) fn new(capacity: u32, seed: u64) -> Self {
        Self {
            slots: Blocks::default(),
            live: 0,
            capacity: capacity.clamp(1, LARGEST),
            seed,
            buckets: Buckets::default(),
            hand: 0,
            evictions: 0,
        }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    /// Maximum number of entries.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of entries evicted to make room.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Number of slots, empty ones included.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Computes a key's hash and prefetches its bucket.
    #[inline]
    pub(crate) fn approach(&self, key: K) -> u64 {
        let hash = key.hash(self.seed);
        prefetch(self.buckets.get(hash));
        hash
    }

    /// Prefetches the first slot of a bucket that [`FlowTable::approach`] prefetched.
    #[inline]
    pub(crate) fn near(&self, hash: u64) {
        if let Some(number) = self.buckets.get(hash).checked_sub(1) {
            prefetch(&self.slots[number]);
        }
    }

    /// Prefetches a slot, and a part of its value.
    #[inline]
    pub(crate) fn fetch<T>(&self, number: u32, part: impl Fn(&V) -> &T) {
        if let Some(slot) = self.slots.get(number) {
            prefetch(slot);
            prefetch(part(&slot.value));
        }
    }

    /// The slot number of a key, which is stable while the key is in the table.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: K) -> Option<u32> {
        let mut next = *self.buckets.get(hash);
        while let Some(number) = next.checked_sub(1) {
            let slot = &self.slots[number];
            if slot.key == key {
                return Some(number);
            }
            next = slot.next;
        }
        None
    }

    /// [`FlowTable::find`] for a single key, hashing it first.
    pub(crate) fn find_one(&self, key: K) -> Option<u32> {
        self.find(key.hash(self.seed), key)
    }

    /// The key and value in a slot.
    pub(crate) fn get(&self, number: u32) -> Option<(&K, &V)> {
        let slot = self.slots.get(number)?;
        slot.live.then_some((&slot.key, &slot.value))
    }

    /// The value in a slot, mutably.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut V> {
        let slot = self.slots.get_mut(number)?;
        slot.live.then_some(&mut slot.value)
    }

    /// The value in a slot, mutably; sets its last-seen time.
    #[inline]
    pub(crate) fn touch(&mut self, number: u32, now: u64) -> Option<&mut V> {
        let slot = self.slots.get_mut(number)?;
        slot.seen = now;
        slot.live.then_some(&mut slot.value)
    }

    /// Entries in up to `places` slots from `from` on, and the slot to continue from, if any remain.
    pub(crate) fn some(&self, from: u32, places: usize) -> (impl Iterator<Item = (&K, &V)>, Option<u32>) {
        let end = from.saturating_add(places as u32);
        let slots = (from..end).map_while(|number| self.slots.get(number)).filter(|slot| slot.live);
        (
            slots.map(|slot| (&slot.key, &slot.value)),
            Some(end).filter(|end| (*end as usize) < self.slots.len()),
        )
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let live = self.slots.iter().filter(|slot| slot.live);
        live.map(|slot| (&slot.key, &slot.value))
    }

    /// Adds a key that is not in the table; returns its slot number and the evicted entry, if any.
    pub(crate) fn add(&mut self, hash: u64, key: K, value: V, now: u64) -> (u32, Option<(K, V)>) {
        let evicted = if self.live >= self.capacity { self.make_room() } else { None };
        let number = self.slots.take();
        let head = self.buckets.get_mut(hash);
        let next = core::mem::replace(head, number + 1);
        self.slots[number] = FlowEntry { key, next, live: true, seen: now, value };
        self.live += 1;
        self.grow();
        (number, evicted)
    }

    /// [`FlowTable::add`] for a single key, hashing it first.
    pub(crate) fn add_one(&mut self, key: K, value: V, now: u64) -> (u32, Option<(K, V)>) {
        self.add(key.hash(self.seed), key, value, now)
    }

    /// Removes the entry in a slot.
    pub(crate) fn remove(&mut self, number: u32) -> Option<(K, V)> {
        let (key, _) = self.get(number)?;
        let hash = key.hash(self.seed);
        let behind = self.slots[number].next;
        let mut at = *self.buckets.get(hash);
        if at == number + 1 {
            *self.buckets.get_mut(hash) = behind;
        }
        while let Some(before) = at.checked_sub(1) {
            at = self.slots[before].next;
            if at == number + 1 {
                self.slots[before].next = behind;
                break;
            }
        }
        let slot = self.slots.free(number);
        self.live -= 1;
        Some((slot.key, slot.value))
    }

    /// The next entry, within `steps` slots, for which `old` returns true, given its value and the time it was last
    /// seen; returns its slot number. Subtracts the slots visited from `steps`.
    pub(crate) fn next_old(
        &mut self,
        steps: &mut usize,
        mut old: impl FnMut(&mut V, u64) -> bool,
    ) -> Option<u32> {
        while *steps > 0 {
            *steps -= 1;
            let number = self.turn()?;
            let slot = &mut self.slots[number];
            if slot.live && old(&mut slot.value, slot.seen) {
                return Some(number);
            }
        }
        None
    }

    /// Advances the clock hand; `None` if there are no slots.
    fn turn(&mut self) -> Option<u32> {
        let slots = self.slots() as u32;
        self.hand = if self.hand + 1 >= slots { 0 } else { self.hand + 1 };
        (slots > 0).then_some(self.hand)
    }

    fn make_room(&mut self) -> Option<(K, V)> {
        let mut oldest: Option<(u64, u32)> = None;
        let mut looks = 0;
        // The loop terminates: the table is full, so some slots are occupied.
        while looks < LOOKS || oldest.is_none() {
            looks += 1;
            let number = self.turn()?;
            let slot = &self.slots[number];
            if slot.live && oldest.is_none_or(|(seen, _)| slot.seen < seen) {
                oldest = Some((slot.seen, number));
            }
            if looks > self.slots() {
                break;
            }
        }
        self.evictions += 1;
        self.remove(oldest?.1)
    }

    /// Hashes all keys by another seed, which takes as long as the table is large.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.buckets.clear();
        for number in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[number];
            if slot.live {
                let head = self.buckets.get_mut(slot.key.hash(seed));
                slot.next = core::mem::replace(head, number + 1);
            }
        }
    }

    /// Moves a few old buckets, or allocates more if there are too few.
    fn grow(&mut self) {
        for _ in 0..MOVES {
            let Some(mut next) = self.buckets.next_old() else { break };
            while let Some(number) = next.checked_sub(1) {
                let hash = self.slots[number].key.hash(self.seed);
                let behind = core::mem::replace(self.buckets.get_mut(hash), number + 1);
                next = core::mem::replace(&mut self.slots[number].next, behind);
            }
        }
        self.buckets.provide(self.live as usize * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_least_recently_used_flow_is_evicted() {
        let mut table: FlowTable<u64, u32> = FlowTable::new(3, 7);
        for key in 0..3 {
            assert_eq!(table.add_one(key, key as u32 * 10, key).1, None);
        }
        let first = table.find_one(0).unwrap();
        assert_eq!(table.touch(first, 9), Some(&mut 0));
        assert_eq!(table.add_one(3, 30, 10).1, Some((1, 10)));
        assert_eq!((table.len(), table.evictions(), table.find_one(1)), (3, 1, None));
        assert_eq!(table.find_one(0), Some(first));
    }

    #[test]
    fn a_sweep_removes_all_expired_flows() {
        let mut table: FlowTable<u64, u64> = FlowTable::new(10_000, 7);
        for key in 0..5000 {
            table.add_one(key, key, key);
        }
        let mut steps = table.slots();
        while let Some(number) = table.next_old(&mut steps, |_, seen| seen < 2000) {
            assert!(table.remove(number).is_some_and(|(key, value)| key == value && key < 2000));
        }
        assert_eq!((steps, table.len()), (0, 3000));
        assert!((0..5000).all(|key| table.find_one(key).is_some() == (key >= 2000)));
    }

    proptest! {
        #[test]
        fn the_flow_table_equals_a_map(
            steps in prop::collection::vec((0u8..3, 0u64..300), 0..900),
            reseeds in prop::collection::btree_set(0usize..900, 0..3),
        ) {
            let mut table: FlowTable<u64, u64> = FlowTable::new(u32::MAX, 3);
            let mut model = BTreeMap::new();
            for (now, (step, key)) in steps.into_iter().enumerate() {
                if reseeds.contains(&now) {
                    let before = key.hash(table.seed);
                    table.reseed(1000 + now as u64);
                    prop_assert!(key.hash(table.seed) != before);
                }
                match (step, table.find_one(key)) {
                    (0 | 1, None) => {
                        prop_assert!(table.add_one(key, now as u64, 0).1.is_none());
                        model.insert(key, now as u64);
                    }
                    (2, Some(number)) => prop_assert_eq!(
                        table.remove(number).map(|(_, value)| value), model.remove(&key)
                    ),
                    (_, found) => {
                        let found = found.and_then(|number| table.get(number)).map(|(_, value)| value);
                        prop_assert_eq!(found, model.get(&key));
                    }
                }
                prop_assert_eq!(table.len() as usize, model.len());
            }
            let all: BTreeMap<u64, u64> = table.iter().map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(all, model);
        }
    }
}
