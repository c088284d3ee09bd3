//! Integers in shared memory, which both sides of a ring access atomically.

use crate::span::{SpanMut, prefetch, prefetch_write};
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use core::marker::PhantomData;
use core::ptr::NonNull;

mod sealed {
    /// An integer with an atomic type of its size.
    pub trait Number: Copy + Default {
        /// Loads the little-endian integer at `at`.
        ///
        /// # Safety
        /// `at` is aligned, and mapped readable; it is written only through atomics or by other processes.
        unsafe fn load(at: *mut Self, order: super::Ordering) -> Self;

        /// Stores the integer as little-endian.
        ///
        /// # Safety
        /// As for `load`, and mapped writable.
        unsafe fn store(self, at: *mut Self, order: super::Ordering);
    }
}

use sealed::Number;

macro_rules! number {
    ($($plain:ty, $atomic:ty;)*) => {$(
        impl Number for $plain {
            #[inline]
            unsafe fn load(at: *mut Self, order: Ordering) -> Self {
                // SAFETY: the caller's promise; a peer may write an atomic at any time.
                <$plain>::from_le(unsafe { <$atomic>::from_ptr(at) }.load(order))
            }

            #[inline]
            unsafe fn store(self, at: *mut Self, order: Ordering) {
                // SAFETY: as above.
                unsafe { <$atomic>::from_ptr(at) }.store(self.to_le(), order);
            }
        }
    )*};
}

number! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

/// Aligned little-endian integers in a peer's memory. Each load reads once. Past the end, loads return zero
/// and stores do nothing.
#[derive(Clone, Copy, Debug)]
pub struct Words<'t, W> {
    first: NonNull<W>,
    count: u32,
    _lives: PhantomData<&'t W>,
}

// SAFETY: an address and a length, used through atomics.
unsafe impl<W> Send for Words<'_, W> {}
// SAFETY: as above.
unsafe impl<W> Sync for Words<'_, W> {}

impl<'t, W: Number> Words<'t, W> {
    /// The bytes of `span` as integers; `None` if they are misaligned.
    #[inline]
    pub fn new(span: SpanMut<'t>) -> Option<Words<'t, W>> {
        let first = span.pointer().cast::<W>();
        first.is_aligned().then(|| {
            let count = (span.len() / size_of::<W>()) as u32;
            Words { first, count, _lives: PhantomData }
        })
    }

    /// Number of integers.
    #[inline]
    pub fn len(self) -> usize {
        self.count as usize
    }

    /// Whether there are no integers.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    #[inline]
    fn at(self, index: usize) -> Option<NonNull<W>> {
        // SAFETY: the index is below the count, so the integer is within the span.
        (index < self.count as usize).then(|| unsafe { self.first.add(index) })
    }

    #[inline]
    fn load_as(self, index: usize, order: Ordering) -> W {
        // SAFETY: aligned by construction, within the span, which stays mapped for `'t`.
        self.at(index).map_or(W::default(), |at| unsafe { W::load(at.as_ptr(), order) })
    }

    #[inline]
    fn store_as(self, index: usize, value: W, order: Ordering) {
        if let Some(at) = self.at(index) {
            // SAFETY: as for loads; spans for writing are mapped writable.
            unsafe { value.store(at.as_ptr(), order) };
        }
    }

    /// Loads an integer, relaxed.
    #[inline]
    pub fn load(self, index: usize) -> W {
        self.load_as(index, Ordering::Relaxed)
    }

    /// Loads an integer, acquire: its writer's earlier stores are visible afterwards.
    #[inline]
    pub fn load_acquire(self, index: usize) -> W {
        self.load_as(index, Ordering::Acquire)
    }

    /// Stores an integer, relaxed.
    #[inline]
    pub fn store(self, index: usize, value: W) {
        self.store_as(index, value, Ordering::Relaxed);
    }

    /// Stores an integer, release.
    #[inline]
    pub fn store_release(self, index: usize, value: W) {
        self.store_as(index, value, Ordering::Release);
    }

    /// Prefetches an integer's cache line.
    #[inline]
    pub fn prefetch(self, index: usize) {
        if let Some(at) = self.at(index) {
            prefetch(at.cast());
        }
    }

    /// Prefetches an integer's cache line for writing.
    #[inline]
    pub fn prefetch_write(self, index: usize) {
        if let Some(at) = self.at(index) {
            prefetch_write(at.cast());
        }
    }
}

/// Pairs of little-endian integers in a peer's memory, such as descriptors. Past the end, loads return zeros
/// and stores do nothing.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'t> {
    first: NonNull<[u64; 2]>,
    count: u32,
    _lives: PhantomData<&'t u64>,
}

// SAFETY: an address and a length, used through atomics.
unsafe impl Send for Pairs<'_> {}
// SAFETY: as above.
unsafe impl Sync for Pairs<'_> {}

