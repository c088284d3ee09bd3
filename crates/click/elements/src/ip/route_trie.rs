//! Longest-prefix match: a trie with strides of 16, 8 and 8 bits, and prefixes expanded to slots (Srinivasan,
//! Varghese, "Fast address lookups using controlled prefix expansion", 1999). A lookup reads one to three words.
use alloc::collections::BTreeMap;
use core::ops::Range;
use ringway_click::prelude::*;
use ringway_click::{LINES, PACKETS, Progress};
use ringway_frame::prefetch;

const ROOT_BITS: u32 = 16;
const CHUNK_BITS: u32 = 8;
/// A slot that leads to a chunk. Other slots hold a route's number plus one, or 0.
const CHUNK: u32 = 1 << 31;
/// Maximum number of routes. Attack: a configuration or a handler's caller that exhausts memory.
const MOST_ROUTES: usize = 1 << 22;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrieSlot {
    /// No route.
    Empty,
    /// A route's number.
    Route(u32),
    /// Contains longer prefixes.
    Deeper,
}

impl TrieSlot {
    fn of(slot: u32) -> Self {
        match slot {
            0 => Self::Empty,
            slot if slot & CHUNK != 0 => Self::Deeper,
            slot => Self::Route(slot - 1),
        }
    }
}

/// A trie from prefixes to values.
#[derive(Debug)]
pub(crate) struct RouteTrie<T> {
    root: Box<[u32]>,
    chunks: Vec<[u32; 1 << CHUNK_BITS]>,
    routes: Vec<Option<(u32, T)>>,
    free: Vec<u32>,
    /// Indices of routes by length and address of the prefix.
    by_prefix: BTreeMap<u64, u32>,
}

impl<T> Default for RouteTrie<T> {
    fn default() -> Self {
        Self {
            root: vec![0; 1 << ROOT_BITS].into_boxed_slice(),
            chunks: Vec::new(),
            routes: Vec::new(),
            free: Vec::new(),
            by_prefix: BTreeMap::new(),
        }
    }
}

fn mask(length: u32) -> u32 {
    u32::MAX.checked_shl(32 - length).unwrap_or(0)
}

/// A prefix as a key. Numbers, since other maps have such keys too, and each type of keys takes code.
fn name(address: u32, length: u32) -> u64 {
    u64::from(length) << 32 | u64::from(address & mask(length))
}

/// The 16-bit networks that a prefix covers, or the one that contains it.
pub(super) fn networks(address: u32, length: u32) -> Range<usize> {
    let count = (1 << ROOT_BITS) >> length.min(ROOT_BITS);
    let first = (address >> (32 - ROOT_BITS)) as usize & !(count - 1);
    first..first + count
}

impl<T> RouteTrie<T> {
    /// The value of the longest prefix that contains an address.
    #[inline]
    pub(crate) fn lookup(&self, address: u32) -> Option<&T> {
        let mut slot = *self.root.get((address >> 16) as usize)?;
        if slot & CHUNK != 0 {
            slot = self.chunks.get((slot ^ CHUNK) as usize)?[(address >> 8) as usize & 255];
            if slot & CHUNK != 0 {
                slot = self.chunks.get((slot ^ CHUNK) as usize)?[address as usize & 255];
            }
        }
        let index = slot.checked_sub(1)?;
        self.routes.get(index as usize)?.as_ref().map(|(_, value)| value)
    }

    /// Looks up several addresses, so that their cache misses overlap: the number that [`RouteTrie::insert`] gave the
    /// longest prefix of each.
    #[inline]
    pub(crate) fn lookup_all(&self, addresses: &[u32], numbers: &mut [Option<u32>]) {
        let mut slots = [0u32; PACKETS];
        let chunk =
            |slot: u32| if slot & CHUNK != 0 { self.chunks.get((slot ^ CHUNK) as usize) } else { None };
        for (slot, address) in slots.iter_mut().zip(addresses) {
            *slot = self.root[(address >> 16) as usize];
            if let Some(chunk) = chunk(*slot) {
                prefetch(&chunk[(address >> 8) as usize & 255]);
            }
        }
        for (slot, address) in slots.iter_mut().zip(addresses) {
            if let Some(above) = chunk(*slot) {
                *slot = above[(address >> 8) as usize & 255];
                if let Some(chunk) = chunk(*slot) {
                    prefetch(&chunk[*address as usize & 255]);
                }
            }
        }
        for ((slot, address), number) in slots.iter().zip(addresses).zip(numbers) {
            let slot = chunk(*slot).map_or(*slot, |chunk| chunk[*address as usize & 255]);
            *number = slot.checked_sub(1);
        }
    }

