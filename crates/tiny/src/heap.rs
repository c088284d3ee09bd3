//! The guest's memory behind the image: given out in order and never taken back, since the guest allocates at its start
//! only.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

struct Heap {
    next: AtomicUsize,
    end: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap { next: AtomicUsize::new(0), end: AtomicUsize::new(0) };

unsafe extern "C" {
    #[link_name = "image_end"]
    static IMAGE_END: u8;
}

/// The first address behind the image.
pub fn image_end() -> u64 {
    // The linker defines it.
    (&raw const IMAGE_END).addr() as u64
}

/// Makes the memory up to `end` available.
pub fn begin(end: u64) {
    HEAP.next.store(image_end() as usize, Ordering::Relaxed);
    HEAP.end.store(end as usize, Ordering::Relaxed);
}

// SAFETY: each range is given out once, aligned, within the memory behind the image, which nothing else uses.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let at = self.next.load(Ordering::Relaxed).next_multiple_of(layout.align());
        match at.checked_add(layout.size()).filter(|end| *end <= self.end.load(Ordering::Relaxed)) {
            Some(end) => {
                self.next.store(end, Ordering::Relaxed);
                at as *mut u8
            }
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
