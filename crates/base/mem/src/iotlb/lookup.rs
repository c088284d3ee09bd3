//! Address lookups.

use super::map::Entry;
use super::{Access, Iotlb, Map};
use crate::memory::Window;
use crate::span::{Span, SpanMut};
use crate::sync::Ordering;
use crate::translate::{Fault, KEPT, Translate};
use crate::turn::Turn;
use alloc::boxed::Box;
use core::ptr::NonNull;

/// Pages in a queue's cache: enough for a ring of 1024 buffers of a page each.
const PAGES: usize = 1024;
/// Blocks in the cache.
const BLOCKS: usize = 64;
const PAGE: u64 = 4096;
/// Size of a block, which takes one cache entry instead of 512.
const BLOCK: u64 = 2 << 20;
/// Largest number of misses recorded for a burst.
pub const MISSED: usize = 256;

/// Cache entry: a page or block within one range.
#[derive(Clone, Copy, Debug)]
struct CacheEntry {
    /// The address in bits 12 and up, the generation in bits 2 to 11, the permission in bits 0 and 1. The
    /// entry is empty if there is no permission.
    tag: u64,
    host: NonNull<u8>,
    /// Bytes from the unit's start to the end of the range, saturated.
    room: u32,
}

// SAFETY: the pointer is only an address here; it is used by a `Lookup` into the IOTLB that it came from.
unsafe impl Send for CacheEntry {}

/// Number of generations that a tag can hold.
const GENERATIONS: u64 = 1 << 10;

impl CacheEntry {
    const EMPTY: CacheEntry = CacheEntry { tag: 0, host: NonNull::dangling(), room: 0 };

    /// The entry for the `size`-byte unit that contains `iova`, if range `entry` at `host` covers the whole
    /// unit.
    fn of(entry: &Entry, host: NonNull<u8>, iova: u64, size: u64, generation: u64) -> Option<CacheEntry> {
        let first = iova & !(size - 1);
        if first < entry.first || (first | (size - 1)) > entry.last {
            return None;
        }
        // SAFETY: `first` lies within the range, whose bytes are all at `host` (`find_range`).
        let host = unsafe { host.add((first - entry.first) as usize) };
        let room = u32::try_from(entry.last - first).map_or(u32::MAX, |more| more.saturating_add(1));
        Some(CacheEntry { tag: first | (generation << 2) | u64::from(entry.access.bits()), host, room })
    }
}

/// A translated range.
#[derive(Clone, Copy, Debug)]
struct CachedRange {
    first: u64,
    len: u64,
    host: NonNull<u8>,
}

// SAFETY: as for `CacheEntry`.
unsafe impl Send for CachedRange {}

impl CachedRange {
    const NONE: CachedRange = CachedRange { first: 0, len: 0, host: NonNull::dangling() };

    /// The range as a window for one burst.
    ///
    /// # Safety
    /// The range's memory is borrowed for `'t`.
    #[inline]
    unsafe fn window<'t>(self) -> Window<'t> {
        // SAFETY: the caller's promise.
        unsafe { Window::new(self.first, self.len, self.host) }
    }
}

/// An IOTLB miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The address.
    pub iova: u64,
    /// The access needed.
    pub access: Access,
}

/// A queue's cache of an IOTLB, kept from burst to burst.
#[derive(Debug)]
pub struct Lookaside {
    /// The IOTLB of the entries.
    id: u64,
    epoch: u64,
    turn: u64,
    version: u64,
    generation: u64,
    /// The ranges used last for reading and for writing: a guest with large pages nearly always hits them.
    last: [CachedRange; 2],
    cache: Box<Cache>,
    /// Whether any block entry is used.
    has_blocks: bool,
    /// Ranges that [`Translate::keep`] found outside the range used last, by slot.
    kept: Box<[CachedRange; KEPT]>,
    /// Entries of `kept` from this index on are empty.
    kept_end: usize,
    missed: Box<[Missed; MISSED]>,
    misses: usize,
    /// Successful lookups since the counter was last read. [`Translate::write_kept`] doesn't count a kept
    /// address again.
    pub hits: u64,
}

/// A direct-mapped cache.
#[derive(Debug)]
struct Cache {
    blocks: [CacheEntry; BLOCKS],
    pages: [CacheEntry; PAGES],
}

impl Cache {
    const EMPTY: Cache = Cache { blocks: [CacheEntry::EMPTY; BLOCKS], pages: [CacheEntry::EMPTY; PAGES] };

