//! Ordered maps and sets whose code exists once. A B-tree of its own for each type of keys and values takes 2 to
//! 12 KB of code in a guest's image, and elements have dozens.
//!
//! Keys are packed into numbers in their order ([`Key`]), which a B-tree maps to places in a table of values. So a
//! look-up or a change takes logarithmic time, as in a B-tree of the values themselves.
use crate::ElementId;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Range;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::net::Ipv4Addr;
use core::ops::Bound;
use ringway_wire::{MacAddress, Protocol};

/// A key of at most 128 bits.
pub trait Key: Copy {
    /// Number of bits.
    const BITS: u32;
    /// As a number; keys and their numbers have the same order.
    fn pack(self) -> u128;
    /// The key whose number it is; greater bits are ignored.
    fn unpack(number: u128) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Key for $number {
            const BITS: u32 = <$number>::BITS;
            #[inline]
            fn pack(self) -> u128 {
                self as u128
            }
            #[inline]
            fn unpack(number: u128) -> Self {
                number as $number
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64 usize u128);

macro_rules! convertible {
    ($($key:ty, $number:ty, $bits:literal, $from:expr, $to:expr;)*) => {$(
        impl Key for $key {
            const BITS: u32 = $bits;
            #[inline]
            fn pack(self) -> u128 {
                $from(self).into()
            }
            #[inline]
            fn unpack(number: u128) -> Self {
                $to(number as $number)
            }
        }
    )*};
}
convertible! {
    Ipv4Addr, u32, 32, Ipv4Addr::to_bits, Ipv4Addr::from_bits;
    Protocol, u8, 8, |protocol: Protocol| protocol.0, Protocol;
    ElementId, u32, 32, |id: ElementId| id.0, ElementId;
    MacAddress, u64, 48, MacAddress::to_u64, MacAddress::from_u64;
}

macro_rules! tuples {
    ($(($($part:ident $name:ident),*))*) => {$(
        impl<$($part: Key),*> Key for ($($part,)*) {
            const BITS: u32 = 0 $(+ $part::BITS)*;
            #[inline]
            fn pack(self) -> u128 {
                const { assert!(Self::BITS <= 128) };
                let ($($name,)*) = self;
                let number = 0;
                $(let number = number << $part::BITS | $name.pack();)*
                number
            }
            #[inline]
            fn unpack(number: u128) -> Self {
                let left = Self::BITS;
                $(
                    let left = left - $part::BITS;
                    let $name = $part::unpack(number >> left);
                )*
                let _ = left;
                ($($name,)*)
            }
        }
    )*};
}
tuples! {
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
    (A a, B b, C c, D d, E e)
}

/// The B-tree: numbers by numbers. Its functions are not generic, and so exist once.
#[derive(Debug, Default)]
struct Tree(BTreeMap<u128, u32>);

impl Tree {
    #[inline(never)]
    fn get(&self, key: u128) -> Option<u32> {
        self.0.get(&key).copied()
    }

    #[inline(never)]
    fn insert(&mut self, key: u128, place: u32) -> bool {
        self.0.insert(key, place).is_none()
    }

    #[inline(never)]
    fn remove(&mut self, key: u128) -> Option<u32> {
        self.0.remove(&key)
    }

    #[inline(never)]
    fn range(&self, from: Bound<u128>) -> Places<'_> {
        Places(self.0.range((from, Bound::Unbounded)))
    }

    /// Keeps numbers for which `keep` returns true; it may change them.
    #[inline(never)]
    fn retain(&mut self, keep: &mut dyn FnMut(u128, &mut u32) -> bool) {
        self.0.retain(|key, place| keep(*key, place));
    }
}

/// Keys with their places, ascending.
#[derive(Clone, Debug)]
struct Places<'a>(Range<'a, u128, u32>);

impl Iterator for Places<'_> {
    type Item = (u128, u32);

    #[inline(never)]
    fn next(&mut self) -> Option<(u128, u32)> {
        self.0.next().map(|(key, place)| (*key, *place))
    }
}

/// Values in places, which stay the same while others come and go.
struct Slab<V> {
    /// Chunks of [`CHUNK`] values, so that a large table need not be copied when it grows.
    chunks: Vec<Vec<Option<V>>>,
    free: Vec<u32>,
}

const CHUNK: usize = 64;

impl<V> Slab<V> {
    const EMPTY: Self = Self { chunks: Vec::new(), free: Vec::new() };

