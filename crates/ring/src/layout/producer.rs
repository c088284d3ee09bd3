//! The side of a ring that fills slots.

use super::Broken;
use super::memory::{RingMemory, Side, Word};
use super::slot::Slot;
use core::sync::atomic::Ordering;

/// What a producer keeps for itself. All slots between what it published and the consumer's index are the consumer's.
#[derive(Clone, Debug)]
pub struct Producer {
    ring: usize,
    slots: u32,
    next: u32,
    published: u32,
    /// As far as the consumer's wish to be notified was looked at.
    told: u32,
    /// The consumer's index as last read and checked.
    seen: u32,
}

impl Producer {
    /// The producer of a ring, which goes on where an earlier one stopped. Any index there is a safe one to begin at:
    /// every slot counts as the consumer's until its index is read.
    pub fn new(memory: &RingMemory, ring: usize) -> Producer {
        let (slots, next) = (memory.slots(ring), own_index(memory, ring, Side::Producer));
        Producer { ring, slots, next, published: next, told: next, seen: next.wrapping_sub(slots) }
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Index of the next slot to fill.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Free slots, of which there are `wanted` if the ring has as many. Looks at the consumer's index only when what
    /// is known doesn't suffice.
    #[inline]
    pub fn room(&mut self, memory: &RingMemory, wanted: u32) -> Result<u32, Broken> {
        let known = self.slots - self.next.wrapping_sub(self.seen);
        if known >= wanted {
            return Ok(known);
        }
        let theirs = memory.cell(self.ring, Side::Consumer, Word::Index).load(Ordering::Acquire);
        // Attack: an index that runs ahead of ours, or back, would give slots that are still the consumer's.
        if theirs.wrapping_sub(self.seen) > self.published.wrapping_sub(self.seen) {
            return Err(Broken::Index);
        }
        self.seen = theirs;
        Ok(self.slots - self.next.wrapping_sub(theirs))
    }

    /// Reads the slot `ahead` of the next one, for the buffer the consumer left there.
    #[inline]
    pub fn slot(&self, memory: &RingMemory, ahead: u32) -> Slot {
        memory.read_slot(self.ring, self.next.wrapping_add(ahead))
    }

    /// Writes the slot `ahead` of the next one. `ahead` is below what [`Producer::room`] said.
    #[inline]
    pub fn write(&self, memory: &RingMemory, ahead: u32, slot: Slot) {
        memory.write_slot(self.ring, self.next.wrapping_add(ahead), slot);
    }

    /// Asks for the line of the slot `ahead` of the next one.
    #[inline]
    pub fn prefetch(&self, memory: &RingMemory, ahead: u32) {
        memory.prefetch_slot(self.ring, self.next.wrapping_add(ahead));
    }

    /// Counts the next `slots` slots as filled; the consumer doesn't see them yet. More than there is room for are not
    /// counted.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        let room = self.slots - self.next.wrapping_sub(self.seen);
        self.next = self.next.wrapping_add(slots.min(room));
    }

    /// Whether slots are filled that the consumer doesn't see.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.next != self.published
    }

    /// Shows the consumer what was filled; `true` if it asked to be notified of that.
    #[inline]
    pub fn publish(&mut self, memory: &RingMemory) -> bool {
        if !self.is_pending() {
            return false;
        }
        self.published = self.next;
        // A full barrier between the index and the look at the flag: the consumer sets its flag, then looks at the
        // index, and one of the two must see the other.
        memory.cell(self.ring, Side::Producer, Word::Index).store(self.next, Ordering::SeqCst);
        self.is_wanted(memory)
    }

    /// Shows the consumer what was filled, and leaves it to the caller to pass a full barrier and then ask
    /// [`Producer::is_wanted`]; whether there was anything.
    #[inline]
    pub fn show(&mut self, memory: &RingMemory) -> bool {
        let pending = self.is_pending();
        self.published = self.next;
        memory.cell(self.ring, Side::Producer, Word::Index).store(self.next, Ordering::Release);
        pending
    }

    /// Whether the consumer asked to be notified of what was shown to it since this was last asked.
    #[inline]
    pub fn is_wanted(&mut self, memory: &RingMemory) -> bool {
        let old = core::mem::replace(&mut self.told, self.published);
        wanted(memory, self.ring, Side::Consumer, old, self.published)
    }

    /// Asks to be notified once `slots` slots are free. `false`: they are already, or never will be, and nothing was
    /// asked.
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

    /// Takes back [`Producer::arm`].
    #[inline]
    pub fn disarm(&mut self, memory: &RingMemory) {
        memory.cell(self.ring, Side::Producer, Word::Wake).store(0, Ordering::Relaxed);
    }
}

/// Where `side` stopped.
pub(super) fn own_index(memory: &RingMemory, ring: usize, side: Side) -> u32 {
    memory.cell(ring, side, Word::Index).load(Ordering::Acquire)
}

/// Sets `side`'s flag: notify when the other's index passes `at`. The barrier comes with the store; whoever calls
/// must look at the other's index again.
#[inline]
pub(super) fn ask(memory: &RingMemory, ring: usize, side: Side, at: u32) {
    memory.cell(ring, side, Word::WakeAt).store(at, Ordering::Relaxed);
    memory.cell(ring, side, Word::Wake).store(1, Ordering::SeqCst);
}

/// Whether `side` asked to be notified of an index between `old` and `new` (virtio 1.3, 2.7.10: notified once).
#[inline]
pub(super) fn wanted(memory: &RingMemory, ring: usize, side: Side, old: u32, new: u32) -> bool {
    if memory.cell(ring, side, Word::Wake).load(Ordering::SeqCst) == 0 {
        return false;
    }
    let at = memory.cell(ring, side, Word::WakeAt).load(Ordering::Relaxed);
    new.wrapping_sub(at).wrapping_sub(1) < new.wrapping_sub(old)
}
