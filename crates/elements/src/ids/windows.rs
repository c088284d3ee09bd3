//! Offsets of a text at which patterns of at least four bytes may be.
//!
//! For each pattern two windows of four bytes are chosen, one at an even offset in the pattern and one at an odd
//! offset. Wherever the pattern is, one of them is at an even offset of the text, so only even offsets are looked up:
//! half as many as there are bytes (Wu, Manber, "A fast algorithm for multi-pattern searching", 1994, skips bytes
//! according to the possible following blocks; Choi et al., "DFC: accelerating string pattern matching for network
//! applications", NSDI 2016, filters windows). A pattern of four bytes has only one window. If that is at an odd
//! offset, its three bytes from the preceding even offset on are looked up.
//!
//! A first filter fits into the first-level cache. Its hits are recorded without a branch, which would be mispredicted
//! each time, and processed afterwards by a second, much larger filter and then a list.
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Length of a window in bytes.
pub(super) const WINDOW: usize = 4;
/// Text positions covered by one lookup.
const STRIDE: usize = 2;
/// Bytes of text that the first filter scans before its hits are examined.
const BLOCK: usize = 256;
/// Bytes of text per step of the first filter.
const STEP: usize = 4 * STRIDE;
/// Words of the first filter, as a power of two: 32 KB.
const WORD_BITS: u32 = 13;
/// Bits of the second filter, as a power of two: 128 KB.
const TABLE_BITS: u32 = 20;
/// Maximum number of window lists, as a power of two.
const LIST_BITS: u32 = 18;
/// The ASCII case bit in every byte of a window.
pub(super) const CASE: u32 = 0x2020_2020;

/// A window, its pattern, and its offset in the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) window: u32,
    pub(super) pattern: u32,
    pub(super) offset: u32,
}

/// Concatenated lists: list `n` has the entries from `starts[n]` to `starts[n + 1]`.
#[derive(Debug)]
pub(super) struct Lists<T> {
    starts: Vec<u32>,
    entries: Vec<T>,
}

