//! The mapped ranges, in order.

use super::Access;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Largest number of entries in a chunk. An update copies one or two chunks, a lookup does a binary search in
/// one.
const CHUNK: usize = 128;

/// A range of IOVAs that maps to contiguous bytes of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub first: u64,
    /// The last address, inclusive: the following address may not exist.
    pub last: u64,
    /// Offset of `first` in its region.
    pub offset: u64,
    pub region: u16,
    pub access: Access,
}

impl Entry {
    /// The part within `first..=last`, which must overlap the entry.
    fn part(&self, first: u64, last: u64) -> Entry {
        let (first, last) = (self.first.max(first), self.last.min(last));
        Entry { first, last, offset: self.offset + (first - self.first), ..*self }
    }

    /// Whether `next` follows directly in both address spaces, with the same permission. Attack: ranges that
    /// are adjacent in only one of the address spaces, or that differ in permission, must not be merged.
    fn continues(&self, next: &Entry) -> bool {
        self.last.checked_add(1) == Some(next.first)
            && self.region == next.region
            && self.access == next.access
            && self.offset + (self.last - self.first) + 1 == next.offset
    }

    /// Whether `part` is within this range and has the same target and permission.
    pub fn agrees_with(&self, part: &Entry) -> bool {
        self.first <= part.first
            && part.last <= self.last
            && self.region == part.region
            && self.access == part.access
            && self.offset + (part.first - self.first) == part.offset
    }
}

/// Entries ordered by address, not overlapping; immutable, replaced as a whole.
#[derive(Debug, Default)]
pub struct Map {
    /// The first address of each chunk.
    firsts: Vec<u64>,
    /// No chunk is empty.
    chunks: Vec<Arc<[Entry]>>,
    count: usize,
}

impl Map {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no range is mapped.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entry that contains `iova`.
    #[inline]
    pub(super) fn get(&self, iova: u64) -> Option<&Entry> {
        let chunk = self.chunks.get(self.firsts.partition_point(|&first| first <= iova).checked_sub(1)?)?;
        let entry = chunk.get(chunk.partition_point(|entry| entry.first <= iova).checked_sub(1)?)?;
        (iova <= entry.last).then_some(entry)
    }

    /// The entries that overlap `first..=last`.
    pub(super) fn overlapping(&self, first: u64, last: u64) -> impl Iterator<Item = &Entry> {
        let from = self.firsts.partition_point(|&at| at <= first).saturating_sub(1);
        let chunks = self.chunks.get(from..).unwrap_or(&[]);
        let entries = chunks.iter().flat_map(|chunk| chunk.iter());
        entries.skip_while(move |entry| entry.last < first).take_while(move |entry| entry.first <= last)
    }

    /// Entry `number`, counted over all chunks.
    pub(super) fn nth(&self, mut number: usize) -> Option<&Entry> {
        for chunk in &self.chunks {
            match chunk.get(number) {
                Some(entry) => return Some(entry),
                None => number -= chunk.len(),
            }
        }
        None
    }

    /// A copy of the map in which `first..=last` is mapped by `with`, or unmapped.
    pub(super) fn replaced(&self, first: u64, last: u64, with: Option<Entry>) -> Map {
        // From the chunk of the last entry that begins before `first` to the chunk of the entry after `last`.
        let mut from = self.firsts.partition_point(|&at| at < first).saturating_sub(1);
        let mut to = self.firsts.partition_point(|&at| at <= last.saturating_add(1));
        let mut entries = Vec::with_capacity(CHUNK + 2);
        let mut with = with;
        for entry in self.chunks[from..to].iter().flat_map(|chunk| chunk.iter()) {
            if entry.first < first {
                push(&mut entries, entry.part(0, entry.last.min(first.wrapping_sub(1))));
            }
            if entry.last > last {
                with.take().into_iter().for_each(|with| push(&mut entries, with));
                push(&mut entries, entry.part(entry.first.max(last.wrapping_add(1)), u64::MAX));
            }
        }
        with.into_iter().for_each(|with| push(&mut entries, with));
        // Small chunks are merged with a neighbour, to bound the number of chunks.
        if entries.len() < CHUNK / 4 {
            if let Some(before) = from.checked_sub(1).map(|before| &self.chunks[before])
                && before.len() + entries.len() <= CHUNK
            {
                entries.splice(0..0, before.iter().copied());
                from -= 1;
            } else if let Some(after) = self.chunks.get(to)
                && after.len() + entries.len() <= CHUNK
            {
                entries.extend(after.iter().copied());
                to += 1;
            }
        }
        self.spliced(from, to, &entries)
    }

    /// A copy of the map with these entries instead of the chunks `from..to`.
    fn spliced(&self, from: usize, to: usize, entries: &[Entry]) -> Map {
        let before: usize = self.chunks[from..to].iter().map(|chunk| chunk.len()).sum();
        let count = self.count - before + entries.len();
        // Chunks of equal size, rather than full ones and a small remainder.
        let size = entries.len().div_ceil(entries.len().div_ceil(CHUNK).max(1)).max(1);
        let firsts = entries.chunks(size).filter_map(|chunk| Some(chunk.first()?.first));
        let chunks = entries.chunks(size).map(Arc::from);
        let room = self.firsts.len() - (to - from) + entries.len().div_ceil(size);
        let mut map = Map { firsts: Vec::with_capacity(room), chunks: Vec::with_capacity(room), count };
        map.firsts.extend(self.firsts[..from].iter().copied().chain(firsts));
        map.firsts.extend_from_slice(&self.firsts[to..]);
        map.chunks.extend(self.chunks[..from].iter().cloned().chain(chunks));
        map.chunks.extend(self.chunks[to..].iter().cloned());
        map
    }

    /// All entries, in order.
    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Size of the largest chunk, and the number of chunks.
    #[cfg(test)]
    pub(super) fn shape(&self) -> (usize, usize) {
        (self.chunks.iter().map(|chunk| chunk.len()).max().unwrap_or(0), self.chunks.len())
    }
}

/// Appends an entry, or merges it with the last.
fn push(entries: &mut Vec<Entry>, entry: Entry) {
    match entries.last_mut() {
        Some(last) if last.continues(&entry) => last.last = entry.last,
        _ => entries.push(entry),
    }
}
