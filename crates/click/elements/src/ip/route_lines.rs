//! A compact form of a [`RouteTrie`]: for each 256 networks of 24 bits, where runs of networks with the same next hop
//! begin, and the next hops (after Degermark et al., "Small forwarding tables for fast routing lookups", 1997). Up to
//! 16 runs take half a cache line, in which the run is found without a branch; more runs take a line of bits, and
//! another line for their next hops. 200,000 prefixes take about 2 MB in this form, and 57 MB in the trie.
use super::route_trie::{RouteTrie, TrieSlot};
use alloc::collections::BTreeMap;
use core::ops::Range;
use ringway_click::PACKETS;
use ringway_click::prelude::*;
use ringway_frame::{count_at_most, prefetch};

/// Networks of 16 bits.
pub(super) const ROOTS: usize = 1 << 16;
/// A root that leads to a wide line. Others lead to a narrow one.
const WIDE: u32 = 1 << 31;
/// A root with a separate line; other roots share a line with all networks of the same single leaf.
const OWN: u32 = 1 << 30;
/// Bits of the line's index.
const PLACE: u32 = OWN - 1;
/// A leaf for networks with prefixes longer than 24 bits, which are looked up in the trie.
pub(super) const DEEPER: u16 = 255;
/// Runs in a narrow line.
const FEW: usize = 16;
/// Leaves stored in the wide line itself.
const NEAR: usize = 12;

/// 256 networks as a few runs, whose leaves fit in a byte.
#[repr(align(32))]
#[derive(Clone, Debug)]
struct Narrow {
    /// The first network of each run, 0 for the first run; unused entries are 255 and repeat the last run's leaf.
    starts: [u8; FEW],
    leaves: [u8; FEW],
}

/// 256 networks as any number of runs.
#[repr(align(64))]
#[derive(Clone, Debug, Default)]
struct Wide {
    /// A bit for each network whose leaf differs from the one before; the first bit is set.
    starts: [u64; 4],
    /// Number of bits set in the words before each word.
    before: [u8; 4],
    /// Index of the leaves that don't fit here.
    far: u32,
    near: [u16; NEAR],
}

const _: () = assert!(size_of::<Narrow>() == 32 && size_of::<Wide>() == 64);

/// The lines. A leaf is 0 for no route, [`DEEPER`], or an index of a next hop.
#[derive(Debug)]
pub(super) struct RouteLines {
    root: Box<[u32]>,
    narrow: Vec<Narrow>,
    wide: Vec<Wide>,
    far: Vec<u16>,
    /// Roots of shared lines, by leaf. They are never freed: there are no more of them than next hops.
    shared: BTreeMap<u64, u32>,
    free_narrow: Vec<u32>,
    free_wide: Vec<u32>,
    /// Free ranges in `far`, by the binary logarithm of their size.
    free_far: [Vec<u32>; 9],
}

impl Default for RouteLines {
    fn default() -> Self {
        let mut lines = Self {
            root: vec![0; ROOTS].into_boxed_slice(),
            narrow: Vec::new(),
            wide: Vec::new(),
            far: Vec::new(),
            shared: BTreeMap::new(),
            free_narrow: Vec::new(),
            free_wide: Vec::new(),
            free_far: Default::default(),
        };
        // The first line, shared by all roots initially.
        lines.shared(0);
        lines
    }
}

impl RouteLines {
    /// Copies 16-bit networks from the trie; `leaf` returns the leaf of a route's number.
    pub(super) fn refresh<T>(
        &mut self,
        networks: Range<usize>,
        trie: &RouteTrie<T>,
        leaf: impl Fn(u32) -> u16,
    ) {
        let leaf = |slot: TrieSlot| match slot {
            TrieSlot::Empty => 0,
            TrieSlot::Route(number) => leaf(number),
            TrieSlot::Deeper => DEEPER,
        };
        for network in networks.start..networks.end.min(ROOTS) {
            self.give_back(self.root[network]);
            self.root[network] = match trie.network(network) {
                Ok(slot) => self.shared(leaf(slot)),
                Err(slots) => self.line(&Runs::new(slots.map(leaf))) | OWN,
            };
        }
    }

    /// The root of networks whose leaves are all the same.
    fn shared(&mut self, leaf: u16) -> u32 {
        if let Some(root) = self.shared.get(&leaf.into()) {
            return *root;
        }
        let root = self.line(&Runs::new(core::iter::repeat_n(leaf, 256)));
        self.shared.insert(leaf.into(), root);
        root
    }

    /// Allocates a line for runs; returns a root that refers to it.
    fn line(&mut self, runs: &Runs) -> u32 {
        match runs.narrow() {
            Some(line) => place(&mut self.narrow, &mut self.free_narrow, line),
            None => {
                let line = self.wide(runs);
                place(&mut self.wide, &mut self.free_wide, line) | WIDE
            }
        }
    }

    fn wide(&mut self, runs: &Runs) -> Wide {
        let mut line = Wide { starts: runs.starts, ..Wide::default() };
        for word in 1..4 {
            line.before[word] = line.before[word - 1] + runs.starts[word - 1].count_ones() as u8;
        }
        let (near, far) = runs.leaves[..runs.count].split_at(runs.count.min(NEAR));
        line.near[..near.len()].copy_from_slice(near);
        if !far.is_empty() {
            let size = far.len().next_power_of_two();
            let place = self.free_far[size.ilog2() as usize].pop();
            line.far = place.unwrap_or_else(|| {
                self.far.resize(self.far.len() + size, 0);
                (self.far.len() - size) as u32
            });
            self.far[line.far as usize..][..far.len()].copy_from_slice(far);
        }
        line
    }