    #[inline]
    fn slot(&mut self, place: u32) -> Option<&mut Option<V>> {
        self.chunks.get_mut(place as usize / CHUNK)?.get_mut(place as usize % CHUNK)
    }

    #[inline]
    fn get(&self, place: u32) -> Option<&V> {
        self.chunks.get(place as usize / CHUNK)?.get(place as usize % CHUNK)?.as_ref()
    }

    /// A free place.
    #[inline(never)]
    fn vacant(&mut self) -> u32 {
        if let Some(place) = self.free.pop() {
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::new());
        }
        let last = self.chunks.len() - 1;
        self.chunks[last].push(None);
        (last * CHUNK + self.chunks[last].len() - 1) as u32
    }

    #[inline]
    fn take(&mut self, place: u32) -> Option<V> {
        let value = self.slot(place)?.take();
        self.free.push(place);
        value
    }
}

/// A map with up to 2^32 values, ordered by keys.
pub struct OrderedMap<K, V> {
    tree: Tree,
    values: Slab<V>,
    keys: PhantomData<K>,
}

impl<K, V> Default for OrderedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key + fmt::Debug, V: fmt::Debug> fmt::Debug for OrderedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K, V> OrderedMap<K, V> {
    /// A map without values.
    pub const fn new() -> Self {
        Self { tree: Tree(BTreeMap::new()), values: Slab::EMPTY, keys: PhantomData }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.tree.0.len()
    }

    /// Whether the map has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// All values, in no order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.chunks.iter_mut().flatten().flatten()
    }
}

impl<K: Key, V> OrderedMap<K, V> {
    /// The value of a key.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        self.values.get(self.tree.get(key.pack())?)
    }

    /// The value of a key.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.values.slot(self.tree.get(key.pack())?)?.as_mut()
    }

    /// Whether the key has a value.
    #[inline]
    pub fn contains_key(&self, key: K) -> bool {
        self.tree.get(key.pack()).is_some()
    }

    /// The place of a key's value, which is taken for it if it has none.
    fn enter(&mut self, key: K) -> &mut Option<V> {
        let key = key.pack();
        let place = self.tree.get(key).unwrap_or_else(|| {
            let place = self.values.vacant();
            self.tree.insert(key, place);
            place
        }) as usize;
        &mut self.values.chunks[place / CHUNK][place % CHUNK]
    }

    /// Gives a key a value; returns its value before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.enter(key).replace(value)
    }

    /// The value of a key, which gets one if it has none.
    pub fn or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        self.enter(key).get_or_insert_with(value)
    }

    /// Removes the value of a key.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let place = self.tree.remove(key.pack())?;
        let value = self.values.take(place);
        self.shrink();
        value
    }

    /// Moves the values together if they take less than a quarter of the places.
    ///
    /// Attack: a peer that once filled a table would keep its memory taken.
    #[inline]
    fn shrink(&mut self) {
        if self.values.chunks.len() > 1 && self.len() < self.values.chunks.len() * (CHUNK / 4) {
            self.compact();
        }
    }

    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let mut former = core::mem::replace(&mut self.values, Slab::EMPTY);
        let values = &mut self.values;
        self.tree.retain(&mut |_, place| {
            let value = former.take(*place);
            *place = values.vacant();
            if let Some(slot) = values.slot(*place) {
                *slot = value;
            }
            true
        });
    }

    /// The least key and its value.
    pub fn first(&self) -> Option<(K, &V)> {
        self.iter().next()
    }

    /// Removes the least key and its value.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let (key, _) = self.first()?;
        Some((key, self.remove(key)?))
    }

    /// Keeps only those values for which `keep` returns true, in order.
    pub fn retain(&mut self, mut keep: impl FnMut(K, &mut V) -> bool) {
        let values = &mut self.values;
        self.tree.retain(&mut |key, place| {
            let kept =
                values.slot(*place).and_then(Option::as_mut).is_some_and(|value| keep(K::unpack(key), value));
            if !kept {
                values.take(*place);
            }
            kept
        });
        self.shrink();
    }

    /// All keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.range(Bound::Unbounded)
    }

    /// The keys from one on and their values, by key.
    pub fn range(&self, from: Bound<K>) -> impl Iterator<Item = (K, &V)> {
        let places = self.tree.range(from.map(Key::pack));
        places.filter_map(|(key, place)| Some((K::unpack(key), self.values.get(place)?)))
    }

    /// All values, by key.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