impl<T: Copy> Lists<T> {
    pub(super) fn new(lists: usize, mut entries: Vec<(usize, T)>) -> Self {
        entries.sort_by_key(|(list, _)| *list);
        let mut starts = vec![0; lists + 1];
        for (list, _) in &entries {
            starts[*list + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        Self { starts, entries: entries.into_iter().map(|(_, entry)| entry).collect() }
    }

    #[inline]
    pub(super) fn of(&self, list: usize) -> &[T] {
        let bound = |at: usize| self.starts.get(at).map_or(0, |start| *start as usize);
        self.entries.get(bound(list)..bound(list + 1)).unwrap_or_default()
    }
}

#[inline]
fn hash(window: u32) -> u32 {
    window.wrapping_mul(0x9e37_79b1)
}

/// The first filter: a window's last three bytes select a word, its first byte a bit.
#[derive(Debug)]
struct Filter(Box<[u32; 1 << WORD_BITS]>);

impl Filter {
    /// The index of the word for three bytes; higher bits are ignored.
    #[inline]
    fn word(bytes: u32) -> usize {
        (bytes.wrapping_mul(0x85eb_ca6b << 8) >> (32 - WORD_BITS)) as usize
    }

    /// 1 if the window at bit `shift` of these bytes may match, else 0.
    #[inline]
    fn hit(&self, bytes: u64, shift: u32) -> usize {
        let word = self.0[Self::word((bytes >> (shift + 8)) as u32)];
        (word >> ((bytes >> shift) & 31) & 1) as usize
    }
}

/// Windows at one offset from the position looked up.
#[derive(Debug)]
struct Table {
    filter: Box<[u32; 1 << (TABLE_BITS - 5)]>,
    /// About as many lists as entries.
    lists: Lists<Entry>,
    /// Number of hash bits not used to select a list.
    shift: u32,
}

impl Table {
    fn new(entries: &[Entry]) -> Self {
        let mut filter = Box::new([0; 1 << (TABLE_BITS - 5)]);
        for entry in entries {
            let bit = hash(entry.window) >> (32 - TABLE_BITS);
            filter[(bit >> 5) as usize] |= 1 << (bit & 31);
        }
        let shift = entries.len().leading_zeros().saturating_sub(usize::BITS - 32).clamp(32 - LIST_BITS, 31);
        let listed = entries.iter().map(|entry| ((hash(entry.window) >> shift) as usize, *entry)).collect();
        Self { filter, lists: Lists::new(1 << (32 - shift), listed), shift }
    }

    #[inline]
    fn of(&self, window: u32) -> &[Entry] {
        let hash = hash(window);
        let bit = hash >> (32 - TABLE_BITS);
        match self.filter[(bit >> 5) as usize] >> (bit & 31) & 1 {
            0 => &[],
            _ => self.lists.of((hash >> self.shift) as usize),
        }
    }
}

#[derive(Debug)]
pub(super) struct Windows {
    filter: Filter,
    /// Windows at the position looked up, and at the next one.
    tables: [Table; 2],
    fold: u32,
}

impl Windows {
    /// Indexes the patterns that are at least a window long; ignores the case of ASCII letters if `fold` is [`CASE`].
    /// `None` if no pattern is long enough.
    pub(super) fn new(patterns: &[Box<[u8]>], fold: u32) -> Option<Self> {
        let entries = choose(patterns, fold);
        if entries.iter().all(Vec::is_empty) {
            return None;
        }
        let mut filter = Filter(Box::new([0; 1 << WORD_BITS]));
        for entry in &entries[0] {
            filter.0[Filter::word(entry.window >> 8)] |= 1 << (entry.window & 31);
        }
        for entry in &entries[1] {
            filter.0[Filter::word(entry.window)] = !0;
        }
        Some(Self { filter, tables: entries.map(|entries| Table::new(&entries)), fold })
    }

    /// Calls `compare` with a text position, the window there, and the patterns that may match there, until it returns
    /// a result. The cost, apart from `compare`, is linear in the text.
    #[inline]
    pub(super) fn search<T>(
        &self,
        text: &[u8],
        mut compare: impl FnMut(usize, u32, &Entry) -> Option<T>,
    ) -> Option<T> {
        let mut at = 0;
        while text.len() - at >= STEP + WINDOW {
            let block = &text[at..text.len().min(at + BLOCK + WINDOW)];
            let mut places = [0; BLOCK / STRIDE];
            let (passed, hits) = self.pass(block, &mut places);
            for place in places.iter().take(hits) {
                if let Some(found) = self.look(text, at + usize::from(*place), &mut compare) {
                    return Some(found);
                }
            }
            at += passed;
        }
        while let Some(window) = text.get(at..).and_then(<[u8]>::first_chunk::<WINDOW>) {
            if self.filter.hit((u32::from_le_bytes(*window) | self.fold).into(), 0) != 0
                && let Some(found) = self.look(text, at, &mut compare)
            {
                return Some(found);
            }
            at += STRIDE;
        }
        None
    }

    /// Filters a block of at most [`BLOCK`] bytes and a window; returns the number of bytes scanned and of positions
    /// stored.
    #[inline]
    fn pass(&self, block: &[u8], places: &mut [u16; BLOCK / STRIDE]) -> (usize, usize) {
        let fold = u64::from(self.fold) << 32 | u64::from(self.fold);
        let (mut at, mut count) = (0, 0);
        while let Some(bytes) = block.get(at..).and_then(<[u8]>::first_chunk::<{ STEP + WINDOW }>) {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
            let low = u64::from_le_bytes([a, b, c, d, e, f, g, h]) | fold;
            let high = u64::from_le_bytes([e, f, g, h, i, j, k, l]) | fold;
            for (step, (bytes, shift)) in [(low, 0), (low, 16), (high, 0), (high, 16)].into_iter().enumerate()
            {
                places[count % places.len()] = (at + step * STRIDE) as u16;
                count += self.filter.hit(bytes, shift);
            }
            at += STEP;
        }
        (at, count)
    }

    /// Examines a hit of the first filter.
    #[inline]
    fn look<T>(
        &self,
        text: &[u8],
        place: usize,
        compare: &mut impl FnMut(usize, u32, &Entry) -> Option<T>,
    ) -> Option<T> {
        for (behind, table) in self.tables.iter().enumerate() {
            let place = place + behind;
            let Some(window) = text.get(place..).and_then(<[u8]>::first_chunk::<WINDOW>) else { continue };
            let window = u32::from_le_bytes(*window) | self.fold;
            if let Some(found) = table.of(window).iter().find_map(|entry| compare(place, window, entry)) {
                return Some(found);
            }
        }
        None
    }
}

fn windows(pattern: &[u8], fold: u32) -> impl Iterator<Item = u32> + '_ {
    let chunks = pattern.windows(WINDOW).filter_map(<[u8]>::first_chunk::<WINDOW>);
    chunks.map(move |window| u32::from_le_bytes(*window) | fold)
}

/// A rough logarithmic estimate of how frequent a window is in network traffic.
fn common(window: u32) -> u32 {
    let byte = |byte| match byte {
        b'e' | b't' | b'o' | b'a' | b'i' | b's' | b'n' | b'r' | b' ' | 0 => 5,
        b'a'..=b'z' | b'/' | b'.' | b'-' | u8::MAX => 4,
        b'0'..=b'9' | b'A'..=b'Z' | b'\r' | b'\n' => 3,
        b'!'..=b'~' => 2,
        _ => 1,
    };
    window.to_le_bytes().map(byte).iter().sum()
}

/// For each pattern that has both, the rarest window at an even and at an odd offset: the one that the fewest patterns
/// share, then the least frequent in traffic. Second, the windows of patterns that have only one.
fn choose(patterns: &[Box<[u8]>], fold: u32) -> [Vec<Entry>; 2] {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for window in patterns.iter().flat_map(|pattern| windows(pattern, fold)) {
        *counts.entry(window).or_default() += 1;
    }
    let mut chosen = [Vec::new(), Vec::new()];
    for (number, pattern) in patterns.iter().enumerate() {
        for odd in 0..STRIDE {
            let numbered = windows(pattern, fold).enumerate().skip(odd).step_by(STRIDE);
            let rarest = numbered
                .min_by_key(|(_, window)| (counts.get(window).copied().unwrap_or(0), common(*window)));
            let entry = |offset, window| Entry { window, pattern: number as u32, offset };
            match (rarest, windows(pattern, fold).next()) {
                (Some((offset, window)), _) => chosen[0].push(entry(offset as u32, window)),
                (None, Some(window)) => chosen[1].push(entry(0, window)),
                (None, None) => {}
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn boxed(patterns: &[Vec<u8>]) -> Vec<Box<[u8]>> {
        patterns.iter().map(|pattern| pattern.clone().into_boxed_slice()).collect()
    }

    #[test]
    fn a_pattern_has_one_window_for_even_and_one_for_odd_offsets() {
        let patterns = boxed(&[b"abcd".to_vec(), b"abcdef".to_vec(), b"abc".to_vec()]);
        let [at_once, behind] = choose(&patterns, 0);
        let offsets = |entries: &[Entry]| -> Vec<(u32, u32)> {
            entries.iter().map(|entry| (entry.pattern, entry.offset)).collect()
        };
        assert_eq!(offsets(&at_once), [(0, 0), (1, 2), (1, 1)]);
        assert_eq!(offsets(&behind), [(0, 0)]);
        assert!(Windows::new(&patterns[2..], 0).is_none());
    }

    proptest! {
        /// Every occurrence of every pattern is found, and nothing else.
        #[test]
        fn exactly_the_contained_patterns_are_found(
            patterns in prop::collection::vec(
                prop::collection::vec(prop::sample::select(&b"abA\x00"[..]), 4..9), 1..30
            ),
            text in prop::collection::vec(prop::sample::select(&b"abA\x00"[..]), 0..900),
            nocase: bool,
        ) {
            let same = |one: &[u8], other: &[u8]| one == other || nocase && one.eq_ignore_ascii_case(other);
            let windows = Windows::new(&boxed(&patterns), if nocase { CASE } else { 0 }).unwrap();
            let mut found = Vec::new();
            let nothing: Option<()> = windows.search(&text, |place, _, entry| {
                let from = place.checked_sub(entry.offset as usize)?;
                let pattern = &patterns[entry.pattern as usize];
                if text.get(from..from + pattern.len()).is_some_and(|part| same(part, pattern)) {
                    found.push((entry.pattern as usize, from));
                }
                None
            });
            prop_assert!(nothing.is_none());
            found.sort_unstable();
            let lies = |pattern: &Vec<u8>, from: usize| same(&text[from..from + pattern.len()], pattern);
            let mut naive = Vec::new();
            for (number, pattern) in patterns.iter().enumerate() {
                let places = 0..(text.len() + 1).saturating_sub(pattern.len());
                naive.extend(places.filter(|from| lies(pattern, *from)).map(|from| (number, from)));
            }
            prop_assert_eq!(found, naive);
        }
    }
}
