//! The side of a ring that empties slots.

use super::Broken;
use super::memory::{RingMemory, Side, Word};
use super::producer::{is_requested, request_wake, stored_index};
use super::slot::Slot;
use ringway_mem::sync::Ordering;

/// A consumer's private state. The consumer owns the slots from its own index up to the producer's.
#[derive(Clone, Debug)]
pub struct Consumer {
    ring: usize,
    slots: u32,
    next: u32,
    published: u32,
    /// The producer's index as last read and checked.
    peer_index: u32,
}

impl Consumer {
    /// The consumer of a ring; continues at the stored index. Any stored index is safe: no slot counts as
    /// filled until the producer's index is read.
    pub fn new(memory: &RingMemory, ring: usize) -> Consumer {
        let (slots, next) = (memory.slots(ring), stored_index(memory, ring, Side::Consumer));
        Consumer { ring, slots, next, published: next, peer_index: next }
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Index of the next slot to empty.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Number of filled slots. Reads the producer's index only if fewer than `wanted` are known.
    #[inline]
    pub fn available(&mut self, memory: &RingMemory, wanted: u32) -> Result<u32, Broken> {
        let known = self.peer_index.wrapping_sub(self.next);
        if known >= wanted {
            return Ok(known);
        }
        let peer_index = memory.cell(self.ring, Side::Producer, Word::Index).load(Ordering::Acquire);
        // Attack: an index that moved by more than the ring's slots, or decreased, would yield unfilled
        // slots.
        let advance = peer_index.wrapping_sub(self.peer_index);
        if advance > self.slots - self.peer_index.wrapping_sub(self.published) {
            return Err(Broken::Index);
        }
        self.peer_index = peer_index;
        Ok(peer_index.wrapping_sub(self.next))
    }

    /// Number of filled slots when the producer's index was last read.
    #[inline]
    pub fn known(&self) -> u32 {
        self.peer_index.wrapping_sub(self.next)
    }

    /// Reads the slot `offset` slots after the next one.
    #[inline]
    pub fn slot(&self, memory: &RingMemory, offset: u32) -> Slot {
        memory.read_slot(self.ring, self.next.wrapping_add(offset))
    }

    /// Exchanges the buffer of the slot `offset` slots after the next one; returns the previous slot.
    #[inline]
    pub fn swap(&self, memory: &RingMemory, offset: u32, buf_idx: u16) -> Slot {
        let slot = self.slot(memory, offset);
        memory.write_slot(self.ring, self.next.wrapping_add(offset), Slot { buf_idx, ..slot });
        slot
    }

    /// Writes the slot `offset` slots after the next one, in which the producer finds the buffer for another frame. A
    /// length of 0, which no frame's slot has, shows that the buffer is not the frame's any more.
    #[inline]
    pub fn write(&self, memory: &RingMemory, offset: u32, slot: Slot) {
        memory.write_slot(self.ring, self.next.wrapping_add(offset), slot);
    }

    /// Promises to leave each buffer in its slot: [`Consumer::swap`] is not used any more, and was not used before.
    pub fn fix_buffers(&self, memory: &RingMemory) {
        memory.cell(self.ring, Side::Consumer, Word::Fixed).store(1, Ordering::Release);
    }

    /// Advances over the next `slots` slots, at most the filled ones, without publishing it.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        self.next = self.next.wrapping_add(slots.min(self.peer_index.wrapping_sub(self.next)));
    }

    /// Whether there are emptied slots that are not published yet.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.next != self.published
    }

    /// Returns emptied slots to the producer; returns whether the producer wants a notification.
    #[inline]
    pub fn publish(&mut self, memory: &RingMemory) -> bool {
        if !self.is_pending() {
            return false;
        }
        let old = core::mem::replace(&mut self.published, self.next);
        // A full barrier, as in `Producer::publish`.
        memory.cell(self.ring, Side::Consumer, Word::Index).store(self.next, Ordering::SeqCst);
        is_requested(memory, self.ring, Side::Producer, old, self.next)
    }

    /// Requests a notification when `slots` slots are filled. Returns `false`, without a request, if they are
    /// filled already.
    pub fn arm(&mut self, memory: &RingMemory, slots: u32) -> Result<bool, Broken> {
        let slots = slots.clamp(1, self.slots);
        request_wake(memory, self.ring, Side::Consumer, self.next.wrapping_add(slots - 1));
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
