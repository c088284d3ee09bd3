//! Finds the flow of a frame: tuple space search. The flows of a table that have the same mask are in one hash table, a
//! *subtable*; subtables are looked into in the order of their highest priority, until no later one can have a better
//! flow.
//!
//! A table is shared by snapshots: a change copies what it changes, a chunk of a subtable.

use crate::flow::Flow;
use crate::key::{Key, WORDS};
use crate::matching::Match;
use arrayvec::ArrayVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most masks of a table. Attack: a file whose every flow has a mask of its own, so that a frame needs a look-up for
/// each.
pub const MASKS: usize = 1024;
/// Flows of a chunk, on average, from which on there are twice as many chunks.
const CROWDED: usize = 8;

/// Mixes a word into a hash.
#[inline]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

/// A table has too many masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a table has flows of more than {MASKS} different masks; match the same fields, or use several tables"
)]
pub struct TooManyMasks;

/// The flows of a table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// By their highest priorities, the greatest first.
    subtables: Vec<Arc<Subtable>>,
    flows: usize,
    /// The bits that any flow matches, and the words that have some.
    union: Key,
    words: ArrayVec<u8, WORDS>,
}

/// Flows with the same mask.
#[derive(Clone, Debug)]
struct Subtable {
    mask: Key,
    /// The words that the mask does not leave out.
    words: ArrayVec<u8, WORDS>,
    seed: u64,
    highest: u16,
    /// How many flows there are of each priority.
    priorities: BTreeMap<u16, usize>,
    /// Their number is a power of two.
    chunks: Vec<Arc<Vec<Entry>>>,
    entries: usize,
}

/// Flows with the same match.
#[derive(Clone, Debug)]
struct Entry {
    hash: u64,
    /// The words of the key that the mask does not leave out.
    key: Box<[u64]>,
    /// The highest priority first; never empty.
    flows: Vec<Arc<Flow>>,
}

impl Subtable {
    fn new(mask: &Key, seed: u64) -> Subtable {
        let words = (0..WORDS as u8).filter(|word| mask.0[usize::from(*word)] != 0).collect();
        let (priorities, chunks) = (BTreeMap::new(), vec![Arc::default()]);
        Subtable { mask: *mask, words, seed, highest: 0, priorities, chunks, entries: 0 }
    }

    /// The words of a key that the mask has, with its bits only.
    #[inline]
    fn masked(&self, key: &Key) -> (u64, ArrayVec<u64, WORDS>) {
        let (mut hash, mut masked) = (self.seed, ArrayVec::new());
        for word in &self.words {
            let word = usize::from(*word);
            let value = key.0[word] & self.mask.0[word];
            hash = mix(hash, value);
            masked.push(value);
        }
        (hash, masked)
    }

    #[inline]
    fn chunk(&self, hash: u64) -> usize {
        hash as usize & (self.chunks.len() - 1)
    }

    /// The flows of a key, the highest priority first.
    #[inline]
    fn find(&self, key: &Key) -> Option<&[Arc<Flow>]> {
        let (hash, masked) = self.masked(key);
        let chunk = self.chunks.get(self.chunk(hash))?;
        let entry = chunk.iter().find(|entry| entry.hash == hash && *entry.key == masked[..])?;
        Some(&entry.flows)
    }

