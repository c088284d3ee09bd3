//! What a [`RouteTrie`] says, in a line of the cache for each 256 networks of 24 bits: where runs of networks with
//! the same next hop begin, as bits, and the next hops themselves, the first of them in the line (after Degermark et
//! al., "Small forwarding tables for fast routing lookups", 1997). 200,000 prefixes take some 5 MB so, a tenth of what
//! the trie takes.
use super::route_trie::{RouteTrie, Slot};
use crate::PACKETS;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use ringway_frame::prefetch;

/// Networks of 16 bits.
pub(super) const ROOTS: usize = 1 << 16;
/// A root that leads to a line. Others hold a leaf.
const LINE: u32 = 1 << 31;
/// A leaf below which prefixes are longer than 24 bits: the trie knows them.
pub(super) const DEEPER: u16 = u16::MAX;
/// Leaves in a line.
const NEAR: usize = 12;

/// 256 networks.
#[repr(align(64))]
#[derive(Clone, Debug, Default)]
struct Line {
    /// A bit for each network that has another leaf than the one before; the first has one.
    starts: [u64; 4],
    /// How many bits are set in the words before each.
    before: [u8; 4],
    /// Where the leaves begin that don't fit here.
    far: u32,
    near: [u16; NEAR],
}

const _: () = assert!(size_of::<Line>() == 64);

/// The lines. A leaf is 0 where there is no route, else a next hop's number plus one.
#[derive(Debug)]
pub(super) struct RouteLines {
    root: Box<[u32]>,
    lines: Vec<Line>,
    far: Vec<u16>,
    /// Places in `far` that are free, by the power of two they hold.
    free: [Vec<u32>; 9],
}

impl Default for RouteLines {
    fn default() -> Self {
        let root = vec![0; ROOTS].into_boxed_slice();
        Self { root, lines: Vec::new(), far: Vec::new(), free: Default::default() }
    }
}

impl RouteLines {
    /// Takes over what the trie says of networks of 16 bits; `leaf` is that of a route's number.
    pub(super) fn refresh<T>(
        &mut self,
        networks: Range<usize>,
        trie: &RouteTrie<T>,
        leaf: impl Fn(u32) -> u16,
    ) {
        let leaf = |slot: Slot| match slot {
            Slot::Empty => 0,
            Slot::Route(number) => leaf(number),
            Slot::Deeper => DEEPER,
        };
        for network in networks.start..networks.end.min(ROOTS) {
            match trie.network(network) {
                Ok(slot) => self.root[network] = u32::from(leaf(slot)),
                Err((chunk, slots)) => {
                    let mut runs = Runs::default();
                    slots.for_each(|slot| runs.add(leaf(slot)));
                    if self.lines.len() <= chunk {
                        self.lines.resize(chunk + 1, Line::default());
                    }
                    self.give_back(chunk);
                    self.lines[chunk] = self.line(&runs);
                    self.root[network] = chunk as u32 | LINE;
                }
            }
        }
    }

    fn line(&mut self, runs: &Runs) -> Line {
        let mut line = Line { starts: runs.starts, ..Line::default() };
        for word in 1..4 {
            line.before[word] = line.before[word - 1] + runs.starts[word - 1].count_ones() as u8;
        }
        let (near, far) = runs.leaves[..runs.count].split_at(runs.count.min(NEAR));
        line.near[..near.len()].copy_from_slice(near);
        if !far.is_empty() {
            let size = far.len().next_power_of_two();
            let place = self.free[size.ilog2() as usize].pop();
            line.far = place.unwrap_or_else(|| {
                self.far.resize(self.far.len() + size, 0);
                (self.far.len() - size) as u32
            });
            self.far[line.far as usize..][..far.len()].copy_from_slice(far);
        }
        line
    }

    /// Makes the place of a line's far leaves free.
    fn give_back(&mut self, chunk: usize) {
        let line = &self.lines[chunk];
        let leaves: u32 = line.starts.iter().map(|word| word.count_ones()).sum();
        let far = (leaves as usize).saturating_sub(NEAR);
        if far > 0 {
            self.free[far.next_power_of_two().ilog2() as usize].push(line.far);
        }
    }