    /// The slot of a 16-bit network, or else the slots of its 256 networks of 24 bits.
    pub(super) fn network(&self, network: usize) -> Result<TrieSlot, impl Iterator<Item = TrieSlot>> {
        let slot = self.root.get(network).copied().unwrap_or(0);
        let place = (slot ^ CHUNK) as usize;
        match self.chunks.get(place).filter(|_| slot & CHUNK != 0) {
            Some(chunk) => Err(chunk.iter().map(|slot| TrieSlot::of(*slot))),
            None => Ok(TrieSlot::of(slot)),
        }
    }

    /// The value of exactly this prefix.
    pub(crate) fn get(&self, address: u32, length: u32) -> Option<&T> {
        let index = *self.by_prefix.get(&name(address, length))?;
        self.routes.get(index as usize)?.as_ref().map(|(_, value)| value)
    }

    /// The value with this number.
    pub(crate) fn value(&self, number: u32) -> Option<&T> {
        self.routes.get(number as usize)?.as_ref().map(|(_, value)| value)
    }

    /// Sets the value of a prefix; [`RouteTrie::cover`] makes it visible to lookups. Returns its number and previous
    /// value, or `None` if the trie is full. `length` is at most 32.
    pub(crate) fn enter(&mut self, address: u32, length: u32, value: T) -> Option<(u32, Option<T>)> {
        let address = address & mask(length);
        if let Some(index) = self.by_prefix.get(&name(address, length)) {
            let place = self.routes.get_mut(*index as usize)?;
            let old = place.replace((length, value)).map(|(_, old)| old);
            return Some((*index, old));
        }
        if self.by_prefix.len() >= MOST_ROUTES {
            return None;
        }
        let index = self.free.pop().unwrap_or(self.routes.len() as u32);
        match self.routes.get_mut(index as usize) {
            Some(place) => *place = Some((length, value)),
            None => self.routes.push(Some((length, value))),
        }
        self.by_prefix.insert(name(address, length), index);
        Some((index, None))
    }

    /// Makes a prefix visible to lookups in some 16-bit networks. Returns the number of slots visited.
    pub(crate) fn cover(&mut self, number: u32, address: u32, length: u32, some: Range<usize>) -> usize {
        self.set(address & mask(length), length, some, |routes, slot| {
            let old = slot.checked_sub(1).and_then(|old| routes.get(old as usize)).and_then(Option::as_ref);
            if old.is_none_or(|(old, _)| *old <= length) { number + 1 } else { slot }
        })
    }

    /// Removes a prefix, which lookups find until [`RouteTrie::uncover`] and [`RouteTrie::free`]; returns its number.
    pub(crate) fn leave(&mut self, address: u32, length: u32) -> Option<u32> {
        self.by_prefix.remove(&name(address, length))
    }

    /// Hides a removed prefix from lookups in some networks. Returns the number of slots visited.
    pub(crate) fn uncover(&mut self, number: u32, address: u32, length: u32, some: Range<usize>) -> usize {
        let address = address & mask(length);
        let around = (0..length)
            .rev()
            .find_map(|shorter| self.by_prefix.get(&name(address, shorter)).map(|around| around + 1));
        let around = around.unwrap_or(0);
        self.set(address, length, some, |_, slot| if slot == number + 1 { around } else { slot })
    }

    /// Frees the number of a prefix that lookups don't find any more; returns its value.
    pub(crate) fn free(&mut self, number: u32) -> Option<T> {
        self.free.push(number);
        self.routes.get_mut(number as usize)?.take().map(|(_, value)| value)
    }

    /// Frees part of the memory; no lookup may follow.
    pub(crate) fn give_up(&mut self) -> Progress {
        for _ in 0..LINES {
            self.by_prefix.pop_last();
        }
        // A chunk takes 1 KB.
        self.chunks.truncate(self.chunks.len().saturating_sub(LINES));
        self.chunks.shrink_to_fit();
        if self.by_prefix.is_empty() && self.chunks.is_empty() { Progress::Done } else { Progress::More }
    }

    /// Changes every slot that a prefix covers in some networks; returns their number.
    fn set(
        &mut self,
        address: u32,
        length: u32,
        some: Range<usize>,
        change: impl Fn(&[Option<(u32, T)>], u32) -> u32 + Copy,
    ) -> usize {
        let networks = networks(address, length);
        let mut slots = 0;
        if length <= ROOT_BITS {
            for at in networks.start.max(some.start)..networks.end.min(some.end) {
                slots += match self.root[at] {
                    slot if slot & CHUNK != 0 => self.change_all((slot ^ CHUNK) as usize, change),
                    slot => {
                        self.root[at] = change(&self.routes, slot);
                        1
                    }
                }
            }
            return slots;
        }
        if !some.contains(&networks.start) {
            return 0;
        }
        let chunk = self.chunk_behind(None, networks.start);
        let second = (address >> 8) as usize & 255;
        if length <= ROOT_BITS + CHUNK_BITS {
            for at in second..second + (1 << (ROOT_BITS + CHUNK_BITS - length)) {
                slots += self.change_one(chunk, at, change);
            }
            return slots;
        }
        let chunk = self.chunk_behind(Some(chunk), second);
        let third = address as usize & 255;
        for at in third..third + (1 << (32 - length)) {
            slots += self.change_one(chunk, at, change);
        }
        slots
    }

