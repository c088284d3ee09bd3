//! Looking addresses up.

use super::map::Entry;
use super::{Access, Iotlb, Map};
use crate::memory::Window;
use crate::span::{Span, SpanMut};
use crate::translate::{Fault, KEPT, Translate};
use crate::turn::Turn;
use alloc::boxed::Box;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

/// Pages that a queue remembers: as many as a ring of 1024 buffers of a page each.
const PAGES: usize = 1024;
/// Larger blocks that it remembers.
const BLOCKS: usize = 64;
const PAGE: u64 = 4096;
/// A block that lies in one range takes one place instead of 512.
const BLOCK: u64 = 2 << 20;
/// Misses that one burst can note.
pub const MISSED: usize = 256;

/// A page or a block that lies in one range.
#[derive(Clone, Copy, Debug)]
struct Hit {
    /// Its address; below that, in bits 2 to 11, the generation that it is of, and in bits 0 and 1 what is
    /// granted: nothing where nothing is remembered.
    tag: u64,
    host: NonNull<u8>,
    /// Bytes from its begin to the end of the range, if they are that few.
    room: u32,
}

// SAFETY: the pointer is only an address here; it is used by a `Lookup` into the IOTLB that it came from.
unsafe impl Send for Hit {}

const NOTHING: Hit = Hit { tag: 0, host: NonNull::dangling(), room: 0 };
/// Generations that a tag tells apart.
const GENERATIONS: u64 = 1 << 10;

impl Hit {
    /// The unit of `size` bytes that holds `iova`, if the range `entry` at `host` holds all of it.
    fn of(entry: &Entry, host: NonNull<u8>, iova: u64, size: u64, generation: u64) -> Option<Hit> {
        let first = iova & !(size - 1);
        if first < entry.first || (first | (size - 1)) > entry.last {
            return None;
        }
        // SAFETY: `first` lies within the range, whose bytes are all at `host` (`find_range`).
        let host = unsafe { host.add((first - entry.first) as usize) };
        let room = u32::try_from(entry.last - first).map_or(u32::MAX, |more| more.saturating_add(1));
        Some(Hit { tag: first | (generation << 2) | u64::from(entry.access.bits()), host, room })
    }
}

/// A range that served last.
#[derive(Clone, Copy, Debug)]
struct Last {
    first: u64,
    len: u64,
    host: NonNull<u8>,
}

// SAFETY: as for `Hit`.
unsafe impl Send for Last {}

impl Last {
    const NONE: Last = Last { first: 0, len: 0, host: NonNull::dangling() };

    /// The same for one burst.
    ///
    /// # Safety
    /// It lies in the memory that is borrowed for `'t`.
    #[inline]
    unsafe fn window<'t>(self) -> Window<'t> {
        // SAFETY: the caller's promise; no other range is ever put here.
        unsafe { Window::new(self.first, self.len, self.host) }
    }
}

/// An address whose translation is to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The address.
    pub iova: u64,
    /// What it is wanted for.
    pub access: Access,
}

/// What one queue remembers of an IOTLB, from burst to burst.
#[derive(Debug)]
pub struct Lookaside {
    /// The IOTLB that it remembers.
    id: u64,
    epoch: u64,
    turn: u64,
    version: u64,
    generation: u64,
    /// What served last for reading, and for writing: nearly every frame of a guest with large pages is there.
    last: [Last; 2],
    known: Box<Known>,
    /// Whether any block is.
    has_blocks: bool,
    /// What [`Translate::keep`] found that was not in the range that served last, each by its address.
    kept: Box<[Last; KEPT]>,
    /// No place from here on was used since all were last cleared.
    kept_end: usize,
    missed: Box<[Missed; MISSED]>,
    misses: usize,
    /// Look-ups that found a grant since they were last counted; what was kept, and is asked for again, counts once.
    pub hits: u64,
}

/// Each at the one place that its address says.
#[derive(Debug)]
struct Known {
    blocks: [Hit; BLOCKS],
    pages: [Hit; PAGES],
}

impl Known {
    const NOTHING: Known = Known { blocks: [NOTHING; BLOCKS], pages: [NOTHING; PAGES] };

    #[inline]
    fn block(&mut self, iova: u64) -> &mut Hit {
        &mut self.blocks[(iova / BLOCK) as usize % BLOCKS]
    }

    /// Neighbours have places of their own, also where every other page is a gap.
    #[inline]
    fn place(iova: u64) -> usize {
        let page = (iova / PAGE) as usize;
        (page ^ (page / PAGES)) % PAGES
    }

    #[inline]
    fn page(&self, iova: u64) -> &Hit {
        &self.pages[Known::place(iova)]
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
            last: [Last::NONE; 2],
            known: Box::new(Known::NOTHING),
            has_blocks: false,
            kept: Box::new([Last::NONE; KEPT]),
            kept_end: 0,
            missed: Box::new([Missed { iova: 0, access: Access::READ }; MISSED]),
            misses: 0,
            hits: 0,
        }
    }
}

