//! Simultaneous search for many patterns.
//!
//! A filter finds the few offsets of a text at which a pattern may be ([`Index`]); only there the patterns are
//! compared. So each byte costs a few independent instructions, whereas an automaton (Aho, Corasick, "Efficient string
//! matching", 1975) waits for its last transition. Patterns shorter than a window have a separate filter of two bytes.
//!
//! Attack: texts that pass the filters everywhere. Comparisons are counted, and beyond a limit proportional to the
//! text's length an automaton continues instead, whose time is linear for any text.
use super::windows::{CASE, Index, Lists, Windows};
use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError};
use ringway_click::prelude::*;

/// Comparisons allowed per text, besides one per two bytes, before the search falls back to the automaton, which takes
/// longer than them.
const SPARE: usize = 64;

/// Patterns shorter than a window.
#[derive(Debug)]
struct Short {
    /// A bit for each pair of bytes with which a pattern begins; one-byte patterns set the bits of all their pairs.
    pairs: Box<[u64; 1024]>,
    /// Patterns by their first byte.
    lists: Lists<u32>,
}

#[derive(Debug)]
pub(super) struct Patterns {
    patterns: Vec<Box<[u8]>>,
    fold: u32,
    index: Option<Index>,
    short: Option<Short>,
    automaton: AhoCorasick,
}

/// The search exceeded its allowed cost.
struct Exceeded;

impl Patterns {
    /// Takes patterns, none of them empty; `nocase` ignores the case of ASCII letters.
    ///
    /// # Errors
    /// If there are too many patterns, or they are too long.
    pub(super) fn new(patterns: Vec<Vec<u8>>, nocase: bool) -> Result<Self, BuildError> {
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .ascii_case_insensitive(nocase)
            .prefilter(false)
            .build(&patterns)?;
        let fold = if nocase { CASE } else { 0 };
        let patterns: Vec<Box<[u8]>> = patterns.into_iter().map(Vec::into_boxed_slice).collect();
        let index = Index::new(&patterns, fold);
        let short = Short::new(&patterns, fold);
        Ok(Self { patterns, fold, index, short, automaton })
    }

    /// Number of patterns.
    pub(super) fn len(&self) -> usize {
        self.patterns.len()
    }

    /// The index of a pattern that a text contains; any of them if there are several.
    #[inline]
    pub(super) fn find(&self, text: &[u8]) -> Option<usize> {
        let mut left = SPARE + text.len() / 2;
        let any = &mut |_| true;
        let found = self.find_long(text, &mut left, any).and_then(|found| match found {
            None if self.short.is_some() => self.find_short(text, &mut left, any),
            found => Ok(found),
        });
        found.unwrap_or_else(|Exceeded| self.automaton.find(text).map(|found| found.pattern().as_usize()))
    }

    /// Calls `visit` with the index of each pattern that a text contains, perhaps repeatedly, until it returns true.
    pub(super) fn find_each(&self, text: &[u8], visit: &mut dyn FnMut(usize) -> bool) {
        let mut left = SPARE + text.len() / 2;
        let found = self.find_long(text, &mut left, visit).and_then(|found| match found {
            None if self.short.is_some() => self.find_short(text, &mut left, visit),
            found => Ok(found),
        });
        if found.is_err() {
            let mut all = self.automaton.find_overlapping_iter(text);
            let _ = all.any(|found| visit(found.pattern().as_usize()));
        }
    }

    fn find_long(
        &self,
        text: &[u8],
        left: &mut usize,
        visit: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<usize>, Exceeded> {
        match &self.index {
            None => Ok(None),
            Some(Index::Few(windows)) => self.find_by(windows, text, left, visit),
            Some(Index::Many(windows)) => self.find_by(windows, text, left, visit),
        }
    }

    #[inline]
    fn find_by<const WORDS: usize>(
        &self,
        windows: &Windows<WORDS>,
        text: &[u8],
        left: &mut usize,
        visit: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<usize>, Exceeded> {
        let found = windows.search(text, |place, entry| {
            let pattern = entry.pattern as usize;
            let from = place.checked_sub(entry.offset as usize);
            if from.is_some_and(|from| self.lies_at(text, from, pattern, left)) && visit(pattern) {
                return Some(Ok(pattern));
            }
            let Some(less) = left.checked_sub(1) else { return Some(Err(Exceeded)) };
            *left = less;
            None
        });
        found.transpose()
    }

    /// Whether a text contains a pattern at `from`; longer comparisons cost more.
    fn lies_at(&self, text: &[u8], from: usize, pattern: usize, left: &mut usize) -> bool {
        let pattern = &self.patterns[pattern];
        let Some(part) = text.get(from..from + pattern.len()) else { return false };
        *left = left.saturating_sub(pattern.len() / 16);
        if self.fold == 0 { *part == **pattern } else { part.eq_ignore_ascii_case(pattern) }
    }

    fn find_short(
        &self,
        text: &[u8],
        left: &mut usize,
        visit: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<usize>, Exceeded> {
        let Some(short) = &self.short else { return Ok(None) };
        for at in 0..text.len() {
            let first = text[at] | self.fold as u8;
            let pair = u16::from_le_bytes([first, text.get(at + 1).copied().unwrap_or(0) | self.fold as u8]);
            let last = at + 1 == text.len();
            if !last && short.pairs[usize::from(pair >> 6)] >> (pair & 63) & 1 == 0 {
                continue;
            }
            for pattern in short.lists.of(first.into()) {
                if self.lies_at(text, at, *pattern as usize, left) && visit(*pattern as usize) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn patterns(texts: &[&str], nocase: bool) -> Patterns {
        Patterns::new(texts.iter().map(|text| text.as_bytes().to_vec()).collect(), nocase).unwrap()
    }

    #[test]
    fn a_pattern_is_found_at_any_offset() {
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
    fn a_text_that_always_passes_the_filter_is_searched_correctly() {
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
        fn the_search_equals_aho_corasick(
            texts in prop::collection::vec(
                prop::collection::vec(prop::sample::select(&b"abAB\x00 "[..]), 1..9), 1..40
            ),
            text in prop::collection::vec(prop::sample::select(&b"abAB\x00 c"[..]), 0..200),
            nocase: bool,
        ) {
            let own = Patterns::new(texts.clone(), nocase).unwrap();
            let found = own.find(&text);
            prop_assert_eq!(found.is_some(), own.automaton.find(&text).is_some());
            let mut each = BTreeSet::new();
            own.find_each(&text, &mut |pattern| {
                each.insert(pattern);
                false
            });
            let all: BTreeSet<usize> =
                own.automaton.find_overlapping_iter(&text).map(|found| found.pattern().as_usize()).collect();
            prop_assert_eq!(each, all);
            if let Some(number) = found {
                let pattern = &texts[number];
                let same = |part: &[u8]| nocase && part.eq_ignore_ascii_case(pattern) || part == pattern;
                prop_assert!(text.windows(pattern.len()).any(same));
            }
        }
    }
}
