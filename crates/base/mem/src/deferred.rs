//! Values of dropped [`crate::Published`] cells that turns in progress may still read.

use alloc::boxed::Box;
use core::any::Any;
use core::sync::atomic::{AtomicPtr, Ordering};

struct Node {
    next: *mut Node,
    _value: Box<dyn Any + Send>,
}

static FIRST: AtomicPtr<Node> = AtomicPtr::new(core::ptr::null_mut());

/// Defers the freeing of a value that turns in progress may still read: [`DeferredFrees::free`] frees it.
pub fn defer_free(value: Box<dyn Any + Send>) {
    let node = Box::into_raw(Box::new(Node { next: core::ptr::null_mut(), _value: value }));
    let mut first = FIRST.load(Ordering::Relaxed);
    loop {
        // SAFETY: the node came from `Box::into_raw`, and no other thread has it before it is in the list.
        unsafe { (*node).next = first };
        match FIRST.compare_exchange_weak(first, node, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(current) => first = current,
        }
    }
}

/// The deferred values, removed from the shared list. Dropping it leaks them.
#[derive(Debug)]
pub struct DeferredFrees(*mut Node);

// SAFETY: no other thread has access to the list, and its values are `Send`.
unsafe impl Send for DeferredFrees {}

impl DeferredFrees {
    /// Takes all current values.
    pub fn take() -> DeferredFrees {
        DeferredFrees(FIRST.swap(core::ptr::null_mut(), Ordering::AcqRel))
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    /// Frees the values.
    ///
    /// # Safety
    /// Since [`DeferredFrees::take`], every thread has run a full barrier, and a [`crate::Snapshot`] of all readers
    /// taken after that has passed.
    pub unsafe fn free(self) {
        let mut next = self.0;
        while !next.is_null() {
            // SAFETY: each node came from `Box::into_raw` in `defer_free`, and only this value has the list.
            let node = unsafe { Box::from_raw(next) };
            next = node.next;
        }
    }
}
