//! Values of dropped cells that turns may still read.

use alloc::boxed::Box;
use core::any::Any;
use core::sync::atomic::{AtomicPtr, Ordering};

struct Node {
    next: *mut Node,
    _value: Box<dyn Any + Send>,
}

static FIRST: AtomicPtr<Node> = AtomicPtr::new(core::ptr::null_mut());

/// Keeps a value until a thread that waits for turns frees it.
pub(crate) fn leave(value: Box<dyn Any + Send>) {
    let node = Box::into_raw(Box::new(Node { next: core::ptr::null_mut(), _value: value }));
    let mut first = FIRST.load(Ordering::Relaxed);
    loop {
        // SAFETY: the node came from `Box::into_raw`, and no other thread has it before it is in the list.
        unsafe { (*node).next = first };
        match FIRST.compare_exchange_weak(first, node, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// Values of dropped cells, removed from the shared list; leaked unless freed.
#[derive(Debug)]
pub struct Orphans(*mut Node);

// SAFETY: the list is this value's alone, and what is in it is `Send`.
unsafe impl Send for Orphans {}

impl Orphans {
    /// Takes all current values.
    pub fn take() -> Orphans {
        Orphans(FIRST.swap(core::ptr::null_mut(), Ordering::AcqRel))
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    /// Frees them.
    ///
    /// # Safety
    /// Since they were taken, every thread has run a full barrier, and a [`crate::Snapshot`] of all readers
    /// taken after that has passed.
    pub unsafe fn free(self) {
        let mut next = self.0;
        while !next.is_null() {
            // SAFETY: each node came from `Box::into_raw` in `leave`, and taking the list made it ours alone.
            let node = unsafe { Box::from_raw(next) };
            next = node.next;
        }
    }
}
