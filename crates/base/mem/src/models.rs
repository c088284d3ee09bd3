//! Models of published values and of the IOTLB, which loom runs in each order that the memory model permits.
//!
//! What must not be read any more is a cell of loom's: loom reports an access that is not ordered after, or before, a
//! change of it.

use crate::iotlb::{Access, Editor, Lookaside, Lookup};
use crate::memory::{Memory, Region};
use crate::sync::{Ordering, fence};
use crate::translate::Translate;
use crate::{Published, Reader, Readers, Retired, Snapshot};
use alloc::sync::Arc;
use core::ptr::NonNull;
use loom::cell::UnsafeCell;

/// A value whose destructor changes what its readers read.
struct Value(UnsafeCell<u32>);

// SAFETY: loom checks the accesses.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    fn new(number: u32) -> Arc<Value> {
        Arc::new(Value(UnsafeCell::new(number)))
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks that nothing changes it meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&self, number: u32) {
        // SAFETY: as above.
        self.0.with_mut(|value| unsafe { *value = number });
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // A model that failed drops its values in any order.
        if !std::thread::panicking() {
            self.set(0);
        }
    }
}

/// Waits for the turns of `readers` that are in progress, as `host::grace` does.
fn grace(readers: Readers) {
    grace_by(readers, Ordering::Acquire);
}

/// [`grace`], whose loads of the turns' ends have an order.
fn grace_by(readers: Readers, order: Ordering) {
    // The reader's compiler fence is a fence here, as if this thread made each run a barrier.
    fence(Ordering::SeqCst);
    let snapshot = Snapshot::take(readers);
    while !snapshot.passed_by(order) {
        loom::thread::yield_now();
    }
}

fn free(retired: Retired<Value>) {
    grace(retired.readers());
    // SAFETY: as by `host::reclaim`.
    drop(unsafe { retired.into_inner() });
}

/// A reader of two turns beside a thread that replaces the value and `frees` the previous one.
fn replaced(frees: fn(Retired<Value>)) {
    loom::model(move || {
        let published = Arc::new(Published::new(Value::new(1)));
        let seen = published.clone();
        let reader = loom::thread::spawn(move || {
            let mut reader = Reader::register().expect("there are two places");
            let first = seen.read(&reader.turn(1)).get();
            let second = {
                let turn = reader.turn(2);
                let value = seen.read(&turn);
                (value.get(), value.get())
            };
            reader.rest();
            assert!(matches!((first, second), (1 | 2, (1, 1)) | (1 | 2, (2, 2))) && first <= second.0);
        });
        frees(published.replace(Value::new(2)));
        reader.join().unwrap();
    });
}

#[test]
fn a_replaced_value_is_freed_after_its_readers() {
    replaced(free);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_value_freed_without_waiting_is_found() {
    replaced(|retired| {
        // SAFETY: none: this is the fault that the model must find.
        drop(unsafe { retired.into_inner() });
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn readers_that_are_not_waited_for_are_found() {
    replaced(|retired| {
        grace(Readers::default());
        // SAFETY: none, as above.
        drop(unsafe { retired.into_inner() });
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn ends_of_turns_without_an_order_are_found() {
    replaced(|retired| {
        grace_by(retired.readers(), Ordering::Relaxed);
        // SAFETY: none, as above.
        drop(unsafe { retired.into_inner() });
    });
}

const IOVA: u64 = 0x1000;
const USER: u64 = 0x7000;
const PAGE: u64 = 4096;

/// A page of a guest. Its bytes stay unused: a cell of loom's stands for them.
fn memory() -> Arc<Memory> {
    let page: Arc<[u8; PAGE as usize]> = Arc::new([0; PAGE as usize]);
    let host = NonNull::from(&*page).cast();
    // SAFETY: a page, which the region keeps; nothing writes it.
    let region = unsafe { Region::new(USER, USER, PAGE, host, page) };
    Arc::new(Memory::new(vec![region]).expect("one region"))
}

/// A worker of two turns, which uses the page while it is mapped, beside a guest's unmapping, after which `wait`
/// returns and the guest uses its page for something else.
fn unmapped(wait: fn(&mut Editor)) {
    loom::model(move || {
        let mut editor = Editor::new(memory(), 16);
        editor.update(IOVA, PAGE, USER, Access::BOTH).expect("within the region");
        editor.retired().drain(..).for_each(Retired::defer);
        let (iotlb, page) = (editor.shared().clone(), Value::new(1));
        let used = page.clone();
        let worker = loom::thread::spawn(move || {
            let (mut reader, mut aside) =
                (Reader::register().expect("there are two places"), Lookaside::default());
            for now in 1..3 {
                let turn = reader.turn(now);
                let found = Lookup::new(&iotlb, &turn, &mut aside).read(IOVA, 64).is_ok();
                if found {
                    assert_eq!(used.get(), 1, "the guest has been told that the page is unmapped");
                }
            }
            reader.rest();
        });
        editor.invalidate(IOVA, PAGE);
        wait(&mut editor);
        page.set(2);
        worker.join().unwrap();
    });
}

#[test]
fn an_unmapped_page_is_not_used_after_the_turn() {
    unmapped(|editor| {
        grace(Readers::ALL);
        editor.retired().drain(..).for_each(Retired::defer);
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_unmapping_acknowledged_at_once_is_found() {
    unmapped(|editor| editor.retired().drain(..).for_each(Retired::defer));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_unmapping_that_takes_ends_of_turns_without_an_order_is_found() {
    unmapped(|editor| {
        grace_by(Readers::ALL, Ordering::Relaxed);
        editor.retired().drain(..).for_each(Retired::defer);
    });
}
