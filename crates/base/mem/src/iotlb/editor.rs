//! Updates of the IOTLB.

use super::map::{Entry, Map};
use super::{Access, Iotlb};
use crate::memory::{Memory, OwnedSpan, Region};
use crate::sync::{AtomicU64, Counter, Ordering};
use crate::turn::{Published, Retired};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Why a range can't be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// The range has no bytes.
    Empty,
    /// The range passes the end of an address space.
    Wraps,
    /// The target is not within one shared memory region.
    Outside,
}

impl core::fmt::Display for UpdateError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            UpdateError::Empty => "a translation has no bytes",
            UpdateError::Wraps => "a translation passes the end of the address space",
            UpdateError::Outside => "a translation's target is outside the shared memory",
        })
    }
}

impl core::error::Error for UpdateError {}

/// The effect of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The range was already mapped in the same way.
    None,
    /// A range was added.
    Granted,
    /// A mapped range changed its target or permission: the previous mapping ends only after a turn of every
    /// worker.
    Altered,
}

/// The single writer of an [`Iotlb`].
#[derive(Debug)]
pub struct Editor {
    shared: Arc<Iotlb>,
    map: Arc<Map>,
    max_entries: usize,
    random: u64,
    retired: Vec<Retired<Map>>,
}

impl Editor {
    /// An empty IOTLB for `memory`, of at most `max_entries` entries.
    pub fn new(memory: Arc<Memory>, max_entries: usize) -> Editor {
        static NEXT: Counter = Counter::new(1);
        let map = Arc::new(Map::default());
        let shared = Arc::new(Iotlb {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            memory,
            map: Published::new(map.clone()),
            epoch: AtomicU64::new(0),
            version: AtomicU64::new(0),
        });
        let random = 0x9e37_79b9_7f4a_7c15 ^ Arc::as_ptr(&shared).addr() as u64;
        Editor { shared, map, max_entries: max_entries.max(1), random, retired: Vec::new() }
    }

    /// A copy for new memory, with the same entry limit. Mappings whose front-end addresses are not in the
    /// new memory are dropped.
    pub fn moved(&self, memory: Arc<Memory>) -> Editor {
        let mut moved = Editor::new(memory, self.max_entries);
        let mut map = Map::default();
        for entry in self.map.overlapping(0, u64::MAX) {
            let Some(region) = self.shared.memory.regions().get(usize::from(entry.region)) else { continue };
            let len = (entry.last - entry.first).saturating_add(1);
            let found = moved.shared.memory.locate_user(region.user.saturating_add(entry.offset), len);
            if let Some((region, offset)) = found {
                map = map.replaced(entry.first, entry.last, Some(Entry { region, offset, ..*entry }));
            }
        }
        moved.publish(map);
        moved
    }

    /// The IOTLB that workers look up.
    pub fn shared(&self) -> &Arc<Iotlb> {
        &self.shared
    }

    /// The current mappings.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Maps `size` bytes at `iova` to the front-end's own address `user`, in place of earlier mappings of the
    /// range.
    pub fn update(&mut self, iova: u64, size: u64, user: u64, access: Access) -> Result<Change, UpdateError> {
        let last = size.checked_sub(1).ok_or(UpdateError::Empty)?;
        let last = iova.checked_add(last).ok_or(UpdateError::Wraps)?;
        user.checked_add(size - 1).ok_or(UpdateError::Wraps)?;
        let (region, offset) = self.shared.memory.locate_user(user, size).ok_or(UpdateError::Outside)?;
        let entry = Entry { first: iova, last, offset, region, access };
        if self.map.get(iova).is_some_and(|old| old.agrees_with(&entry)) {
            return Ok(Change::None);
        }
        let alters = |old: &Entry| {
            let (first, last) = (old.first.max(iova), old.last.min(last));
            let part = Entry { first, last, offset: offset + (first - iova), ..entry };
            !old.agrees_with(&part)
        };
        let altered = self.map.overlapping(iova, last).any(alters);
        self.publish(self.map.replaced(iova, last, Some(entry)));
        while self.map.len() > self.max_entries {
            self.evict(Some(iova));
        }
        if altered {
            self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        }
        self.shared.version.fetch_add(1, Ordering::SeqCst);
        Ok(if altered { Change::Altered } else { Change::Granted })
    }

