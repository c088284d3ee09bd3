//! Atomics of this crate and of rings: the processor's; under `--cfg ringway_loom` loom's, whose models run them in the
//! orders that the memory model permits (`scripts/loom.sh`).

#[cfg(not(ringway_loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, compiler_fence, fence,
};
#[cfg(ringway_loom)]
pub use modelled::*;

/// Numbers that are only unique: no other memory is ordered by them, so no model needs them.
pub use core::sync::atomic::AtomicU64 as Counter;

#[cfg(ringway_loom)]
mod modelled {
    pub use core::sync::atomic::Ordering;
    pub use loom::sync::atomic::{AtomicPtr, fence};
    use std::collections::HashMap;
    use std::sync::{Mutex, PoisonError};

    loom::lazy_static! {
        /// Shared memory: the atomic at each address and of each size, of one execution of a model.
        static ref WORDS: Mutex<HashMap<(usize, usize), usize>> = Mutex::new(HashMap::new());
    }

    /// The writer's side makes every thread run a barrier (`membarrier`), as if each compiler fence were one.
    pub fn compiler_fence(order: Ordering) {
        fence(order);
    }

    /// loom takes sequentially consistent accesses for weaker ones, but not fences: they are put around the accesses,
    /// as processors without such instructions do.
    fn weaker(order: Ordering, weak: Ordering) -> Ordering {
        if order == Ordering::SeqCst {
            fence(Ordering::SeqCst);
            return weak;
        }
        order
    }

    macro_rules! atomic {
        ($($name:ident, $plain:ty;)*) => {$(
            /// As the atomic of this name in `core`.
            #[derive(Debug)]
            pub struct $name(loom::sync::atomic::$name);

            impl $name {
                /// A new atomic.
                pub fn new(value: $plain) -> $name {
                    $name(loom::sync::atomic::$name::new(value))
                }

                /// The atomic of an address. It begins as zero, and the memory itself stays unused.
                ///
                /// # Safety
                /// As for `core`'s.
                pub unsafe fn from_ptr<'a>(at: *mut $plain) -> &'a $name {
                    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
                    let make = || {
                        let new = Box::leak(Box::new($name::new(Default::default())));
                        core::ptr::from_mut(new).expose_provenance()
                    };
                    let found = *words.entry((at.addr(), size_of::<$plain>())).or_insert_with(make);
                    // SAFETY: a box of this type that is never freed.
                    unsafe { &*core::ptr::with_exposed_provenance::<$name>(found) }
                }

                /// Loads the value.
                pub fn load(&self, order: Ordering) -> $plain {
                    self.0.load(weaker(order, Ordering::Acquire))
                }

                /// Stores the value.
                pub fn store(&self, value: $plain, order: Ordering) {
                    self.0.store(value, weaker(order, Ordering::Release));
                    weaker(order, order);
                }

                /// Exchanges the value.
                pub fn swap(&self, value: $plain, order: Ordering) -> $plain {
                    let old = self.0.swap(value, weaker(order, Ordering::AcqRel));
                    weaker(order, order);
                    old
                }

                /// Exchanges the value if it is `old`.
                pub fn compare_exchange(
                    &self,
                    old: $plain,
                    new: $plain,
                    order: Ordering,
                    failure: Ordering,
                ) -> Result<$plain, $plain> {
                    let found = self.0.compare_exchange(old, new, weaker(order, Ordering::AcqRel), failure);
                    weaker(order, order);
                    found
                }
            }
        )*};
    }

    atomic! {
        AtomicBool, bool;
        AtomicU8, u8;
        AtomicU16, u16;
        AtomicU32, u32;
        AtomicU64, u64;
    }

    macro_rules! integer {
        ($($name:ident, $plain:ty;)*) => {$(
            impl $name {
                /// Sets bits.
                pub fn fetch_or(&self, bits: $plain, order: Ordering) -> $plain {
                    let old = self.0.fetch_or(bits, weaker(order, Ordering::AcqRel));
                    weaker(order, order);
                    old
                }

                /// Adds, wrapping.
                pub fn fetch_add(&self, more: $plain, order: Ordering) -> $plain {
                    let old = self.0.fetch_add(more, weaker(order, Ordering::AcqRel));
                    weaker(order, order);
                    old
                }
            }
        )*};
    }

    integer! {
        AtomicU8, u8;
        AtomicU32, u32;
        AtomicU64, u64;
    }
}