    fn count(&mut self, priority: u16, is_added: bool) {
        let count = self.priorities.entry(priority).or_default();
        *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.priorities.remove(&priority);
        }
        self.highest = self.priorities.last_key_value().map_or(0, |(priority, _)| *priority);
    }

    /// Adds a flow; returns the one with the same match and priority, which it replaces.
    fn insert(&mut self, flow: Arc<Flow>) -> Option<Arc<Flow>> {
        if self.entries >= CROWDED * self.chunks.len() {
            self.grow();
        }
        let (hash, masked) = self.masked(&flow.flow.of.key);
        let (chunk, priority) = (self.chunk(hash), flow.flow.priority);
        let chunk = Arc::make_mut(self.chunks.get_mut(chunk)?);
        let Some(entry) = chunk.iter_mut().find(|entry| entry.hash == hash && *entry.key == masked[..])
        else {
            chunk.push(Entry { hash, key: masked.as_slice().into(), flows: vec![flow] });
            self.entries += 1;
            self.count(priority, true);
            return None;
        };
        let place = entry.flows.partition_point(|own| own.flow.priority > priority);
        match entry.flows.get_mut(place).filter(|own| own.flow.priority == priority) {
            Some(own) => Some(std::mem::replace(own, flow)),
            None => {
                entry.flows.insert(place, flow);
                self.count(priority, true);
                None
            }
        }
    }

    fn remove(&mut self, of: &Match, priority: u16) -> Option<Arc<Flow>> {
        let (hash, masked) = self.masked(&of.key);
        let chunk = self.chunk(hash);
        let chunk = Arc::make_mut(self.chunks.get_mut(chunk)?);
        let at = chunk.iter().position(|entry| entry.hash == hash && *entry.key == masked[..])?;
        let flows = &mut chunk.get_mut(at)?.flows;
        let removed = flows.remove(flows.iter().position(|own| own.flow.priority == priority)?);
        if flows.is_empty() {
            chunk.swap_remove(at);
            self.entries -= 1;
        }
        self.count(priority, false);
        Some(removed)
    }

    /// Twice as many chunks.
    fn grow(&mut self) {
        let mut chunks = vec![Vec::new(); self.chunks.len() * 2];
        for chunk in std::mem::take(&mut self.chunks) {
            for entry in Arc::unwrap_or_clone(chunk) {
                let place = entry.hash as usize & (chunks.len() - 1);
                chunks[place].push(entry);
            }
        }
        self.chunks = chunks.into_iter().map(Arc::new).collect();
    }
}

impl Table {
    /// Number of its flows.
    pub fn len(&self) -> usize {
        self.flows
    }

    /// Whether it has no flow.
    pub fn is_empty(&self) -> bool {
        self.flows == 0
    }

    /// Number of its masks, which is that of the look-ups that a frame needs at most.
    pub fn masks(&self) -> usize {
        self.subtables.len()
    }

    /// The bits of a key that any flow matches, and their hash: frames that differ in other bits have the same flow.
    #[inline]
    pub(crate) fn matched(&self, key: &Key, seed: u64) -> (u64, Key) {
        let (mut hash, mut matched) = (seed, Key::EMPTY);
        for word in &self.words {
            let word = usize::from(*word);
            matched.0[word] = key.0[word] & self.union.0[word];
            hash = mix(hash, matched.0[word]);
        }
        (hash, matched)
    }

    /// Whether keys, of which [`Table::matched`] left what flows match, are the same.
    #[inline]
    pub(crate) fn is_same(&self, one: &Key, other: &Key) -> bool {
        self.words.iter().all(|word| one.0[usize::from(*word)] == other.0[usize::from(*word)])
    }

    fn unite(&mut self) {
        self.union = Key::EMPTY;
        for subtable in &self.subtables {
            let words = self.union.0.iter_mut().zip(&subtable.mask.0);
            words.for_each(|(all, own)| *all |= own);
        }
        self.words = (0..WORDS as u8).filter(|word| self.union.0[usize::from(*word)] != 0).collect();
    }

    /// The flow of a frame: of those that match it, one with the highest priority; and the number of its subtable.
    pub fn find(&self, key: &Key) -> Option<(usize, &Arc<Flow>)> {
        self.search(key).0
    }

    /// As [`Table::find`], and how many subtables were looked into.
    #[inline]
    pub(crate) fn search(&self, key: &Key) -> (Option<(usize, &Arc<Flow>)>, usize) {
        let mut looked = 0;
        let mut best: Option<(usize, &Arc<Flow>)> = None;
        for (number, subtable) in self.subtables.iter().enumerate() {
            if best.is_some_and(|(_, best)| best.flow.priority >= subtable.highest) {
                break;
            }
            looked += 1;
            let Some(found) = subtable.find(key).and_then(<[_]>::first) else { continue };
            if best.is_none_or(|(_, best)| found.flow.priority > best.flow.priority) {
                best = Some((number, found));
            }
        }
        (best, looked)
    }

    /// The flow of a frame, which is known to be in this subtable.
    #[inline]
    pub(crate) fn find_in(&self, subtable: usize, key: &Key) -> Option<&Arc<Flow>> {
        self.subtables.get(subtable)?.find(key)?.first()
    }

    /// The flow with exactly this match and priority.
    pub fn get(&self, of: &Match, priority: u16) -> Option<&Arc<Flow>> {
        let subtable = self.subtables.iter().find(|subtable| subtable.mask == of.mask)?;
        subtable.find(&of.key)?.iter().find(|own| own.flow.priority == priority)
    }

