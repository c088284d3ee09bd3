//! Bounded views of memory that another process may write at any time, and the copy primitives.

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, compiler_fence};

/// Readable bytes that may change at any time.
#[derive(Clone, Copy, Debug)]
pub struct Span<'t> {
    pointer: NonNull<u8>,
    len: u32,
    _lives: PhantomData<&'t u8>,
}

/// Readable and writable bytes that may change at any time.
#[derive(Clone, Copy, Debug)]
pub struct SpanMut<'t> {
    pointer: NonNull<u8>,
    len: u32,
    _lives: PhantomData<&'t u8>,
}

// SAFETY: a span is an address and a length; the permitted accesses are the same on every thread.
unsafe impl Send for Span<'_> {}
// SAFETY: as above.
unsafe impl Send for SpanMut<'_> {}

impl<'t> Span<'t> {
    /// A view of raw memory.
    ///
    /// # Safety
    /// `len` bytes at `pointer` stay mapped readable for `'t`, and no Rust reference is used to write them
    /// meanwhile.
    pub const unsafe fn new(pointer: NonNull<u8>, len: u32) -> Span<'t> {
        Span { pointer, len, _lives: PhantomData }
    }

    /// A view of our own bytes, truncated to 4 GB.
    pub fn of(bytes: &'t [u8]) -> Span<'t> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Span { pointer: NonNull::from(bytes).cast(), len, _lives: PhantomData }
    }

    /// No bytes.
    pub const fn empty() -> Span<'t> {
        Span { pointer: NonNull::dangling(), len: 0, _lives: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The address, for prefetching and comparing.
    #[inline]
    pub fn address(self) -> usize {
        self.pointer.addr().get()
    }

    /// Splits after `at` bytes, or at the end if there are fewer.
    #[inline]
    pub fn split(self, at: usize) -> (Span<'t>, Span<'t>) {
        let at = at.min(self.len());
        // SAFETY: `at` is at most the length, so both parts are within this span.
        let rest = unsafe { self.pointer.add(at) };
        (Span { len: at as u32, ..self }, Span { pointer: rest, len: self.len - at as u32, ..self })
    }

    /// Reads the first `N` bytes, each once; `None` if there are fewer.
    #[inline]
    pub fn read_array<const N: usize>(self) -> Option<[u8; N]> {
        if self.len() < N {
            return None;
        }
        let mut out = [0; N];
        // SAFETY: the span holds at least `N` bytes, and `out` is ours alone.
        unsafe { core::ptr::copy_nonoverlapping(self.pointer.as_ptr(), out.as_mut_ptr(), N) };
        // Attack: without the fence, the compiler could read the peer's bytes again instead of using the
        // copy.
        compiler_fence(Ordering::SeqCst);
        Some(out)
    }

    /// Copies from the start into `out`; returns the number of bytes.
    #[inline]
    pub fn read(self, out: &mut [u8]) -> usize {
        let count = out.len().min(self.len());
        // SAFETY: both hold `count` bytes, and `out` is ours alone, so they can't overlap.
        unsafe { core::ptr::copy_nonoverlapping(self.pointer.as_ptr(), out.as_mut_ptr(), count) };
        // As in `read_array`.
        compiler_fence(Ordering::SeqCst);
        count
    }

    /// Copies the first 64 bytes with loads of fixed size; `false` if there are fewer.
    #[inline]
    pub fn read_64(self, out: &mut [u8; 64]) -> bool {
        if self.len < 64 {
            return false;
        }
        // SAFETY: the span holds at least 64 bytes, and `out` is ours alone.
        unsafe { core::ptr::copy_nonoverlapping(self.pointer.as_ptr(), out.as_mut_ptr(), 64) };
        // As in `read_array`.
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// Prefetches the first cache line.
    #[inline]
    pub fn prefetch(self) {
        prefetch(self.pointer);
    }

    /// Prefetches the first cache line for writing, for a [`SpanMut`] that is created later.
    #[inline]
    pub fn prefetch_write(self) {
        prefetch_write(self.pointer);
    }
}

impl<'t> SpanMut<'t> {
    /// A view of raw memory.
    ///
    /// # Safety
    /// `len` bytes at `pointer` stay mapped writable for `'t`, and no Rust reference to them is used
    /// meanwhile.
    pub const unsafe fn new(pointer: NonNull<u8>, len: u32) -> SpanMut<'t> {
        SpanMut { pointer, len, _lives: PhantomData }
    }

    /// A view of our own bytes, truncated to 4 GB.
    pub fn of(bytes: &'t mut [u8]) -> SpanMut<'t> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        SpanMut { pointer: NonNull::from(bytes).cast(), len, _lives: PhantomData }
    }

    #[inline]
    pub(crate) fn pointer(self) -> NonNull<u8> {
        self.pointer
    }

    /// Writes `bytes` at `offset`; `false` if they don't all fit.
    #[inline]
    pub fn write_at<const N: usize>(self, offset: usize, bytes: [u8; N]) -> bool {
        if self.len() < N || offset > self.len() - N {
            return false;
        }
        // SAFETY: `offset + N` is at most the length, and `bytes` is ours.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer.as_ptr().add(offset), N) };
        true
    }

    /// Prefetches the first cache line for writing, so that the store need not wait for its ownership.
    #[inline]
    pub fn prefetch_write(self) {
        prefetch_write(self.pointer);
    }

    /// A span of these bytes that only reads.
    #[inline]
    pub fn as_span(self) -> Span<'t> {
        Span { pointer: self.pointer, len: self.len, _lives: PhantomData }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.len as usize
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Splits after `at` bytes, or at the end if there are fewer.
    #[inline]
    pub fn split(self, at: usize) -> (SpanMut<'t>, SpanMut<'t>) {
        let at = at.min(self.len());
        // SAFETY: `at` is at most the length, so both parts are within this span.
        let rest = unsafe { self.pointer.add(at) };
        (SpanMut { len: at as u32, ..self }, SpanMut { pointer: rest, len: self.len - at as u32, ..self })
    }

    /// Copies `bytes` to the start; returns the number copied.
    #[inline]
    pub fn write(self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.len());
        // SAFETY: both hold `count` bytes, and `bytes` is our own memory, which no writable span covers.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer.as_ptr(), count) };
        count
    }

    /// Copies 64 bytes to the start with stores of fixed size; `false` if they don't fit.
    #[inline]
    pub fn write_64(self, bytes: &[u8; 64]) -> bool {
        if self.len < 64 {
            return false;
        }
        // SAFETY: the span holds at least 64 bytes, and `bytes` is ours.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer.as_ptr(), 64) };
        true
    }

    /// Prefetches the first cache line.
    #[inline]
    pub fn prefetch(self) {
        prefetch(self.pointer);
    }
}