/// An ordered set of keys.
#[derive(Debug)]
pub struct OrderedSet<K>(Tree, PhantomData<K>);

impl<K> Default for OrderedSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> OrderedSet<K> {
    /// A set without keys.
    pub const fn new() -> Self {
        Self(Tree(BTreeMap::new()), PhantomData)
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.0.len()
    }

    /// Whether the set has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Key> OrderedSet<K> {
    /// Whether the set has a key.
    pub fn contains(&self, key: K) -> bool {
        self.0.get(key.pack()).is_some()
    }

    /// Adds a key; returns whether the set did not have it.
    pub fn insert(&mut self, key: K) -> bool {
        self.0.insert(key.pack(), 0)
    }

    /// Removes a key; returns whether the set had it.
    pub fn remove(&mut self, key: K) -> bool {
        self.0.remove(key.pack()).is_some()
    }

    /// The least key.
    pub fn first(&self) -> Option<K> {
        self.iter().next()
    }

    /// Removes and returns the least key.
    pub fn pop_first(&mut self) -> Option<K> {
        let first = self.first()?;
        self.remove(first);
        Some(first)
    }

    /// All keys, ascending.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.0.range(Bound::Unbounded).map(|(key, _)| K::unpack(key))
    }

    /// The keys from one on, ascending.
    pub fn range(&self, from: K) -> impl Iterator<Item = K> {
        self.0.range(Bound::Included(from.pack())).map(|(key, _)| K::unpack(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_keep_their_order(one: (u32, u16, u8, u64), other: (u32, u16, u8, u64)) {
            prop_assert_eq!(one.pack().cmp(&other.pack()), one.cmp(&other));
            prop_assert_eq!(<(u32, u16, u8, u64)>::unpack(one.pack()), one);
        }

        #[test]
        fn addresses_keep_their_order(one: [u8; 6], other: [u8; 6], port: u16) {
            let [a, b] = [one, other].map(|address| (MacAddress(address), port));
            prop_assert_eq!(a.pack().cmp(&b.pack()), a.cmp(&b));
            prop_assert_eq!(<(MacAddress, u16)>::unpack(a.pack()), a);
        }

        /// Any sequence of calls has the results of a B-tree's.
        #[test]
        fn a_map_is_a_map(calls in prop::collection::vec((0u8..7, 0u16..300), 0..2000)) {
            let (mut map, mut model) = (OrderedMap::new(), BTreeMap::new());
            for (at, (call, key)) in calls.into_iter().enumerate() {
                match call {
                    0..=2 => prop_assert_eq!(map.insert(key, at), model.insert(key, at)),
                    3 => prop_assert_eq!(map.remove(key), model.remove(&key)),
                    4 => prop_assert_eq!(map.get_mut(key), model.get_mut(&key)),
                    5 if key % 16 == 0 => {
                        map.retain(|name, value| (usize::from(name) + *value) % 3 != 0);
                        model.retain(|name, value| (usize::from(*name) + *value) % 3 != 0);
                    }
                    5 => prop_assert_eq!(*map.or_insert_with(key, || at), *model.entry(key).or_insert(at)),
                    _ => prop_assert_eq!(map.pop_first(), model.pop_first()),
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert!(map.values.chunks.len() <= 1 + map.len() / (CHUNK / 4));
            }
            let pairs = |(key, value): (&u16, &usize)| (*key, *value);
            prop_assert!(map.range(Bound::Excluded(99)).map(|(key, value)| (key, *value))
                .eq(model.range(100..).map(pairs)));
            prop_assert!(map.values().eq(model.values()));
            prop_assert_eq!(map.values_mut().map(|value| *value).sum::<usize>(), model.values().sum());
        }

        #[test]
        fn a_set_is_a_set(keys in prop::collection::vec((any::<bool>(), 0u8..50), 0..200)) {
            let (mut set, mut model) = (OrderedSet::new(), std::collections::BTreeSet::new());
            for (add, key) in keys {
                match add {
                    true => prop_assert_eq!(set.insert(key), model.insert(key)),
                    false => prop_assert_eq!(set.remove(key), model.remove(&key)),
                }
                prop_assert_eq!(set.contains(key), model.contains(&key));
            }
            prop_assert!(set.range(20).eq(model.range(20..).copied()));
            prop_assert_eq!(set.pop_first(), model.pop_first());
            prop_assert_eq!((set.first(), set.len()), (model.first().copied(), model.len()));
        }
    }
}
