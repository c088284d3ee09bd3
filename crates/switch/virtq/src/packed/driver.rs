//! The driver side of a packed ring.

use super::ring::{AVAIL, DESC, DISABLE, ENABLE, FLAGS, OFF_WRAP, PackedRing, USED};
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
    /// Number of slots of each id's buffer; 0 if the id is free.
    slots: Box<[u16]>,
    free_slots: usize,
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
            free_slots: size,
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
        if needed == 0 || needed > self.free_slots {
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
        self.free_slots -= needed;
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
        for buffer in buffers.take(self.free_slots) {
            let Some(id) = self.free.take() else { break };
            let flags = PackedRing::available(at.wrap) | if buffer.write { WRITE } else { 0 };
            let rest = Descriptor { address: 0, len: buffer.len, flags, other: id }.packed_rest();
            let index = usize::from(at.index);
            ring.descriptors.set_first(index, buffer.address);
            if at == self.published {
                self.first = rest;
            } else {
                ring.descriptors.set_second(index, rest);
            }
            if let Some(slots) = self.slots.get_mut(usize::from(id)) {
                *slots = 1;
            }
            ring.advance(&mut at, 1);
            added(count, id);
            count += 1;
        }
        self.available = at;
        self.free_slots -= count;
        count
    }

    #[inline]
    fn write(&mut self, mut descriptor: Descriptor, first: bool) {
        descriptor.flags |= PackedRing::available(self.available.wrap);
        let index = usize::from(self.available.index);
        self.ring.descriptors.set_first(index, descriptor.address);
        if first && self.available == self.published {
            self.first = descriptor.packed_rest();
        } else {
            self.ring.descriptors.set_second(index, descriptor.packed_rest());
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
                self.ring.passes(self.ring.device.load(OFF_WRAP), since, self.published)
            }
            _ => true,
        }
    }

    #[inline(always)]
    pub(crate) fn take_used(&mut self) -> Result<Option<(u16, u32)>, QueueError> {
        // No buffer is in flight.
        if self.free_slots == usize::from(self.ring.size) {
            return Ok(None);
        }
        let (ring, slots, at) = (&self.ring, &self.slots, self.used);
        let read = || {
            let Some(rest) = next_used(ring, at) else { return Ok(None) };
            let Descriptor { other: id, len, .. } = Descriptor::packed(0, rest);
            let in_flight = slots.get(usize::from(id)).is_some_and(|&slots| slots > 0);
            if in_flight { Ok(Some((id, len))) } else { Err(QueueError::Descriptor) }
        };
        let used = match &mut self.order {
            None => read()?,
            Some(order) => order.next(&self.free, read)?,
        };
        let Some((id, len)) = used else { return Ok(None) };
        let slots = self.slots.get_mut(usize::from(id)).map_or(0, core::mem::take);
        if slots == 0 {
            return Err(QueueError::Descriptor);
        }
        self.free.give(id);
        self.free_slots += usize::from(slots);
        self.ring.advance(&mut self.used, slots);
        Ok(Some((id, len)))
    }

    #[inline]
    pub(crate) fn take_used_run(
        &mut self,
        max: usize,
        mut used: impl FnMut(u16, u32),
    ) -> Result<usize, QueueError> {
        let mut count = 0;
        while count < max
            && let Some((id, len)) = self.take_used()?
        {
            used(id, len);
            count += 1;
        }
        Ok(count)
    }

    pub(crate) fn pending(&self) -> bool {
        let has_rest = self.order.as_ref().is_some_and(|order| order.last.is_some());
        has_rest
            || self.free_slots < usize::from(self.ring.size) && next_used(&self.ring, self.used).is_some()
    }

    pub(crate) fn set_flag(&mut self, wanted: bool) {
        if wanted && self.ring.event_idx {
            self.ring.driver.store(OFF_WRAP, self.used.to_base(true));
            self.ring.driver.store_release(FLAGS, DESC);
        } else {
            self.ring.driver.store_release(FLAGS, if wanted { ENABLE } else { DISABLE });
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.free_slots
    }
}

/// The second word of the descriptor at `at`, if it is used.
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
