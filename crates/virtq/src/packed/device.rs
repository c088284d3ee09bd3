//! The device side of a packed ring.

use super::ring::{AVAIL, DESC, DISABLE, ENABLE, FLAGS, PLACE, PackedRing, USED};
use crate::chain::{Chain, Follow, Rules, Sink, follow};
use crate::descriptor::{Descriptor, INDIRECT, NEXT, WRITE};
use crate::error::QueueError;
use crate::format::{Cursor, End, Format, Head, Used};
use ringway_mem::Translate;

impl PackedRing<'_> {
    /// The descriptor at a position, if it is available.
    #[inline]
    fn descriptor(&self, at: Cursor) -> Option<Descriptor> {
        let place = usize::from(at.index);
        // Read the flags first: once they say available, the driver's earlier writes are visible.
        let rest = self.descriptors.second(place);
        let flags = (rest >> 48) as u16;
        if flags & (AVAIL | USED) != PackedRing::available(at.wrap) {
            return None;
        }
        Some(Descriptor::packed(self.descriptors.first(place), rest))
    }

    /// The second word of a used descriptor.
    #[inline]
    fn used_rest(wrap: bool, id: u16, len: u32) -> u64 {
        let flags = PackedRing::used(wrap) | if len > 0 { WRITE } else { 0 };
        Descriptor { address: 0, len, flags, other: id }.packed_rest()
    }

    /// Reads descriptors of one buffer each from `at` on, without wrapping; stops at any other. Returns their
    /// number.
    #[inline]
    fn gather_run(&self, at: Cursor, write: bool, out: &mut [Head]) -> usize {
        let want = PackedRing::available(at.wrap) | if write { WRITE } else { 0 };
        let window = self.descriptors.window(usize::from(at.index), out.len());
        for (place, head) in out.iter_mut().enumerate() {
            let found = Descriptor::packed(0, window.second(place));
            if found.flags & (AVAIL | USED | NEXT | INDIRECT | WRITE) != want || found.len == 0 {
                return place;
            }
            *head = Head { address: window.first(place), len: found.len, id: found.other };
        }
        out.len()
    }

    /// Why no buffer of one descriptor was found.
    #[cold]
    fn why(&self, at: Cursor, write: bool) -> End {
        let Some(found) = self.descriptor(at) else { return End::Empty };
        if found.flags & (NEXT | INDIRECT) != 0 {
            return End::Chain;
        }
        if (found.flags & WRITE != 0) != write {
            return End::Error(QueueError::Direction);
        }
        // A descriptor that was just made available is read by the next call.
        if found.len == 0 { End::Error(QueueError::Zero) } else { End::Empty }
    }
}

impl<'t> Format<'t> for PackedRing<'t> {
    #[inline]
    fn gather(&self, at: &mut Cursor, write: bool, out: &mut [Head]) -> (usize, End) {
        let mut count = 0;
        while count < out.len() {
            let run = self.run(*at, out.len() - count);
            let found = self.gather_run(*at, write, &mut out[count..count + run]);
            self.pass_run(at, found);
            count += found;
            if found < run {
                return (count, self.why(*at, write));
            }
        }
        (count, End::Limit)
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
        // Attack: a chain longer than the ring.
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
    fn pass_run(&self, at: &mut Cursor, mut count: usize) {
        // Attack: a ring that is refilled while it is read yields more buffers than it has descriptors.
        while count > 0 {
            let run = self.run(*at, count);
            self.advance(at, run as u16);
            count -= run;
        }
    }

    #[inline]
    fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    fn write_used(&self, used: &mut Used, chain: Chain, len: u32) {
        let rest = PackedRing::used_rest(used.at.wrap, chain.id, len);
        if used.is_published() {
            // The driver reads the first entry first: storing it last publishes all of them at once.
            used.first = rest;
        } else {
            self.descriptors.set_second(usize::from(used.at.index), rest);
        }
        self.advance(&mut used.at, chain.slots);
    }

    #[inline]
    fn write_used_run(&self, used: &mut Used, mut buffers: impl ExactSizeIterator<Item = (u16, u32)>) {
        if used.is_published()
            && let Some((id, len)) = buffers.next()
        {
            self.write_used(used, Chain { id, slots: 1 }, len);
        }
        while buffers.len() > 0 {
            let run = self.run(used.at, buffers.len());
            let window = self.descriptors.window(usize::from(used.at.index), run);
            for (place, (id, len)) in buffers.by_ref().take(run).enumerate() {
                window.set_second(place, PackedRing::used_rest(used.at.wrap, id, len));
            }
            self.advance(&mut used.at, run as u16);
        }
    }

    #[inline]
    fn publish(&self, used: &mut Used) {
        if !used.is_published() {
            self.descriptors.release_second(usize::from(used.published.index), used.first);
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