impl Lookaside {
    /// What was looked up in vain since [`Lookaside::forget_missed`].
    pub fn missed(&self) -> &[Missed] {
        &self.missed[..self.misses]
    }

    /// Begins a new list of what is looked up in vain.
    pub fn forget_missed(&mut self) {
        self.misses = 0;
    }

    /// The version of the IOTLB when it was last looked up: what missed then misses until there is another.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Goes on with `iotlb` as it is now.
    #[inline]
    fn renew(&mut self, iotlb: &Iotlb, turn: u64) {
        // What held when the turn began holds until it ends: who takes it back waits for that.
        if turn != 0 && turn == self.turn && self.id == iotlb.id {
            return;
        }
        self.turn = turn;
        let epoch = iotlb.epoch.load(Ordering::Acquire);
        if self.id != iotlb.id || self.epoch != epoch {
            self.forget(iotlb.id, epoch);
        }
    }

    /// What is remembered holds no more, and may lead into memory that is gone.
    #[cold]
    fn forget(&mut self, id: u64, epoch: u64) {
        (self.id, self.epoch) = (id, epoch);
        self.last = [Last::NONE; 2];
        self.has_blocks = false;
        let kept = self.kept_end.min(KEPT);
        self.kept[..kept].fill(Last::NONE);
        self.kept_end = 0;
        self.generation = (self.generation + 1) % GENERATIONS;
        if self.generation == 0 {
            *self.known = Known::NOTHING;
        }
    }

    #[cold]
    fn note(&mut self, iova: u64, access: Access) {
        let missed = Missed { iova, access };
        // Attack: a buffer of 4 GB of which nothing is granted. What finds no room is noted when it is met
        // again.
        if let Some(place) = self.missed.get_mut(self.misses) {
            *place = missed;
            self.misses += 1;
        }
    }
}

/// A way from IOVAs to our addresses, for one burst.
#[derive(Debug)]
pub struct Lookup<'t, 'q> {
    iotlb: &'t Iotlb,
    aside: &'q mut Lookaside,
    source: Source<'t>,
}

/// Where a burst finds what its queue doesn't remember.
#[derive(Clone, Copy, Debug)]
enum Source<'t> {
    /// In what is published; not looked at yet.
    Turn(&'t Turn<'t>),
    /// Here.
    Map(&'t Map),
}

impl<'t, 'q> Lookup<'t, 'q> {
    /// For a worker in its turn. `aside` is the queue's to keep.
    #[inline]
    pub fn new(iotlb: &'t Iotlb, turn: &'t Turn<'_>, aside: &'q mut Lookaside) -> Lookup<'t, 'q> {
        aside.renew(iotlb, turn.number());
        Lookup { iotlb, aside, source: Source::Turn(turn) }
    }

    /// For the thread that changes the IOTLB, which can't do so meanwhile.
    pub fn of(editor: &'t super::Editor, aside: &'q mut Lookaside) -> Lookup<'t, 'q> {
        let iotlb = editor.shared();
        aside.renew(iotlb, 0);
        aside.version = iotlb.version.load(Ordering::Acquire);
        Lookup { iotlb, aside, source: Source::Map(editor.map()) }
    }

