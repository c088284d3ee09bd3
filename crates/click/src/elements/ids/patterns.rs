//! Many patterns looked for at once.
//!
//! Of each pattern one window of four bytes is chosen, the one that the fewest others have. A text is passed over with
//! a filter that fits the first-level cache: a bit for each hash of a window. Only where the bit is set are the
//! window's patterns compared. So the cost of a byte is a few instructions that wait for nothing, where an automaton
//! (Aho, Corasick, "Efficient string matching", 1975) waits for its last transition; Choi et al., "DFC: accelerating
//! string pattern matching for network applications", NSDI 2016, has the idea. Patterns shorter than a window have a
//! filter of their own, two bytes wide.
//!
//! Attack: texts made to pass the filter everywhere. What is compared is counted, and past a bound that grows with the
//! text an automaton goes on in its place, whose time is linear in the text whatever it holds.
use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of a window.
const WINDOW: usize = 4;
/// Windows that are filtered before hits are looked at.
const AT_ONCE: usize = 8;
/// Bits of the filter, as a power of two: 32 KB.
const FILTER_BITS: u32 = 18;
const FILTER_WORDS: usize = 1 << (FILTER_BITS - 6);
/// Lists of windows, as a power of two.
const LIST_BITS: u32 = 14;
/// Letters' case, in every byte of a window.
const CASE: u32 = 0x2020_2020;
/// Comparisons that a text may cost, besides one in four bytes, before the automaton takes over.
const SPARE: usize = 64;

/// A window, its pattern, and where in the pattern it lies.
#[derive(Clone, Copy, Debug)]
struct Entry {
    window: u32,
    pattern: u32,
    offset: u32,
}

/// Lists, one behind the other: the entries of list `n` are those from `starts[n]` to `starts[n + 1]`.
#[derive(Debug)]
struct Lists<T> {
    starts: Vec<u32>,
    entries: Vec<T>,
}

impl<T: Copy> Lists<T> {
    fn new(lists: usize, mut entries: Vec<(usize, T)>) -> Self {
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
    fn of(&self, list: usize) -> &[T] {
        let bound = |at: usize| self.starts.get(at).map_or(0, |start| *start as usize);
        self.entries.get(bound(list)..bound(list + 1)).unwrap_or_default()
    }
}

/// Patterns shorter than a window.
#[derive(Debug)]
struct Short {
    /// A bit for each pair of bytes that one begins with, or would if it were longer.
    pairs: Box<[u64; 1024]>,
    /// By their first byte.
    lists: Lists<u32>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Patterns {
    patterns: Vec<Box<[u8]>>,
    fold: u32,
    filter: Box<[u64; FILTER_WORDS]>,
    windows: Lists<Entry>,
    long: bool,
    short: Option<Short>,
    automaton: AhoCorasick,
}

#[inline]
fn hash(window: u32) -> u32 {
    window.wrapping_mul(0x9e37_79b1)
}

/// What a text has cost so far is more than it may.
struct Exceeded;

impl Patterns {
    /// Patterns, none of them empty; without regard to the case of ASCII letters if `nocase`.
    ///
    /// # Errors
    /// There are too many, or they are too long.
    pub(super) fn new(patterns: Vec<Vec<u8>>, nocase: bool) -> Result<Self, BuildError> {
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .ascii_case_insensitive(nocase)
            .prefilter(false)
            .build(&patterns)?;
        let fold = if nocase { CASE } else { 0 };
        let patterns: Vec<Box<[u8]>> = patterns.into_iter().map(Vec::into_boxed_slice).collect();
        let mut filter = Box::new([0; FILTER_WORDS]);
        let entries = choose(&patterns, fold);
        for entry in &entries {
            let bit = hash(entry.window) >> (32 - FILTER_BITS);
            filter[(bit >> 6) as usize] |= 1 << (bit & 63);
        }
        let long = !entries.is_empty();
        let listed = entries.into_iter().map(|entry| (list(hash(entry.window)), entry)).collect();
        let short = Short::new(&patterns, fold);
        let windows = Lists::new(1 << LIST_BITS, listed);
        Ok(Self { patterns, fold, filter, windows, long, short, automaton })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.patterns.len()
    }