impl<'t> Pairs<'t> {
    /// The first `count` pairs of `span`, or as many as it has; `None` if they are misaligned.
    #[inline]
    pub fn new(span: SpanMut<'t>, count: u16) -> Option<Pairs<'t>> {
        let first = span.pointer().cast::<[u64; 2]>();
        first.is_aligned().then(|| {
            let fitting = span.len() / size_of::<[u64; 2]>();
            Pairs { first, count: fitting.min(usize::from(count)) as u32, _lives: PhantomData }
        })
    }

    /// Number of pairs.
    #[inline]
    pub fn len(self) -> usize {
        self.count as usize
    }

    /// Whether there are no integers.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Up to `count` pairs from index `from` on.
    #[inline]
    pub fn window(self, from: usize, count: usize) -> Pairs<'t> {
        let from = from.min(self.len());
        let count = count.min(self.len() - from);
        // SAFETY: `from` is at most the count, so the pointer is within the span or at its end.
        Pairs { first: unsafe { self.first.add(from) }, count: count as u32, _lives: PhantomData }
    }

    #[inline]
    fn at(self, index: usize, half: usize) -> Option<NonNull<u64>> {
        // SAFETY: the index is below the count and `half` 0 or 1, so the integer is within the span.
        (index < self.len()).then(|| unsafe { self.first.cast::<u64>().add(2 * index + (half & 1)) })
    }

    #[inline]
    fn load(self, index: usize, half: usize, order: Ordering) -> u64 {
        // SAFETY: aligned by construction, within the span, which stays mapped for `'t`.
        self.at(index, half).map_or(0, |at| unsafe { Number::load(at.as_ptr(), order) })
    }

    #[inline]
    fn store(self, index: usize, half: usize, value: u64, order: Ordering) {
        if let Some(at) = self.at(index, half) {
            // SAFETY: as for loads; spans for writing are mapped writable.
            unsafe { value.store(at.as_ptr(), order) };
        }
    }

    /// Loads a pair's first integer, relaxed.
    #[inline]
    pub fn first(self, index: usize) -> u64 {
        self.load(index, 0, Ordering::Relaxed)
    }

    /// Loads a pair's second integer, acquire.
    #[inline]
    pub fn second(self, index: usize) -> u64 {
        self.load(index, 1, Ordering::Acquire)
    }

    /// Stores a pair's first integer, relaxed.
    #[inline]
    pub fn set_first(self, index: usize, value: u64) {
        self.store(index, 0, value, Ordering::Relaxed);
    }

    /// Stores a pair's second integer, relaxed.
    #[inline]
    pub fn set_second(self, index: usize, value: u64) {
        self.store(index, 1, value, Ordering::Relaxed);
    }

    /// Stores a pair's second integer, release.
    #[inline]
    pub fn release_second(self, index: usize, value: u64) {
        self.store(index, 1, value, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_and_bounded_by_the_span() {
        let mut bytes = [0u64; 2];
        let span = SpanMut::of(bytemuck(&mut bytes));
        let words = Words::<u16>::new(span).unwrap();
        assert_eq!(words.len(), 8);
        words.store_release(1, 0x1234);
        words.store(8, 0xffff);
        assert_eq!((words.load_acquire(1), words.load(8)), (0x1234, 0));
        let mut out = [0; 4];
        span.as_span().read(&mut out);
        assert_eq!(out, [0, 0, 0x34, 0x12]);
        assert!(Words::<u32>::new(span.split(1).1).is_none());
        assert!(Words::<u64>::new(span.split(4).1).is_none());
    }

    #[test]
    fn pairs_are_bounded_by_their_window() {
        let mut bytes = [0u64; 8];
        // SAFETY: any bytes are valid, and the borrow is passed on.
        let bytes = unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<u8>(), 64) };
        let span = SpanMut::of(bytes);
        let pairs = Pairs::new(span, 3).unwrap();
        assert_eq!((pairs.len(), Pairs::new(span, 9).unwrap().len()), (3, 4));
        pairs.set_first(1, 7);
        pairs.release_second(1, 8);
        pairs.set_second(3, 9);
        let window = pairs.window(1, 1);
        assert_eq!((window.first(0), window.second(0), window.len()), (7, 8, 1));
        assert_eq!((window.first(1), window.second(1)), (0, 0));
        assert_eq!((pairs.window(3, 1).len(), pairs.window(9, 9).len()), (0, 0));
        assert_eq!(Pairs::new(span, 4).unwrap().second(3), 0);
        assert!(Pairs::new(span.split(4).1, 1).is_none());
    }

    fn bytemuck(words: &mut [u64; 2]) -> &mut [u8] {
        // SAFETY: any bytes are valid, and the borrow is passed on.
        unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 16) }
    }
}