/// Copies as many bytes as both have, and returns their number. Attack: a guest may make source and
/// destination overlap.
#[inline]
pub fn copy(from: Span<'_>, to: SpanMut<'_>) -> usize {
    let count = from.len().min(to.len());
    // SAFETY: both hold `count` bytes; `copy` allows them to overlap.
    unsafe { core::ptr::copy(from.pointer.as_ptr(), to.pointer.as_ptr(), count) };
    count
}

// Miri does not support the prefetch instructions.
#[inline]
pub(crate) fn prefetch_write(pointer: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no visible effect and cannot fault; on processors without `prefetchw` it is a
    // no-op.
    unsafe {
        let at = pointer.as_ptr();
        core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = pointer;
}

#[inline]
pub(crate) fn prefetch(pointer: NonNull<u8>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no visible effect and cannot fault.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(pointer.as_ptr().cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = pointer;
}

/// Prefetches a value's first and last cache line.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    let first = NonNull::from(value).cast::<u8>();
    prefetch(first);
    if size_of::<T>() > 64 {
        // SAFETY: the value's last byte.
        prefetch(unsafe { first.add(size_of::<T>() - 1) });
    }
}

/// Number of bytes of an ascending array that are at most `value`.
#[inline]
pub fn count_at_most(bytes: &[u8; 16], value: u8) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE2 is part of x86-64, and the array has the 16 bytes that are loaded.
    return unsafe {
        use core::arch::x86_64::{
            _mm_cmpeq_epi8, _mm_loadu_si128, _mm_max_epu8, _mm_movemask_epi8, _mm_set1_epi8,
        };
        let value = _mm_set1_epi8(value as i8);
        let at_most = _mm_cmpeq_epi8(_mm_max_epu8(_mm_loadu_si128(bytes.as_ptr().cast()), value), value);
        (!_mm_movemask_epi8(at_most)).trailing_zeros() as usize
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    return bytes.iter().filter(|byte| **byte <= value).count();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_most_a_value_are_counted() {
        let bytes = [0, 0, 1, 3, 7, 7, 9, 20, 127, 128, 129, 200, 254, 255, 255, 255];
        for value in 0..=255 {
            let expected = bytes.iter().filter(|byte| **byte <= value).count();
            assert_eq!(count_at_most(&bytes, value), expected, "{value}");
        }
    }

    #[test]
    fn a_copy_stops_at_the_shorter_side() {
        let source = [1u8, 2, 3, 4];
        let mut target = [0u8; 3];
        assert_eq!(copy(Span::of(&source), SpanMut::of(&mut target)), 3);
        assert_eq!(target, [1, 2, 3]);
    }

    #[test]
    fn a_split_never_leaves_the_span() {
        let bytes = [7u8; 5];
        let (head, rest) = Span::of(&bytes).split(9);
        assert_eq!((head.len(), rest.len()), (5, 0));
        assert!(!head.read_64(&mut [0; 64]));
    }
}
