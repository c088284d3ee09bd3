//! The side of a ring that empties slots.

use super::Broken;
use super::memory::{RingMemory, Side, Word};
use super::producer::{ask, own_index, wanted};
use super::slot::Slot;
use core::sync::atomic::Ordering;

/// What a consumer keeps for itself. All slots between its index and the producer's are its own until it releases
/// them.
#[derive(Clone, Debug)]
pub struct Consumer {
    ring: usize,
    slots: u32,
    next: u32,
    published: u32,
    /// The producer's index as last read and checked.
    seen: u32,
}

impl Consumer {
    /// The consumer of a ring, which goes on where an earlier one stopped. Any index there is a safe one to begin at:
    /// no slot counts as filled until the producer's index is read.
    pub fn new(memory: &RingMemory, ring: usize) -> Consumer {
        let (slots, next) = (memory.slots(ring), own_index(memory, ring, Side::Consumer));
        Consumer { ring, slots, next, published: next, seen: next }
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Index of the next slot to empty.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Filled slots, of which there are `wanted` if the producer filled as many. Looks at the producer's index only
    /// when what is known doesn't suffice.
    #[inline]
    pub fn available(&mut self, memory: &RingMemory, wanted: u32) -> Result<u32, Broken> {
        let known = self.seen.wrapping_sub(self.next);
        if known >= wanted {
            return Ok(known);
        }
        let theirs = memory.cell(self.ring, Side::Producer, Word::Index).load(Ordering::Acquire);
        // Attack: an index further ahead than the ring has slots, or one that runs back, would give slots that the
        // producer still fills, and without end.
        let ahead = theirs.wrapping_sub(self.seen);
        if ahead > self.slots - self.seen.wrapping_sub(self.published) {
            return Err(Broken::Index);
        }
        self.seen = theirs;
        Ok(theirs.wrapping_sub(self.next))
    }

    /// Filled slots as of the last look at the producer's index.
    #[inline]
    pub fn known(&self) -> u32 {
        self.seen.wrapping_sub(self.next)
    }

    /// Reads the slot `ahead` of the next one.
    #[inline]
    pub fn slot(&self, memory: &RingMemory, ahead: u32) -> Slot {
        memory.read_slot(self.ring, self.next.wrapping_add(ahead))
    }

    /// Leaves another buffer in the slot `ahead` of the next one, in exchange for the one it names.
    #[inline]
    pub fn swap(&self, memory: &RingMemory, ahead: u32, buf_idx: u16) -> Slot {
        let slot = self.slot(memory, ahead);
        memory.write_slot(self.ring, self.next.wrapping_add(ahead), Slot { buf_idx, ..slot });
        slot
    }

    /// Counts the next `slots` slots as emptied; the producer doesn't see that yet. More than are filled are not
    /// counted.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        self.next = self.next.wrapping_add(slots.min(self.seen.wrapping_sub(self.next)));
    }

    /// Whether slots were emptied that the producer doesn't have back.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.next != self.published
    }

    /// Gives emptied slots back; `true` if the producer asked to be notified of that.
    #[inline]
    pub fn publish(&mut self, memory: &RingMemory) -> bool {
        if !self.is_pending() {
            return false;
        }
        let old = core::mem::replace(&mut self.published, self.next);
        // The barrier as in `Producer::publish`.
        memory.cell(self.ring, Side::Consumer, Word::Index).store(self.next, Ordering::SeqCst);
        wanted(memory, self.ring, Side::Producer, old, self.next)
    }

    /// Asks to be notified once `slots` slots are filled. `false`: they are already, and nothing was asked.
    pub fn arm(&mut self, memory: &RingMemory, slots: u32) -> Result<bool, Broken> {
        let slots = slots.clamp(1, self.slots);
        ask(memory, self.ring, Side::Consumer, self.next.wrapping_add(slots - 1));
        if self.available(memory, self.slots + 1)? >= slots {
            self.disarm(memory);
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes back [`Consumer::arm`].
    #[inline]
    pub fn disarm(&mut self, memory: &RingMemory) {
        memory.cell(self.ring, Side::Consumer, Word::Wake).store(0, Ordering::Relaxed);
    }
}
