//! The device side of a packed ring.

use super::ring::{AVAIL, DESC, DISABLE, ENABLE, FLAGS, OFF_WRAP, PackedRing, USED};
use crate::chain::{Chain, Follow, Rules, Sink, follow};
use crate::descriptor::{Descriptor, INDIRECT, NEXT, WRITE};
use crate::error::QueueError;
use crate::format::{Cursor, End, Format, Head, Used};
use ringway_mem::Translate;

impl PackedRing<'_> {
    /// The descriptor at a position, if it is available.
    #[inline]
    fn descriptor(&self, at: Cursor) -> Option<Descriptor> {
        let index = usize::from(at.index);
        // Read the flags first: if they mark the descriptor as available, the driver's earlier writes are
        // visible.
        let rest = self.descriptors.second(index);
        let flags = (rest >> 48) as u16;
        if flags & (AVAIL | USED) != PackedRing::available(at.wrap) {
            return None;
        }
        Some(Descriptor::packed(self.descriptors.first(index), rest))
    }

    /// The second word of a used descriptor.
    #[inline]
    pub(super) fn used_rest(wrap: bool, id: u16, len: u32) -> u64 {
        let flags = PackedRing::used(wrap) | if len > 0 { WRITE } else { 0 };
        Descriptor { address: 0, len, flags, other: id }.packed_rest()
    }

    /// Reads buffers of one descriptor each from `at` on, without wrapping, up to the first other descriptor.
    /// Returns their number.
    #[inline]
    fn gather_run(&self, at: Cursor, write: bool, out: &mut [Head]) -> usize {
        let want = PackedRing::available(at.wrap) | if write { WRITE } else { 0 };
        let window = self.descriptors.window(usize::from(at.index), out.len());
        for (index, head) in out.iter_mut().enumerate() {
            let found = Descriptor::packed(0, window.second(index));
            if found.flags & (AVAIL | USED | NEXT | INDIRECT | WRITE) != want || found.len == 0 {
                return index;
            }
            *head = Head { address: window.first(index), len: found.len, id: found.other };
        }
        out.len()
    }

    /// Why `gather_run` stopped at `at`.
    #[cold]
    fn end_reason(&self, at: Cursor, write: bool) -> End {
        let Some(found) = self.descriptor(at) else { return End::Empty };
        if found.flags & (NEXT | INDIRECT) != 0 {
            return End::Chain;
        }
        if (found.flags & WRITE != 0) != write {
            return End::Error(QueueError::Direction);
        }
        // The descriptor may have become available since; the next call reads it.
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
                return (count, self.end_reason(*at, write));
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
        let mut position = *at;
        // Attack: a chain longer than the ring.
        for count in 0..self.size {
            let Some(found) = self.descriptor(position) else {
                // The driver makes a chain's first descriptor available last.
                return if count == 0 { Ok(None) } else { Err(QueueError::Unfinished) };
            };
            let follow = follow(&found, count == 0, rules, translate, sink)?;
            self.advance(&mut position, 1);
            if let Follow::End = follow {
                *at = position;
                return Ok(Some(Chain { id: found.other, slots: count + 1 }));
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
            // The driver reads the entries in order, so `publish` makes all visible by storing the first one
            // last.
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
            for (index, (id, len)) in buffers.by_ref().take(run).enumerate() {
                window.set_second(index, PackedRing::used_rest(used.at.wrap, id, len));
            }
            self.advance(&mut used.at, run as u16);
        }
    }

    #[inline]
    fn publish(&self, used: &mut Used) {
        if !used.is_published() {
            self.descriptors.release_second(usize::from(used.published.index), used.first);
            used.unsignalled = used.unsignalled.saturating_add(self.distance(used.published, used.at));
            used.published = used.at;
        }
    }

    #[inline]
    fn prefetch_used(&self, _used: &Used) {}

    fn set_flag(&self, at: Cursor, wanted: bool) {
        if wanted && self.event_idx {
            self.device.store(OFF_WRAP, at.to_base(true));
            self.device.store_release(FLAGS, DESC);
        } else {
            self.device.store_release(FLAGS, if wanted { ENABLE } else { DISABLE });
        }
    }

    fn wants_interrupt(&self, signalled: Cursor, used: &Used) -> bool {
        match self.driver.load_acquire(FLAGS) & 3 {
            DISABLE => false,
            DESC if self.event_idx && used.unsignalled <= u32::from(self.size) => {
                self.passes(self.driver.load(OFF_WRAP), signalled, used.published)
            }
            _ => true,
        }
    }
}
