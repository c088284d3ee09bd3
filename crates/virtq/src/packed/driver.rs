//! The driver side of a packed ring.

use super::ring::{AVAIL, DESC, DISABLE, ENABLE, FLAGS, PLACE, PackedRing, USED};
use crate::descriptor::{Descriptor, INDIRECT, NEXT, SIZE, WRITE};
use crate::driver::{Buffer, Free, Indirect, Order};
use crate::error::{LayoutError, QueueError};
use crate::format::Cursor;
use crate::layout::{Areas, Layout};
use alloc::boxed::Box;
use core::sync::atomic::{Ordering, fence};

/// Driver state of a packed ring.
#[derive(Debug)]
pub struct PackedDriver<'t> {
    ring: PackedRing<'t>,
    free: Free,
    /// Number of slots of the buffer with this id; 0 if unused.
    slots: Box<[u16]>,
    room: usize,
    available: Cursor,
    published: Cursor,
    /// The word to store at `published`.
    first: u64,
    kicked: Cursor,
    used: Cursor,
    pub(crate) order: Option<Order>,
}

impl<'t> PackedDriver<'t> {
    /// A driver for a ring in zeroed memory.
    pub fn new(layout: &Layout, areas: Areas<'t>) -> Result<PackedDriver<'t>, LayoutError> {
        let ring = PackedRing::new(layout, areas)?;
        let size = usize::from(layout.size);
        let start = Cursor { index: 0, wrap: true };
        Ok(PackedDriver {
            ring,
            free: Free::all(layout.size),
            slots: alloc::vec![0; size].into_boxed_slice(),
            room: size,
            available: start,
            published: start,
            first: 0,
            kicked: start,
            used: start,
            order: None,
        })
    }

    #[inline]
    pub(crate) fn add(&mut self, buffers: &[Buffer], indirect: Option<Indirect<'_>>) -> Option<u16> {
        let needed = if indirect.is_some() { 1 } else { buffers.len() };
        if needed == 0 || needed > self.room {
            return None;
        }
        let id = self.free.take()?;
        if let Some(table) = indirect {
            let len = write_table(buffers, table)?;
            self.write(Descriptor { address: table.address, len, flags: INDIRECT, other: id }, true);
        } else {
            for (at, buffer) in buffers.iter().enumerate() {
                let flags =
                    if at + 1 < buffers.len() { NEXT } else { 0 } | if buffer.write { WRITE } else { 0 };
                let descriptor = Descriptor { address: buffer.address, len: buffer.len, flags, other: id };
                self.write(descriptor, at == 0);
            }
        }
        *self.slots.get_mut(usize::from(id))? = needed as u16;
        self.room -= needed;
        Some(id)
    }

    #[inline]
    pub(crate) fn add_run(
        &mut self,
        buffers: impl Iterator<Item = Buffer>,
        mut added: impl FnMut(usize, u16),
    ) -> usize {
        let (ring, mut at) = (self.ring, self.available);
        let mut count = 0;
        for buffer in buffers.take(self.room) {
            let Some(id) = self.free.take() else { break };
            let flags = PackedRing::available(at.wrap) | if buffer.write { WRITE } else { 0 };
            let rest = Descriptor { address: 0, len: buffer.len, flags, other: id }.packed_rest();
            let place = usize::from(at.index);
            ring.descriptors.set_first(place, buffer.address);
            if at == self.published {
                self.first = rest;
            } else {
                ring.descriptors.set_second(place, rest);
            }
            if let Some(slots) = self.slots.get_mut(usize::from(id)) {
                *slots = 1;
            }
            ring.advance(&mut at, 1);
            added(count, id);
            count += 1;
        }
        self.available = at;
        self.room -= count;
        count
    }

    #[inline]
    fn write(&mut self, mut descriptor: Descriptor, first: bool) {
        descriptor.flags |= PackedRing::available(self.available.wrap);
        let place = usize::from(self.available.index);
        self.ring.descriptors.set_first(place, descriptor.address);
        if first && self.available == self.published {
            self.first = descriptor.packed_rest();
        } else {
            self.ring.descriptors.set_second(place, descriptor.packed_rest());
        }
        self.ring.advance(&mut self.available, 1);
    }

    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.available != self.published {
            self.ring.descriptors.release_second(usize::from(self.published.index), self.first);
            self.published = self.available;
        }
    }

