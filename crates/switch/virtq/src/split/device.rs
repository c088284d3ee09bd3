//! The device side of a split ring.

use super::ring::{FLAGS, IDX, NO_NOTIFICATION, SplitRing, passes};
use crate::chain::{Chain, Follow, Rules, Sink, follow};
use crate::descriptor::{INDIRECT, NEXT, WRITE};
use crate::error::QueueError;
use crate::format::{Cursor, End, Format, Head, Used};
use ringway_mem::Translate;

impl SplitRing<'_> {
    /// Number of available chains from `at` on.
    #[inline]
    fn ready(&self, at: Cursor) -> Result<u16, QueueError> {
        let ready = self.available.load_acquire(IDX).wrapping_sub(at.index);
        // Attack: with an index beyond the ring's size, the device would take old entries again.
        if ready > self.size { Err(QueueError::Index) } else { Ok(ready) }
    }

    /// Whether the driver polls the used ring.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        !self.event_idx && self.available.load(FLAGS) & NO_NOTIFICATION != 0
    }
}

impl<'t> Format<'t> for SplitRing<'t> {
    #[inline]
    fn gather(&self, at: &mut Cursor, write: bool, out: &mut [Head]) -> (usize, End) {
        let ready = match self.ready(*at) {
            Ok(ready) => usize::from(ready),
            Err(error) => return (0, End::Error(error)),
        };
        let direction = if write { WRITE } else { 0 };
        let limit = out.len();
        let mut count = 0;
        for head in out.iter_mut().take(ready) {
            let id = self.available.load(self.available_at(at.index));
            if id >= self.size {
                return (count, End::Error(QueueError::Descriptor));
            }
            let found = self.descriptor(id);
            if found.flags & (NEXT | INDIRECT) != 0 {
                return (count, End::Chain);
            }
            if found.flags & WRITE != direction {
                return (count, End::Error(QueueError::Direction));
            }
            if found.len == 0 {
                return (count, End::Error(QueueError::Zero));
            }
            *head = Head { address: found.address, len: found.len, id };
            at.index = at.index.wrapping_add(1);
            count += 1;
        }
        (count, if count == limit { End::Limit } else { End::Empty })
    }

    fn chain<T: Translate<'t>>(
        &self,
        at: &mut Cursor,
        write: bool,
        translate: &mut T,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Chain>, QueueError> {
        if self.ready(*at)? == 0 {
            return Ok(None);
        }
        let id = self.available.load(self.available_at(at.index));
        let rules = Rules { indirect: self.indirect, size: self.size, packed: false };
        sink.begin(write);
        let mut index = id;
        for count in 0..self.size {
            if index >= self.size {
                return Err(QueueError::Descriptor);
            }
            let found = self.descriptor(index);
            match follow(&found, count == 0, rules, translate, sink)? {
                Follow::Next if !sink.truncated => index = found.other,
                // A chain is identified by its first descriptor, so the rest of a long one is not needed.
                Follow::Next | Follow::End => {
                    at.index = at.index.wrapping_add(1);
                    return Ok(Some(Chain { id, slots: 1 }));
                }
            }
        }
        // Attack: a chain with a loop; a chain can't have more descriptors than the ring.
        Err(QueueError::Chain)
    }

    #[inline]
    fn pending(&self, at: Cursor) -> bool {
        self.available.load_acquire(IDX) != at.index
    }

    #[inline]
    fn pass(&self, at: &mut Cursor, _chain: Chain) {
        at.index = at.index.wrapping_add(1);
    }

    #[inline]
    fn pass_run(&self, at: &mut Cursor, count: usize) {
        at.index = at.index.wrapping_add(count as u16);
    }

    #[inline]
    fn write_used(&self, used: &mut Used, chain: Chain, len: u32) {
        let entry = u64::from(chain.id) | u64::from(len) << 32;
        self.entries.write_at(8 * usize::from(used.at.index & self.mask()), entry.to_le_bytes());
        used.at.index = used.at.index.wrapping_add(chain.slots);
    }

    #[inline]
    fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    fn write_used_run(&self, used: &mut Used, buffers: impl ExactSizeIterator<Item = (u16, u32)>) {
        for (id, len) in buffers {
            self.write_used(used, Chain { id, slots: 1 }, len);
        }
    }

    #[inline]
    fn publish(&self, used: &mut Used) {
        self.used.store_release(IDX, used.at.index);
        used.published = used.at;
    }

    #[inline]
    fn prefetch_used(&self, used: &Used) {
        let offset = usize::from(used.at.index & self.mask()) * 8;
        self.entries.split(offset).1.prefetch_write();
    }

    fn set_flag(&self, at: Cursor, wanted: bool) {
        if !self.event_idx {
            self.used.store(FLAGS, if wanted { 0 } else { NO_NOTIFICATION });
        } else if wanted {
            self.used.store(self.avail_event(), at.index);
        }
        // With `VIRTIO_F_EVENT_IDX`, an `avail_event` that was already passed disables kicks.
    }

    fn wants_interrupt(&self, signalled: Cursor, used: &Used) -> bool {
        if self.event_idx {
            let event = self.available.load(self.used_event());
            return passes(event, signalled.index, used.published.index);
        }
        self.available.load(FLAGS) & NO_NOTIFICATION == 0
    }
}
