//! Changing what is granted.

use super::map::{Entry, Map};
use super::{Access, Iotlb};
use crate::memory::{Kept, Memory, Region};
use crate::turn::{Published, Retired};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// Why a range can't be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// It has no bytes.
    Empty,
    /// It passes the end of an address space.
    Wraps,
    /// It doesn't lie within one region of the memory that was shared.
    Outside,
}

impl core::fmt::Display for UpdateError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            UpdateError::Empty => "a translation has no bytes",
            UpdateError::Wraps => "a translation passes the end of the address space",
            UpdateError::Outside => "a translation leads outside the memory that was shared",
        })
    }
}

impl core::error::Error for UpdateError {}

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It said what was known.
    None,
    /// More is granted.
    Granted,
    /// Something that was granted leads elsewhere now, or is granted otherwise: what held before is over
    /// only after a turn of every worker.
    Altered,
}

/// The one that changes an [`Iotlb`].
#[derive(Debug)]
pub struct Editor {
    shared: Arc<Iotlb>,
    map: Arc<Map>,
    most: usize,
    random: u64,
    retired: Vec<Retired<Map>>,
}

impl Editor {
    /// An empty IOTLB that leads to `memory`, of at most so many entries.
    pub fn new(memory: Arc<Memory>, most: usize) -> Editor {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let map = Arc::new(Map::default());
        let shared = Arc::new(Iotlb {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            memory,
            map: Published::new(map.clone()),
            epoch: AtomicU64::new(0),
            version: AtomicU64::new(0),
        });
        let random = 0x9e37_79b9_7f4a_7c15 ^ Arc::as_ptr(&shared).addr() as u64;
        Editor { shared, map, most: most.max(1), random, retired: Vec::new() }
    }

    /// The same grants in other memory, as far as their addresses of the front-end's lie in it. They are as
    /// many.
    pub fn moved(&self, memory: Arc<Memory>) -> Editor {
        let mut moved = Editor::new(memory, self.most);
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

    /// What workers look up.
    pub fn shared(&self) -> &Arc<Iotlb> {
        &self.shared
    }

    /// What is granted now.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Grants `size` bytes at `iova`, which lie at the front-end's own address `user`. What was granted
    /// there before is over.
    pub fn update(&mut self, iova: u64, size: u64, user: u64, access: Access) -> Result<Change, UpdateError> {
        let last = size.checked_sub(1).ok_or(UpdateError::Empty)?;
        let last = iova.checked_add(last).ok_or(UpdateError::Wraps)?;
        user.checked_add(size - 1).ok_or(UpdateError::Wraps)?;
        let (region, offset) = self.shared.memory.locate_user(user, size).ok_or(UpdateError::Outside)?;
        let entry = Entry { first: iova, last, offset, region, access };
        if self.map.get(iova).is_some_and(|known| known.says(&entry)) {
            return Ok(Change::None);
        }
        let alters = |known: &Entry| {
            let (first, last) = (known.first.max(iova), known.last.min(last));
            let part = Entry { first, last, offset: offset + (first - iova), ..entry };
            !known.says(&part)
        };
        let altered = self.map.overlapping(iova, last).any(alters);
        self.publish(self.map.replaced(iova, last, Some(entry)));
        while self.map.len() > self.most {
            self.evict(Some(iova));
        }
        if altered {
            self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        }
        self.shared.version.fetch_add(1, Ordering::SeqCst);
        Ok(if altered { Change::Altered } else { Change::Granted })
    }

    /// Takes `size` bytes at `iova` back; all there are where `size` is 0, which is what is left of 2^64
    /// bytes. What is behind the end of the addresses counts for nothing. It is over after a turn of every
    /// worker, also where nothing was known: it may have been evicted in a turn that is still under way.
    pub fn invalidate(&mut self, iova: u64, size: u64) {
        let (first, last) = match size.checked_sub(1) {
            Some(more) => (iova, iova.saturating_add(more)),
            None => (0, u64::MAX),
        };
        if self.map.overlapping(first, last).next().is_some() {
            self.publish(self.map.replaced(first, last, None));
        }
        // Attack: holes that make two entries of one, again and again.
        while self.map.len() > self.most {
            self.evict(None);
        }
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes one entry away, but not that of `keep`. Attack: whichever rule says which goes, a guest can
    /// bring about that it is always one that is needed next; so chance does. Queues forget it too: an
    /// update that puts something else in its place would not be seen to alter anything.
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

    /// `len` bytes at `iova` for as long as the caller likes, if all of them are granted and lie together.
    /// Whoever asks sees to it that they are not used after they were taken back.
    pub fn keep(&self, iova: u64, len: u32, access: Access) -> Option<Kept> {
        let last = iova.checked_add(u64::from(len).checked_sub(1)?)?;
        let first = self.map.get(iova)?;
        let offset = first.offset + (iova - first.first);
        let mut next = iova;
        for entry in self.map.overlapping(iova, last) {
            let here = entry.offset.wrapping_sub(entry.first.wrapping_sub(iova));
            if entry.first > next
                || entry.region != first.region
                || !entry.access.covers(access)
                || here != offset
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

    /// Where `len` bytes at `iova` lie, in order, if all of them are granted: parts of regions, each as its
    /// region, where it begins there, and how long it is.
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

    /// The parts of `len` bytes at `iova` that are not granted, as their first addresses. A part ends where
    /// the next page of 4 KB begins, which is as much as one answer brings at least.
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

    /// Whether `access` to `iova` is granted; `None` where nothing is known of it.
    pub fn grants(&self, iova: u64, access: Access) -> Option<bool> {
        self.map.get(iova).map(|entry| entry.access.covers(access))
    }

    /// Has queues that lack something look again, as if more were granted.
    pub fn stir(&self) {
        self.shared.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Former maps, to be reclaimed.
    pub fn retired(&mut self) -> &mut Vec<Retired<Map>> {
        &mut self.retired
    }
}
