//! A hash table from stations to ports, with buckets of one cache line.

use crate::{Mac, PortId, Station};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of addresses in a bucket.
const WAYS: usize = 4;
/// `seen` of a static entry, which never ages.
const STATIC: u32 = u32::MAX;

/// Least number of buckets: a bucket's index has the 12 bits of a scrambled station that its key lacks.
const LEAST: usize = 1 << (Station::BITS - 48);

/// A key has 48 bits of the scrambled station above the port's number plus one; 0 means empty. It is one word, so that
/// other workers never see a station with the port of another.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    keys: [AtomicU64; WAYS],
    /// Second of the table's clock at which the address last sent a frame.
    seen: [AtomicU32; WAYS],
}

/// A known station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub mac: Mac,
    /// The number of its VLAN; 0: none.
    pub vlan: u16,
    /// The address's port.
    pub port: PortId,
    /// Seconds since the address last sent a frame; `None` if it is static.
    pub age: Option<u32>,
}

/// The outcome of [`Table::learn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The station was known at this port.
    Known,
    /// The station was not known.
    New,
    /// The station was known at another port until now.
    Moved,
    /// The table has no room for the station, or the station is static.
    Refused,
    /// The station is known at another port, and the table lets none move ([`Table::refuse_moves`]).
    Foreign,
    /// The station is not known at the port, which has learned too many.
    Limited,
}

/// A table of fixed size, written by all workers without a lock.
#[derive(Debug)]
pub struct Table {
    buckets: Box<[Bucket]>,
    shift: u32,
    /// A secret key of the scrambling, whose factor is odd.
    mask: u64,
    factor: u64,
    ageing: u32,
    quota: u32,
    refuses_moves: bool,
    /// Number of addresses of each port.
    counts: Box<[AtomicU32]>,
    /// How often an address came, moved or was removed; apart from what is read for each frame.
    changes: Box<AtomicU64>,
}

/// The second factor of the scrambling.
const SPREAD: u64 = 0xbf58_476d_1ce4_e5b9;

