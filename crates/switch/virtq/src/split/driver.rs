//! The driver side of a split ring.

use super::ring::{FLAGS, IDX, NO_NOTIFICATION, SplitRing, passes};
use crate::descriptor::{Descriptor, INDIRECT, NEXT, SIZE, WRITE};
use crate::driver::{Buffer, Free, Indirect, Order};
use crate::error::{LayoutError, QueueError};
use crate::layout::{Areas, Layout};
use alloc::boxed::Box;
use core::sync::atomic::{Ordering, fence};

/// Driver state of a split ring.
#[derive(Debug)]
pub struct SplitDriver<'t> {
    ring: SplitRing<'t>,
    free: Free,
    /// Number of descriptors of the chain that begins at each descriptor; 0 if none does.
    lengths: Box<[u16]>,
    /// The `next` field of each descriptor, as written.
    links: Box<[u16]>,
    available: u16,
    published: u16,
    kicked: u16,
    used: u16,
    pub(crate) order: Option<Order>,
}

impl<'t> SplitDriver<'t> {
    /// A driver for a ring in zeroed memory.
    pub fn new(layout: &Layout, areas: Areas<'t>) -> Result<SplitDriver<'t>, LayoutError> {
        let ring = SplitRing::new(layout, areas)?;
        let zeroes = || alloc::vec![0; usize::from(layout.size)].into_boxed_slice();
        let (lengths, links) = (zeroes(), zeroes());
        let free = Free::all(layout.size);
        Ok(SplitDriver {
            ring,
            free,
            lengths,
            links,
            available: 0,
            published: 0,
            kicked: 0,
            used: 0,
            order: None,
        })
    }

    #[inline]
    pub(crate) fn add(&mut self, buffers: &[Buffer], indirect: Option<Indirect<'_>>) -> Option<u16> {
        let needed = if indirect.is_some() { 1 } else { buffers.len() };
        if needed == 0 || needed > self.free.len() {
            return None;
        }
        let id = self.free.take()?;
        if let Some(table) = indirect {
            let len = write_table(buffers, table)?;
            let descriptor = Descriptor { address: table.address, len, flags: INDIRECT, other: 0 };
            descriptor.store_split(self.ring.descriptors, id);
        } else {
            let mut index = id;
            for (at, buffer) in buffers.iter().enumerate() {
                let more = at + 1 < buffers.len();
                let next = if more { self.free.take()? } else { 0 };
                descriptor(buffer, more, next).store_split(self.ring.descriptors, index);
                if more {
                    self.links[usize::from(index)] = next;
                    index = next;
                }
            }
        }
        self.lengths[usize::from(id)] = needed as u16;
        self.ring.available.store(self.ring.available_at(self.available), id);
        self.available = self.available.wrapping_add(1);
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
        for buffer in buffers.take(self.free.len()) {
            let Some(id) = self.free.take() else { break };
            descriptor(&buffer, false, 0).store_split(ring.descriptors, id);
            if let Some(length) = self.lengths.get_mut(usize::from(id)) {
                *length = 1;
            }
            ring.available.store(ring.available_at(at), id);
            at = at.wrapping_add(1);
            added(count, id);
            count += 1;
        }
        self.available = at;
        count
    }

    #[inline]
    pub(crate) fn publish(&mut self) {
        self.ring.available.store_release(IDX, self.available);
        self.published = self.available;
    }

    pub(crate) fn wants_kick(&mut self) -> bool {
        fence(Ordering::SeqCst);
        let since = core::mem::replace(&mut self.kicked, self.published);
        if self.ring.event_idx {
            return passes(self.ring.used.load(self.ring.avail_event()), since, self.published);
        }
        self.ring.used.load(FLAGS) & NO_NOTIFICATION == 0
    }

    #[inline]
    pub(crate) fn take_used(&mut self) -> Result<Option<(u16, u32)>, QueueError> {
        if self.ready()? == 0 {
            return Ok(None);
        }
        self.take_one().map(Some)
    }

    /// Number of used buffers.
    #[inline]
    fn ready(&self) -> Result<u16, QueueError> {
        let ready = self.ring.used.load_acquire(IDX).wrapping_sub(self.used);
        if ready > self.ring.size { Err(QueueError::Index) } else { Ok(ready) }
    }

    #[inline]
    pub(crate) fn take_used_run(
        &mut self,
        max: usize,
        mut used: impl FnMut(u16, u32),
    ) -> Result<usize, QueueError> {
        let count = max.min(usize::from(self.ready()?));
        for _ in 0..count {
            let (id, len) = self.take_one()?;
            used(id, len);
        }
        Ok(count)
    }

    /// Takes the next used buffer; there must be one.
    #[inline(always)]
    fn take_one(&mut self) -> Result<(u16, u32), QueueError> {
        let (id, len) = match &mut self.order {
            None => entry(&self.ring, self.used)?,
            Some(order) => {
                let (ring, lengths, used) = (&self.ring, &self.lengths, self.used);
                let read = || {
                    let last = entry(ring, used)?;
                    let in_flight = lengths.get(usize::from(last.0)).is_some_and(|&length| length > 0);
                    if in_flight { Ok(Some(last)) } else { Err(QueueError::Descriptor) }
                };
                order.next(&self.free, read)?.ok_or(QueueError::Descriptor)?
            }
        };
        let count = self.lengths.get_mut(usize::from(id)).map_or(0, core::mem::take);
        if count == 0 {
            return Err(QueueError::Descriptor);
        }
        let mut index = id;
        self.free.give(index);
        for _ in 1..count {
            index = self.links.get(usize::from(index)).copied().unwrap_or(0);
            self.free.give(index);
        }
        self.used = self.used.wrapping_add(1);
        Ok((id, len))
    }

    pub(crate) fn pending(&self) -> bool {
        self.ring.used.load_acquire(IDX) != self.used
    }

    pub(crate) fn set_flag(&mut self, wanted: bool) {
        if !self.ring.event_idx {
            self.ring.available.store(FLAGS, if wanted { 0 } else { NO_NOTIFICATION });
        } else if wanted {
            self.ring.available.store(self.ring.used_event(), self.used);
        } else {
            // An index that was just passed, so it is not passed again for the longest time.
            self.ring.available.store(self.ring.used_event(), self.used.wrapping_sub(1));
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }
}

/// The id and length of a used entry.
#[inline(always)]
fn entry(ring: &SplitRing<'_>, used: u16) -> Result<(u16, u32), QueueError> {
    let offset = 8 * usize::from(used & ring.mask());
    let entry = ring.entries.as_span().split(offset).1.read_array::<8>();
    let entry = u64::from_le_bytes(entry.ok_or(QueueError::Descriptor)?);
    let id = u16::try_from(entry & 0xffff_ffff).map_err(|_| QueueError::Descriptor)?;
    Ok((id, (entry >> 32) as u32))
}

#[inline]
fn descriptor(buffer: &Buffer, more: bool, next: u16) -> Descriptor {
    let flags = if more { NEXT } else { 0 } | if buffer.write { WRITE } else { 0 };
    Descriptor { address: buffer.address, len: buffer.len, flags, other: next }
}

fn write_table(buffers: &[Buffer], table: Indirect<'_>) -> Option<u32> {
    let mut rest = table.table;
    for (at, buffer) in buffers.iter().enumerate() {
        let found = descriptor(buffer, at + 1 < buffers.len(), at as u16 + 1);
        rest.write_at(0, found.address.to_le_bytes());
        if !rest.write_at(8, found.split_rest().to_le_bytes()) {
            return None;
        }
        rest = rest.split(SIZE as usize).1;
    }
    Some(buffers.len() as u32 * SIZE)
}
