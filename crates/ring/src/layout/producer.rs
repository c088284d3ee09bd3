//! The side of a ring that fills slots.

use super::Broken;
use super::memory::{RingMemory, Side, Word};
use super::slot::Slot;
use core::sync::atomic::Ordering;

/// A producer's private state. All slots from the consumer's index up to the published index belong to the
/// consumer.
#[derive(Clone, Debug)]
pub struct Producer {
    ring: usize,
    slots: u32,
    next: u32,
    published: u32,
    /// Index up to which the consumer's `wake` flag was checked.
    notified: u32,
    /// The consumer's index as last read and checked.
    seen: u32,
}

impl Producer {
    /// The producer of a ring, which continues where an earlier one stopped. Any stored index is safe to
    /// begin at: every slot counts as the consumer's until its index is read.
    pub fn new(memory: &RingMemory, ring: usize) -> Producer {
        let (slots, next) = (memory.slots(ring), own_index(memory, ring, Side::Producer));
        Producer { ring, slots, next, published: next, notified: next, seen: next.wrapping_sub(slots) }
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Index of the next slot to fill.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Number of free slots, at least `wanted` if the ring has as many. Reads the consumer's index only if
    /// the known number is insufficient.
    #[inline]
    pub fn room(&mut self, memory: &RingMemory, wanted: u32) -> Result<u32, Broken> {
        let known = self.slots - self.next.wrapping_sub(self.seen);
        if known >= wanted {
            return Ok(known);
        }
        let theirs = memory.cell(self.ring, Side::Consumer, Word::Index).load(Ordering::Acquire);
        // Attack: an index ahead of ours, or a decreasing one, would free slots that the consumer still owns.
        if theirs.wrapping_sub(self.seen) > self.published.wrapping_sub(self.seen) {
            return Err(Broken::Index);
        }
        self.seen = theirs;
        Ok(self.slots - self.next.wrapping_sub(theirs))
    }

    /// Reads the slot `ahead` of the next one, for the buffer that the consumer left there.
    #[inline]
    pub fn slot(&self, memory: &RingMemory, ahead: u32) -> Slot {
        memory.read_slot(self.ring, self.next.wrapping_add(ahead))
    }

    /// Writes the slot `ahead` of the next one. `ahead` is below the result of [`Producer::room`].
    #[inline]
    pub fn write(&self, memory: &RingMemory, ahead: u32, slot: Slot) {
        memory.write_slot(self.ring, self.next.wrapping_add(ahead), slot);
    }

    /// Prefetches the line of the slot `ahead` of the next one.
    #[inline]
    pub fn prefetch(&self, memory: &RingMemory, ahead: u32) {
        memory.prefetch_slot(self.ring, self.next.wrapping_add(ahead));
    }

    /// Advances over the next `slots` slots, at most the free ones; the consumer doesn't see them yet.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        let room = self.slots - self.next.wrapping_sub(self.seen);
        self.next = self.next.wrapping_add(slots.min(room));
    }

    /// Whether there are filled slots that are not published.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.next != self.published
    }

    /// Publishes the filled slots; returns whether the consumer asked to be notified of them.
    #[inline]
    pub fn publish(&mut self, memory: &RingMemory) -> bool {
        if !self.is_pending() {
            return false;
        }
        self.published = self.next;
        // A full barrier between storing the index and reading the flag: the consumer sets its flag, then
        // reads the index, and one of the two must see the other's store.
        memory.cell(self.ring, Side::Producer, Word::Index).store(self.next, Ordering::SeqCst);
        self.is_wanted(memory)
    }

    /// Publishes the filled slots; returns whether there were any. The caller must execute a full barrier and
    /// then call [`Producer::is_wanted`].
    #[inline]
    pub fn show(&mut self, memory: &RingMemory) -> bool {
        let pending = self.is_pending();
        self.published = self.next;
        memory.cell(self.ring, Side::Producer, Word::Index).store(self.next, Ordering::Release);
        pending
    }

    /// Whether the consumer asked to be notified of what was published since the last call.
    #[inline]
    pub fn is_wanted(&mut self, memory: &RingMemory) -> bool {
        let old = core::mem::replace(&mut self.notified, self.published);
        wanted(memory, self.ring, Side::Consumer, old, self.published)
    }

    /// Asks to be notified when `slots` slots are free. `false`: they are free already, or never will be, and
    /// no notification was requested.
    pub fn arm(&mut self, memory: &RingMemory, slots: u32) -> Result<bool, Broken> {
        let slots = slots.clamp(1, self.slots);
        let at = self.next.wrapping_add(slots).wrapping_sub(self.slots).wrapping_sub(1);
        ask(memory, self.ring, Side::Producer, at);
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

/// The index that `side` stored last.
pub(super) fn own_index(memory: &RingMemory, ring: usize, side: Side) -> u32 {
    memory.cell(ring, side, Word::Index).load(Ordering::Acquire)
}

/// Sets `side`'s flag: notify when the other's index passes `at`. The store includes a full barrier; the
/// caller must read the other's index again.
#[inline]
pub(super) fn ask(memory: &RingMemory, ring: usize, side: Side, at: u32) {
    memory.cell(ring, side, Word::WakeAt).store(at, Ordering::Relaxed);
    memory.cell(ring, side, Word::Wake).store(1, Ordering::SeqCst);
}

/// Whether `side` asked to be notified of an index between `old` and `new` (virtio 1.3, 2.7.10: notified
/// once).
#[inline]
pub(super) fn wanted(memory: &RingMemory, ring: usize, side: Side, old: u32, new: u32) -> bool {
    if memory.cell(ring, side, Word::Wake).load(Ordering::SeqCst) == 0 {
        return false;
    }
    let at = memory.cell(ring, side, Word::WakeAt).load(Ordering::Relaxed);
    new.wrapping_sub(at).wrapping_sub(1) < new.wrapping_sub(old)
}
