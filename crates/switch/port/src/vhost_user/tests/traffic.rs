//! Frames between a driver and the queues of a port whose rings a front-end set up.

use super::Backend;
use super::session::{Wire, port, region};
use crate::Queue;
use crate::State;
use ringway_frame::{Burst, Storage};
use ringway_host::{EventFd, wait_readable};
use ringway_mem::{Hint, Memory, Reader, SpanMut};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Frontend, SharedRegion, Vring, VringAddr};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

const SIZE: usize = 1 << 20;
const HEADER: usize = 12;
/// Addresses of the rings and the buffers.
const RINGS: [u64; 2] = [0, 0x4000];
const BUFFERS: [u64; 2] = [0x1_0000, 0x2_0000];

fn span(memory: &Memory, at: u64, len: u32) -> SpanMut<'_> {
    memory.span_mut(at, len, &mut Hint::default()).unwrap()
}

fn driver<'a>(memory: &'a Memory, layout: &Layout, ring: usize) -> Driver<'a> {
    let (at, lengths) = (RINGS[ring], layout.lengths().unwrap());
    let areas = Areas {
        descriptors: span(memory, at, lengths.descriptors),
        driver: span(memory, at + 0x1000, lengths.driver),
        device: span(memory, at + 0x2000, lengths.device),
    };
    Driver::new(layout, areas).unwrap()
}

fn share(file: &OwnedFd) -> Vec<SharedRegion> {
    vec![SharedRegion { region: region(0, SIZE as u64, 0), fd: file.try_clone().unwrap() }]
}

fn start(front: &mut Frontend<Wire<'_>>, ring: usize, packed: bool) {
    let at = region(RINGS[ring], 1, 0).user;
    let (index, base) = (ring as u32, if packed { 0x8000 } else { 0 });
    let addresses =
        VringAddr { index, flags: 0, descriptors: at, available: at + 0x1000, used: at + 0x2000, log: 0 };
    front.start(Vring { size: 256, addresses, base, kick: None, call: None }).unwrap();
}

/// Lets the port return the guest's frames to it; returns their number.
fn reflect(reader: &mut Reader, queue: &mut Queue) -> usize {
    let mut storage = Storage::default();
    let turn = reader.turn(1);
    let mut burst = Burst::begin(&mut storage);
    queue.tx.take(&turn, &mut burst);
    let which: Vec<u16> = (0..burst.len() as u16).collect();
    assert_eq!(queue.rx.reserve(&turn, &burst, &which), which.len());
    queue.rx.put(&turn, &burst, &which);
    queue.tx.release(&turn, which.len());
    queue.rx.publish(&turn);
    assert!(!queue.tx.arm(&turn), "a ring without kicks is always polled");
    reader.rest();
    which.len()
}