    #[inline]
    fn block(&mut self, iova: u64) -> &mut CacheEntry {
        &mut self.blocks[(iova / BLOCK) as usize % BLOCKS]
    }

    /// A page's index. Pages with consecutive numbers, or every other one of them, have different indices.
    #[inline]
    fn page_index(iova: u64) -> usize {
        let page = (iova / PAGE) as usize;
        (page ^ (page / PAGES)) % PAGES
    }

    #[inline]
    fn page(&self, iova: u64) -> &CacheEntry {
        &self.pages[Cache::page_index(iova)]
    }
}

impl Default for Lookaside {
    fn default() -> Lookaside {
        Lookaside {
            id: 0,
            epoch: 0,
            turn: 0,
            version: 0,
            generation: 0,
            last: [CachedRange::NONE; 2],
            cache: Box::new(Cache::EMPTY),
            has_blocks: false,
            kept: Box::new([CachedRange::NONE; KEPT]),
            kept_end: 0,
            missed: Box::new([Missed { iova: 0, access: Access::READ }; MISSED]),
            misses: 0,
            hits: 0,
        }
    }
}

impl Lookaside {
    /// Misses since [`Lookaside::forget_missed`].
    pub fn missed(&self) -> &[Missed] {
        &self.missed[..self.misses]
    }

    /// Clears the list of misses.
    pub fn forget_missed(&mut self) {
        self.misses = 0;
    }

    /// Version of the IOTLB at the last lookup: a miss at this version stays a miss until the version
    /// changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Drops entries that are stale, or of another IOTLB than `iotlb`.
    #[inline]
    fn refresh(&mut self, iotlb: &Iotlb, turn: u64) {
        // A mapping that was valid at the start of the turn stays valid until its end: before acknowledging
        // an unmapping, the session thread waits for the turn.
        if turn != 0 && turn == self.turn && self.id == iotlb.id {
            return;
        }
        self.turn = turn;
        let epoch = iotlb.epoch.load(Ordering::Acquire);
        if self.id != iotlb.id || self.epoch != epoch {
            self.invalidate(iotlb.id, epoch);
        }
    }

    /// Drops all entries: they are no longer valid, and may point into freed memory.
    #[cold]
    fn invalidate(&mut self, id: u64, epoch: u64) {
        (self.id, self.epoch) = (id, epoch);
        self.last = [CachedRange::NONE; 2];
        self.has_blocks = false;
        let kept = self.kept_end.min(KEPT);
        self.kept[..kept].fill(CachedRange::NONE);
        self.kept_end = 0;
        self.generation = (self.generation + 1) % GENERATIONS;
        if self.generation == 0 {
            *self.cache = Cache::EMPTY;
        }
    }

    #[cold]
    fn record_miss(&mut self, iova: u64, access: Access) {
        let missed = Missed { iova, access };
        // Attack: a buffer of 4 GB that is not mapped. Misses beyond the limit are recorded when they occur
        // again.
        if let Some(slot) = self.missed.get_mut(self.misses) {
            *slot = missed;
            self.misses += 1;
        }
    }
}

/// Translation of IOVAs to our addresses, for one burst.
#[derive(Debug)]
pub struct Lookup<'t, 'q> {
    iotlb: &'t Iotlb,
    lookaside: &'q mut Lookaside,
    source: Source<'t>,
}

/// Source of mappings that are not in the queue's cache.
#[derive(Clone, Copy, Debug)]
enum Source<'t> {
    /// The published map, not read yet.
    Turn(&'t Turn<'t>),
    /// The map.
    Map(&'t Map),
}

impl<'t, 'q> Lookup<'t, 'q> {
    /// For a worker in its turn. The queue keeps `lookaside` from burst to burst.
    #[inline]
    pub fn new(iotlb: &'t Iotlb, turn: &'t Turn<'_>, lookaside: &'q mut Lookaside) -> Lookup<'t, 'q> {
        lookaside.refresh(iotlb, turn.number());
        Lookup { iotlb, lookaside, source: Source::Turn(turn) }
    }

    /// For the thread that owns the editor, which excludes concurrent updates.
    pub fn of(editor: &'t super::Editor, lookaside: &'q mut Lookaside) -> Lookup<'t, 'q> {
        let iotlb = editor.shared();
        lookaside.refresh(iotlb, 0);
        lookaside.version = iotlb.version.load(Ordering::Acquire);
        Lookup { iotlb, lookaside, source: Source::Map(editor.map()) }
    }

