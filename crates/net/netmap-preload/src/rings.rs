//! netmap's two rings of a port, in the memory that its program maps.

use crate::Result;
use crate::region::{BUFFER, INTERFACE, Place, RING_HEADER, Region, SLOT};
use crate::shared::{HAS_OTHERS, State};
use crate::side::Side;
use std::sync::Arc;

/// Offsets of fields of a ring.
const HEAD: u64 = 20;
const CUR: u64 = 24;
const TAIL: u64 = 28;
const TIME: u64 = 40;

/// Slot flags.
pub const BUF_CHANGED: u16 = 0x01;
pub const REPORT: u16 = 0x02;
pub const INDIRECT: u16 = 0x10;
pub const MOREFRAG: u16 = 0x20;

/// A slot, as the program has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub buf_idx: u32,
    pub len: u16,
    pub flags: u16,
}

/// The rings of a port.
#[derive(Debug)]
pub struct Rings {
    pub region: Arc<Region>,
    pub place: Place,
    pub state: State,
}

impl Rings {
    /// New rings.
    pub fn new(region: Arc<Region>, place: Place) -> Result<Rings> {
        let rings = Rings::adopt(region, place)?;
        for dir in [0, 1] {
            if rings.slots(dir) > 0 {
                rings.fill_ring(dir);
            }
        }
        rings.fill_extra();
        let [tx, rx] = rings.place.sizes.slots;
        rings.state.set_side(0, &Side { slots: tx, tail: tx.saturating_sub(1), ..Side::default() });
        rings.state.set_side(1, &Side { slots: rx, ..Side::default() });
        rings.state.reset();
        Ok(rings)
    }

    /// Rings that another process made.
    pub fn adopt(region: Arc<Region>, place: Place) -> Result<Rings> {
        let state = region.state(place.state).filter(|_| region.has(&place)).ok_or(libc::EINVAL)?;
        Ok(Rings { region, place, state })
    }

    pub fn slots(&self, dir: usize) -> u32 {
        self.place.sizes.slots[dir]
    }

    /// Fills the `netmap_if` number `number` for a handle of the port `name`, and says where it is. It has so many
    /// rings to send and to receive, and `bound` says which of the first ones the handle has.
    pub fn fill_interface(
        &self,
        number: u32,
        name: &[u8],
        counts: [u32; 2],
        bound: [bool; 2],
        has_extra: bool,
    ) -> u64 {
        let (region, place) = (&self.region, u64::from(number) * INTERFACE);
        let name = name.get(..name.len().min(15)).unwrap_or_default();
        region.put(place, [0; INTERFACE as usize]);
        region.span(place, 16).write(name);
        // The version, flags (memory of its own), rings to send and to receive, extra buffers, host rings.
        let ([tx, rx], extra) = (counts, if has_extra { self.first_extra() } else { 0 });
        for (at, value) in [(16, 14), (20, 1), (24, tx), (28, rx), (32, extra), (36, 1), (40, 1)] {
            region.store(place + at, value);
        }
        self.enter(number, [0, u64::from(tx) + 1], bound);
        place
    }

    /// Adds these rings to a `netmap_if` of a port with a ring in each direction, as those of the host.
    pub fn fill_host_interface(&self, number: u32, bound: [bool; 2]) {
        self.enter(number, [1, 3], bound);
    }

    /// Takes the port's own rings out of a `netmap_if`, whose handle has those of the host alone.
    pub fn move_to_host(&self, number: u32, bound: [bool; 2]) {
        for index in [0, 2] {
            self.region.put(u64::from(number) * INTERFACE + 56 + index * 8, [0; 8]);
        }
        self.fill_host_interface(number, bound);
    }

    /// Writes where the rings are. In order: the rings to send, that of the host, the rings to receive, that of the
    /// host; 0 for those that are not bound.
    fn enter(&self, number: u32, at: [u64; 2], bound: [bool; 2]) {
        let place = u64::from(number) * INTERFACE;
        for dir in [0, 1].into_iter().filter(|dir| bound[*dir]) {
            let offset = self.place.rings[dir] - place;
            self.region.put(place + 56 + at[dir] * 8, offset.to_ne_bytes());
        }
    }