    /// Unmaps `size` bytes at `iova`, up to the end of the address space; a `size` of 0 means all addresses.
    /// Takes effect after a turn of every worker, even if the range was not mapped: a turn in progress may
    /// still use an evicted entry.
    pub fn invalidate(&mut self, iova: u64, size: u64) {
        let (first, last) = match size.checked_sub(1) {
            Some(more) => (iova, iova.saturating_add(more)),
            None => (0, u64::MAX),
        };
        if self.map.overlapping(first, last).next().is_some() {
            self.publish(self.map.replaced(first, last, None));
        }
        // Attack: unmapping holes, each of which splits one entry into two.
        while self.map.len() > self.max_entries {
            self.evict(None);
        }
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Evicts a random entry, but not the one that contains `keep`. Attack: with a deterministic rule, a
    /// guest can have the next needed entry evicted. Advances the epoch, so that queues drop the entry from
    /// their caches: a later update of the range is reported as a new mapping, not as an altered one.
    fn evict(&mut self, keep: Option<u64>) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let count = self.map.len();
        let mut number = (self.random % count.max(1) as u64) as usize;
        let is_kept = |entry: &Entry| keep.is_some_and(|keep| entry.first <= keep && keep <= entry.last);
        if self.map.nth(number).is_some_and(is_kept) {
            number = (number + 1) % count;
        }
        if let Some(&Entry { first, last, .. }) = self.map.nth(number) {
            self.publish(self.map.replaced(first, last, None));
            self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn publish(&mut self, map: Map) {
        self.map = Arc::new(map);
        self.retired.push(self.shared.map.replace(self.map.clone()));
    }

    /// Translates `len` bytes at `iova` to one contiguous range, which stays accessible after the turn. The
    /// caller must not use the range after it is unmapped.
    pub fn keep(&self, iova: u64, len: u32, access: Access) -> Option<OwnedSpan> {
        let last = iova.checked_add(u64::from(len).checked_sub(1)?)?;
        let first = self.map.get(iova)?;
        let offset = first.offset + (iova - first.first);
        let mut next = iova;
        for entry in self.map.overlapping(iova, last) {
            let start = entry.offset.wrapping_sub(entry.first.wrapping_sub(iova));
            if entry.first > next
                || entry.region != first.region
                || !entry.access.covers(access)
                || start != offset
            {
                return None;
            }
            if entry.last >= last {
                return self.shared.memory.keep_at(first.region, offset, len);
            }
            next = entry.last + 1;
        }
        None
    }

    /// The parts of regions that `len` bytes at `iova` map to, in order: region, offset in the region,
    /// length. `None` if any byte is not mapped.
    pub fn parts(&self, iova: u64, len: u32, access: Access) -> Option<Vec<(&Region, u64, u64)>> {
        let last = iova.checked_add(u64::from(len).checked_sub(1)?)?;
        let mut next = Some(iova);
        let mut parts = Vec::new();
        for entry in self.map.overlapping(iova, last) {
            let first = next?;
            if entry.first > first || !entry.access.covers(access) {
                return None;
            }
            let region = self.shared.memory.regions().get(usize::from(entry.region))?;
            let end = entry.last.min(last);
            parts.push((region, entry.offset + (first - entry.first), end - first + 1));
            next = entry.last.checked_add(1);
            if entry.last >= last {
                return Some(parts);
            }
        }
        None
    }

    /// Calls `each` with the start of each unmapped part of `len` bytes at `iova`. A part ends at the next 4
    /// KB boundary, since a reply covers at least a page.
    pub fn missing(&self, iova: u64, len: u32, access: Access, mut each: impl FnMut(u64)) {
        let mut at = iova;
        let end = iova.saturating_add(u64::from(len));
        while at < end {
            at = match self.map.get(at) {
                Some(entry) if entry.access.covers(access) => match entry.last.checked_add(1) {
                    Some(next) => next,
                    None => return,
                },
                _ => {
                    each(at);
                    match (at | 0xfff).checked_add(1) {
                        Some(next) => next,
                        None => return,
                    }
                }
            };
        }
    }

    /// Whether `access` to `iova` is granted; `None` if `iova` is not mapped.
    pub fn grants(&self, iova: u64, access: Access) -> Option<bool> {
        self.map.get(iova).map(|entry| entry.access.covers(access))
    }

    /// Makes queues with outstanding misses retry, as after a new mapping.
    pub fn retry_misses(&self) {
        self.shared.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Replaced maps, which the caller reclaims.
    pub fn retired(&mut self) -> &mut Vec<Retired<Map>> {
        &mut self.retired
    }
}
