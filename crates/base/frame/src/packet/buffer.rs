//! Memory of packets: reference-counted, shared by clones.

use super::{HEADROOM, LINE};
use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use core::cell::Cell;
use core::ptr::NonNull;

/// Offset of the first byte: with the default headroom, a packet's data begins on a cache line.
const BASE: usize = LINE - HEADROOM;

/// The header before the bytes.
struct Head {
    count: Cell<usize>,
    capacity: usize,
}

const _: () = assert!(size_of::<Head>() <= BASE && usize::BITS == 64);

/// The buffer without bytes, as long as the header and what precedes the first byte of any buffer.
#[repr(C, align(64))]
struct Empty(Head, [u8; LINE - size_of::<Head>()]);

// SAFETY: a buffer without bytes is never counted, so no thread writes to the cell.
unsafe impl Sync for Empty {}

/// Its count says that it is shared, so that nothing writes to it.
static EMPTY: Empty = Empty(Head { count: Cell::new(2), capacity: 0 }, [0; LINE - size_of::<Head>()]);

/// Bytes, initially zero. Clones share the bytes; only a buffer without clones may be written to.
pub(super) struct Buffer(NonNull<Head>);

impl Buffer {
    /// The buffer without bytes. It counts as shared; dropping it costs nothing.
    #[inline]
    pub(super) fn none() -> Self {
        Self(NonNull::from(&EMPTY).cast())
    }

    /// A buffer of `capacity` bytes; the caller limits the size.
    pub(super) fn new(capacity: usize) -> Self {
        let capacity = capacity.min(u32::MAX as usize);
        if capacity == 0 {
            return Self::none();
        }
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(head) = NonNull::new(memory.cast::<Head>()) else { handle_alloc_error(layout) };
        // SAFETY: new memory, aligned to a cache line and larger than a `Head`.
        unsafe { head.write(Head { count: Cell::new(1), capacity }) };
        Self(head)
    }

    fn layout(capacity: usize) -> Layout {
        // SAFETY: `LINE` is a power of two, and the capacity is at most `u32::MAX`.
        unsafe { Layout::from_size_align_unchecked(BASE + capacity, LINE) }
    }

    fn head(&self) -> &Head {
        // SAFETY: the header is valid until the last clone is dropped, and is changed only through its cell.
        unsafe { self.0.as_ref() }
    }

    /// Number of bytes.
    pub(super) fn capacity(&self) -> usize {
        self.head().capacity
    }

    /// Whether there are clones.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.head().count.get() > 1
    }

    /// The byte at `at`.
    ///
    /// # Safety
    /// `at` is at most the capacity.
    #[inline]
    pub(super) unsafe fn at(&self, at: usize) -> NonNull<u8> {
        // SAFETY: the bytes follow `BASE` in the same allocation, and `at` is at most their number.
        unsafe { self.0.cast::<u8>().add(BASE + at) }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let Head { count, capacity } = self.head();
        if *capacity > 0 {
            // No overflow: each clone belongs to a packet of 128 bytes, so memory runs out first.
            count.set(count.get() + 1);
        }
        Self(self.0)
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if self.capacity() == 0 {
            return;
        }
        let count = self.head().count.get() - 1;
        self.head().count.set(count);
        if count == 0 {
            let layout = Self::layout(self.capacity());
            // SAFETY: `new` allocated the memory with the same layout, and there are no clones.
            unsafe { dealloc(self.0.as_ptr().cast(), layout) };
        }
    }
}