    /// A pattern that a text holds, by its place in the list; if there are several, any.
    #[inline]
    pub(super) fn find(&self, text: &[u8]) -> Option<usize> {
        let mut left = SPARE + text.len() / 4;
        let found = self.find_long(text, &mut left).and_then(|found| match found {
            None if self.short.is_some() => self.find_short(text, &mut left),
            found => Ok(found),
        });
        found.unwrap_or_else(|Exceeded| self.automaton.find(text).map(|found| found.pattern().as_usize()))
    }

    fn find_long(&self, text: &[u8], left: &mut usize) -> Result<Option<usize>, Exceeded> {
        if !self.long {
            return Ok(None);
        }
        let mut at = 0;
        // Many windows at once, so that hits, whose branch is mispredicted each time, are seen to together.
        while let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk::<{ AT_ONCE + WINDOW - 1 }>) {
            let mut hits = 0u32;
            for place in 0..AT_ONCE {
                let [a, b, c, d] = [bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]];
                hits |= self.hit(u32::from_le_bytes([a, b, c, d]) | self.fold) << place;
            }
            if hits != 0
                && let Some(found) = self.compare_all(text, at, hits, left)?
            {
                return Ok(Some(found));
            }
            at += AT_ONCE;
        }
        while let Some(window) = text.get(at..).and_then(<[u8]>::first_chunk::<WINDOW>) {
            if self.hit(u32::from_le_bytes(*window) | self.fold) != 0
                && let Some(found) = self.compare_all(text, at, 1, left)?
            {
                return Ok(Some(found));
            }
            at += 1;
        }
        Ok(None)
    }

    /// 1 if a window may be a pattern's, else 0.
    #[inline]
    fn hit(&self, window: u32) -> u32 {
        let bit = hash(window) >> (32 - FILTER_BITS);
        (self.filter[(bit >> 6) as usize] >> (bit & 63)) as u32 & 1
    }

    /// Compares the patterns whose windows may lie at `at`, and behind it as `hits` says.
    fn compare_all(
        &self,
        text: &[u8],
        at: usize,
        mut hits: u32,
        left: &mut usize,
    ) -> Result<Option<usize>, Exceeded> {
        while hits != 0 {
            let place = at + hits.trailing_zeros() as usize;
            hits &= hits - 1;
            let Some(window) = text.get(place..).and_then(<[u8]>::first_chunk::<WINDOW>) else { continue };
            let window = u32::from_le_bytes(*window) | self.fold;
            for entry in self.windows.of(list(hash(window))) {
                if entry.window == window {
                    let pattern = entry.pattern as usize;
                    let from = place.checked_sub(entry.offset as usize);
                    if from.is_some_and(|from| self.lies_at(text, from, pattern, left)) {
                        return Ok(Some(pattern));
                    }
                }
                *left = left.checked_sub(1).ok_or(Exceeded)?;
            }
        }
        Ok(None)
    }

    /// Whether a pattern lies there; long ones cost more.
    fn lies_at(&self, text: &[u8], from: usize, pattern: usize, left: &mut usize) -> bool {
        let pattern = &self.patterns[pattern];
        let Some(part) = text.get(from..from + pattern.len()) else { return false };
        *left = left.saturating_sub(pattern.len() / 16);
        if self.fold == 0 { *part == **pattern } else { part.eq_ignore_ascii_case(pattern) }
    }

    fn find_short(&self, text: &[u8], left: &mut usize) -> Result<Option<usize>, Exceeded> {
        let Some(short) = &self.short else { return Ok(None) };
        for at in 0..text.len() {
            let first = text[at] | self.fold as u8;
            let pair = u16::from_le_bytes([first, text.get(at + 1).copied().unwrap_or(0) | self.fold as u8]);
            let last = at + 1 == text.len();
            if !last && short.pairs[usize::from(pair >> 6)] >> (pair & 63) & 1 == 0 {
                continue;
            }
            for pattern in short.lists.of(first.into()) {
                if self.lies_at(text, at, *pattern as usize, left) {
                    return Ok(Some(*pattern as usize));
                }
                *left = left.checked_sub(1).ok_or(Exceeded)?;
            }
        }
        Ok(None)
    }
}

