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
//! each time, and then sieved, again without a branch, by a second, much larger filter of up to eight bytes: in real
//! text, four bytes of most patterns are frequent. What remains is looked up in lists.
use alloc::collections::BTreeMap;
use ringway_click::prelude::*;
use ringway_click::sort;

/// Length of a window in bytes.
pub(super) const WINDOW: usize = 4;
/// Text positions covered by one lookup.
const STRIDE: usize = 2;
/// Bytes of text that the first filter scans before its hits are examined.
const BLOCK: usize = 256;
/// Bytes of text per step of the first filter.
const STEP: usize = 4 * STRIDE;
/// Words of the first filter, 32 KB; and of that for more windows than [`FEW_WINDOWS`], 64 KB.
pub(super) const FEW: usize = 1 << 13;
pub(super) const MANY: usize = 1 << 14;
const FEW_WINDOWS: usize = 4096;
/// Bits of the second filter, as a power of two: 128 KB.
const TABLE_BITS: u32 = 20;
/// Maximum number of window lists, as a power of two.
const LIST_BITS: u32 = 18;
/// The ASCII case bit in every byte of a window.
pub(super) const CASE: u32 = 0x2020_2020;

/// A kind of what is sieved: a window and bytes next to it.
#[derive(Clone, Copy, Debug)]
struct WindowKind {
    /// Where the sieved bytes begin: at the place looked up, at the byte before it, or behind it.
    from: i8,
    length: u32,
    /// The lengths of patterns that have it: with it, there is a window at an even and one at an odd offset.
    least: usize,
    most: usize,
}

const KINDS: [WindowKind; 6] = [
    WindowKind { from: 0, length: 8, least: 9, most: usize::MAX },
    WindowKind { from: -1, length: 8, least: 9, most: usize::MAX },
    WindowKind { from: 0, length: 5, least: 5, most: 8 },
    WindowKind { from: -1, length: 5, least: 5, most: 8 },
    WindowKind { from: 0, length: 4, least: 4, most: 4 },
    // Windows of four bytes at odd places.
    WindowKind { from: 1, length: 4, least: 4, most: 4 },
];

/// What is sieved of a pattern, its kind, and the window's offset in the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) sieved: u64,
    pub(super) pattern: u32,
    pub(super) offset: u32,
}

type Entries = [Vec<Entry>; KINDS.len()];

/// The bytes of a text about a place: from it on, and from the byte before it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes([u64; 2]);

impl Bytes {
    #[inline]
    fn at(text: &[u8], place: usize, fold: u64) -> Self {
        let own = bytes_at(text, place);
        let before = place.checked_sub(1).map_or(own << 8, |before| bytes_at(text, before));
        Self([own | fold, before | fold])
    }

    /// The bytes that a kind sieves.
    #[inline]
    fn of(self, kind: usize) -> u64 {
        let WindowKind { from, length, .. } = KINDS[kind];
        let [own, before] = self.0;
        let bytes = match from {
            0 => own,
            1 => own >> 8,
            _ => before,
        };
        bytes & (u64::MAX >> (64 - 8 * length))
    }
}

/// Concatenated lists: list `n` has the entries from `starts[n]` to `starts[n + 1]`.
#[derive(Debug)]
pub(super) struct Lists<T> {
    starts: Vec<u32>,
    entries: Vec<T>,
}