    /// The map, which stays the same for the whole burst.
    fn map(&mut self) -> &'t Map {
        let map = match self.source {
            Source::Map(map) => return map,
            Source::Turn(turn) => {
                // Read the version before the map: a mapping added in between then counts as newer than the
                // version.
                self.lookaside.version = self.iotlb.version.load(Ordering::Acquire);
                self.iotlb.map.read(turn)
            }
        };
        self.source = Source::Map(map);
        map
    }

    /// The range used last, for reading or writing.
    #[inline(always)]
    fn last(&self, need: Access) -> Window<'t> {
        // SAFETY: the cached ranges are in this IOTLB's memory (`refresh` drops those of others), which is
        // never changed and outlives the borrow of the IOTLB.
        unsafe { self.lookaside.last[last_index(need)].window() }
    }

    /// These bytes, for writing, if the range used last contains them all.
    #[inline(always)]
    fn in_last_range(&mut self, address: u64, len: u32) -> Option<SpanMut<'t>> {
        let found = self.last(Access::WRITE).whole(address, len)?;
        self.lookaside.hits += 1;
        Some(found)
    }

    /// The tag of a unit that permits `need`.
    #[inline(always)]
    fn key(&self, need: Access) -> u64 {
        (self.lookaside.generation << 2) | u64::from(need.bits())
    }

    /// These bytes, if their page is cached.
    #[inline(always)]
    fn in_page(&self, iova: u64, len: u32, key: u64) -> Option<SpanMut<'t>> {
        let hit = self.lookaside.cache.page(iova);
        let offset = offset_in(hit, PAGE, iova, len, key)?;
        // SAFETY: as in `find_block`.
        Some(unsafe { SpanMut::new(hit.host.add(offset as usize), len) })
    }

    #[inline(always)]
    fn find(&mut self, iova: u64, len: u32, need: Access) -> Result<SpanMut<'t>, Fault> {
        match self.in_page(iova, len, self.key(need)) {
            Some(found) => {
                self.lookaside.hits += 1;
                Ok(found)
            }
            None => self.find_block(iova, len, need),
        }
    }

    #[inline(never)]
    fn find_block(&mut self, iova: u64, len: u32, need: Access) -> Result<SpanMut<'t>, Fault> {
        let key = self.key(need);
        let Lookaside { cache, has_blocks, hits, .. } = &mut *self.lookaside;
        let hit = cache.block(iova);
        let found = if *has_blocks { offset_in(hit, BLOCK, iova, len, key) } else { None };
        let Some(offset) = found else { return self.find_range(iova, len, need) };
        *hits += 1;
        let CacheEntry { host, room, .. } = *hit;
        self.lookaside.last[last_index(need)] = CachedRange { first: iova - offset, len: room.into(), host };
        // SAFETY: the unit is in a range of one region of this IOTLB's memory (`refresh` drops those of
        // others). The range was checked against the region's length when it was looked up, and `room` bytes
        // of it follow the unit's start, at least `offset + len`. The memory is never changed and outlives
        // the borrow of the IOTLB.
        Ok(unsafe { SpanMut::new(host.add(offset as usize), len) })
    }

    #[inline(never)]
    fn find_range(&mut self, iova: u64, len: u32, need: Access) -> Result<SpanMut<'t>, Fault> {
        if len == 0 {
            return Err(Fault::Outside);
        }
        let found = self.map().get(iova).filter(|entry| entry.access.covers(need));
        let found = found.and_then(|entry| {
            let len = (entry.last - entry.first).saturating_add(1);
            Some((entry, self.iotlb.memory().base_at(entry.region, entry.offset, len)?))
        });
        let Some((entry, host)) = found else {
            self.lookaside.record_miss(iova, need);
            return Err(Fault::Miss);
        };
        let Lookaside { cache, has_blocks, generation, hits, .. } = &mut *self.lookaside;
        *hits += 1;
        if let Some(block) = CacheEntry::of(entry, host, iova, BLOCK, *generation) {
            *cache.block(iova) = block;
            *has_blocks = true;
        } else if let Some(page) = CacheEntry::of(entry, host, iova, PAGE, *generation) {
            cache.pages[Cache::page_index(iova)] = page;
        }
        let range_len = (entry.last - entry.first).saturating_add(1);
        self.lookaside.last[last_index(need)] = CachedRange { first: entry.first, len: range_len, host };
        let len = u64::from(len - 1).min(entry.last - iova) as u32 + 1;
        // SAFETY: as in `find_block`; `iova` and the `len` bytes from there on are within the range.
        Ok(unsafe { SpanMut::new(host.add((iova - entry.first) as usize), len) })
    }
}