    fn fill_ring(&self, dir: usize) {
        let (region, at) = (&self.region, self.place.rings[dir]);
        region.put(at, [0; RING_HEADER as usize]);
        region.put(at, (region.buffers_at() - at).to_ne_bytes());
        region.store(at + 8, self.slots(dir));
        region.store(at + 12, BUFFER);
        region.store(at + 16, (dir as u32) << 16);
        if dir == 0 {
            region.store(at + TAIL, self.slots(0) - 1);
        }
        for slot in 0..self.slots(dir) {
            self.set_slot(dir, slot, Slot { buf_idx: self.own_buffer(dir, slot), len: 0, flags: 0 });
        }
    }

    /// The first buffer in no slot; 0: there is none.
    fn first_extra(&self) -> u32 {
        let [tx, rx] = self.place.sizes.slots;
        if self.place.sizes.extra > 0 { self.place.first + tx + rx } else { 0 }
    }

    /// The list of extra buffers: each names the next one in its first word.
    fn fill_extra(&self) {
        let first = self.first_extra();
        let end = first + self.place.sizes.extra;
        for index in first..end {
            let next = if index + 1 < end { index + 1 } else { 0 };
            let at = self.region.buffers_at() + u64::from(index) * u64::from(BUFFER);
            self.region.store(at, next);
        }
    }

    /// The buffer that a slot had first.
    pub fn own_buffer(&self, dir: usize, slot: u32) -> u32 {
        self.place.first + slot + if dir == 1 { self.slots(0) } else { 0 }
    }

    /// Whether all buffers that these rings have were theirs at first, so that no other ring has one of theirs.
    pub fn has_own_buffers(&self) -> bool {
        let is_own = |dir, slot| self.place.has_buffer(self.slot(dir, slot).buf_idx);
        let is_mixed = self.state.has(HAS_OTHERS);
        !is_mixed && (0..2).all(|dir| (0..self.slots(dir)).all(|slot| is_own(dir, slot)))
    }

    /// Notes that a buffer is in a ring of this port, which may be another port's.
    #[inline]
    pub fn note_buffer(&self, buf_idx: u32) {
        if !self.place.has_buffer(buf_idx) && !self.state.has(HAS_OTHERS) {
            self.state.set(HAS_OTHERS);
        }
    }

    fn slot_at(&self, dir: usize, slot: u32) -> u64 {
        self.place.rings[dir] + RING_HEADER + u64::from(slot) * SLOT
    }

    /// What a slot has now.
    #[inline]
    pub fn slot(&self, dir: usize, slot: u32) -> Slot {
        let bytes = self.region.span(self.slot_at(dir, slot), 8).as_span().read_array::<8>();
        let word = u64::from_le_bytes(bytes.unwrap_or_default());
        Slot { buf_idx: word as u32, len: (word >> 32) as u16, flags: (word >> 48) as u16 }
    }

    #[inline]
    pub fn set_slot(&self, dir: usize, at: u32, slot: Slot) {
        let word = u64::from(slot.buf_idx) | u64::from(slot.len) << 32 | u64::from(slot.flags) << 48;
        self.region.put(self.slot_at(dir, at), word.to_le_bytes());
    }

    /// Clears what a program asks about a slot to send, once it is taken.
    #[inline]
    pub fn clear_report(&self, dir: usize, at: u32, slot: Slot) {
        if slot.flags & (REPORT | BUF_CHANGED) != 0 {
            let flags = slot.flags & !(REPORT | BUF_CHANGED);
            self.set_slot(dir, at, Slot { flags, ..slot });
        }
    }

    /// Gives a slot the buffer that it had first.
    pub fn repair(&self, dir: usize, at: u32) {
        self.set_slot(dir, at, Slot { buf_idx: self.own_buffer(dir, at), len: 0, flags: 0 });
    }

    /// The program's head and cur.
    pub fn position(&self, dir: usize) -> (u32, u32) {
        let at = self.place.rings[dir];
        // `cur` may be ahead of `head`, never behind: a thread that writes both writes `cur` first.
        let head = self.region.load(at + HEAD);
        (head, self.region.load(at + CUR))
    }

    /// Sets head and cur.
    pub fn set_position(&self, dir: usize, (head, cur): (u32, u32)) {
        self.region.store(self.place.rings[dir] + CUR, cur);
        self.region.store(self.place.rings[dir] + HEAD, head);
    }

    pub fn set_tail(&self, dir: usize, tail: u32) {
        self.region.store(self.place.rings[dir] + TAIL, tail);
    }

    /// When a sync took place.
    pub fn set_time(&self, dir: usize, time: std::time::Duration) {
        let at = self.place.rings[dir] + TIME;
        self.region.put(at, time.as_secs().to_ne_bytes());
        self.region.put(at + 8, u64::from(time.subsec_micros()).to_ne_bytes());
    }
}
