//! Rings as the kernel writes them, and as it never does.

use super::ring::XdpRing;
use super::rx::XdpRx;
use super::tx::XdpTx;
use super::{Open, Shared, Socket, mode};
use crate::{InterfacePage, InterfaceState, Silent};
use ringway_frame::{Burst, CountersRef, Offload, Reason, RxQueue, Storage, TxQueue};
use ringway_host::{Mapping, XDP_RING, XdpRingPlace};
use ringway_mem::{Hint, Memory, Published, Reader, Span};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const CHUNK: usize = 2048;

fn ring() -> XdpRing {
    let len = 4096 + XDP_RING * 16;
    let memory = Memory::new(vec![Mapping::private(len).unwrap().region()]).unwrap();
    let place = XdpRingPlace { offset: 0, len, producer: 0, consumer: 64, flags: 128, descriptors: 256 };
    XdpRing::new(memory, &place)
}

/// A socket whose kernel is the test.
fn socket() -> Socket {
    let memory = Mapping::private(2 * XDP_RING * CHUNK).unwrap();
    let socket = Socket {
        socket: Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap())),
        memory: Memory::new(vec![memory.region()]).unwrap(),
        chunk: CHUNK,
        received: ring(),
        send: ring(),
        fill: ring(),
        sent: ring(),
    };
    socket.fill.set_producer(XDP_RING as u32);
    socket
}

fn shared(socket: Socket) -> (Shared, CountersRef) {
    let state =
        InterfaceState { mtu: 1500, has_carrier: true, mode: mode::BOUND, ..InterfaceState::default() };
    let (page, _file) = InterfacePage::create(&state).unwrap();
    let counters = CountersRef::private();
    let open = Arc::new(Published::new(Arc::new(Open { socket: Some((socket, page)), number: 1 })));
    (Shared { open, doorbell: Arc::new(Silent), counters: counters.clone() }, counters)
}

fn receive(socket: &Socket, index: u32, at: u64, len: u32) {
    socket.received.set_frame(index, at, len);
    socket.received.set_producer(index + 1);
}

#[test]
fn received_chunks_go_back_to_the_kernel_when_they_are_released() {
    let socket = socket();
    for number in 0..3_u32 {
        let at = u64::from(number) * CHUNK as u64 + 256;
        socket.memory.span_mut(at, 60, &mut Hint::default()).unwrap().write(&[number as u8 + 1; 60]);
        receive(&socket, number, at, 60);
    }
    let (shared, _) = shared(socket);
    let mut tx = XdpTx::new(shared.clone());
    let mut reader = Reader::register().unwrap();
    let turn = reader.turn(1);
    for _ in 0..2 {
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        tx.take(&turn, &mut burst);
        let numbers: Vec<u8> = (0..burst.len()).map(|index| burst.head(index)[0]).collect();
        assert_eq!(numbers, [1, 2, 3], "they stay until they are released");
    }
    assert!(!tx.arm(&turn));
    tx.release(&turn, 2);
    let (socket, ..) = shared.socket(&turn).unwrap();
    assert_eq!((socket.received.consumer(), socket.fill.producer()), (2, XDP_RING as u32 + 2));
    assert_eq!([0, 1].map(|index| socket.fill.address(XDP_RING as u32 + index)), [0, CHUNK as u64]);
    tx.release(&turn, 64);
    assert!(tx.arm(&turn));
    assert_eq!(socket.received.consumer(), 3);
}

#[test]
fn descriptors_out_of_bounds_are_dropped() {
    let socket = socket();
    let wrong = [
        (u64::MAX, 60),
        ((XDP_RING * CHUNK) as u64, 60),
        (CHUNK as u64 - 8, 60),
        (256, u32::MAX),
        (256, 13),
        (256, 60),
    ];
    (0..).zip(wrong).for_each(|(index, (at, len))| receive(&socket, index, at, len));
    let (shared, counters) = shared(socket);
    let mut tx = XdpTx::new(shared.clone());
    let mut reader = Reader::register().unwrap();
    let turn = reader.turn(1);
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    tx.take(&turn, &mut burst);
    assert_eq!(burst.len(), 1);
    let drops = |reason: Reason| counters.tx_drops[reason as usize].load(Ordering::Relaxed);
    assert_eq!((drops(Reason::BadDescriptor), drops(Reason::Short)), (4, 1));
    tx.release(&turn, 1);
    let (socket, ..) = shared.socket(&turn).unwrap();
    // Chunks of the other half, and those that do not exist, are not given to the kernel.
    assert_eq!((socket.received.consumer(), socket.fill.producer()), (6, XDP_RING as u32 + 4));
    // An index that is out of bounds counts as no frame.
    socket.received.set_producer(6 + XDP_RING as u32 + 1);
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    tx.take(&turn, &mut burst);
    assert!(burst.is_empty());
}

#[test]
fn chunks_are_used_again_only_when_their_frames_were_sent() {
    let (shared, counters) = shared(socket());
    let mut rx = XdpRx::new(shared.clone());
    let mut reader = Reader::register().unwrap();
    let turn = reader.turn(1);
    assert_eq!(rx.caps(&turn).unwrap().largest, 1522);
    let frame = [5_u8; 100];
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    while burst.push(Offload::default(), Span::of(&frame)).is_ok() {}
    let which: Vec<u16> = (0..burst.len() as u16).collect();
    let mut sent = 0;
    loop {
        let count = rx.reserve(&turn, &burst, &which);
        rx.put(&turn, &burst, &which[..count]);
        rx.publish(&turn);
        sent += count;
        if count < which.len() {
            break;
        }
    }
    assert_eq!(sent, XDP_RING);
    let (socket, ..) = shared.socket(&turn).unwrap();
    assert_eq!(socket.send.producer(), XDP_RING as u32);
    let (at, len) = socket.send.frame(7);
    assert_eq!((at as usize / CHUNK >= XDP_RING, len), (true, 100));
    // The kernel completes one twice, one that is no chunk for sending, and one that does not exist.
    let all = [at, at, 0, u64::MAX];
    (0..).zip(all).for_each(|(index, at)| socket.sent.set_address(index, at));
    socket.sent.set_producer(4);
    assert_eq!(rx.reserve(&turn, &burst, &which), 1);
    assert_eq!(socket.sent.consumer(), 4);
    let drops: u64 = counters.rx_drops.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert_eq!(drops, 0);
}