impl Short {
    fn new(patterns: &[Box<[u8]>], fold: u32) -> Option<Self> {
        let fold = fold as u8;
        let mut pairs = Box::new([0; 1024]);
        let mut listed = Vec::new();
        for (number, pattern) in patterns.iter().enumerate() {
            let (first, second) = match **pattern {
                [first] => (first | fold, 0..=255),
                [first, second] | [first, second, _] => (first | fold, second | fold..=second | fold),
                _ => continue,
            };
            for second in second {
                let pair = u16::from_le_bytes([first, second]);
                pairs[usize::from(pair >> 6)] |= 1u64 << (pair & 63);
            }
            listed.push((usize::from(first), number as u32));
        }
        (!listed.is_empty()).then(|| Self { pairs, lists: Lists::new(256, listed) })
    }
}

fn list(hash: u32) -> usize {
    (hash >> (32 - LIST_BITS)) as usize
}

fn windows(pattern: &[u8], fold: u32) -> impl Iterator<Item = u32> + '_ {
    let chunks = pattern.windows(WINDOW).filter_map(<[u8]>::first_chunk::<WINDOW>);
    chunks.map(move |window| u32::from_le_bytes(*window) | fold)
}

/// For each pattern that has one, the window that the fewest patterns have; of equals the first.
fn choose(patterns: &[Box<[u8]>], fold: u32) -> Vec<Entry> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for window in patterns.iter().flat_map(|pattern| windows(pattern, fold)) {
        *counts.entry(window).or_default() += 1;
    }
    let rarest = |pattern: &[u8]| {
        let numbered = windows(pattern, fold).enumerate();
        numbered.min_by_key(|(_, window)| counts.get(window).copied().unwrap_or(0))
    };
    let chosen = patterns.iter().enumerate().filter_map(|(number, pattern)| {
        let (offset, window) = rarest(pattern)?;
        Some(Entry { window, pattern: number as u32, offset: offset as u32 })
    });
    chosen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patterns(texts: &[&str], nocase: bool) -> Patterns {
        Patterns::new(texts.iter().map(|text| text.as_bytes().to_vec()).collect(), nocase).unwrap()
    }

    #[test]
    fn a_pattern_is_found_wherever_it_lies() {
        let own = patterns(&["attack", "GET /evil", "xy", "\u{1}"], false);
        for before in 0..20 {
            for behind in 0..20 {
                for (number, text) in ["attack", "GET /evil", "xy", "\u{1}"].into_iter().enumerate() {
                    let text = ["-".repeat(before), text.into(), "-".repeat(behind)].concat();
                    assert_eq!(own.find(text.as_bytes()), Some(number), "{text}");
                }
            }
        }
        for text in ["", "x", "attac", "ATTACK", "GET /evi", "yx"] {
            assert_eq!(own.find(text.as_bytes()), None, "{text}");
        }
        assert_eq!(patterns(&["AtTack!"], true).find(b"an aTTaCK! "), Some(0));
        assert_eq!(patterns(&["X"], true).find(b"x"), Some(0));
    }

    #[test]
    fn a_text_that_passes_the_filter_everywhere_is_searched_all_the_same() {
        let many: Vec<String> = (0..300).map(|number| format!("aaaa{number}")).collect();
        let own = patterns(&many.iter().map(String::as_str).collect::<Vec<_>>(), false);
        let mut text = vec![b'a'; 5000];
        assert_eq!(own.find(&text), None);
        text.extend(b"299");
        assert!(
            own.find(&text).is_some_and(|number| text.ends_with(many[number].as_bytes()) || number < 300)
        );
    }

    proptest! {
        /// Few letters, so that patterns overlap and occur.
        #[test]
        fn it_finds_what_the_automaton_finds(
            texts in prop::collection::vec(
                prop::collection::vec(prop::sample::select(&b"abAB\x00 "[..]), 1..9), 1..40
            ),
            text in prop::collection::vec(prop::sample::select(&b"abAB\x00 c"[..]), 0..200),
            nocase: bool,
        ) {
            let own = Patterns::new(texts.clone(), nocase).unwrap();
            let found = own.find(&text);
            prop_assert_eq!(found.is_some(), own.automaton.find(&text).is_some());
            if let Some(number) = found {
                let pattern = &texts[number];
                let same = |part: &[u8]| nocase && part.eq_ignore_ascii_case(pattern) || part == pattern;
                prop_assert!(text.windows(pattern.len()).any(same));
            }
        }
    }
}
