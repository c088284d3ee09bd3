//! What was decided for packets that have the same words: for filters whose rules are costly to find.
use super::decision::Headers;
use super::table::{Shape, hash};
use alloc::vec;
use alloc::vec::Vec;

/// How many words tell packets apart, at most.
const WORDS: usize = 7;
/// How many entries. Attack: packets of ever new flows; they take each other's places, and cost what they would
/// without a cache.
const ENTRIES: usize = 1 << 16;

/// The words, padded with zeros, and the outcome plus 1; 0 in an empty entry.
type Entry = [u32; WORDS + 1];

/// Caches outcomes by the words on which they depend.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    shape: Shape,
    entries: Vec<Entry>,
}

impl Cache {
    /// A cache for decisions that depend on these words only; `None` if there are too many words.
    pub(super) fn new(shape: Shape) -> Option<Self> {
        (shape.len() <= WORDS).then(|| Self { shape, entries: vec![[0; WORDS + 1]; ENTRIES] })
    }

    /// The outcome of a packet, from the cache or else from `decide`.
    #[inline]
    pub(super) fn get(&mut self, headers: &Headers<'_>, decide: impl FnOnce() -> u32) -> u32 {
        let mut key = [0; WORDS + 1];
        for (place, (offset, mask)) in key.iter_mut().zip(&self.shape) {
            match headers.word(*offset, *mask) {
                Some(word) => *place = word & mask,
                // The outcome for a partly missing word depends on which of its bytes are missing.
                None => return decide(),
            }
        }
        let entry = &mut self.entries[hash(&key[..self.shape.len()]) as usize & (ENTRIES - 1)];
        if entry[..WORDS] != key[..WORDS] || entry[WORDS] == 0 {
            key[WORDS] = decide() + 1;
            *entry = key;
        }
        entry[WORDS] - 1
    }
}
