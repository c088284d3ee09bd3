//! A ring of an AF_XDP socket: its indices run freely, and its number of descriptors is a power of two.

use ringway_host::{XDP_RING, XdpRingPlace};
use ringway_mem::{Hint, Memory, Words};

const MASK: u32 = XDP_RING as u32 - 1;
/// The kernel must be called to go on.
const NEED_WAKEUP: u32 = 1;

/// A ring, and where its parts are in bytes.
pub(super) struct XdpRing {
    memory: Memory,
    producer: usize,
    consumer: usize,
    flags: usize,
    descriptors: usize,
}

impl XdpRing {
    pub fn new(memory: Memory, place: &XdpRingPlace) -> XdpRing {
        let XdpRingPlace { producer, consumer, flags, descriptors, .. } = *place;
        XdpRing { memory, producer, consumer, flags, descriptors }
    }

    fn word(&self, at: usize) -> Option<Words<'_, u32>> {
        Words::new(self.memory.span_mut(at as u64, 4, &mut Hint::default())?)
    }

    fn numbers(&self, at: usize, count: usize) -> Option<Words<'_, u64>> {
        let at = (self.descriptors + at) as u64;
        Words::new(self.memory.span_mut(at, (count * 8) as u32, &mut Hint::default())?)
    }

    /// The producer's index; what it published before is visible.
    #[inline]
    pub fn producer(&self) -> u32 {
        self.word(self.producer).map_or(0, |word| word.load_acquire(0))
    }

    /// The consumer's index.
    #[inline]
    pub fn consumer(&self) -> u32 {
        self.word(self.consumer).map_or(0, |word| word.load_acquire(0))
    }

    #[inline]
    pub fn set_producer(&self, index: u32) {
        if let Some(word) = self.word(self.producer) {
            word.store_release(0, index);
        }
    }

    #[inline]
    pub fn set_consumer(&self, index: u32) {
        if let Some(word) = self.word(self.consumer) {
            word.store_release(0, index);
        }
    }

    /// Entries that the kernel published after `from`. The kernel writes the index; one that is out of bounds counts as
    /// none.
    #[inline]
    pub fn available(&self, from: u32) -> u32 {
        Some(self.producer().wrapping_sub(from)).filter(|count| *count <= XDP_RING as u32).unwrap_or(0)
    }

    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.word(self.flags).is_some_and(|word| word.load(0) & NEED_WAKEUP != 0)
    }

    /// A descriptor of a frame: address, length.
    #[inline]
    pub fn frame(&self, index: u32) -> (u64, u32) {
        let words = self.numbers((index & MASK) as usize * 16, 2);
        words.map_or((u64::MAX, 0), |words| (words.load(0), words.load(1) as u32))
    }

    #[inline]
    pub fn set_frame(&self, index: u32, address: u64, len: u32) {
        if let Some(words) = self.numbers((index & MASK) as usize * 16, 2) {
            words.store(0, address);
            words.store(1, len.into());
        }
    }

    /// A descriptor that is an address alone.
    #[inline]
    pub fn address(&self, index: u32) -> u64 {
        self.numbers((index & MASK) as usize * 8, 1).map_or(u64::MAX, |words| words.load(0))
    }

    #[inline]
    pub fn set_address(&self, index: u32, address: u64) {
        if let Some(words) = self.numbers((index & MASK) as usize * 8, 1) {
            words.store(0, address);
        }
    }
}
