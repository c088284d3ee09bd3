//! The side of a ring that fills slots.

use super::Broken;
use super::memory::{RingMemory, Side, Word};
use super::slot::Slot;
use ringway_mem::sync::Ordering;

/// A producer's private state. The consumer owns the slots from its index up to the published index.
#[derive(Clone, Debug)]
pub struct Producer {
    ring: usize,
    slots: u32,
    next: u32,
    published: u32,
    /// The published index when the consumer's `wake` flag was last checked.
    notified: u32,
    /// The consumer's index as last read and checked.
    peer_index: u32,
}

impl Producer {
    /// The producer of a ring; continues at the stored index. Any stored index is safe: no slot counts as
    /// free until the consumer's index is read.
    pub fn new(memory: &RingMemory, ring: usize) -> Producer {
        let (slots, next) = (memory.slots(ring), stored_index(memory, ring, Side::Producer));
        Producer { ring, slots, next, published: next, notified: next, peer_index: next.wrapping_sub(slots) }
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The ring's number.
    pub(super) fn ring(&self) -> usize {
        self.ring
    }

    /// The consumer's index, read again: it has released the slots before.
    pub fn consumed(&mut self, memory: &RingMemory) -> Result<u32, Broken> {
        self.room(memory, u32::MAX)?;
        Ok(self.peer_index)
    }

    /// Index of the next slot to fill.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Number of free slots. Reads the consumer's index only if fewer than `wanted` are known.
    #[inline]
    pub fn room(&mut self, memory: &RingMemory, wanted: u32) -> Result<u32, Broken> {
        let known = self.slots - self.next.wrapping_sub(self.peer_index);
        if known >= wanted {
            return Ok(known);
        }
        let peer_index = memory.cell(self.ring, Side::Consumer, Word::Index).load(Ordering::Acquire);
        // Attack: an index beyond ours, or a decreased one, would free slots that the consumer still owns.
        if peer_index.wrapping_sub(self.peer_index) > self.published.wrapping_sub(self.peer_index) {
            return Err(Broken::Index);
        }
        self.peer_index = peer_index;
        Ok(self.slots - self.next.wrapping_sub(peer_index))
    }

    /// Whether the consumer promises to leave each buffer in its slot ([`super::Consumer::fix_buffers`]).
    pub fn has_fixed_buffers(&self, memory: &RingMemory) -> bool {
        memory.cell(self.ring, Side::Consumer, Word::Fixed).load(Ordering::Acquire) != 0
    }

    /// Reads the slot `offset` slots after the next one, for its buffer.
    #[inline]
    pub fn slot(&self, memory: &RingMemory, offset: u32) -> Slot {
        memory.read_slot(self.ring, self.next.wrapping_add(offset))
    }

    /// Writes the slot `offset` slots after the next one; `offset` must be below [`Producer::room`].
    #[inline]
    pub fn write(&self, memory: &RingMemory, offset: u32, slot: Slot) {
        memory.write_slot(self.ring, self.next.wrapping_add(offset), slot);
    }

    /// As [`Producer::write`], unless the slot has these contents.
    #[inline]
    pub fn renew(&self, memory: &RingMemory, offset: u32, slot: Slot) {
        memory.renew_slot(self.ring, self.next.wrapping_add(offset), slot);
    }

    /// Prefetches the cache line of the slot `offset` slots after the next one.
    #[inline]
    pub fn prefetch(&self, memory: &RingMemory, offset: u32) {
        memory.prefetch_slot(self.ring, self.next.wrapping_add(offset));
    }

    /// Advances over the next `slots` slots, at most the free ones, without publishing them.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        let room = self.slots - self.next.wrapping_sub(self.peer_index);
        self.next = self.next.wrapping_add(slots.min(room));
    }

    /// Whether there are filled slots that are not published yet.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.next != self.published
    }

    /// Publishes the filled slots; returns whether the consumer wants a notification.
    #[inline]
    pub fn publish(&mut self, memory: &RingMemory) -> bool {
        if !self.is_pending() {
            return false;
        }
        self.published = self.next;
        // A full barrier between storing the index and reading the flag: the consumer sets the flag, then
        // reads the index, so at least one side sees the other's store.
        memory.cell(self.ring, Side::Producer, Word::Index).store(self.next, Ordering::SeqCst);
        self.wants_notification(memory)
    }

    /// Publishes the filled slots; returns whether there were any. The caller must execute a full barrier and
    /// then call [`Producer::wants_notification`].
    #[inline]
    pub fn publish_index(&mut self, memory: &RingMemory) -> bool {
        let pending = self.is_pending();
        self.published = self.next;
        memory.cell(self.ring, Side::Producer, Word::Index).store(self.next, Ordering::Release);
        pending
    }

    /// Whether the consumer wants a notification for the slots published since the last call.
    #[inline]
    pub fn wants_notification(&mut self, memory: &RingMemory) -> bool {
        let old = core::mem::replace(&mut self.notified, self.published);
        is_requested(memory, self.ring, Side::Consumer, old, self.published)
    }

    /// Requests a notification when `slots` slots are free. Returns `false`, without a request, if they are
    /// free already.
    pub fn arm(&mut self, memory: &RingMemory, slots: u32) -> Result<bool, Broken> {
        let slots = slots.clamp(1, self.slots);
        let at = self.next.wrapping_add(slots).wrapping_sub(self.slots).wrapping_sub(1);
        request_wake(memory, self.ring, Side::Producer, at);
        if self.room(memory, self.slots + 1)? >= slots {
            self.disarm(memory);
            return Ok(false);
        }
        Ok(true)
    }

    /// Cancels [`Producer::arm`].
    #[inline]
    pub fn disarm(&mut self, memory: &RingMemory) {
        memory.cell(self.ring, Side::Producer, Word::Wake).store(0, Ordering::Relaxed);
    }
}

/// The index that `side` last stored.
pub(super) fn stored_index(memory: &RingMemory, ring: usize, side: Side) -> u32 {
    memory.cell(ring, side, Word::Index).load(Ordering::Acquire)
}

/// Sets `side`'s flag: the other side is to notify when its index passes `at`. The store is a full barrier,
/// after which the caller must read the other side's index again.
#[inline]
pub(super) fn request_wake(memory: &RingMemory, ring: usize, side: Side, at: u32) {
    memory.cell(ring, side, Word::WakeAt).store(at, Ordering::Relaxed);
    memory.cell(ring, side, Word::Wake).store(1, Ordering::SeqCst);
}

/// Whether `side` requested a notification that moving the index from `old` to `new` triggers, once (as in
/// virtio 1.3, 2.7.10).
#[inline]
pub(super) fn is_requested(memory: &RingMemory, ring: usize, side: Side, old: u32, new: u32) -> bool {
    if memory.cell(ring, side, Word::Wake).load(Ordering::SeqCst) == 0 {
        return false;
    }
    let at = memory.cell(ring, side, Word::WakeAt).load(Ordering::Relaxed);
    new.wrapping_sub(at).wrapping_sub(1) < new.wrapping_sub(old)
}