fn frames_go_round(packed: bool) {
    let (mut backend, mut queues, counters): (Backend, _, _) = port();
    let file = ringway_host::memfd("guest", SIZE).unwrap();
    let memory = Memory::new(vec![ringway_host::map_region(&file, 0, SIZE as u64, 0, 0).unwrap()]).unwrap();
    let layout = Layout { packed, size: 256, event_idx: true, indirect: true };
    let layout_bits = if packed { virtio::RING_PACKED } else { 0 };
    let features = virtio::VERSION_1 | virtio::EVENT_IDX | virtio::INDIRECT_DESC | layout_bits;
    let mut front = Frontend::negotiate(Wire::new(&mut backend), features, protocol::REPLY_ACK).unwrap();
    front.set_memory(share(&file)).unwrap();
    let (mut rx, mut tx) = (driver(&memory, &layout, 0), driver(&memory, &layout, 1));
    start(&mut front, 0, packed);
    start(&mut front, 1, packed);
    assert_eq!(front.transport().state(), State::Up);
    let mut reader = Reader::register().unwrap();
    let (len, disk) = (100, std::fs::File::from(file.as_fd().try_clone_to_owned().unwrap()));
    for round in 0..600u32 {
        let mut frame = vec![0; HEADER + len];
        frame[HEADER..].fill(round as u8);
        disk.write_all_at(&frame, BUFFERS[1]).unwrap();
        rx.add(&[Buffer { address: BUFFERS[0], len: 2048, write: true }], None).unwrap();
        rx.publish();
        tx.add(&[Buffer { address: BUFFERS[1], len: (HEADER + len) as u32, write: false }], None).unwrap();
        tx.publish();
        assert_eq!(reflect(&mut reader, &mut queues[0]), 1, "round {round}");
        assert!(tx.take_used().unwrap().is_some());
        assert_eq!(rx.take_used().unwrap().unwrap().1, (HEADER + len) as u32);
        let mut received = vec![0; HEADER + len];
        disk.read_exact_at(&mut received, BUFFERS[0]).unwrap();
        assert_eq!(received[HEADER..], frame[HEADER..]);
        match round {
            // A new memory table or new ring descriptions don't interrupt traffic.
            100 => front.set_memory(share(&file)).unwrap(),
            200 => front.enable(1, true).unwrap(),
            // Nor does stopping and restarting a ring.
            300 => {
                let base = front.stop(1).unwrap();
                assert_eq!(base & 0x7fff, if packed { 301 % 256 } else { 301 });
                let at = region(RINGS[1], 1, 0).user;
                let (descriptors, available, used) = (at, at + 0x1000, at + 0x2000);
                let addresses = VringAddr { index: 1, flags: 0, descriptors, available, used, log: 0 };
                front.start(Vring { size: 256, addresses, base, kick: None, call: None }).unwrap();
            }
            _ => {}
        }
    }
    assert_eq!(counters.faults.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn frames_are_reflected_in_split_rings() {
    frames_go_round(false);
}

#[test]
fn frames_are_reflected_in_packed_rings() {
    frames_go_round(true);
}

/// Attack: a kick descriptor that is also the interrupt, so that an interrupt wakes the worker, and a worker that is
/// woken interrupts. Only used buffers cause interrupts, so that the loop ends without another frame.
#[test]
fn an_interrupt_that_is_also_the_kick_wakes_the_worker_no_more_than_frames_do() {
    const FRAMES: usize = 20;
    for packed in [false, true] {
        let (mut backend, mut queues, counters): (Backend, _, _) = port();
        let file = ringway_host::memfd("guest", SIZE).unwrap();
        let region = ringway_host::map_region(&file, 0, SIZE as u64, 0, 0).unwrap();
        let memory = Memory::new(vec![region]).unwrap();
        let layout = Layout { packed, size: 256, event_idx: false, indirect: false };
        let features = virtio::VERSION_1 | if packed { virtio::RING_PACKED } else { 0 };
        let mut front = Frontend::negotiate(Wire::new(&mut backend), features, protocol::REPLY_ACK).unwrap();
        front.set_memory(share(&file)).unwrap();
        let mut tx = driver(&memory, &layout, 1);
        let at = super::session::region(RINGS[1], 1, 0).user;
        let (index, base) = (1, if packed { 0x8000 } else { 0 });
        let (available, used) = (at + 0x1000, at + 0x2000);
        let addresses = VringAddr { index, flags: 0, descriptors: at, available, used, log: 0 };
        let both = EventFd::new().unwrap();
        let copy = || Some(both.as_fd().try_clone_to_owned().unwrap());
        front.start(Vring { size: 256, addresses, base, kick: copy(), call: copy() }).unwrap();
        for _ in 0..FRAMES {
            tx.add(&[Buffer { address: BUFFERS[1], len: 100, write: false }], None).unwrap();
        }
        tx.publish();
        both.signal();
        let (mut reader, mut woken, mut taken) = (Reader::register().unwrap(), 0, 0);
        while wait_readable(&[both.as_fd()], Some(50_000_000)).unwrap()[0] {
            both.clear();
            woken += 1;
            assert!(woken <= 2 * FRAMES + 4, "woken again and again");
            let mut is_armed = false;
            while !is_armed {
                let (mut storage, queue) = (Storage::default(), &mut queues[0].tx);
                let turn = reader.turn(1_000_000 * woken as u64);
                queue.disarm(&turn);
                let mut burst = Burst::begin(&mut storage);
                queue.take(&turn, &mut burst);
                let count = burst.len().min(1);
                queue.release(&turn, count);
                taken += count;
                is_armed = count == 0 && queue.arm(&turn);
                reader.rest();
            }
        }
        assert_eq!(taken, FRAMES);
        assert_eq!(counters.faults.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

/// QEMU doesn't know a packed ring's position after its back-end crashed, and sends the first one again.
#[test]
fn packed_rings_go_on_after_a_crash_at_every_index_and_wrap() {
    let file = ringway_host::memfd("guest", SIZE).unwrap();
    let memory = Memory::new(vec![ringway_host::map_region(&file, 0, SIZE as u64, 0, 0).unwrap()]).unwrap();
    let layout = Layout { packed: true, size: 256, event_idx: true, indirect: true };
    let (mut rx, mut tx) = (driver(&memory, &layout, 0), driver(&memory, &layout, 1));
    let features = virtio::VERSION_1 | virtio::EVENT_IDX | virtio::INDIRECT_DESC | virtio::RING_PACKED;
    let (receive, send) = (
        Buffer { address: BUFFERS[0], len: 2048, write: true },
        Buffer { address: BUFFERS[1], len: HEADER as u32 + 100, write: false },
    );
    // Receive buffers that no back-end has taken wait during each crash.
    (0..7).for_each(|_| assert!(rx.add(&[receive], None).is_some()));
    for crash in 0..600 {
        let (mut backend, mut queues, counters): (Backend, _, _) = port();
        let mut front = Frontend::negotiate(Wire::new(&mut backend), features, protocol::REPLY_ACK).unwrap();
        front.set_memory(share(&file)).unwrap();
        // Frames that were sent during the crash, none at times.
        let frames = crash % 4;
        (0..frames).for_each(|_| assert!(tx.add(&[send], None).is_some()));
        (0..frames).for_each(|_| assert!(rx.add(&[receive], None).is_some()));
        rx.publish();
        tx.publish();
        start(&mut front, 0, true);
        start(&mut front, 1, true);
        let mut reader = Reader::register().unwrap();
        assert_eq!(reflect(&mut reader, &mut queues[0]), frames, "crash {crash}");
        let count = |driver: &mut Driver<'_>| std::iter::from_fn(|| driver.take_used().unwrap()).count();
        assert_eq!((count(&mut tx), count(&mut rx)), (frames, frames), "crash {crash}");
        assert_eq!(counters.faults.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}
