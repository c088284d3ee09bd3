//! The turn as grace period: readers store a number, replacers wait for it to move.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering, compiler_fence};

/// The most threads that may read published things at one time.
pub const READERS: usize = 64;

/// A slot that no thread has.
const FREE: u64 = u64::MAX;
/// The thread is between turns and holds nothing.
const QUIET: u64 = 0;

#[repr(align(128))]
struct Slot(AtomicU64);

// One domain for the whole process, so that no turn can be mistaken for one of another domain.
static SLOTS: [Slot; READERS] = [const { Slot(AtomicU64::new(FREE)) }; READERS];

/// A thread's right to take turns. Dropping it gives the slot back.
#[derive(Debug)]
pub struct Reader {
    slot: usize,
    number: u64,
    // A reader belongs to one thread at a time, and its turns to that thread alone.
    _not_sync: PhantomData<core::cell::Cell<()>>,
}

impl Reader {
    /// Takes a free slot; `None` when [`READERS`] threads have one already.
    pub fn register() -> Option<Reader> {
        let slot = SLOTS.iter().position(|slot| {
            slot.0.compare_exchange(FREE, QUIET, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        })?;
        // So that no two turns have the same number, whoever took the slot before.
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let number = SERIAL.fetch_add(1, Ordering::Relaxed) << 40;
        Some(Reader { slot, number, _not_sync: PhantomData })
    }

    /// Begins a turn, which ends when the next one begins or at [`Reader::rest`]. `now` is the time in nanoseconds
    /// that the whole turn goes by.
    pub fn turn(&mut self, now: u64) -> Turn<'_> {
        self.number += 1;
        // Release: what earlier turns read was read before this store can be seen. That later reads are not done
        // before it is the replacer's work, which makes every thread run a full barrier (`host::grace`).
        SLOTS[self.slot].0.store(self.number, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        Turn { now, number: self.number, _reader: PhantomData }
    }

    /// Ends the last turn; until the next, replacers need not wait for this thread.
    pub fn rest(&mut self) {
        SLOTS[self.slot].0.store(QUIET, Ordering::Release);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        SLOTS[self.slot].0.store(FREE, Ordering::Release);
    }
}

/// One round of a worker: while it lasts, what was read from a [`Published`] stays.
#[derive(Debug)]
pub struct Turn<'r> {
    /// The time of this turn in nanoseconds, of a clock that never goes back.
    pub now: u64,
    number: u64,
    _reader: PhantomData<&'r mut Reader>,
}

impl Turn<'_> {
    /// A number that no other turn has, of any thread; never 0.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The turns that were under way at one moment.
#[derive(Debug)]
pub struct Snapshot([u64; READERS]);

impl Snapshot {
    /// The turns now under way. Take it after a barrier that every thread has run.
    pub fn take() -> Snapshot {
        Snapshot(core::array::from_fn(|index| SLOTS[index].0.load(Ordering::SeqCst)))
    }

    /// Whether each of those turns has ended.
    pub fn passed(&self) -> bool {
        self.0
            .iter()
            .zip(&SLOTS)
            .all(|(&then, slot)| then == QUIET || then == FREE || slot.0.load(Ordering::Acquire) != then)
    }
}

/// A value that workers read without a lock and that others replace.
#[derive(Debug)]
pub struct Published<T: Send + Sync + 'static> {
    pointer: AtomicPtr<T>,
    _owns: PhantomData<Arc<T>>,
}

impl<T: Send + Sync> Published<T> {
    /// Publishes a first value.
    pub fn new(value: Arc<T>) -> Published<T> {
        Published { pointer: AtomicPtr::new(Arc::into_raw(value).cast_mut()), _owns: PhantomData }
    }

    /// The value, for as long as the turn lasts.
    pub fn read<'t>(&self, _turn: &'t Turn<'_>) -> &'t T {
        // SAFETY: the pointer came from `Arc::into_raw`, and its replacer frees it only after this turn has ended
        // (`Retired::into_inner`'s contract, or `Orphans::free`'s if the cell is dropped), which the borrow of the turn
        // outlives.
        unsafe { &*self.pointer.load(Ordering::Acquire) }
    }

    /// Publishes `value`. What was there before may still be read by turns under way.
    pub fn replace(&self, value: Arc<T>) -> Retired<T> {
        let old = self.pointer.swap(Arc::into_raw(value).cast_mut(), Ordering::SeqCst);
        // SAFETY: `old` came from `Arc::into_raw` in `new` or `replace`, and the swap took it out exactly once.
        Retired(core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(old) }))
    }
}

impl<T: Send + Sync + 'static> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: from `Arc::into_raw`; `&mut self` shows that nobody takes it out after this.
        let value = unsafe { Arc::from_raw(self.pointer.load(Ordering::Acquire)) };
        // What was read of it lives as long as its turn, not as long as the cell.
        crate::orphan::leave(Box::new(value));
    }
}

/// A value that was replaced. Dropped as it is, it is leaked; `host::reclaim` waits and gives it back.
#[derive(Debug)]
pub struct Retired<T>(core::mem::ManuallyDrop<Arc<T>>);

impl<T> Retired<T> {
    /// The value itself.
    ///
    /// # Safety
    /// Since the replacement, every thread has run a full barrier, and a [`Snapshot`] taken after it has passed.
    pub unsafe fn into_inner(self) -> Arc<T> {
        core::mem::ManuallyDrop::into_inner(self.0)
    }
}