    /// One map for all of the burst.
    fn map(&mut self) -> &'t Map {
        let map = match self.source {
            Source::Map(map) => return map,
            Source::Turn(turn) => {
                // The version comes first: what is granted in between is then not waited for.
                self.aside.version = self.iotlb.version.load(Ordering::Acquire);
                self.iotlb.map.read(turn)
            }
        };
        self.source = Source::Map(map);
        map
    }

    /// The range that served last, for reading or writing.
    #[inline(always)]
    fn last(&self, need: Access) -> Window<'t> {
        // SAFETY: what the queue remembers are ranges of this IOTLB's memory (`renew` forgets those of others), which
        // is never changed, and stays for as long as the borrow of the IOTLB.
        unsafe { self.aside.last[side(need)].window() }
    }

    /// All of these bytes, to write, if the range that served last holds them.
    #[inline(always)]
    fn at_once(&mut self, address: u64, len: u32) -> Option<SpanMut<'t>> {
        let found = self.last(Access::WRITE).whole(address, len)?;
        self.aside.hits += 1;
        Some(found)
    }

    /// What a unit is remembered by that grants `need`.
    #[inline(always)]
    fn key(&self, need: Access) -> u64 {
        (self.aside.generation << 2) | u64::from(need.bits())
    }

    /// All of these bytes, if their page is remembered.
    #[inline(always)]
    fn in_page(&self, iova: u64, len: u32, key: u64) -> Option<SpanMut<'t>> {
        let hit = self.aside.known.page(iova);
        let offset = hold(hit, PAGE, iova, len, key)?;
        // SAFETY: as in `find_block`.
        Some(unsafe { SpanMut::new(hit.host.add(offset as usize), len) })
    }

    #[inline(always)]
    fn find(&mut self, iova: u64, len: u32, need: Access) -> Result<SpanMut<'t>, Fault> {
        match self.in_page(iova, len, self.key(need)) {
            Some(found) => {
                self.aside.hits += 1;
                Ok(found)
            }
            None => self.find_block(iova, len, need),
        }
    }

    #[inline(never)]
    fn find_block(&mut self, iova: u64, len: u32, need: Access) -> Result<SpanMut<'t>, Fault> {
        let key = self.key(need);
        let Lookaside { known, has_blocks, hits, .. } = &mut *self.aside;
        let hit = known.block(iova);
        let found = if *has_blocks { hold(hit, BLOCK, iova, len, key) } else { None };
        let Some(offset) = found else { return self.find_range(iova, len, need) };
        *hits += 1;
        let Hit { host, room, .. } = *hit;
        self.aside.last[side(need)] = Last { first: iova - offset, len: room.into(), host };
        // SAFETY: the unit lies in a range of one region of this IOTLB's memory (`renew` forgets those of
        // others), whose length was checked against the region's when it was found, and `offset + len` is
        // at most what the range has from the unit's begin on. The memory is never changed, and stays for
        // as long as the borrow of the IOTLB.
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
            self.aside.note(iova, need);
            return Err(Fault::Miss);
        };
        let Lookaside { known, has_blocks, generation, hits, .. } = &mut *self.aside;
        *hits += 1;
        if let Some(block) = Hit::of(entry, host, iova, BLOCK, *generation) {
            *known.block(iova) = block;
            *has_blocks = true;
        } else if let Some(page) = Hit::of(entry, host, iova, PAGE, *generation) {
            known.pages[Known::place(iova)] = page;
        }
        let len_of_all = (entry.last - entry.first).saturating_add(1);
        self.aside.last[side(need)] = Last { first: entry.first, len: len_of_all, host };
        let len = u64::from(len - 1).min(entry.last - iova) as u32 + 1;
        // SAFETY: as in `find_block`; `iova` lies within the range, and `len` ends there at the latest.
        Ok(unsafe { SpanMut::new(host.add((iova - entry.first) as usize), len) })
    }
}

#[inline(always)]
fn side(need: Access) -> usize {
    usize::from(need == Access::WRITE)
}

/// Where in `hit`, a unit of `size` bytes, `iova` lies, if it is there and `len` bytes follow, granted as
/// `key` has it.
#[inline(always)]
fn hold(hit: &Hit, size: u64, iova: u64, len: u32, key: u64) -> Option<u64> {
    let offset = iova & (size - 1);
    let is_it = (hit.tag ^ ((iova - offset) | key)) & !(!key & 3) == 0;
    // No bytes count as very many.
    (is_it && offset + u64::from(len.wrapping_sub(1)) < u64::from(hit.room)).then_some(offset)
}

impl<'t> Translate<'t> for Lookup<'t, '_> {
    #[inline]
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        Ok(self.find(address, len, Access::READ)?.as_span())
    }

    #[inline]
    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        match self.at_once(address, len) {
            Some(span) => Ok(span),
            None => self.find(address, len, Access::WRITE),
        }
    }

    #[inline]
    fn keep(&mut self, place: usize, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        if let Some(span) = self.at_once(address, len) {
            return Ok(span.as_span());
        }
        let found = self.find(address, len, Access::WRITE)?;
        if let Some(kept) = self.aside.kept.get_mut(place) {
            *kept = Last { first: address, len: found.len() as u64, host: found.pointer() };
            self.aside.kept_end = self.aside.kept_end.max(place + 1);
        }
        Ok(found.as_span())
    }

    #[inline]
    fn write_kept(&mut self, place: usize, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        // Counted when it was kept.
        if let Some(span) = self.last(Access::WRITE).whole(address, len) {
            return Ok(span);
        }
        if let Some(kept) = self.aside.kept.get(place) {
            // SAFETY: as in `last`: `forget` clears what was kept, too.
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
        // In registers, as long as one range serves.
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
        self.aside.hits += hits;
        (count, result)
    }

    fn knows(&mut self, address: u64, len: u32, write: bool) -> Result<(), Fault> {
        let before = self.aside.misses;
        self.want(address, len, write);
        if self.aside.misses == before && before < MISSED { Ok(()) } else { Err(Fault::Miss) }
    }

    #[cold]
    fn want(&mut self, address: u64, len: u32, write: bool) {
        let need = if write { Access::WRITE } else { Access::READ };
        let (mut at, mut left) = (address, len);
        while left > 0 && self.aside.misses < MISSED {
            let step = match self.find(at, left, need) {
                Ok(span) => span.len() as u32,
                Err(_) => u32::try_from(PAGE - at % PAGE).unwrap_or(left).min(left),
            };
            at = at.wrapping_add(u64::from(step));
            left -= step;
        }
    }
}