    /// Frees a root's line, if the root owns it.
    fn give_back(&mut self, root: u32) {
        if root & OWN == 0 {
            return;
        }
        if root & WIDE == 0 {
            self.free_narrow.push(root & PLACE);
            return;
        }
        self.free_wide.push(root & PLACE);
        let Some(line) = self.wide.get((root & PLACE) as usize) else { return };
        let leaves: u32 = line.starts.iter().map(|word| word.count_ones()).sum();
        let far = (leaves as usize).saturating_sub(NEAR);
        if far > 0 {
            self.free_far[far.next_power_of_two().ilog2() as usize].push(line.far);
        }
    }

    /// Looks up several addresses, so that their cache misses overlap.
    #[inline]
    pub(super) fn lookup_all(&self, addresses: &[u32], leaves: &mut [u32; PACKETS]) {
        for (root, address) in leaves.iter_mut().zip(addresses) {
            *root = self.root[(address >> 16) as usize];
            let place = (*root & PLACE) as usize;
            if *root & WIDE == 0 {
                self.narrow.get(place).into_iter().for_each(prefetch);
            } else {
                self.wide.get(place).into_iter().for_each(prefetch);
            }
        }
        for (leaf, address) in leaves.iter_mut().zip(addresses) {
            let (place, network) = ((*leaf & PLACE) as usize, (address >> 8) as u8);
            *leaf = match self.narrow.get(place).filter(|_| *leaf & WIDE == 0) {
                Some(line) => u32::from(line.leaf(network)),
                None => self.wide_leaf(place, network),
            };
        }
    }

    fn wide_leaf(&self, place: usize, network: u8) -> u32 {
        let Some(line) = self.wide.get(place) else { return 0 };
        let rank = line.rank(network);
        let far = || self.far.get(line.far as usize + rank - NEAR);
        u32::from(line.near.get(rank).or_else(far).copied().unwrap_or(0))
    }
}

/// Stores a line in a free place; returns its index.
fn place<T>(lines: &mut Vec<T>, free: &mut Vec<u32>, line: T) -> u32 {
    if let Some(at) = free.pop()
        && let Some(place) = lines.get_mut(at as usize)
    {
        *place = line;
        return at;
    }
    lines.push(line);
    lines.len() as u32 - 1
}

impl Narrow {
    /// The leaf of a network.
    #[inline]
    fn leaf(&self, network: u8) -> u8 {
        // The first run begins at 0, so the count is not 0.
        self.leaves[count_at_most(&self.starts, network).wrapping_sub(1) % FEW]
    }
}

impl Wide {
    /// The index of a network's leaf.
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
}

impl Runs {
    /// The runs of equal leaves among the leaves of 256 networks.
    fn new(leaves: impl Iterator<Item = u16>) -> Self {
        let mut runs = Self { starts: [0; 4], leaves: [0; 256], count: 0 };
        for (network, leaf) in leaves.take(256).enumerate() {
            if runs.count == 0 || runs.leaves[runs.count - 1] != leaf {
                runs.starts[network / 64] |= 1 << (network % 64);
                runs.leaves[runs.count] = leaf;
                runs.count += 1;
            }
        }
        runs
    }

    /// The runs as a narrow line, if they fit.
    fn narrow(&self) -> Option<Narrow> {
        let (leaves, last) = (self.leaves.get(..self.count)?, *self.leaves.get(self.count.checked_sub(1)?)?);
        if leaves.len() > FEW || leaves.iter().any(|leaf| *leaf > 255) {
            return None;
        }
        let mut line = Narrow { starts: [255; FEW], leaves: [last as u8; FEW] };
        let begins = |network: &u8| self.starts[usize::from(network / 64)] >> (network % 64) & 1 == 1;
        for ((start, own), (network, leaf)) in
            line.starts.iter_mut().zip(&mut line.leaves).zip((0..=255).filter(begins).zip(leaves))
        {
            (*start, *own) = (network, *leaf as u8);
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn route_lines_equal_the_trie(
            routes in prop::collection::vec((0u32..4, 8u32..=26, any::<u32>(), any::<bool>()), 1..200),
            probes in prop::collection::vec((0u32..4, any::<u32>()), PACKETS),
            (hops, first) in (prop::sample::select(vec![3, 100]), prop::sample::select(vec![1, 256])),
        ) {
            // Few 16-bit networks, so that lines fill up.
            let spread = |high: u32, low: u32| high << 16 | low & 0xffff;
            // Many runs with the same leaves, or few; some leaves do not fit in a byte.
            let leaf = |number: u32| (first + number % hops) as u16;
            let (mut trie, mut lines) = (RouteTrie::default(), RouteLines::default());
            for (high, length, low, remove) in routes {
                let address = spread(high, low);
                let first = (address >> 16 & (0xffff << 16u32.saturating_sub(length))) as usize;
                let networks = first..first + (1 << 16u32.saturating_sub(length));
                trie.insert(address, length, ());
                lines.refresh(networks.clone(), &trie, leaf);
                if remove {
                    trie.remove(address, length);
                    lines.refresh(networks, &trie, leaf);
                }
            }
            let probes: Vec<u32> = probes.into_iter().map(|(high, low)| spread(high, low)).collect();
            let (mut numbers, mut leaves) = ([None; PACKETS], [0; PACKETS]);
            trie.lookup_all(&probes, &mut numbers);
            lines.lookup_all(&probes, &mut leaves);
            for (own, number) in leaves.into_iter().zip(numbers) {
                let expected = number.map_or(0, |number| u32::from(leaf(number)));
                prop_assert!(own == u32::from(DEEPER) || own == expected);
            }
        }
    }
}
