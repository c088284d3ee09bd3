//! The turn as grace period: each reader stores its turn's number, and a thread that replaces a value waits
//! for the numbers to change.

use crate::sync::{AtomicPtr, AtomicU64, Counter, Ordering, compiler_fence, fence};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::marker::PhantomData;

/// Largest number of threads that can read published values at the same time.
pub const READERS: usize = if cfg!(ringway_loom) { 2 } else { 64 };

/// An unassigned slot.
const FREE: u64 = u64::MAX;
/// The thread is between turns and reads no published value.
const QUIET: u64 = 0;

/// A set of reader threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readers(u64);

const _: () = assert!(READERS <= u64::BITS as usize);

impl Readers {
    /// All readers.
    pub const ALL: Readers = Readers(u64::MAX);

    /// The union of both sets.
    pub fn with(self, other: Readers) -> Readers {
        Readers(self.0 | other.0)
    }
}

#[repr(align(128))]
struct ReaderSlot(AtomicU64);

// One domain for the whole process, so that turns of different domains can't be confused.
#[cfg(not(ringway_loom))]
static SLOTS: [ReaderSlot; READERS] = [const { ReaderSlot(AtomicU64::new(FREE)) }; READERS];
#[cfg(ringway_loom)]
loom::lazy_static! {
    static ref SLOTS: [ReaderSlot; READERS] = core::array::from_fn(|_| ReaderSlot(AtomicU64::new(FREE)));
}

/// A thread's registration as a reader. Dropping it frees the slot.
#[derive(Debug)]
pub struct Reader {
    slot: usize,
    number: u64,
    // A reader belongs to one thread at a time, and so do its turns.
    _not_sync: PhantomData<core::cell::Cell<()>>,
}

impl Reader {
    /// Registers the calling thread; `None` if [`READERS`] threads are registered.
    pub fn register() -> Option<Reader> {
        let slot = SLOTS.iter().position(|slot| {
            slot.0.compare_exchange(FREE, QUIET, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        })?;
        // Turn numbers are unique across all users of a slot.
        static SERIAL: Counter = Counter::new(0);
        let number = SERIAL.fetch_add(1, Ordering::Relaxed) << 40;
        Some(Reader { slot, number, _not_sync: PhantomData })
    }

    /// Begins a turn, which ends when the next one begins or at [`Reader::rest`]. `now` is the turn's time in
    /// nanoseconds.
    pub fn turn(&mut self, now: u64) -> Turn<'_> {
        self.number += 1;
        // Release: earlier turns' reads complete before this store is visible. A thread that replaces a value
        // makes every thread run a full barrier (`host::grace`), so later reads can't be reordered before it.
        SLOTS[self.slot].0.store(self.number, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        Turn { now, number: self.number, bit: 1 << self.slot, _reader: PhantomData }
    }

    /// Ends the current turn. Until the next one, threads that replace values don't wait for this one.
    pub fn rest(&mut self) {
        SLOTS[self.slot].0.store(QUIET, Ordering::Release);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        SLOTS[self.slot].0.store(FREE, Ordering::Release);
    }
}

/// One round of a worker: values read from a [`Published`] stay valid until it ends.
#[derive(Debug)]
pub struct Turn<'r> {
    /// The time of this turn in nanoseconds, monotonic.
    pub now: u64,
    number: u64,
    /// The thread's bit in [`Readers`].
    bit: u64,
    _reader: PhantomData<&'r mut Reader>,
}

impl Turn<'_> {
    /// A number unique among all turns of all threads; never 0.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The turn, to be recognized later.
    #[inline]
    pub fn mark(&self) -> TurnMark {
        TurnMark { slot: self.bit.trailing_zeros(), number: self.number }
    }
}

/// A turn, for code that must know later whether the turn has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnMark {
    slot: u32,
    number: u64,
}

impl TurnMark {
    /// Whether the turn has ended, and with it every borrow of it.
    #[inline]
    pub fn has_ended(&self) -> bool {
        SLOTS.get(self.slot as usize).is_none_or(|slot| slot.0.load(Ordering::Acquire) != self.number)
    }
}

/// The turns in progress at one moment.
#[derive(Debug)]
pub struct Snapshot([u64; READERS]);

impl Snapshot {
    /// Captures the turns of `readers` in progress. Call it after every thread has run a full barrier.
    pub fn take(readers: Readers) -> Snapshot {
        let is_reader = |index: usize| readers.0 & (1 << index) != 0;
        let turn =
            |index: usize| if is_reader(index) { SLOTS[index].0.load(Ordering::SeqCst) } else { QUIET };
        Snapshot(core::array::from_fn(turn))
    }

    /// Whether all of these turns have ended.
    pub fn passed(&self) -> bool {
        self.passed_by(Ordering::Acquire)
    }

