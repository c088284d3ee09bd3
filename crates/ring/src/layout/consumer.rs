//! The side of a ring that empties slots.

use super::Broken;
use super::memory::{RingMemory, Side, Word};
use super::producer::{ask, own_index, wanted};
use super::slot::Slot;
use core::sync::atomic::Ordering;

/// A consumer's private state. All slots from its index up to the producer's belong to the consumer until it
/// releases them.
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
    /// The consumer of a ring, which continues where an earlier one stopped. Any stored index is safe to
    /// begin at: no slot counts as filled until the producer's index is read.
    pub fn new(memory: &RingMemory, ring: usize) -> Consumer {
        let (slots, next) = (memory.slots(ring), own_index(memory, ring, Side::Consumer));
        Consumer { ring, slots, next, published: next, seen: next }
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Index of the next slot to empty.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Number of filled slots, at least `wanted` if the producer filled as many. Reads the producer's index
    /// only if the known number is insufficient.
    #[inline]
    pub fn available(&mut self, memory: &RingMemory, wanted: u32) -> Result<u32, Broken> {
        let known = self.seen.wrapping_sub(self.next);
        if known >= wanted {
            return Ok(known);
        }
        let theirs = memory.cell(self.ring, Side::Producer, Word::Index).load(Ordering::Acquire);
        // Attack: an index further ahead than the ring has slots, or a decreasing one, would yield slots that
        // the producer is still filling, without end.
        let ahead = theirs.wrapping_sub(self.seen);
        if ahead > self.slots - self.seen.wrapping_sub(self.published) {
            return Err(Broken::Index);
        }
        self.seen = theirs;
        Ok(theirs.wrapping_sub(self.next))
    }

    /// Filled slots as of the last read of the producer's index.
    #[inline]
    pub fn known(&self) -> u32 {
        self.seen.wrapping_sub(self.next)
    }

    /// Reads the slot `ahead` of the next one.
    #[inline]
    pub fn slot(&self, memory: &RingMemory, ahead: u32) -> Slot {
        memory.read_slot(self.ring, self.next.wrapping_add(ahead))
    }

    /// Puts another buffer into the slot `ahead` of the next one, in exchange for the slot's buffer.
    #[inline]
    pub fn swap(&self, memory: &RingMemory, ahead: u32, buf_idx: u16) -> Slot {
        let slot = self.slot(memory, ahead);
        memory.write_slot(self.ring, self.next.wrapping_add(ahead), Slot { buf_idx, ..slot });
        slot
    }

    /// Advances over the next `slots` slots, at most the filled ones; the producer doesn't see this yet.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        self.next = self.next.wrapping_add(slots.min(self.seen.wrapping_sub(self.next)));
    }

    /// Whether there are emptied slots that are not published.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.next != self.published
    }

    /// Returns emptied slots to the producer; `true` if the producer asked to be notified of them.
    #[inline]
    pub fn publish(&mut self, memory: &RingMemory) -> bool {
        if !self.is_pending() {
            return false;
        }
        let old = core::mem::replace(&mut self.published, self.next);
        // Same barrier as in `Producer::publish`.
        memory.cell(self.ring, Side::Consumer, Word::Index).store(self.next, Ordering::SeqCst);
        wanted(memory, self.ring, Side::Producer, old, self.next)
    }

    /// Asks to be notified when `slots` slots are filled. `false`: they are filled already, and no
    /// notification was requested.
    pub fn arm(&mut self, memory: &RingMemory, slots: u32) -> Result<bool, Broken> {
        let slots = slots.clamp(1, self.slots);
        ask(memory, self.ring, Side::Consumer, self.next.wrapping_add(slots - 1));
        if self.available(memory, self.slots + 1)? >= slots {
            self.disarm(memory);
            return Ok(false);
        }
        Ok(true)
    }

    /// Cancels [`Consumer::arm`].
    #[inline]
    pub fn disarm(&mut self, memory: &RingMemory) {
        memory.cell(self.ring, Side::Consumer, Word::Wake).store(0, Ordering::Relaxed);
    }
}