    /// Adds a flow; returns the one with the same match and priority, which it replaces.
    ///
    /// # Errors
    /// There are too many masks.
    pub fn insert(&mut self, flow: Arc<Flow>, seed: u64) -> Result<Option<Arc<Flow>>, TooManyMasks> {
        let mask = &flow.flow.of.mask;
        let at = match self.subtables.iter().position(|subtable| subtable.mask == *mask) {
            Some(at) => at,
            None if self.subtables.len() >= MASKS => return Err(TooManyMasks),
            None => {
                self.subtables.push(Arc::new(Subtable::new(mask, seed)));
                self.unite();
                self.subtables.len() - 1
            }
        };
        let replaced = self.subtables.get_mut(at).and_then(|subtable| Arc::make_mut(subtable).insert(flow));
        self.flows += usize::from(replaced.is_none());
        self.sort();
        Ok(replaced)
    }

    /// Removes the flow with exactly this match and priority.
    pub fn remove(&mut self, of: &Match, priority: u16) -> Option<Arc<Flow>> {
        let at = self.subtables.iter().position(|subtable| subtable.mask == of.mask)?;
        let subtable = Arc::make_mut(self.subtables.get_mut(at)?);
        let removed = subtable.remove(of, priority)?;
        let is_empty = subtable.entries == 0;
        if is_empty {
            self.subtables.remove(at);
            self.unite();
        }
        self.flows -= 1;
        self.sort();
        Some(removed)
    }

    fn sort(&mut self) {
        let is_sorted = self.subtables.is_sorted_by_key(|subtable| std::cmp::Reverse(subtable.highest));
        if !is_sorted {
            self.subtables.sort_by_key(|subtable| std::cmp::Reverse(subtable.highest));
        }
    }

    /// All flows, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Flow>> {
        let chunks = self.subtables.iter().flat_map(|subtable| &subtable.chunks);
        chunks.flat_map(|chunk| chunk.iter()).flat_map(|entry| &entry.flows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Numbers;
    use crate::flow::FlowMod;

    fn flow(text: &str) -> Arc<Flow> {
        Arc::new(Flow::new(FlowMod::read(text, &Numbers).unwrap(), 0))
    }

    #[test]
    fn a_snapshot_stays_as_it_was() {
        let mut table = Table::default();
        for number in 0..1000 {
            table.insert(flow(&format!("tcp,tp_dst={number},actions=output:1")), 7).unwrap();
        }
        let before = table.clone();
        let key = flow("tcp,tp_dst=5,actions=output:1").flow.of.key;
        for number in 0..1000 {
            let own = flow(&format!("tcp,tp_dst={number},actions=output:1"));
            assert!(table.remove(&own.flow.of, own.flow.priority).is_some());
            assert!(table.remove(&own.flow.of, own.flow.priority).is_none());
        }
        assert!(table.is_empty() && table.masks() == 0 && table.find(&key).is_none());
        assert_eq!((before.len(), before.masks(), before.iter().count()), (1000, 1, 1000));
        assert_eq!(before.find(&key).map(|(_, found)| found.flow.of.key), Some(key));
    }

    #[test]
    fn equal_matches_differ_by_priority() {
        let mut table = Table::default();
        for priority in [5, 9, 7] {
            let text = format!("priority={priority},udp,actions=output:{priority}");
            assert!(table.insert(flow(&text), 7).unwrap().is_none());
        }
        let own = flow("priority=9,udp,actions=drop");
        let found = |table: &Table| table.find(&own.flow.of.key).map(|(_, found)| found.flow.priority);
        assert_eq!(found(&table), Some(9));
        assert!(table.insert(own.clone(), 7).unwrap().is_some(), "replaces the former one");
        assert_eq!(table.len(), 3);
        table.remove(&own.flow.of, 9);
        assert_eq!(found(&table), Some(7));
        assert!(table.get(&own.flow.of, 5).is_some() && table.get(&own.flow.of, 9).is_none());
    }

    #[test]
    fn masks_are_bounded() {
        let mut table = Table::default();
        let of = |number: usize| flow(&format!("metadata=0/{:#x},actions=drop", number + 1));
        for number in 0..MASKS {
            table.insert(of(number), 7).unwrap();
        }
        assert_eq!(table.insert(of(MASKS), 7).unwrap_err(), TooManyMasks);
        table.insert(of(3), 7).unwrap();
        assert_eq!(table.masks(), MASKS);
    }
}
