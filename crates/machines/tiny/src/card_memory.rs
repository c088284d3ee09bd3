//! The memory of a card's driver: the shared block, both rings, and their buffers.

use crate::net_device::keep;
use ringway_mem::{OwnedSpan, Region, SpanMut, Words};
use ringway_nic::csb;

/// The ring of frames to send.
pub const TX: usize = 0;
/// The ring of received frames.
pub const RX: usize = 1;
/// Number of rings.
const RINGS: usize = 2;
/// Bytes of a descriptor.
pub const DESCRIPTOR: usize = 16;
/// Bytes of a buffer.
pub const BUFFER: usize = 2048;
/// From one buffer to the next: an odd number of cache lines, so that buffers don't share a few sets of the cache.
const STRIDE: usize = BUFFER + 64;
/// The shared block's page, which is the first of the memory.
const BLOCK: usize = 4096;
/// Descriptors ahead of the one in use whose buffers are prefetched; a ring has that many.
pub const AHEAD: u32 = 8;

/// Memory for rings of `slots` descriptors.
#[derive(Debug)]
pub struct CardMemory {
    memory: OwnedSpan,
    /// Descriptors of a ring.
    pub slots: u32,
    /// Its address, as the card knows it.
    pub base: u64,
}

impl CardMemory {
    /// Memory for rings of `slots` descriptors; `None`: there is none.
    pub fn new(slots: u32) -> Option<CardMemory> {
        let memory = Region::private(0, 0, BLOCK + RINGS * slots as usize * (DESCRIPTOR + STRIDE));
        // All memory is identity-mapped.
        let base = memory.base().addr().get() as u64;
        Some(CardMemory { memory: keep(memory)?, slots, base })
    }

    /// Place of a ring.
    pub fn ring_at(&self, ring: usize) -> usize {
        BLOCK + ring * self.slots as usize * DESCRIPTOR
    }

    /// Place of a descriptor's buffer.
    pub fn buffer_at(&self, ring: usize, index: u32) -> usize {
        self.ring_at(RINGS) + (ring * self.slots as usize + index as usize) * STRIDE
    }

    /// `len` bytes at a place.
    pub fn part(&self, at: usize, len: usize) -> SpanMut<'_> {
        self.memory.span().split(at).1.split(len).0
    }

    /// A word of a descriptor, 0 or 1.
    pub fn word(&self, ring: usize, index: u32, word: usize) -> u64 {
        let at = self.ring_at(ring) / 8 + 2 * index as usize + word;
        Words::new(self.memory.span()).map_or(0, |words: Words<'_, u64>| words.load_acquire(at))
    }

    /// Stores a word of a descriptor, 0 or 1.
    pub fn describe(&self, ring: usize, index: u32, word: usize, value: u64) {
        let at = self.ring_at(ring) / 8 + 2 * index as usize + word;
        if let Some(words) = Words::<u64>::new(self.memory.span()) {
            words.store_release(at, value);
        }
    }

    /// A word of the shared block.
    pub fn load(&self, word: usize) -> u32 {
        Words::new(self.memory.span()).map_or(0, |words: Words<'_, u32>| words.load_acquire(word))
    }

    /// Stores a word of the shared block.
    pub fn store(&self, word: usize, value: u32) {
        if let Some(words) = Words::<u32>::new(self.memory.span()) {
            words.store_release(word, value);
        }
    }

    /// The descriptor after one.
    pub fn after(&self, index: u32) -> u32 {
        if index + 1 < self.slots { index + 1 } else { 0 }
    }

    /// The descriptor whose buffer is prefetched when that at `index` is used.
    pub fn ahead(&self, index: u32) -> u32 {
        let ahead = index + AHEAD;
        if ahead < self.slots { ahead } else { ahead - self.slots }
    }

    /// Descriptors from `from` up to `to`.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.slots - from }
    }

    /// Free transmit descriptors, while those from `clean` up to `tail` are in use.
    pub fn room(&self, clean: u32, tail: u32) -> u32 {
        self.slots - 1 - self.distance(clean, tail)
    }

    /// Asks for interrupts by the shared block.
    pub fn ask_for_interrupts(&self, tx: bool, rx: bool) {
        self.store(csb::GUEST_NEED_TXKICK, tx.into());
        self.store(csb::GUEST_NEED_RXKICK, rx.into());
    }
}