#[inline(always)]
fn last_index(need: Access) -> usize {
    usize::from(need == Access::WRITE)
}

/// The offset of `iova` in `hit`, a unit of `size` bytes, if the tag matches `key` and `len` bytes follow.
#[inline(always)]
fn offset_in(hit: &CacheEntry, size: u64, iova: u64, len: u32, key: u64) -> Option<u64> {
    let offset = iova & (size - 1);
    let tag_matches = (hit.tag ^ ((iova - offset) | key)) & !(!key & 3) == 0;
    // A length of 0 wraps to a value that never fits.
    (tag_matches && offset + u64::from(len.wrapping_sub(1)) < u64::from(hit.room)).then_some(offset)
}

impl<'t> Translate<'t> for Lookup<'t, '_> {
    #[inline]
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        Ok(self.find(address, len, Access::READ)?.as_span())
    }

    #[inline]
    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        match self.in_last_range(address, len) {
            Some(span) => Ok(span),
            None => self.find(address, len, Access::WRITE),
        }
    }

    #[inline]
    fn keep(&mut self, slot: usize, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        if let Some(span) = self.in_last_range(address, len) {
            return Ok(span.as_span());
        }
        let found = self.find(address, len, Access::WRITE)?;
        if let Some(kept) = self.lookaside.kept.get_mut(slot) {
            *kept = CachedRange { first: address, len: found.len() as u64, host: found.pointer() };
            self.lookaside.kept_end = self.lookaside.kept_end.max(slot + 1);
        }
        Ok(found.as_span())
    }

    #[inline]
    fn write_kept(&mut self, slot: usize, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        // The lookup was counted by `keep`.
        if let Some(span) = self.last(Access::WRITE).whole(address, len) {
            return Ok(span);
        }
        if let Some(kept) = self.lookaside.kept.get(slot) {
            // SAFETY: as in `last`; `invalidate` clears the kept ranges, too.
            if let Some(span) = unsafe { kept.window() }.whole(address, len) {
                return Ok(span);
            }
        }
        self.find(address, len, Access::WRITE)
    }

    #[inline(always)]
    fn read_all(
        &mut self,
        ranges: impl Iterator<Item = (u64, u32)>,
        spans: &mut [Span<'t>],
    ) -> (usize, Result<(), Fault>) {
        // Locals, which stay in registers as long as one range contains all addresses.
        let (mut window, mut hits) = (self.last(Access::READ), 0);
        let key = self.key(Access::READ);
        let (mut count, mut result) = (0, Ok(()));
        for ((address, len), span) in ranges.zip(spans) {
            if let Some(found) = window.whole(address, len) {
                *span = found.as_span();
                hits += 1;
            } else if let Some(found) = self.in_page(address, len, key) {
                *span = found.as_span();
                hits += 1;
            } else {
                match self.find_block(address, len, Access::READ) {
                    Ok(found) => *span = found.as_span(),
                    Err(fault) => {
                        result = Err(fault);
                        break;
                    }
                }
                window = self.last(Access::READ);
            }
            span.prefetch();
            span.split(64).1.prefetch();
            count += 1;
        }
        self.lookaside.hits += hits;
        (count, result)
    }

    fn check(&mut self, address: u64, len: u32, write: bool) -> Result<(), Fault> {
        let before = self.lookaside.misses;
        self.record_misses(address, len, write);
        if self.lookaside.misses == before && before < MISSED { Ok(()) } else { Err(Fault::Miss) }
    }

    #[cold]
    fn record_misses(&mut self, address: u64, len: u32, write: bool) {
        let need = if write { Access::WRITE } else { Access::READ };
        let (mut at, mut left) = (address, len);
        while left > 0 && self.lookaside.misses < MISSED {
            let step = match self.find(at, left, need) {
                Ok(span) => span.len() as u32,
                Err(_) => u32::try_from(PAGE - at % PAGE).unwrap_or(left).min(left),
            };
            at = at.wrapping_add(u64::from(step));
            left -= step;
        }
    }
}
