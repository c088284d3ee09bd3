//! A packed ring as its device sees it.

use super::ring::{AVAIL, DESC, DISABLE, ENABLE, FLAGS, PLACE, PackedRing, USED};
use crate::chain::{Chain, Follow, Rules, Sink, follow};
use crate::descriptor::{Descriptor, INDIRECT, NEXT, WRITE};
use crate::error::QueueError;
use crate::format::{Cursor, End, Format, Head, Used};
use ringway_mem::Translate;

impl PackedRing<'_> {
    /// The descriptor at a place, if it is available.
    #[inline]
    fn descriptor(&self, at: Cursor) -> Option<Descriptor> {
        let word = 2 * usize::from(at.index);
        // The flags come first: what the driver wrote before them can be seen once they say so.
        let rest = self.descriptors.load_acquire(word + 1);
        let flags = (rest >> 48) as u16;
        if flags & (AVAIL | USED) != PackedRing::available(at.wrap) {
            return None;
        }
        Some(Descriptor::packed(self.descriptors.load(word), rest))
    }

    fn store(&self, at: Cursor, rest: u64) {
        self.descriptors.store_release(2 * usize::from(at.index) + 1, rest);
    }
}

impl<'t> Format<'t> for PackedRing<'t> {
    #[inline]
    fn gather(&self, at: &mut Cursor, write: bool, out: &mut [Head]) -> (usize, End) {
        let want = if write { WRITE } else { 0 };
        let mut count = 0;
        for head in out.iter_mut() {
            let Some(found) = self.descriptor(*at) else { return (count, End::Empty) };
            if found.flags & (NEXT | INDIRECT) != 0 {
                return (count, End::Chain);
            }
            if found.flags & WRITE != want {
                return (count, End::Error(QueueError::Direction));
            }
            if found.len == 0 {
                return (count, End::Error(QueueError::Zero));
            }
            *head = Head { address: found.address, len: found.len, id: found.other };
            self.advance(at, 1);
            count += 1;
        }
        (count, End::Asked)
    }

    fn chain<T: Translate<'t>>(
        &self,
        at: &mut Cursor,
        write: bool,
        translate: &mut T,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Chain>, QueueError> {
        let rules = Rules { indirect: self.indirect, size: self.size, packed: true };
        sink.begin(write);
        let mut place = *at;
        // Attack: a chain that runs round the ring ends where it began.
        for seen in 0..self.size {
            let Some(found) = self.descriptor(place) else {
                // The driver makes a chain's first descriptor available last.
                return if seen == 0 { Ok(None) } else { Err(QueueError::Unfinished) };
            };
            let follow = follow(&found, seen == 0, rules, translate, sink)?;
            self.advance(&mut place, 1);
            if let Follow::End = follow {
                *at = place;
                return Ok(Some(Chain { id: found.other, slots: seen + 1 }));
            }
        }
        Err(QueueError::Chain)
    }

    #[inline]
    fn pending(&self, at: Cursor) -> bool {
        self.descriptor(at).is_some()
    }

    #[inline]
    fn pass(&self, at: &mut Cursor, chain: Chain) {
        self.advance(at, chain.slots);
    }

    #[inline]
    fn write_used(&self, used: &mut Used, chain: Chain, len: u32) {
        let flags = PackedRing::used(used.at.wrap) | if len > 0 { WRITE } else { 0 };
        let rest = Descriptor { address: 0, len, flags, other: chain.id }.packed_rest();
        if used.is_published() {
            // The driver looks at the first one first: storing it last shows all of them at once.
            used.first = rest;
        } else {
            self.descriptors.store(2 * usize::from(used.at.index) + 1, rest);
        }
        self.advance(&mut used.at, chain.slots);
    }

    #[inline]
    fn publish(&self, used: &mut Used) {
        if !used.is_published() {
            self.store(used.published, used.first);
            used.untold = used.untold.saturating_add(self.distance(used.published, used.at));
            used.published = used.at;
        }
    }

    #[inline]
    fn prefetch_used(&self, _used: &Used) {}

    fn set_flag(&self, at: Cursor, wanted: bool) {
        if wanted && self.event_idx {
            self.device.store(PLACE, at.to_base(true));
            self.device.store_release(FLAGS, DESC);
        } else {
            self.device.store_release(FLAGS, if wanted { ENABLE } else { DISABLE });
        }
    }

    fn wants_interrupt(&self, signalled: Cursor, used: &Used) -> bool {
        match self.driver.load_acquire(FLAGS) & 3 {
            DISABLE => false,
            DESC if self.event_idx && used.untold <= u32::from(self.size) => {
                self.passes(self.driver.load(PLACE), signalled, used.published)
            }
            _ => true,
        }
    }
}
