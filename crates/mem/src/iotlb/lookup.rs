//! Looking addresses up.

use super::{Access, Iotlb, Map};
use crate::span::{Span, SpanMut};
use crate::translate::{Fault, Translate};
use crate::turn::Turn;
use alloc::boxed::Box;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

/// Ranges that a queue remembers, by the page that was looked up.
const PAGES: usize = 512;
/// Misses that one burst can note.
pub const MISSED: usize = 256;
const PAGE: u64 = 4096;

/// A range that was looked up.
#[derive(Clone, Copy, Debug)]
struct Hit {
    first: u64,
    /// Bytes; 0: nothing is remembered here.
    len: u64,
    host: NonNull<u8>,
    /// The lower half of the epoch that it is of.
    epoch: u32,
    access: Access,
}

// SAFETY: the pointer is only an address here; it is used by a `Lookup` into the IOTLB that it came from.
unsafe impl Send for Hit {}

const NOTHING: Hit = Hit { first: 0, len: 0, host: NonNull::dangling(), epoch: 0, access: Access::READ };

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
    last: Hit,
    pages: Box<[Hit; PAGES]>,
    missed: Box<[Missed; MISSED]>,
    misses: usize,
    /// Look-ups that found a grant since they were last counted.
    pub hits: u64,
}

impl Default for Lookaside {
    fn default() -> Lookaside {
        Lookaside {
            id: 0,
            epoch: 0,
            turn: 0,
            version: 0,
            last: NOTHING,
            pages: Box::new([NOTHING; PAGES]),
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
        self.version = iotlb.version.load(Ordering::Acquire);
        let epoch = iotlb.epoch.load(Ordering::Acquire);
        if self.id != iotlb.id {
            // What is remembered leads into memory that may be gone.
            (self.id, self.last) = (iotlb.id, NOTHING);
            self.pages.fill(NOTHING);
        } else if turn != 0 && turn == self.turn {
            // What held when the turn began holds until it ends: who takes it back waits for that.
            return;
        } else if epoch != self.epoch {
            self.last = NOTHING;
            if (epoch ^ self.epoch) >> 32 != 0 {
                self.pages.fill(NOTHING);
            }
        }
        (self.epoch, self.turn) = (epoch, turn);
    }

    #[cold]
    fn note(&mut self, iova: u64, access: Access) {
        let missed = Missed { iova, access };
        // Attack: a buffer of 4 GB of which nothing is granted. What finds no room is noted when it is met again.
        if let Some(place) = self.missed.get_mut(self.misses) {
            *place = missed;
            self.misses += 1;
        }
    }
}

/// Where a page's range is remembered. Neighbours have places of their own, also where every other page is a gap.
#[inline]
fn place(iova: u64) -> usize {
    let page = (iova / PAGE) as usize;
    (page ^ (page / PAGES)) % PAGES
}

/// A way from IOVAs to our addresses, for one burst.
#[derive(Debug)]
pub struct Lookup<'t, 'q> {
    iotlb: &'t Iotlb,
    map: &'t Map,
    aside: &'q mut Lookaside,
}

impl<'t, 'q> Lookup<'t, 'q> {
    /// For a worker in its turn. `aside` is the queue's to keep.
    #[inline]
    pub fn new(iotlb: &'t Iotlb, turn: &'t Turn<'_>, aside: &'q mut Lookaside) -> Lookup<'t, 'q> {
        aside.renew(iotlb, turn.number());
        Lookup { iotlb, map: iotlb.map.read(turn), aside }
    }

    /// For the thread that changes the IOTLB, which can't do so meanwhile.
    pub fn of(editor: &'t super::Editor, aside: &'q mut Lookaside) -> Lookup<'t, 'q> {
        aside.renew(editor.shared(), 0);
        Lookup { iotlb: editor.shared(), map: editor.map(), aside }
    }

    #[inline]
    fn find(&mut self, iova: u64, len: u32, need: Access) -> Result<SpanMut<'t>, Fault> {
        let hit = &self.aside.last;
        let offset = iova.wrapping_sub(hit.first);
        if offset < hit.len && hit.len - offset >= u64::from(len) && hit.access.covers(need) && len != 0 {
            self.aside.hits += 1;
            // SAFETY: as in `span`; the whole length is there.
            return Ok(unsafe { SpanMut::new(hit.host.add(offset as usize), len) });
        }
        let hit = &self.aside.pages[place(iova)];
        let offset = iova.wrapping_sub(hit.first);
        if hit.epoch == self.aside.epoch as u32
            && offset < hit.len
            && hit.len - offset >= u64::from(len)
            && hit.access.covers(need)
            && len != 0
        {
            self.aside.hits += 1;
            // SAFETY: as in `span`; the whole length is there.
            return Ok(unsafe { SpanMut::new(hit.host.add(offset as usize), len) });
        }
        self.find_page(iova, len, need)
    }

    #[inline(never)]
    fn find_page(&mut self, iova: u64, len: u32, need: Access) -> Result<SpanMut<'t>, Fault> {
        if len == 0 {
            return Err(Fault::Outside);
        }
        let memory = self.iotlb.memory();
        let found = self.map.get(iova).filter(|entry| entry.access.covers(need));
        let found = found.and_then(|entry| {
            let len = (entry.last - entry.first).saturating_add(1);
            let host = memory.base_at(entry.region, entry.offset, len)?;
            let epoch = self.aside.epoch as u32;
            Some(Hit { first: entry.first, len, host, epoch, access: entry.access })
        });
        let Some(hit) = found else {
            self.aside.note(iova, need);
            return Err(Fault::Miss);
        };
        (self.aside.last, self.aside.pages[place(iova)]) = (hit, hit);
        Ok(self.span(&hit, iova, len))
    }

    /// The part of `len` bytes at `iova` that lies in `hit`, which holds `iova`.
    fn span(&mut self, hit: &Hit, iova: u64, len: u32) -> SpanMut<'t> {
        self.aside.hits += 1;
        let offset = iova.wrapping_sub(hit.first);
        let len = u64::from(len).min(hit.len - offset) as u32;
        // SAFETY: `hit` is a range of one region of this IOTLB's memory (`renew` forgets those of others), whose length
        // was checked against the region's when it was found, and `offset` and `len` lie within it. The memory is
        // never changed, and stays for as long as the borrow of the IOTLB.
        unsafe { SpanMut::new(hit.host.add(offset as usize), len) }
    }
}

impl<'t> Translate<'t> for Lookup<'t, '_> {
    #[inline]
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        Ok(self.find(address, len, Access::READ)?.as_span())
    }

    #[inline]
    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        self.find(address, len, Access::WRITE)
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
