//! The position of a packed ring that a former device served, from the flags of its descriptors.

use super::ring::{AVAIL, PackedRing, USED};
use crate::descriptor::NEXT;
use crate::format::{Cursor, Progress};

/// A descriptor's id and flags.
#[derive(Clone, Copy)]
struct Slot {
    id: u16,
    flags: u16,
}

impl Slot {
    fn is_used(self) -> bool {
        self.flags & (AVAIL | USED) == PackedRing::used(self.lap())
    }

    /// The wrap counter with which the driver last made the descriptor available.
    fn lap(self) -> bool {
        self.flags & AVAIL != 0
    }
}

/// The descriptors of one lap that ends where the driver adds its next one, oldest first.
struct Lap<'a> {
    read: &'a dyn Fn(u16) -> (u16, u16),
    size: u16,
    /// Its first descriptor.
    start: Cursor,
}

impl Lap<'_> {
    fn at(&self, offset: u16) -> Cursor {
        let index = u32::from(self.start.index) + u32::from(offset);
        let wrapped = index >= u32::from(self.size);
        let index = if wrapped { index - u32::from(self.size) } else { index };
        Cursor { index: index as u16, wrap: self.start.wrap != wrapped }
    }

    fn slot(&self, offset: u16) -> Slot {
        let (id, flags) = (self.read)(self.at(offset).index);
        Slot { id, flags }
    }

    /// The last descriptor of the chain of which `offset` is a part, and whether a used descriptor follows it.
    fn tail(&self, mut offset: u16) -> (u16, Slot, bool) {
        loop {
            let slot = self.slot(offset);
            if offset + 1 >= self.size {
                return (offset, slot, false);
            }
            let follows = self.slot(offset + 1).is_used();
            if slot.flags & NEXT == 0 || follows {
                return (offset, slot, follows);
            }
            offset += 1;
        }
    }

    /// Offset of the first buffer that is not used, if each buffer has one descriptor. `Err` if several used chains
    /// have more: a used entry overwrites only a chain's first descriptor, and the last one, which still looks
    /// available, has the same id. One such descriptor is a buffer whose used entry the device was about to make
    /// visible, after those that follow, and whose id was used just before.
    fn first_unused(&self) -> Result<u16, Chained> {
        let (mut offset, mut used, mut rests) = (0, None, 0);
        let mut unused = None;
        while offset < self.size {
            let slot = self.slot(offset);
            if slot.is_used() {
                used = Some(slot.id);
                offset += 1;
                continue;
            }
            let (end, last, follows) = self.tail(offset);
            rests += u16::from(used == Some(last.id) && follows);
            if rests > 1 {
                return Err(Chained);
            }
            unused = unused.or(Some(offset));
            (offset, used) = (end + 1, None);
        }
        Ok(unused.unwrap_or(self.size))
    }

    /// Offset of the first chain that is not used.
    fn first_unused_chain(&self) -> u16 {
        let (mut offset, mut used) = (0, None);
        while offset < self.size {
            let slot = self.slot(offset);
            if slot.is_used() {
                used = Some(slot.id);
                offset += 1;
                continue;
            }
            let (end, last, follows) = self.tail(offset);
            // The lap may begin with the rest of a chain whose first descriptor belongs to the next lap already.
            let is_rest = used == Some(last.id) || (offset == 0 && follows);
            if !is_rest {
                break;
            }
            (offset, used) = (end + 1, None);
        }
        offset
    }
}

/// Used chains have several descriptors.
struct Chained;

impl PackedRing<'_> {
    /// The position of the first buffer in a ring of `size` descriptors that its former device had not returned; in a
    /// new, zeroed ring, its start. `read` returns a descriptor's id and flags.
    ///
    /// A front-end can't tell this position after a back-end crashed: QEMU then sends the one at which the driver
    /// began. Buffers that were taken but not returned are taken again. The result is certain if each buffer has one
    /// descriptor, as with indirect tables. With chains it is not if the last used buffer's id was used again at once.
    pub fn resume(size: u16, read: &dyn Fn(u16) -> (u16, u16)) -> Cursor {
        let lap = |index| Slot { id: 0, flags: read(index).1 }.lap();
        let current = lap(0);
        // The driver's position: descriptors before it belong to its current lap.
        let next = (1..size).find(|index| lap(*index) != current);
        // One lap earlier, the wrap counter is the inverse.
        let start = match next {
            Some(index) => Cursor { index, wrap: !current },
            None => Cursor { index: 0, wrap: current },
        };
        let descriptors = Lap { read, size, start };
        descriptors.at(descriptors.first_unused().unwrap_or_else(|Chained| descriptors.first_unused_chain()))
    }

    /// As [`crate::Ring::complete`]; returns the position of the first buffer that is not used.
    pub(crate) fn complete(&self, progress: &Progress) -> Cursor {
        let Progress { at, used, visible, first } = *progress;
        // A device publishes as the last step, so only the first descriptor of the burst can be in its former state.
        if visible != used && self.flags(visible) == PackedRing::available(visible.wrap) {
            self.descriptors.release_second(usize::from(visible.index), first);
            return used;
        }
        self.return_unrecorded(at)
    }

    /// Returns buffers to the driver, without content, for which a device wrote used entries from the second one on,
    /// before it recorded its progress. The entries overwrote descriptors, so that these buffers can't be taken again;
    /// and a frame that is in one of them is still in the ring that it came from, or is lost.
    fn return_unrecorded(&self, at: Cursor) -> Cursor {
        if self.flags(at) != PackedRing::available(at.wrap) {
            return at;
        }
        // Attack: descriptors that change while they are read, or all have the flags of used ones, and chains without
        // an end: all walks together pass each descriptor once.
        let (mut next, id, passed) = self.behind_chain(at, self.size);
        let mut left = self.size.saturating_sub(passed);
        let mut ends = at;
        while left > 0 && self.flags(next) == PackedRing::used(next.wrap) {
            let used = self.id(next);
            self.descriptors.set_second(usize::from(next.index), PackedRing::used_rest(next.wrap, used, 0));
            self.advance(&mut next, 1);
            left -= 1;
            // A used entry replaces the first descriptor of its chain. The driver can't have used the id again.
            if self.flags(next) == PackedRing::available(next.wrap) {
                let (behind, last, passed) = self.behind_chain(next, left);
                left = left.saturating_sub(passed);
                next = if last == used { behind } else { next };
            }
            ends = next;
        }
        if ends == at {
            return at;
        }
        self.descriptors.release_second(usize::from(at.index), PackedRing::used_rest(at.wrap, id, 0));
        ends
    }

    /// The position behind the chain that begins at `at`, the chain's id, and the number of its descriptors. At most
    /// `most` descriptors are read.
    fn behind_chain(&self, at: Cursor, most: u16) -> (Cursor, u16, u16) {
        let mut next = at;
        for passed in 1..=most.min(self.size.saturating_sub(1)) {
            let (id, flags) = (self.id(next), self.all_flags(next));
            self.advance(&mut next, 1);
            if flags & NEXT == 0 || self.flags(next) == PackedRing::used(next.wrap) {
                return (next, id, passed);
            }
        }
        (next, 0, most)
    }

    fn flags(&self, at: Cursor) -> u16 {
        self.all_flags(at) & (AVAIL | USED)
    }

    fn all_flags(&self, at: Cursor) -> u16 {
        (self.descriptors.second(usize::from(at.index)) >> 48) as u16
    }

    fn id(&self, at: Cursor) -> u16 {
        (self.descriptors.second(usize::from(at.index)) >> 32) as u16
    }
}