    /// [`Snapshot::passed`] with the order of its loads, which a model weakens.
    #[inline]
    pub(crate) fn passed_by(&self, order: Ordering) -> bool {
        let is_over =
            |(&turn, slot): (&u64, &ReaderSlot)| turn == QUIET || turn == FREE || slot.0.load(order) != turn;
        self.0.iter().zip(SLOTS.iter()).all(is_over)
    }
}

/// A value that workers read without a lock and that other threads replace.
#[derive(Debug)]
pub struct Published<T: Send + Sync + 'static> {
    pointer: AtomicPtr<T>,
    /// Threads that ever read the value. No other thread is waited for, however long its turn takes.
    readers: AtomicU64,
    _owns: PhantomData<Arc<T>>,
}

impl<T: Send + Sync> Published<T> {
    /// Publishes the first value.
    pub fn new(value: Arc<T>) -> Published<T> {
        let pointer = AtomicPtr::new(Arc::into_raw(value).cast_mut());
        Published { pointer, readers: AtomicU64::new(0), _owns: PhantomData }
    }

    /// The value, valid for the turn.
    #[inline]
    pub fn read<'t>(&self, turn: &'t Turn<'_>) -> &'t T {
        if self.readers.load(Ordering::Relaxed) & turn.bit == 0 {
            self.add_reader(turn.bit);
        }
        // SAFETY: the pointer came from `Arc::into_raw`, and the value is freed only after this turn has
        // ended (contract of `Retired::into_inner`, or of `DeferredFrees::free` if the cell is dropped), so after
        // the borrow of the turn.
        unsafe { &*self.pointer.load(Ordering::Acquire) }
    }

    /// The value that the turn read first through `pinned`, even if another one was published since.
    #[inline]
    pub fn read_pinned<'t>(&self, turn: &'t Turn<'_>, pinned: &mut Pinned<T>) -> &'t T {
        if pinned.turn != turn.number {
            *pinned = Pinned { value: self.read(turn), turn: turn.number };
        }
        // SAFETY: `read` returned this reference in the same turn, since no two turns have the same number, and it is
        // valid until the turn ends.
        unsafe { &*pinned.value }
    }

    /// Records the thread as a reader. A thread that replaces the value later waits for this one; if it
    /// replaced the value already, this one reads the new value.
    #[cold]
    fn add_reader(&self, bit: u64) {
        self.readers.fetch_or(bit, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Threads that may have read the value.
    pub fn readers(&self) -> Readers {
        Readers(self.readers.load(Ordering::SeqCst))
    }

    /// Publishes `value`. Turns in progress may still read the previous value.
    pub fn replace(&self, value: Arc<T>) -> Retired<T> {
        let old = self.pointer.swap(Arc::into_raw(value).cast_mut(), Ordering::SeqCst);
        // SAFETY: `old` came from `Arc::into_raw` in `new` or `replace`, and the swap returns it only once.
        let old = core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(old) });
        Retired { value: old, readers: self.readers() }
    }
}

/// The value that a turn read first, for code whose steps in one turn belong together: what is published between two
/// of them is read in the next turn.
#[derive(Debug)]
pub struct Pinned<T> {
    value: *const T,
    /// The turn; 0: none yet.
    turn: u64,
}

// SAFETY: the pointer is dereferenced only by `read_pinned`, as a shared reference of a turn.
unsafe impl<T: Sync> Send for Pinned<T> {}

impl<T> Default for Pinned<T> {
    fn default() -> Self {
        Pinned { value: core::ptr::null(), turn: 0 }
    }
}

impl<T: Send + Sync + 'static> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Arc::into_raw`; `&mut self` excludes other users.
        let value = unsafe { Arc::from_raw(self.pointer.load(Ordering::Acquire)) };
        // References to the value live until the end of their turn, possibly longer than the cell.
        crate::deferred::defer_free(Box::new(value));
    }
}

/// A replaced value. `host::reclaim` waits and then frees it; dropping it leaks the value.
#[derive(Debug)]
pub struct Retired<T> {
    value: core::mem::ManuallyDrop<Arc<T>>,
    readers: Readers,
}

impl<T> Retired<T> {
    /// Threads that may still read the value.
    pub fn readers(&self) -> Readers {
        self.readers
    }

    /// The value.
    ///
    /// # Safety
    /// Since the replacement, every thread has run a full barrier, and a [`Snapshot`] of its readers taken
    /// after that has passed.
    pub unsafe fn into_inner(self) -> Arc<T> {
        core::mem::ManuallyDrop::into_inner(self.value)
    }

    /// Defers the freeing of the value to [`crate::DeferredFrees`].
    pub fn defer(self)
    where
        T: Send + Sync + 'static,
    {
        crate::deferred::defer_free(Box::new(core::mem::ManuallyDrop::into_inner(self.value)));
    }
}
