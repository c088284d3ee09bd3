//! Models of a ring and its notifications, which loom runs in each order that the memory model permits.

use crate::{Consumer, Geometry, Producer, RingKind, RingMemory, Slot, TX};
use core::ptr::NonNull;
use loom::sync::Notify;
use ringway_mem::Region;
use ringway_mem::sync::{Ordering, fence};
use std::sync::Arc;

/// Pages at an aligned address. Only their addresses are used: loom has the words.
#[repr(align(4096))]
struct Pages(#[allow(dead_code, reason = "accessed by its address")] [u8; 65_536]);

/// A pipe of 64 slots, of which the models use a few.
fn ring() -> Arc<RingMemory> {
    let geometry = Geometry { slots: [64, 64], slot_size: 64, kind: RingKind::Pipe, ..Geometry::default() };
    let pages = Arc::new(Pages([0; 65_536]));
    let base = NonNull::from(&*pages).cast();
    // SAFETY: the region holds a reference to the pages, and loom's atomics stand for their words.
    let region = unsafe { Region::new(0, 0, 65_536, base, pages) };
    Arc::new(RingMemory::create(region, &geometry).expect("the pages are large enough"))
}

/// What one thread has.
struct Side<E> {
    memory: Arc<RingMemory>,
    bell: Arc<Notify>,
    end: E,
}

/// Sends frames 1 to `frames`, each published separately, with `publish`, which returns whether to notify.
fn send(side: &mut Side<Producer>, frames: u16, publish: fn(&mut Producer, &RingMemory) -> bool) {
    let Side { memory, bell, end: producer } = side;
    for len in 1..=frames {
        let slot = producer.slot(memory, 0);
        producer.write(memory, 0, Slot { len, ..slot });
        producer.advance(1);
        if publish(producer, memory) {
            bell.notify();
        }
    }
}

/// Receives them, and sleeps while there are none; loom finds a sleep from which nobody wakes.
fn receive(side: &mut Side<Consumer>, frames: u16) {
    let Side { memory, bell, end: consumer } = side;
    let mut next = 1;
    while next <= frames {
        let there = consumer.available(memory, 1).expect("the index is the producer's");
        for _ in 0..there {
            assert_eq!(consumer.slot(memory, 0).len, next);
            consumer.advance(1);
            next += 1;
        }
        consumer.publish(memory);
        if next <= frames && there == 0 && consumer.arm(memory, 1).expect("as above") {
            bell.wait();
            consumer.disarm(memory);
        }
    }
}

fn passed(frames: u16, publish: fn(&mut Producer, &RingMemory) -> bool) {
    loom::model(move || {
        let (memory, bell) = (ring(), Arc::new(Notify::new()));
        let (mut producer, mut consumer) = (Producer::new(&memory, TX), Consumer::new(&memory, TX));
        // loom's words exist once they were used.
        assert!(!producer.arm(&memory, 1).expect("new") && consumer.arm(&memory, 1).expect("new"));
        consumer.disarm(&memory);
        let mut sending = Side { memory: memory.clone(), bell: bell.clone(), end: producer };
        let sender = loom::thread::spawn(move || send(&mut sending, frames, publish));
        receive(&mut Side { memory, bell, end: consumer }, frames);
        sender.join().unwrap();
    });
}

#[test]
fn frames_arrive_whole_and_in_order_and_wake_a_sleeper() {
    passed(2, Producer::publish);
}

#[test]
fn a_barrier_between_index_and_flag_is_enough() {
    passed(2, |producer, memory| {
        producer.publish_index(memory);
        fence(Ordering::SeqCst);
        producer.wants_notification(memory)
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flag_that_is_not_read_again_is_found() {
    passed(1, |producer, memory| {
        let wants = producer.wants_notification(memory);
        producer.publish_index(memory);
        wants
    });
}
