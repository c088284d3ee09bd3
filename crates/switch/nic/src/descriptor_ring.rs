//! A ring of descriptors of 16 bytes in the guest's memory.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ringway_mem::{Direct, Pairs, Translate};

/// Bytes of a descriptor.
pub(crate) const SIZE: u64 = 16;

/// The last generation of any ring, so that an engine never takes the ring of another NIC for that of its former one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A ring as it was when the driver enabled it.
#[derive(Debug, Default)]
pub struct RingState {
    generation: AtomicU32,
    base: AtomicU64,
    len: AtomicU32,
    head: AtomicU32,
}

impl RingState {
    /// Which enabling of the ring this is; `None`: it is disabled.
    #[inline]
    pub fn generation(&self) -> Option<u32> {
        Some(self.generation.load(Ordering::Acquire)).filter(|&generation| generation != 0)
    }

    /// Base, length in bytes, head.
    pub fn description(&self) -> (u64, u32, u32) {
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        (self.base.load(Ordering::Relaxed), load(&self.len), load(&self.head))
    }

    pub fn start(&self, base: u64, len: u32, head: u32) {
        self.base.store(base, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.head.store(head, Ordering::Relaxed);
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        self.generation.store(generation, Ordering::Release);
    }

    pub fn stop(&self) {
        self.generation.store(0, Ordering::Release);
    }
}

/// A worker's view of a ring, taken when the ring was enabled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ring {
    /// Which enabling of the ring this is; 0: none.
    pub generation: u32,
    base: u64,
    /// Number of descriptors.
    pub count: u32,
    /// The first descriptor that was not published.
    pub head: u32,
    /// Pairs of words of a descriptor, less one.
    more: u32,
}

/// The part of a ring that was translated last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part<'t> {
    pairs: Option<Pairs<'t>>,
    first: u32,
}

impl Ring {
    /// Takes over the ring of `state` if it was enabled again, or if its descriptors have another size; `large`: two
    /// pairs of words. `None`: it is not enabled.
    #[inline]
    pub fn adopt(&mut self, state: &RingState, large: bool) -> Option<bool> {
        let generation = state.generation()?;
        let more = u32::from(large);
        if generation == self.generation && more == self.more {
            return Some(false);
        }
        let (base, len, head) = state.description();
        // Attack: a length of any value. It is masked to 65,528 descriptors; a head outside means an empty ring.
        let count = (len / SIZE as u32) >> more;
        let head = head >> more;
        *self = Ring { generation, base, count, head: if head < count { head } else { 0 }, more };
        Some(true)
    }

    /// Descriptors between the head and the register `tail`, which counts 16 bytes whatever the size of a descriptor.
    /// Attack: a tail outside the ring, which would never be reached.
    #[inline]
    pub fn available(&self, tail: u32) -> u32 {
        let tail = tail >> self.more;
        match tail < self.count {
            true if tail >= self.head => tail - self.head,
            true => tail + self.count - self.head,
            false => 0,
        }
    }

    /// The value of the head's register, which counts 16 bytes.
    #[inline]
    pub fn head_register(&self) -> u32 {
        self.head << self.more
    }

    /// The index `steps` after `index`; `steps` is at most the ring's size.
    #[inline]
    pub fn after(&self, index: u32, steps: u32) -> u32 {
        let next = index + steps;
        if next < self.count { next } else { next - self.count }
    }

    /// Writes one byte of a descriptor.
    pub fn write_byte(&self, translate: &mut Direct<'_, '_>, index: u32, at: usize, value: u8) {
        let address = self.base.wrapping_add(u64::from(index) * SIZE + at as u64);
        if let Ok(span) = translate.write(address, 1) {
            span.write(&[value]);
        }
    }

    /// A descriptor, as its part of the ring and its place there. `None`: it is not in the guest's memory.
    #[inline]
    pub fn at<'t>(
        &self,
        part: &mut Part<'t>,
        translate: &mut Direct<'t, '_>,
        index: u32,
    ) -> Option<(Pairs<'t>, usize)> {
        if let Some(pairs) = part.pairs
            && let Some(place) = index.checked_sub(part.first)
            && ((place + 1) << self.more) as usize <= pairs.len()
        {
            return Some((pairs, (place << self.more) as usize));
        }
        // Attack: a base near the end of the address space; the sum wraps, and is checked by the translation.
        let address = self.base.wrapping_add((u64::from(index) * SIZE) << self.more);
        let len = (self.count.saturating_sub(index) * SIZE as u32) << self.more;
        let pairs = Pairs::new(translate.write(address, len).ok()?, u16::MAX)?;
        if pairs.len() <= self.more as usize {
            return None;
        }
        *part = Part { pairs: Some(pairs), first: index };
        Some((pairs, 0))
    }
}