/// The inverse of an odd number, modulo 2^64.
const fn inverse(odd: u64) -> u64 {
    let (mut inverse, mut round) = (odd, 0);
    // Each round doubles the number of correct low bits, of which there are 3 at first.
    while round < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

/// The upper bits of a product, mixed into the lower ones that are used.
#[inline]
fn shifted(product: u64) -> u64 {
    product >> 29 & u64::MAX << UNUSED
}

/// Unused low bits of a scrambled station.
const UNUSED: u32 = u64::BITS - Station::BITS;

/// The part of a key that names its station: the bits that the bucket's index lacks.
#[inline]
fn tag(scrambled: u64) -> u64 {
    scrambled << (16 - UNUSED)
}

#[inline]
fn key(scrambled: u64, port: PortId) -> u64 {
    tag(scrambled) | (u64::from(port) + 1)
}

/// Whether a key is that of a station at any port.
#[inline]
fn names(key: u64, tag: u64) -> bool {
    (key ^ tag).wrapping_sub(1) < 0xffff
}

fn port_of(key: u64) -> PortId {
    (key as u16).wrapping_sub(1)
}

impl Table {
    /// A table for about `entries` stations (at least 8192, at most 16 M) and port numbers below `ports`. A
    /// station that sends no frame for `ageing` seconds is removed. A port may have at most `quota`
    /// stations. Attack: stations that share a bucket; `seed` must be secret.
    pub fn new(entries: u32, ports: usize, ageing: u32, quota: u32, seed: u64) -> Table {
        let buckets = (entries.min(1 << 24) as usize / WAYS * 2).next_power_of_two().max(LEAST);
        let seed = seed | 1;
        Table {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            shift: u64::BITS - buckets.trailing_zeros(),
            mask: seed.rotate_left(32) << UNUSED,
            factor: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            ageing,
            refuses_moves: false,
            quota,
            counts: (0..ports.min(crate::PORTS)).map(|_| AtomicU32::new(0)).collect(),
            changes: Box::default(),
        }
    }

    /// A permutation of all stations with a secret key, in the upper bits. The highest ones, which are the bucket's
    /// index, depend on the whole station.
    #[inline]
    fn scramble(&self, station: Station) -> u64 {
        let first = (station.0 << UNUSED ^ self.mask).wrapping_mul(self.factor);
        (first ^ shifted(first)).wrapping_mul(SPREAD)
    }

    /// The station of the scrambled one.
    fn unscramble(&self, scrambled: u64) -> Station {
        const BACK: u64 = inverse(SPREAD);
        let second = scrambled.wrapping_mul(BACK);
        // Each round has 29 more correct bits, from the highest on.
        let first = (0..3).fold(second, |first, _| second ^ shifted(first));
        Station((first.wrapping_mul(inverse(self.factor)) ^ self.mask) >> UNUSED)
    }

    /// The station of a key in bucket `index`.
    fn station(&self, index: usize, key: u64) -> Station {
        let upper = (index as u64) << self.shift & !(u64::MAX >> (Station::BITS - 48));
        self.unscramble(upper | (key & !0xffff) >> (16 - UNUSED))
    }

    #[inline]
    fn bucket(&self, scrambled: u64) -> &Bucket {
        &self.buckets[(scrambled >> self.shift) as usize]
    }

    #[inline]
    fn is_live(&self, seen: u32, second: u32) -> bool {
        seen == STATIC || second.saturating_sub(seen) <= self.ageing
    }

    /// The port of `station`, if it sent a frame within the ageing time. `second` is the table's clock.
    #[inline]
    pub fn find(&self, station: Station, second: u32) -> Option<PortId> {
        let scrambled = self.scramble(station);
        let (bucket, wanted) = (self.bucket(scrambled), tag(scrambled));
        for way in 0..WAYS {
            let found = bucket.keys[way].load(Relaxed);
            if names(found, wanted) {
                return self.is_live(bucket.seen[way].load(Relaxed), second).then(|| port_of(found));
            }
        }
        None
    }

    /// Lets no station move to another port while it is known at one. Attack: a peer that takes another one's frames
    /// by sending from its address.
    #[must_use]
    pub fn refuse_moves(self, refuses_moves: bool) -> Table {
        Table { refuses_moves, ..self }
    }

    /// Whether the table has the station at a port.
    pub fn knows(&self, station: Station, port: PortId) -> bool {
        let scrambled = self.scramble(station);
        let own = key(scrambled, port);
        self.bucket(scrambled).keys.iter().any(|key| key.load(Relaxed) == own)
    }

    /// Records that `station` sent a frame from `port` in `second`.
    #[inline]
    pub fn learn(&self, station: Station, port: PortId, second: u32) -> Learned {
        let scrambled = self.scramble(station);
        let bucket = self.bucket(scrambled);
        let new = key(scrambled, port);
        for way in 0..WAYS {
            let found = bucket.keys[way].load(Relaxed);
            if found == new {
                let seen = bucket.seen[way].load(Relaxed);
                if seen != second && seen != STATIC {
                    bucket.seen[way].store(second, Relaxed);
                }
                return Learned::Known;
            }
        }
        self.learn_new(bucket, new, second)
    }

    #[cold]
    fn learn_new(&self, bucket: &Bucket, new: u64, second: u32) -> Learned {
        match self.choose(bucket, new, second) {
            Ok((way, found, learned)) if self.replace(bucket, way, found, new, second) => learned,
            Ok(_) => Learned::Refused,
            Err(refusal) => refusal,
        }
    }

    /// The way of the bucket in which a new key shall be, the key that it replaces there, and what that is; or how it
    /// is refused.
    fn choose(&self, bucket: &Bucket, new: u64, second: u32) -> Result<(usize, u64, Learned), Learned> {
        let port = port_of(new);
        let (mut candidate, mut is_free) = (None, false);
        for way in 0..WAYS {
            let found = bucket.keys[way].load(Relaxed);
            let seen = bucket.seen[way].load(Relaxed);
            if names(found, new & !0xffff) {
                // The station moved to another port; static addresses don't move. Attack: sending from other
                // ports' addresses to exceed the quota.
                let moves = seen != STATIC && !self.is_full(port);
                return match self.is_live(seen, second) {
                    true if self.refuses_moves => Err(Learned::Foreign),
                    _ if !moves => Err(Learned::Refused),
                    true => Ok((way, found, Learned::Moved)),
                    false => Ok((way, found, Learned::New)),
                };
            }
            let free = found == 0 || !self.is_live(seen, second);
            let own = port_of(found) == port && seen != STATIC;
            if !is_free && (free || (own && candidate.is_none())) {
                (candidate, is_free) = (Some((way, found)), free);
            }
        }
        // Attack: sending from many addresses to evict other ports' addresses. After a peer has filled its
        // quota, it can only replace its own addresses.
        let (way, found) = candidate.ok_or(Learned::Refused)?;
        let is_refused = self.is_full(port) && (found == 0 || port_of(found) != port);
        if is_refused { Err(Learned::Refused) } else { Ok((way, found, Learned::New)) }
    }

    /// What [`Table::learn`] of `source`, a station at a port, would do, and [`Table::find`] of `to` after it. Changes
    /// nothing.
    pub fn preview(
        &self,
        source: Option<(Station, PortId)>,
        to: Station,
        second: u32,
    ) -> (Option<Learned>, Option<PortId>) {
        let found = self.find(to, second);
        let Some((source, port)) = source else { return (None, found) };
        let scrambled = self.scramble(source);
        let (bucket, new) = (self.bucket(scrambled), key(scrambled, port));
        if bucket.keys.iter().any(|key| key.load(Relaxed) == new) {
            // The station is seen again, and so alive.
            return (Some(Learned::Known), if source == to { Some(port) } else { found });
        }
        let (_, replaced, learned) = match self.choose(bucket, new, second) {
            Ok(chosen) => chosen,
            Err(refusal) => return (Some(refusal), found),
        };
        let wanted = self.scramble(to);
        let is_replaced = core::ptr::eq(bucket, self.bucket(wanted)) && names(replaced, tag(wanted));
        let found = if is_replaced { None } else { found };
        (Some(learned), if source == to { Some(port) } else { found })
    }

    fn replace(&self, bucket: &Bucket, way: usize, old: u64, new: u64, second: u32) -> bool {
        if bucket.keys[way].compare_exchange(old, new, Relaxed, Relaxed).is_err() {
            return false;
        }
        bucket.seen[way].store(second, Relaxed);
        self.changes.fetch_add(1, Relaxed);
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

    /// Adds a static address, of no VLAN. Returns `false` if the bucket is full of static addresses.
    pub fn add_static(&self, mac: Mac, port: PortId) -> bool {
        let scrambled = self.scramble(mac.into());
        let bucket = self.bucket(scrambled);
        let old = |way: usize| bucket.keys[way].load(Relaxed);
        let fixed = |way: usize| old(way) != 0 && bucket.seen[way].load(Relaxed) == STATIC;
        let same = (0..WAYS).find(|&way| names(old(way), tag(scrambled)));
        match same.or_else(|| (0..WAYS).find(|&way| !fixed(way))) {
            Some(way) => self.replace(bucket, way, old(way), key(scrambled, port), STATIC),
            None => false,
        }
    }

    /// Removes all addresses of `port`; static ones only if `with_static`.
    pub fn remove_port(&self, port: PortId, with_static: bool) {
        let is_done = || self.count_of(port).is_none_or(|count| count.load(Relaxed) == 0);
        for bucket in &self.buckets {
            if is_done() {
                return;
            }
            for (slot, seen) in bucket.keys.iter().zip(&bucket.seen) {
                let found = slot.load(Relaxed);
                let taken = found != 0 && port_of(found) == port;
                let taken = taken && (with_static || seen.load(Relaxed) != STATIC);
                if taken && slot.compare_exchange(found, 0, Relaxed, Relaxed).is_ok() {
                    self.changes.fetch_add(1, Relaxed);
                    self.decrement(found);
                }
            }
        }
    }

    /// Removes an address from every VLAN, unless it is static.
    pub fn remove(&self, mac: Mac) {
        for (index, bucket) in self.buckets.iter().enumerate() {
            for (slot, seen) in bucket.keys.iter().zip(&bucket.seen) {
                let found = slot.load(Relaxed);
                let is_its =
                    found != 0 && seen.load(Relaxed) != STATIC && self.station(index, found).mac() == mac;
                if is_its && slot.compare_exchange(found, 0, Relaxed, Relaxed).is_ok() {
                    self.changes.fetch_add(1, Relaxed);
                    self.decrement(found);
                }
            }
        }
    }

    /// Seconds without frames after which an address is removed.
    pub fn ageing(&self) -> u32 {
        self.ageing
    }

    /// How often an address came, moved or was removed. Those that age do not count.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Every live address, sorted.
    pub fn entries(&self, second: u32) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (index, bucket) in self.buckets.iter().enumerate() {
            for way in 0..WAYS {
                let (found, seen) = (bucket.keys[way].load(Relaxed), bucket.seen[way].load(Relaxed));
                if found != 0 && self.is_live(seen, second) {
                    let age = (seen != STATIC).then(|| second.saturating_sub(seen));
                    let station = self.station(index, found);
                    let (mac, vlan) = (station.mac(), station.vlan());
                    entries.push(Entry { mac, vlan, port: port_of(found), age });
                }
            }
        }
        entries.sort_by_key(|entry| (entry.port, entry.mac.bytes(), entry.vlan));
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

    fn station(number: u32) -> Station {
        mac(number).into()
    }

    proptest! {
        #[test]
        fn the_table_never_returns_a_wrong_port(
            steps in prop::collection::vec((0u32..200, 0u16..3, 0u16..8, 0u32..3), 1..500),
        ) {
            let table = Table::new(256, 8, 10, 1000, 0x1234_5678_9abc_def1);
            let mut model = HashMap::new();
            let mut second = 0;
            for (number, vlan, port, passes) in steps {
                second += passes;
                let station = Station::new(mac(number), vlan);
                let before: Option<&(u16, u32)> = model.get(&station);
                let is_elsewhere = before.is_some_and(|(at, seen)| *at != port && second - seen <= 10);
                let learned = table.learn(station, port, second);
                prop_assert!(learned == Learned::Refused || (learned == Learned::Moved) == is_elsewhere);
                if learned != Learned::Refused {
                    model.insert(station, (port, second));
                }
                for (&known, &(behind, seen)) in &model {
                    if let Some(found) = table.find(known, second) {
                        prop_assert_eq!(found, behind);
                        prop_assert!(second - seen <= 10);
                    }
                }
                if model.get(&station) == Some(&(port, second)) {
                    prop_assert_eq!(table.find(station, second), Some(port));
                }
                for entry in table.entries(second) {
                    let known = model.get(&Station::new(entry.mac, entry.vlan));
                    prop_assert_eq!(known.map(|(at, _)| *at), Some(entry.port));
                }
            }
        }

        #[test]
        fn a_preview_is_what_happens(
            // Few stations in a table with a small quota, some of them in the same bucket.
            steps in prop::collection::vec((0u32..300, 0u16..2, 0u32..300, 0u32..3), 1..100),
            quota in 1u32..20,
        ) {
            let table = Table::new(64, 4, 10, quota, 0x1234_5678_9abc_def1);
            // Stations whose scrambled form has the same highest bits.
            let near = |wanted: u32| {
                let mut all = (0..u32::MAX).map(|number| Station::new(mac(number), 0));
                let bucket = |station: &Station| (table.scramble(*station) >> table.shift) < 2;
                all.by_ref().filter(bucket).nth((wanted % 12) as usize).unwrap()
            };
            let crowd: Vec<Station> = (0..12).map(near).collect();
            let station = |number: u32| match number {
                0..12 => Station::new(mac(number), 1),
                number => crowd[number as usize % 12],
            };
            let mut second = 0;
            for (from, port, to, passes) in steps {
                second += passes;
                let (from, to) = (station(from), station(to));
                let known = || crowd.iter().map(|own| table.find(*own, second)).collect::<Vec<_>>();
                let before = known();
                let preview = table.preview(Some((from, port)), to, second);
                prop_assert_eq!(table.preview(None, to, second), (None, table.find(to, second)));
                prop_assert_eq!(known(), before, "a preview changes nothing");
                let learned = table.learn(from, port, second);
                prop_assert_eq!(preview, (Some(learned), table.find(to, second)));
            }
        }

        #[test]
        fn a_scrambled_station_can_be_read_back(
            seed: u64,
            entries in 1u32..100_000,
            station in 0..=Station::MASK,
        ) {
            let table = Table::new(entries, 1, 1, 1, seed);
            let scrambled = table.scramble(Station(station));
            let index = (scrambled >> table.shift) as usize;
            prop_assert!(index < table.buckets.len());
            prop_assert_eq!(table.station(index, key(scrambled, 7)), Station(station));
        }
    }

    #[test]
    fn the_same_address_in_two_vlans_is_two_stations() {
        let table = Table::new(64, 4, 300, 10, 5);
        for (vlan, port) in [(0, 0), (100, 1), (200, 2)] {
            assert_eq!(table.learn(Station::new(mac(1), vlan), port, 0), Learned::New);
        }
        let rows: Vec<_> = table.entries(0).iter().map(|entry| (entry.vlan, entry.port)).collect();
        assert_eq!(rows, [(0, 0), (100, 1), (200, 2)]);
        assert_eq!(table.find(Station::new(mac(1), 200), 0), Some(2));
        assert_eq!(table.find(Station::new(mac(1), 300), 0), None);
    }

    #[test]
    fn a_flood_of_addresses_fills_its_quota_and_no_more() {
        let table = Table::new(4096, 4, 300, 100, 99);
        assert_eq!(table.learn(station(1), 1, 0), Learned::New);
        for number in 1000..100_000 {
            table.learn(Station::new(mac(number), number as u16), 2, 1);
        }
        assert_eq!(table.find(station(1), 1), Some(1));
        assert!(table.entries(1).iter().filter(|entry| entry.port == 2).count() <= 100);
        assert_eq!(table.learn(station(2), 3, 1), Learned::New, "other ports can add addresses");
        for number in 0..200 {
            table.learn(station(number), 3, 1);
            table.learn(station(number), 2, 1);
        }
        let counts = table.entries(1).iter().filter(|entry| entry.port == 2).count();
        assert!(counts <= 100, "port 2 has {counts} addresses");
    }

    #[test]
    fn addresses_age_move_and_are_removed() {
        let table = Table::new(64, 4, 300, 10, 7);
        assert_eq!(table.learn(station(1), 1, 0), Learned::New);
        assert_eq!(table.find(station(1), 300), Some(1));
        assert_eq!(table.find(station(1), 301), None);
        assert_eq!(table.learn(station(1), 2, 301), Learned::New, "it was not live any more");
        assert_eq!(table.learn(station(1), 1, 301), Learned::Moved);
        assert_eq!(table.learn(station(1), 2, 301), Learned::Moved);
        assert_eq!(table.find(station(1), 301), Some(2));
        table.remove_port(2, false);
        assert_eq!(table.find(station(1), 301), None);
        assert!(table.add_static(mac(1), 3));
        assert_eq!(table.learn(station(1), 2, 302), Learned::Refused);
        table.remove_port(3, false);
        let entry = Entry { mac: mac(1), vlan: 0, port: 3, age: None };
        assert_eq!(table.entries(1_000_000), vec![entry]);
        table.remove_port(3, true);
        assert_eq!(table.entries(0), []);
    }

    #[test]
    fn changes_are_counted_but_not_frames() {
        let table = Table::new(64, 4, 300, 10, 7);
        let mut before = table.changes();
        let mut has_changed = || std::mem::replace(&mut before, table.changes()) != table.changes();
        table.learn(station(1), 1, 0);
        assert!(has_changed());
        table.learn(station(1), 1, 9);
        assert!(!has_changed());
        table.learn(station(1), 2, 9);
        assert!(has_changed());
        table.remove_port(1, false);
        table.remove(mac(2));
        assert!(!has_changed(), "nothing was there");
        table.remove(mac(1));
        assert!(has_changed());
        table.learn(station(1), 2, 9);
        assert!(has_changed());
        table.remove_port(2, false);
        assert!(has_changed());
    }

    #[test]
    fn a_table_has_its_nominal_capacity() {
        for entries in [4096, 100_000] {
            let table = Table::new(entries, 2, 300, u32::MAX, 0xdead_beef);
            let learnt = (0..entries).filter(|&number| table.learn(station(number), 1, 0) == Learned::New);
            let learnt = learnt.count();
            assert!(learnt > entries as usize * 9 / 10, "{learnt} of {entries}");
        }
    }
}
