//! A hash table from addresses to ports, with buckets of one cache line.

use crate::{Mac, PortId};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of addresses in a bucket.
const WAYS: usize = 4;
/// `seen` of a static entry, which never ages.
const STATIC: u32 = u32::MAX;

/// A key has the address in the low 48 bits, and the port's number plus one above them; 0 means empty. It is
/// one word, so that other workers never see an address with the port of another.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    keys: [AtomicU64; WAYS],
    /// Second of the table's clock at which the address last sent a frame.
    seen: [AtomicU32; WAYS],
}

/// A known address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub mac: Mac,
    /// The address's port.
    pub port: PortId,
    /// Seconds since the address last sent a frame; `None` if it is static.
    pub age: Option<u32>,
}

/// A table of fixed size, written by all workers without a lock.
#[derive(Debug)]
pub struct Table {
    buckets: Box<[Bucket]>,
    shift: u32,
    seed: u64,
    ageing: u32,
    quota: u32,
    /// Number of addresses of each port.
    counts: Box<[AtomicU32]>,
}

fn key(mac: Mac, port: PortId) -> u64 {
    mac.0 | (u64::from(port) + 1) << 48
}

fn port_of(key: u64) -> PortId {
    ((key >> 48) as u16).wrapping_sub(1)
}

impl Table {
    /// A table for about `entries` addresses (at least 64, at most 16 M) and port numbers below `ports`. An
    /// address that sends no frame for `ageing` seconds is removed. A port may have at most `quota`
    /// addresses. Attack: addresses that share a bucket; `seed` must be secret.
    pub fn new(entries: u32, ports: usize, ageing: u32, quota: u32, seed: u64) -> Table {
        let buckets = (entries.clamp(64, 1 << 24) as usize / WAYS * 2).next_power_of_two();
        Table {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            shift: 64 - buckets.trailing_zeros(),
            seed: seed | 1,
            ageing,
            quota,
            counts: (0..ports.min(crate::PORTS)).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    #[inline]
    fn bucket(&self, mac: Mac) -> &Bucket {
        // A multiplication by a secret odd number. The upper bits of the product depend on the whole address.
        let hash = (mac.0 ^ self.seed.rotate_left(32))
            .wrapping_mul(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        &self.buckets[((hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> self.shift) as usize]
    }

    #[inline]
    fn is_live(&self, seen: u32, second: u32) -> bool {
        seen == STATIC || second.saturating_sub(seen) <= self.ageing
    }

    /// The port of `mac`, if it sent a frame within the ageing time. `second` is the table's clock.
    #[inline]
    pub fn find(&self, mac: Mac, second: u32) -> Option<PortId> {
        let bucket = self.bucket(mac);
        for way in 0..WAYS {
            let found = bucket.keys[way].load(Relaxed);
            if found & Mac::MASK == mac.0 && found != 0 {
                return self.is_live(bucket.seen[way].load(Relaxed), second).then(|| port_of(found));
            }
        }
        None
    }

    /// Records that `mac` sent a frame from `port` in `second`. Returns `false` if there is no room.
    #[inline]
    pub fn learn(&self, mac: Mac, port: PortId, second: u32) -> bool {
        let bucket = self.bucket(mac);
        let new = key(mac, port);
        for way in 0..WAYS {
            let found = bucket.keys[way].load(Relaxed);
            if found == new {
                let seen = bucket.seen[way].load(Relaxed);
                if seen != second && seen != STATIC {
                    bucket.seen[way].store(second, Relaxed);
                }
                return true;
            }
        }
        self.learn_new(bucket, new, second)
    }

    #[cold]
    fn learn_new(&self, bucket: &Bucket, new: u64, second: u32) -> bool {
        let port = port_of(new);
        let (mut candidate, mut is_free) = (None, false);
        for way in 0..WAYS {
            let found = bucket.keys[way].load(Relaxed);
            let seen = bucket.seen[way].load(Relaxed);
            if found != 0 && (found ^ new) & Mac::MASK == 0 {
                // The station moved to another port; static addresses don't move. Attack: sending from other
                // ports' addresses to exceed the quota.
                return seen != STATIC
                    && !self.is_full(port)
                    && self.replace(bucket, way, found, new, second);
            }
            let free = found == 0 || !self.is_live(seen, second);
            let own = port_of(found) == port && seen != STATIC;
            if !is_free && (free || (own && candidate.is_none())) {
                (candidate, is_free) = (Some((way, found)), free);
            }
        }
        // Attack: sending from many addresses to evict other ports' addresses. After a peer has filled its
        // quota, it can only replace its own addresses.
        let Some((way, found)) = candidate else { return false };
        if self.is_full(port) && (found == 0 || port_of(found) != port) {
            return false;
        }
        self.replace(bucket, way, found, new, second)
    }

    fn replace(&self, bucket: &Bucket, way: usize, old: u64, new: u64, second: u32) -> bool {
        if bucket.keys[way].compare_exchange(old, new, Relaxed, Relaxed).is_err() {
            return false;
        }
        bucket.seen[way].store(second, Relaxed);
        if let Some(count) = self.count_of(port_of(new)) {
            count.fetch_add(1, Relaxed);
        }
        self.decrement(old);
        true
    }

    /// Whether the port has reached its quota of addresses.
    fn is_full(&self, port: PortId) -> bool {
        self.count_of(port).is_none_or(|count| count.load(Relaxed) >= self.quota)
    }

    fn count_of(&self, port: PortId) -> Option<&AtomicU32> {
        self.counts.get(usize::from(port))
    }

    fn decrement(&self, key: u64) {
        if key != 0
            && let Some(count) = self.count_of(port_of(key))
        {
            count.fetch_sub(1, Relaxed);
        }
    }

    /// Adds a static address. Returns `false` if the bucket is full of static addresses.
    pub fn add_static(&self, mac: Mac, port: PortId) -> bool {
        let bucket = self.bucket(mac);
        let old = |way: usize| bucket.keys[way].load(Relaxed);
        let fixed = |way: usize| old(way) != 0 && bucket.seen[way].load(Relaxed) == STATIC;
        let same = (0..WAYS).find(|&way| old(way) & Mac::MASK == mac.0 && old(way) != 0);
        match same.or_else(|| (0..WAYS).find(|&way| !fixed(way))) {
            Some(way) => self.replace(bucket, way, old(way), key(mac, port), STATIC),
            None => false,
        }
    }

    /// Removes all addresses of `port`.
    pub fn remove_port(&self, port: PortId) {
        for bucket in &self.buckets {
            for slot in &bucket.keys {
                let found = slot.load(Relaxed);
                let taken = found != 0 && port_of(found) == port;
                if taken && slot.compare_exchange(found, 0, Relaxed, Relaxed).is_ok() {
                    self.decrement(found);
                }
            }
        }
    }

    /// Every live address, sorted.
    pub fn entries(&self, second: u32) -> Vec<Entry> {
        let mut entries = Vec::new();
        for bucket in &self.buckets {
            for way in 0..WAYS {
                let (found, seen) = (bucket.keys[way].load(Relaxed), bucket.seen[way].load(Relaxed));
                if found != 0 && self.is_live(seen, second) {
                    let age = (seen != STATIC).then(|| second.saturating_sub(seen));
                    entries.push(Entry { mac: Mac(found & Mac::MASK), port: port_of(found), age });
                }
            }
        }
        entries.sort_by_key(|entry| (entry.port, entry.mac.bytes()));
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac::new([2, 0, a, b, c, d])
    }

    proptest! {
        #[test]
        fn the_table_never_returns_a_wrong_port(
            steps in prop::collection::vec((0u32..200, 0u16..8, 0u32..3), 1..500),
        ) {
            let table = Table::new(256, 8, 10, 1000, 0x1234_5678_9abc_def1);
            let mut model = HashMap::new();
            let mut second = 0;
            for (number, port, passes) in steps {
                second += passes;
                if table.learn(mac(number), port, second) {
                    model.insert(number, (port, second));
                }
                for (&known, &(behind, seen)) in &model {
                    if let Some(found) = table.find(mac(known), second) {
                        prop_assert_eq!(found, behind);
                        prop_assert!(second - seen <= 10);
                    }
                }
                if model.get(&number) == Some(&(port, second)) {
                    prop_assert_eq!(table.find(mac(number), second), Some(port));
                }
            }
        }
    }

    #[test]
    fn a_flood_of_addresses_fills_its_quota_and_no_more() {
        let table = Table::new(4096, 4, 300, 100, 99);
        assert!(table.learn(mac(1), 1, 0));
        for number in 1000..100_000 {
            table.learn(mac(number), 2, 1);
        }
        assert_eq!(table.find(mac(1), 1), Some(1));
        assert!(table.entries(1).iter().filter(|entry| entry.port == 2).count() <= 100);
        assert!(table.learn(mac(2), 3, 1), "other ports can add addresses");
        for number in 0..200 {
            table.learn(mac(number), 3, 1);
            table.learn(mac(number), 2, 1);
        }
        let counts = table.entries(1).iter().filter(|entry| entry.port == 2).count();
        assert!(counts <= 100, "port 2 has {counts} addresses");
    }

    #[test]
    fn addresses_age_move_and_are_removed() {
        let table = Table::new(64, 4, 300, 10, 7);
        assert!(table.learn(mac(1), 1, 0));
        assert_eq!(table.find(mac(1), 300), Some(1));
        assert_eq!(table.find(mac(1), 301), None);
        assert!(table.learn(mac(1), 2, 301));
        assert_eq!(table.find(mac(1), 301), Some(2));
        table.remove_port(2);
        assert_eq!(table.find(mac(1), 301), None);
        assert!(table.add_static(mac(1), 3) && !table.learn(mac(1), 2, 302));
        assert_eq!(table.entries(1_000_000), vec![Entry { mac: mac(1), port: 3, age: None }]);
    }

    #[test]
    fn a_table_has_its_nominal_capacity() {
        let table = Table::new(4096, 2, 300, 10_000, 0xdead_beef);
        let learnt = (0..4096).filter(|&number| table.learn(mac(number), 1, 0)).count();
        assert!(learnt > 4096 * 9 / 10, "{learnt} of 4096");
    }
}