impl<T: Copy> Lists<T> {
    pub(super) fn new(lists: usize, mut entries: Vec<(usize, T)>) -> Self {
        sort::by_number(&mut entries, |(list, _)| *list as u64);
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

/// Constants that distinguish the kinds of windows: the fraction of pi.
const SALTS: [u64; KINDS.len()] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
    0xbe54_66cf_34e9_0c6c,
];

/// A hash of sieved bytes.
#[inline]
fn hash(sieved: u64, kind: usize) -> u32 {
    ((sieved ^ SALTS[kind]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// The first filter: a window's last three bytes select a word, its first byte a bit.
#[derive(Debug)]
struct Filter<const WORDS: usize>(Box<[u32; WORDS]>);

impl<const WORDS: usize> Filter<WORDS> {
    /// The index of the word for three bytes; higher bits are ignored.
    #[inline]
    fn word(bytes: u32) -> usize {
        (bytes.wrapping_mul(0x85eb_ca6b << 8) >> (32 - WORDS.trailing_zeros())) as usize
    }

    /// 1 if the window at bit `shift` of these bytes may match, else 0.
    #[inline]
    fn hit(&self, bytes: u64, shift: u32) -> usize {
        let word = self.0[Self::word((bytes >> (shift + 8)) as u32)];
        (word >> ((bytes >> shift) & 31) & 1) as usize
    }
}

/// The second filter, of all kinds.
#[derive(Debug)]
struct Sieve(Box<[u32; 1 << (TABLE_BITS - 5)]>);

impl Sieve {
    fn new(entries: &Entries) -> Self {
        let mut bits = Box::new([0; 1 << (TABLE_BITS - 5)]);
        for (kind, entries) in entries.iter().enumerate() {
            for entry in entries {
                let bit = hash(entry.sieved, kind) >> (32 - TABLE_BITS);
                bits[(bit >> 5) as usize] |= 1 << (bit & 31);
            }
        }
        Self(bits)
    }

    /// 1 if these bytes may be sieved ones of a pattern, else 0.
    #[inline]
    fn hit(&self, sieved: u64, kind: usize) -> usize {
        let bit = hash(sieved, kind) >> (32 - TABLE_BITS);
        (self.0[(bit >> 5) as usize] >> (bit & 31) & 1) as usize
    }
}

/// Entries of one kind: about as many lists as entries.
#[derive(Debug)]
struct Table {
    lists: Lists<Entry>,
    /// Number of hash bits not used to select a list.
    shift: u32,
}

impl Table {
    fn new(entries: &[Entry], kind: usize) -> Self {
        let shift = entries.len().leading_zeros().saturating_sub(usize::BITS - 32).clamp(32 - LIST_BITS, 31);
        let list = |entry: &Entry| ((hash(entry.sieved, kind) >> shift) as usize, *entry);
        Self { lists: Lists::new(1 << (32 - shift), entries.iter().map(list).collect()), shift }
    }

    #[inline]
    fn of(&self, sieved: u64, kind: usize) -> &[Entry] {
        self.lists.of((hash(sieved, kind) >> self.shift) as usize)
    }
}

#[derive(Debug)]
pub(super) struct Windows<const WORDS: usize> {
    filter: Filter<WORDS>,
    sieve: Sieve,
    tables: [Table; KINDS.len()],
    /// Which kinds there are.
    kinds: [bool; KINDS.len()],
    fold: u64,
}

/// The windows of patterns, with a filter of a size that suits their number.
#[derive(Debug)]
pub(super) enum Index {
    Few(Windows<FEW>),
    Many(Windows<MANY>),
}

impl Index {
    /// Indexes the patterns that are at least a window long; ignores the case of ASCII letters if `fold` is [`CASE`].
    /// `None` if no pattern is long enough.
    pub(super) fn new(patterns: &[Box<[u8]>], fold: u32) -> Option<Self> {
        let entries = choose(patterns, fold);
        match entries.iter().map(Vec::len).sum() {
            0 => None,
            1..=FEW_WINDOWS => Some(Self::Few(Windows::new(&entries, fold))),
            _ => Some(Self::Many(Windows::new(&entries, fold))),
        }
    }
}

impl<const WORDS: usize> Windows<WORDS> {
    fn new(entries: &Entries, fold: u32) -> Self {
        let mut filter = Filter(Box::new([0; WORDS]));
        for (WindowKind { from, .. }, entries) in KINDS.iter().zip(entries) {
            for Entry { sieved, .. } in entries {
                match from {
                    1 => filter.0[Filter::<WORDS>::word(*sieved as u32)] = !0,
                    _ => {
                        let window = (sieved >> if *from == 0 { 0 } else { 8 }) as u32;
                        filter.0[Filter::<WORDS>::word(window >> 8)] |= 1 << (window & 31);
                    }
                }
            }
        }
        let tables = core::array::from_fn(|kind| Table::new(&entries[kind], kind));
        let kinds = entries.each_ref().map(|entries| !entries.is_empty());
        Self {
            filter,
            sieve: Sieve::new(entries),
            tables,
            kinds,
            fold: u64::from(fold) << 32 | u64::from(fold),
        }
    }

    /// Calls `compare` with a text position and each pattern whose window is there, until it returns a result. Apart
    /// from `compare`, the cost is linear in the text.
    #[inline]
    pub(super) fn search<T>(
        &self,
        text: &[u8],
        mut compare: impl FnMut(usize, &Entry) -> Option<T>,
    ) -> Option<T> {
        let mut at = 0;
        while text.len() - at >= STEP + WINDOW {
            let block = &text[at..text.len().min(at + BLOCK + WINDOW)];
            let mut places = [0; BLOCK / STRIDE];
            let (passed, hits) = self.pass(block, &mut places);
            let hits = self.sieve(text, at, &mut places, hits);
            for place in places.iter().take(hits) {
                if let Some(found) = self.look(text, at + usize::from(*place), &mut compare) {
                    return Some(found);
                }
            }
            at += passed;
        }
        while let Some(window) = text.get(at..).and_then(<[u8]>::first_chunk::<WINDOW>) {
            if self.filter.hit(u64::from(u32::from_le_bytes(*window)) | self.fold, 0) != 0
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
        let fold = self.fold;
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

    /// Keeps the places of a block, which begins at `from`, that pass the second filter; returns their number.
    #[inline]
    fn sieve(&self, text: &[u8], from: usize, places: &mut [u16; BLOCK / STRIDE], hits: usize) -> usize {
        let mut count = 0;
        let (mut last, mut hit) = (Bytes([0, 1]), 1);
        for number in 0..hits.min(places.len()) {
            let place = places[number];
            let bytes = Bytes::at(text, from + usize::from(place), self.fold);
            // Where a byte repeats, so do its hits.
            if bytes != last {
                (last, hit) = (bytes, 0);
                for (kind, there) in self.kinds.iter().enumerate() {
                    if *there {
                        hit |= self.sieve.hit(bytes.of(kind), kind);
                    }
                }
            }
            places[count] = place;
            count += hit;
        }
        count
    }

    /// Looks a place up in the lists.
    #[inline]
    fn look<T>(
        &self,
        text: &[u8],
        place: usize,
        compare: &mut impl FnMut(usize, &Entry) -> Option<T>,
    ) -> Option<T> {
        let bytes = Bytes::at(text, place, self.fold);
        for (kind, table) in self.tables.iter().enumerate() {
            let sieved = bytes.of(kind);
            if self.sieve.hit(sieved, kind) == 0 {
                continue;
            }
            let place = place + usize::from(KINDS[kind].from == 1);
            let mut listed = table.of(sieved, kind).iter().filter(|entry| entry.sieved == sieved);
            if let Some(found) = listed.find_map(|entry| compare(place, entry)) {
                return Some(found);
            }
        }
        None
    }
}

/// Eight bytes of a text; zeros behind its end.
#[inline]
fn bytes_at(text: &[u8], place: usize) -> u64 {
    match text.get(place..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => {
            let rest = text.get(place..).unwrap_or_default();
            rest.iter().rev().fold(0, |bytes, byte| bytes << 8 | u64::from(*byte))
        }
    }
}

fn windows(pattern: &[u8], fold: u32) -> impl Iterator<Item = u32> + '_ {
    let chunks = pattern.windows(WINDOW).filter_map(<[u8]>::first_chunk::<WINDOW>);
    chunks.map(move |window| u32::from_le_bytes(*window) | fold)
}

/// A rough logarithmic estimate of how frequent bytes are in network traffic.
fn common(bytes: &[u8]) -> u32 {
    let byte = |byte: &u8| match *byte {
        b'e' | b't' | b'o' | b'a' | b'i' | b's' | b'n' | b'r' | b' ' | 0 => 5,
        b'a'..=b'z' | b'/' | b'.' | b'-' | u8::MAX => 4,
        b'0'..=b'9' | b'A'..=b'Z' | b'\r' | b'\n' => 3,
        b'!'..=b'~' => 2,
        _ => 1,
    };
    // A byte that repeats is more likely to be followed by another one.
    let repeats = bytes.windows(2).filter(|pair| pair[0] == pair[1]).count() as u32;
    bytes.iter().map(byte).sum::<u32>() + 2 * repeats
}

/// For each pattern that has both, the rarest window at an even and at an odd offset: the least frequent in traffic,
/// and in other patterns.
fn choose(patterns: &[Box<[u8]>], fold: u32) -> Entries {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for window in patterns.iter().flat_map(|pattern| windows(pattern, fold)) {
        *counts.entry(window.into()).or_default() += 1;
    }
    let fold = u64::from(fold) << 32 | u64::from(fold);
    let mut chosen = [const { Vec::new() }; KINDS.len()];
    for (number, pattern) in patterns.iter().enumerate() {
        let fits = |kind: &WindowKind| (kind.least..=kind.most).contains(&pattern.len());
        let kinds: Vec<usize> = (0..KINDS.len()).filter(|kind| fits(&KINDS[*kind])).collect();
        for odd in 0..STRIDE {
            let mut best: Option<(u32, usize, Entry)> = None;
            for &kind in kinds.iter().filter(|kind| KINDS[**kind].from < 1 || odd == 1) {
                let WindowKind { from, length, .. } = KINDS[kind];
                let first = if from < 0 { 2 - odd } else { odd * usize::from(from == 0) };
                for offset in (first..pattern.len()).step_by(STRIDE) {
                    let begin = offset - usize::from(from < 0);
                    let Some(bytes) = pattern.get(begin..begin + length as usize) else { break };
                    let Some(window) = pattern.get(offset..offset + WINDOW) else { break };
                    let folded = bytes_at(window, 0) | fold & u64::from(u32::MAX);
                    let shared = counts.get(&u64::from(folded as u32)).copied().unwrap_or(0);
                    // The first filter has but the window. A power of two of patterns weighs like a bit more
                    // frequent bytes.
                    let cost = 2 * common(window) + common(bytes) + 2 * (32 - shared.leading_zeros());
                    let sieved = (bytes_at(bytes, 0) | fold) & (u64::MAX >> (64 - 8 * length));
                    if best.is_none_or(|(least, ..)| cost < least) {
                        best = Some((
                            cost,
                            kind,
                            Entry { sieved, pattern: number as u32, offset: offset as u32 },
                        ));
                    }
                }
            }
            if let Some((_, kind, entry)) = best {
                chosen[kind].push(entry);
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
        let lengths = [4, 5, 6, 8, 9, 30, 3];
        let patterns = boxed(&lengths.map(|length| b"abcdefghijklmnopqrstuvwxyz  ===="[..length].to_vec()));
        let all: Vec<Entry> = choose(&patterns, 0).into_iter().flatten().collect();
        for (number, length) in lengths.into_iter().enumerate().filter(|(_, length)| *length > WINDOW) {
            let own = all.iter().filter(|entry| entry.pattern == number as u32);
            let mut offsets: Vec<u32> = own.map(|entry| entry.offset % 2).collect();
            offsets.sort_unstable();
            assert_eq!(offsets, [0, 1], "{length}");
        }
        let [.., four, behind] = choose(&patterns, 0);
        assert_eq!([four.len(), behind.len()], [1, 1]);
        assert!(Index::new(&patterns[6..], 0).is_none());
    }

    proptest! {
        /// Every occurrence of every pattern is found, and nothing else.
        #[test]
        fn exactly_the_contained_patterns_are_found(
            patterns in prop::collection::vec(
                prop::collection::vec(prop::sample::select(&b"abA\x00"[..]), 4..14), 1..30
            ),
            text in prop::collection::vec(prop::sample::select(&b"abA\x00"[..]), 0..900),
            nocase: bool,
            many: bool,
        ) {
            let same = |one: &[u8], other: &[u8]| one == other || nocase && one.eq_ignore_ascii_case(other);
            let fold = if nocase { CASE } else { 0 };
            let entries = choose(&boxed(&patterns), fold);
            let mut found = Vec::new();
            let mut compare = |place: usize, entry: &Entry| -> Option<()> {
                let from = place.checked_sub(entry.offset as usize)?;
                let pattern = &patterns[entry.pattern as usize];
                if text.get(from..from + pattern.len()).is_some_and(|part| same(part, pattern)) {
                    found.push((entry.pattern as usize, from));
                }
                None
            };
            let nothing = match many {
                false => Windows::<FEW>::new(&entries, fold).search(&text, &mut compare),
                true => Windows::<MANY>::new(&entries, fold).search(&text, &mut compare),
            };
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
