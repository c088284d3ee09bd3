//! Rules whose alternatives look at the same words under the same masks, in a hash table by the words' values.
use super::decision::Headers;
use super::needs::{Need, WORDS};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Words and their masks.
pub(super) type Shape = Vec<(u16, u32)>;

/// Rules, in order, by the values that the words must have.
pub(super) type Entries = BTreeMap<Vec<u32>, Vec<u32>>;

/// A slot of the hash table.
#[derive(Clone, Copy, Debug, Default)]
struct HashSlot {
    /// The entry's number, counted from 1; 0 in an empty slot.
    entry: u32,
    /// The upper half of the entry's hash, so that values of other entries are rarely compared.
    tag: u32,
}

/// The table of one shape. It is immutable once built, so traffic cannot fill it with colliding keys.
#[derive(Clone, Debug)]
pub(super) struct Table {
    shape: Shape,
    /// The first rule of all.
    pub(super) first: u32,
    slots: Vec<HashSlot>,
    /// The values of the entries, one for each word of the shape.
    keys: Vec<u32>,
    /// Index in `rules` where an entry's rules begin; they end where the next entry's rules begin.
    starts: Vec<u32>,
    rules: Vec<u32>,
}

/// The shape and the values that an alternative requires.
pub(super) fn split(needs: &[Need]) -> (Shape, Vec<u32>) {
    needs.iter().map(|need| ((need.offset, need.mask), need.value)).unzip()
}

/// Mixes words (the multiplier is 2^64 divided by the golden ratio; Knuth, TAOCP 3, 6.4).
#[inline]
pub(super) fn hash(words: &[u32]) -> u64 {
    let mix = |sum: u64, word: &u32| {
        let product = (sum ^ u64::from(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 32
    };
    words.iter().fold(0, mix)
}

impl Table {
    pub(super) fn new(shape: Shape, entries: Entries) -> Self {
        let size = (entries.len() * 2).next_power_of_two();
        let mut table = Self {
            shape,
            first: u32::MAX,
            slots: vec![HashSlot::default(); size],
            keys: vec![],
            starts: vec![],
            rules: vec![],
        };
        for (number, (key, rules)) in entries.into_iter().enumerate() {
            let hash = hash(&key);
            let mut at = hash as usize & (size - 1);
            while table.slots[at].entry != 0 {
                at = (at + 1) & (size - 1);
            }
            table.slots[at] = HashSlot { entry: number as u32 + 1, tag: (hash >> 32) as u32 };
            table.keys.extend(key);
            table.starts.push(table.rules.len() as u32);
            table.first = rules.first().copied().unwrap_or(u32::MAX).min(table.first);
            table.rules.extend(rules);
        }
        table.starts.push(table.rules.len() as u32);
        table
    }

    /// Lookup cost of a packet: rules that every packet may match are tested one by one.
    pub(super) fn looks(&self) -> usize {
        if self.shape.is_empty() { self.rules.len() } else { 1 }
    }

    /// The rules that a packet may match, in order.
    #[inline]
    pub(super) fn candidates(&self, headers: &Headers<'_>) -> &[u32] {
        if self.shape.is_empty() {
            return &self.rules;
        }
        let mut key = [0; WORDS];
        for (place, (offset, mask)) in key.iter_mut().zip(&self.shape) {
            match headers.word(*offset, *mask) {
                Some(word) => *place = word & mask,
                None => return &[],
            }
        }
        let key = &key[..self.shape.len()];
        let (hash, last) = (hash(key), self.slots.len() - 1);
        let (mut at, tag) = (hash as usize & last, (hash >> 32) as u32);
        loop {
            let slot = self.slots[at];
            let entry = slot.entry as usize;
            if entry == 0 {
                return &[];
            }
            if slot.tag == tag && self.keys[(entry - 1) * key.len()..][..key.len()] == *key {
                return &self.rules[self.starts[entry - 1] as usize..self.starts[entry] as usize];
            }
            at = (at + 1) & last;
        }
    }
}