    /// The leaves of several addresses, which wait for memory together.
    #[inline]
    pub(super) fn lookup_all(&self, addresses: &[u32], leaves: &mut [u16; PACKETS]) {
        let mut roots = [0u32; PACKETS];
        for (root, address) in roots.iter_mut().zip(addresses) {
            *root = self.root[(address >> 16) as usize];
            if let Some(line) = self.line_of(*root) {
                prefetch(line);
            }
        }
        let mut far = [u32::MAX; PACKETS];
        for (((root, address), leaf), far) in roots.iter().zip(addresses).zip(&mut *leaves).zip(&mut far) {
            *leaf = *root as u16;
            if let Some(line) = self.line_of(*root) {
                let rank = line.rank((address >> 8) as u8);
                match line.near.get(rank) {
                    Some(near) => *leaf = *near,
                    None => {
                        *far = line.far + (rank - NEAR) as u32;
                        self.far.get(*far as usize).into_iter().for_each(prefetch);
                    }
                }
            }
        }
        for (far, leaf) in far.iter().zip(leaves) {
            if let Some(own) = self.far.get(*far as usize) {
                *leaf = *own;
            }
        }
    }

    #[inline]
    fn line_of(&self, root: u32) -> Option<&Line> {
        if root & LINE == 0 {
            return None;
        }
        self.lines.get((root ^ LINE) as usize)
    }
}

impl Line {
    /// Which leaf a network has.
    #[inline]
    fn rank(&self, network: u8) -> usize {
        let word = usize::from(network >> 6);
        let upto = self.starts[word] << (63 - (network & 63));
        (usize::from(self.before[word]) + upto.count_ones() as usize).wrapping_sub(1)
    }
}

/// Runs of equal leaves.
struct Runs {
    starts: [u64; 4],
    leaves: [u16; 256],
    count: usize,
    seen: usize,
}

impl Default for Runs {
    fn default() -> Self {
        Self { starts: [0; 4], leaves: [0; 256], count: 0, seen: 0 }
    }
}

impl Runs {
    fn add(&mut self, leaf: u16) {
        if self.count == 0 || self.leaves[self.count - 1] != leaf {
            self.starts[self.seen / 64] |= 1 << (self.seen % 64);
            self.leaves[self.count] = leaf;
            self.count += 1;
        }
        self.seen += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_say_what_the_trie_says(
            routes in prop::collection::vec((0u32..4, 8u32..=26, any::<u32>(), any::<bool>()), 1..200),
            probes in prop::collection::vec((0u32..4, any::<u32>()), PACKETS),
        ) {
            // Few networks of 16 bits, so that lines fill up.
            let spread = |high: u32, low: u32| high << 16 | low & 0xffff;
            let (mut trie, mut lines) = (RouteTrie::default(), RouteLines::default());
            for (high, length, low, remove) in routes {
                let address = spread(high, low);
                let first = (address >> 16 & (0xffff << 16u32.saturating_sub(length))) as usize;
                let networks = first..first + (1 << 16u32.saturating_sub(length));
                trie.insert(address, length, ());
                lines.refresh(networks.clone(), &trie, |number| number as u16 + 1);
                if remove {
                    trie.remove(address, length);
                    lines.refresh(networks, &trie, |number| number as u16 + 1);
                }
            }
            let probes: Vec<u32> = probes.into_iter().map(|(high, low)| spread(high, low)).collect();
            let (mut numbers, mut leaves) = ([None; PACKETS], [0; PACKETS]);
            trie.lookup_all(&probes, &mut numbers);
            lines.lookup_all(&probes, &mut leaves);
            for (leaf, number) in leaves.into_iter().zip(numbers) {
                prop_assert!(leaf == DEEPER || u32::from(leaf) == number.map_or(0, |number| number + 1));
            }
        }
    }
}
