//! An image's heap: the memory behind it. Two-level segregated fit takes the same short time for each call,
//! however much memory there is; memory that was never given out is never touched.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};
use rlsf::Tlsf;

/// Up to 2 GB: 26 levels of sizes from 32 bytes on, in 32 steps each.
type Pool = Tlsf<'static, u32, u32, 26, 32>;

struct Heap(UnsafeCell<Pool>);

// SAFETY: a guest has one CPU and no interrupts, and so a single thread. An image that several threads call is called
// by one of them at a time, as its callers promise.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(Pool::new()));

unsafe extern "C" {
    #[link_name = "image_end"]
    static IMAGE_END: u8;
}

/// The first address behind the image.
pub fn image_end() -> u64 {
    // The linker defines it.
    (&raw const IMAGE_END).addr() as u64
}

/// Makes the memory from the image to `end` available.
pub fn begin(end: u64) {
    let first = image_end() as usize;
    let memory = core::ptr::slice_from_raw_parts_mut(first as *mut u8, (end as usize).saturating_sub(first));
    if let Some(memory) = NonNull::new(memory) {
        // SAFETY: nothing else uses the memory behind the image, and there is a single thread at a time.
        unsafe { (*HEAP.0.get()).insert_free_block_ptr(memory) };
    }
}

// SAFETY: the pool gives each block out once until it is freed; there is a single thread at a time.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: no other reference to the pool exists, since its methods call nothing outside.
        unsafe { (*self.0.get()).allocate(layout) }.map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the caller got the block from `alloc` with this layout; as above.
            unsafe { (*self.0.get()).deallocate(block, layout.align()) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (Some(block), Ok(layout)) = (NonNull::new(block), Layout::from_size_align(size, layout.align()))
        else {
            return null_mut();
        };
        // SAFETY: as for `dealloc`.
        unsafe { (*self.0.get()).reallocate(block, layout) }.map_or(null_mut(), NonNull::as_ptr)
    }
}