    fn change_one(
        &mut self,
        chunk: usize,
        at: usize,
        change: impl Fn(&[Option<(u32, T)>], u32) -> u32 + Copy,
    ) -> usize {
        match self.chunks[chunk][at] {
            slot if slot & CHUNK != 0 => self.change_all((slot ^ CHUNK) as usize, change),
            slot => {
                self.chunks[chunk][at] = change(&self.routes, slot);
                1
            }
        }
    }

    fn change_all(&mut self, chunk: usize, change: impl Fn(&[Option<(u32, T)>], u32) -> u32 + Copy) -> usize {
        let mut slots = 1 << CHUNK_BITS;
        for at in 0..1 << CHUNK_BITS {
            match self.chunks[chunk][at] {
                // The third level has no chunks below it, which bounds the recursion.
                slot if slot & CHUNK != 0 => {
                    let below = (slot ^ CHUNK) as usize;
                    for at in 0..1 << CHUNK_BITS {
                        self.chunks[below][at] = change(&self.routes, self.chunks[below][at]);
                    }
                    slots += 1 << CHUNK_BITS;
                }
                slot => self.chunks[chunk][at] = change(&self.routes, slot),
            }
        }
        slots
    }

    /// The chunk below a slot of the root or of a chunk; allocated if missing.
    fn chunk_behind(&mut self, chunk: Option<usize>, at: usize) -> usize {
        let slot = chunk.map_or_else(|| self.root[at], |chunk| self.chunks[chunk][at]);
        if slot & CHUNK != 0 {
            return (slot ^ CHUNK) as usize;
        }
        self.chunks.push([slot; 1 << CHUNK_BITS]);
        let made = self.chunks.len() - 1;
        let link = made as u32 | CHUNK;
        match chunk {
            Some(chunk) => self.chunks[chunk][at] = link,
            None => self.root[at] = link,
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl<T> RouteTrie<T> {
        /// Enters a prefix and makes it visible to lookups, one range of networks after another.
        pub(crate) fn insert(&mut self, address: u32, length: u32, value: T) -> Option<(u32, Option<T>)> {
            let entered = self.enter(address, length, value)?;
            for some in networks(address, length).step_by(1000) {
                self.cover(entered.0, address, length, some..some + 1000);
            }
            Some(entered)
        }

        pub(crate) fn remove(&mut self, address: u32, length: u32) -> Option<T> {
            let number = self.leave(address, length)?;
            for some in networks(address, length).step_by(1000) {
                self.uncover(number, address, length, some..some + 1000);
            }
            self.free(number)
        }
    }

    fn slow(model: &BTreeMap<(u32, u32), u32>, address: u32) -> Option<u32> {
        (0..=32).rev().find_map(|length| model.get(&(length, address & mask(length))).copied())
    }

    proptest! {
        #[test]
        fn finds_the_longest_prefix(
            steps in prop::collection::vec((any::<bool>(), 0u32..16, 0u32..=32, any::<u32>()), 1..60),
            probes in prop::collection::vec((0u32..16, any::<u32>()), 50),
        ) {
            // Few leading bits and few trailing ones, so that prefixes nest.
            let spread = |high: u32, low: u32| high << 28 | low & 0x0003_0303;
            let mut trie = RouteTrie::default();
            let mut model = BTreeMap::new();
            for (number, (add, high, length, low)) in steps.into_iter().enumerate() {
                let address = spread(high, low);
                if add || number % 3 > 0 {
                    prop_assert!(trie.insert(address, length, number as u32).is_some());
                    model.insert((length, address & mask(length)), number as u32);
                } else {
                    let known: Vec<(u32, u32)> = model.keys().copied().collect();
                    if let Some((length, address)) = known.get(low as usize % known.len().max(1)) {
                        prop_assert_eq!(trie.remove(*address, *length), model.remove(&(*length, *address)));
                    }
                }
            }
            let probes: Vec<u32> = probes.into_iter().map(|(high, low)| spread(high, low)).collect();
            let mut numbers = [None; 50];
            trie.lookup_all(&probes, &mut numbers);
            for (address, number) in probes.into_iter().zip(numbers) {
                prop_assert_eq!(trie.lookup(address).copied(), slow(&model, address));
                let found = number.and_then(|number| trie.routes[number as usize].as_ref());
                prop_assert_eq!(found.map(|(_, value)| *value), slow(&model, address));
            }
            let values = (0..trie.routes.len() as u32).filter_map(|number| trie.value(number));
            prop_assert_eq!(values.count(), model.len());
        }
    }
}
