//! Longest-prefix match: a trie of strides 16, 8 and 8 with prefixes expanded to slots (Srinivasan,
//! Varghese, "Fast address lookups using controlled prefix expansion", 1999). A lookup reads one to three
//! words.
use crate::PACKETS;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use ringway_frame::prefetch;

const ROOT_BITS: u32 = 16;
const CHUNK_BITS: u32 = 8;
/// A slot that leads to a chunk. Others hold a route's number plus one, or 0.
const CHUNK: u32 = 1 << 31;
/// Routes at most. Attack: a configuration, or who may write its handlers, that would take all memory.
const MOST_ROUTES: usize = 1 << 22;

/// What stands for a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// No route.
    Empty,
    /// A route's number.
    Route(u32),
    /// Longer prefixes are known.
    Deeper,
}

impl Slot {
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
    /// By length and address.
    by_prefix: BTreeMap<(u32, u32), u32>,
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

    /// The same for several addresses, which wait for memory together: the number that
    /// [`RouteTrie::insert`] gave the longest prefix of each.
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

    /// What is known of a network of 16 bits as a whole; else what is known of its 256 networks of 24 bits.
    pub(super) fn network(&self, network: usize) -> Result<Slot, impl Iterator<Item = Slot>> {
        let slot = self.root.get(network).copied().unwrap_or(0);
        let place = (slot ^ CHUNK) as usize;
        match self.chunks.get(place).filter(|_| slot & CHUNK != 0) {
            Some(chunk) => Err(chunk.iter().map(|slot| Slot::of(*slot))),
            None => Ok(Slot::of(slot)),
        }
    }

    /// The value of exactly this prefix.
    pub(crate) fn get(&self, address: u32, length: u32) -> Option<&T> {
        let index = *self.by_prefix.get(&(length, address & mask(length)))?;
        self.routes.get(index as usize)?.as_ref().map(|(_, value)| value)
    }

    /// All values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.routes.iter().flatten().map(|(_, value)| value)
    }

    /// Sets the value of a prefix, and answers its number; nothing if there are too many. `length` is at
    /// most 32.
    pub(crate) fn insert(&mut self, address: u32, length: u32, value: T) -> Option<u32> {
        let address = address & mask(length);
        if let Some(index) = self.by_prefix.get(&(length, address)) {
            if let Some(place) = self.routes.get_mut(*index as usize) {
                *place = Some((length, value));
            }
            return Some(*index);
        }
        if self.by_prefix.len() >= MOST_ROUTES {
            return None;
        }
        let index = self.free.pop().unwrap_or(self.routes.len() as u32);
        match self.routes.get_mut(index as usize) {
            Some(place) => *place = Some((length, value)),
            None => self.routes.push(Some((length, value))),
        }
        self.by_prefix.insert((length, address), index);
        self.set(address, length, |routes, slot| {
            let old = slot.checked_sub(1).and_then(|old| routes.get(old as usize)).and_then(Option::as_ref);
            if old.is_none_or(|(old, _)| *old <= length) { index + 1 } else { slot }
        });
        Some(index)
    }

    /// Forgets a prefix.
    pub(crate) fn remove(&mut self, address: u32, length: u32) -> Option<T> {
        let address = address & mask(length);
        let index = self.by_prefix.remove(&(length, address))?;
        let around = (0..length).rev().find_map(|shorter| {
            self.by_prefix.get(&(shorter, address & mask(shorter))).map(|around| around + 1)
        });
        let around = around.unwrap_or(0);
        self.set(address, length, |_, slot| if slot == index + 1 { around } else { slot });
        self.free.push(index);
        self.routes.get_mut(index as usize)?.take().map(|(_, value)| value)
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Changes every slot that a prefix covers.
    fn set(&mut self, address: u32, length: u32, change: impl Fn(&[Option<(u32, T)>], u32) -> u32 + Copy) {
        let first = (address >> 16) as usize;
        if length <= ROOT_BITS {
            for at in first..first + (1 << (ROOT_BITS - length)) {
                match self.root[at] {
                    slot if slot & CHUNK != 0 => self.change_all((slot ^ CHUNK) as usize, change),
                    slot => self.root[at] = change(&self.routes, slot),
                }
            }
            return;
        }
        let chunk = self.chunk_behind(None, first);
        let second = (address >> 8) as usize & 255;
        if length <= ROOT_BITS + CHUNK_BITS {
            for at in second..second + (1 << (ROOT_BITS + CHUNK_BITS - length)) {
                self.change_one(chunk, at, change);
            }
            return;
        }
        let chunk = self.chunk_behind(Some(chunk), second);
        let third = address as usize & 255;
        for at in third..third + (1 << (32 - length)) {
            self.change_one(chunk, at, change);
        }
    }

    fn change_one(
        &mut self,
        chunk: usize,
        at: usize,
        change: impl Fn(&[Option<(u32, T)>], u32) -> u32 + Copy,
    ) {
        match self.chunks[chunk][at] {
            slot if slot & CHUNK != 0 => self.change_all((slot ^ CHUNK) as usize, change),
            slot => self.chunks[chunk][at] = change(&self.routes, slot),
        }
    }

    fn change_all(&mut self, chunk: usize, change: impl Fn(&[Option<(u32, T)>], u32) -> u32 + Copy) {
        for at in 0..1 << CHUNK_BITS {
            match self.chunks[chunk][at] {
                // The third level has no chunks of its own, so this goes no deeper.
                slot if slot & CHUNK != 0 => {
                    let below = (slot ^ CHUNK) as usize;
                    for at in 0..1 << CHUNK_BITS {
                        self.chunks[below][at] = change(&self.routes, self.chunks[below][at]);
                    }
                }
                slot => self.chunks[chunk][at] = change(&self.routes, slot),
            }
        }
    }

    /// The chunk that a slot of the root or of a chunk leads to, made if it is not there yet.
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
            prop_assert_eq!(trie.iter().count(), model.len());
        }
    }
}