    pub(crate) fn wants_kick(&mut self) -> bool {
        fence(Ordering::SeqCst);
        let since = core::mem::replace(&mut self.kicked, self.published);
        match self.ring.device.load_acquire(FLAGS) & 3 {
            DISABLE => false,
            DESC if self.ring.event_idx => {
                self.ring.passes(self.ring.device.load(PLACE), since, self.published)
            }
            _ => true,
        }
    }

    #[inline(always)]
    pub(crate) fn take_used(&mut self) -> Result<Option<(u16, u32)>, QueueError> {
        // No buffer is in flight.
        if self.room == usize::from(self.ring.size) {
            return Ok(None);
        }
        let (ring, slots, at) = (&self.ring, &self.slots, self.used);
        let found = || {
            let Some(rest) = next_used(ring, at) else { return Ok(None) };
            let Descriptor { other: id, len, .. } = Descriptor::packed(0, rest);
            let known = slots.get(usize::from(id)).is_some_and(|&slots| slots > 0);
            if known { Ok(Some((id, len))) } else { Err(QueueError::Descriptor) }
        };
        let used = match &mut self.order {
            None => found()?,
            Some(order) => order.next(&self.free, found)?,
        };
        let Some((id, len)) = used else { return Ok(None) };
        let slots = self.slots.get_mut(usize::from(id)).map_or(0, core::mem::take);
        if slots == 0 {
            return Err(QueueError::Descriptor);
        }
        self.free.give(id);
        self.room += usize::from(slots);
        self.ring.advance(&mut self.used, slots);
        Ok(Some((id, len)))
    }

    #[inline]
    pub(crate) fn take_used_run(
        &mut self,
        most: usize,
        mut used: impl FnMut(u16, u32),
    ) -> Result<usize, QueueError> {
        let mut count = 0;
        while count < most
            && let Some((id, len)) = self.take_used()?
        {
            used(id, len);
            count += 1;
        }
        Ok(count)
    }

    pub(crate) fn pending(&self) -> bool {
        let begun = self.order.as_ref().is_some_and(|order| order.last.is_some());
        begun || self.room < usize::from(self.ring.size) && next_used(&self.ring, self.used).is_some()
    }

    pub(crate) fn set_flag(&mut self, wanted: bool) {
        if wanted && self.ring.event_idx {
            self.ring.driver.store(PLACE, self.used.to_base(true));
            self.ring.driver.store_release(FLAGS, DESC);
        } else {
            self.ring.driver.store_release(FLAGS, if wanted { ENABLE } else { DISABLE });
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.room
    }
}

/// The used descriptor's second word, if the descriptor at `at` is used.
#[inline]
fn next_used(ring: &PackedRing<'_>, at: Cursor) -> Option<u64> {
    let rest = ring.descriptors.second(usize::from(at.index));
    let flags = (rest >> 48) as u16;
    (flags & (AVAIL | USED) == PackedRing::used(at.wrap)).then_some(rest)
}

fn write_table(buffers: &[Buffer], table: Indirect<'_>) -> Option<u32> {
    let mut rest = table.table;
    for buffer in buffers {
        let flags = if buffer.write { WRITE } else { 0 };
        let found = Descriptor { address: buffer.address, len: buffer.len, flags, other: 0 };
        rest.write_at(0, found.address.to_le_bytes());
        if !rest.write_at(8, found.packed_rest().to_le_bytes()) {
            return None;
        }
        rest = rest.split(SIZE as usize).1;
    }
    Some(buffers.len() as u32 * SIZE)
}
