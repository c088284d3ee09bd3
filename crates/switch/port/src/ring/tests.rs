//! Tests of a port with a program on its ring, in one process.

use super::open::{Newcomer, Program, RingListener};
use super::{Config, Fault, RingPort, Settings};
use crate::peer::{Context, Peer};
use crate::{Doorbell, Queue};
use proptest::prelude::*;
use ringway_frame::{Burst, Counters, CountersRef, LARGEST, Needs, Offload, Reason, Storage};
use ringway_host::{Mapping, memfd, send_with};
use ringway_mem::{Hint, Memory, Reader, Span};
use ringway_ring::*;
use ringway_spec::{Kind, Port};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Bell {
    woken: AtomicUsize,
    watched: Mutex<Option<Arc<OwnedFd>>>,
}

impl Doorbell for Bell {
    fn wake(&self) {
        self.woken.fetch_add(1, Relaxed);
    }

    fn watch(&self, kick: Arc<OwnedFd>) {
        *self.watched.lock().unwrap() = Some(kick);
    }

    fn unwatch(&self) {
        *self.watched.lock().unwrap() = None;
    }
}

/// A port, and the program's mapping of the memory.
struct Rig {
    port: RingPort,
    queue: Queue,
    theirs: RingMemory,
    call: ringway_host::EventFd,
    counters: CountersRef,
    faults: Arc<Mutex<Vec<Fault>>>,
    bell: Arc<Bell>,
    reader: Reader,
}

fn small() -> Geometry {
    Geometry { slots: [64, 64], slot_size: 256, ..Geometry::default() }
}

fn event() -> ringway_host::EventFd {
    ringway_host::EventFd::new().unwrap()
}

fn rig_with(geometry: Geometry, policy: Policy) -> Rig {
    let (faults, bell) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Bell::default()));
    let counters = CountersRef::private();
    let reported = faults.clone();
    let broken = Arc::new(move |fault| reported.lock().unwrap().push(fault));
    let config = Config { counters: counters.clone(), doorbell: bell.clone(), policy, broken };
    let (mut port, queues) = RingPort::new(config);
    let file = memfd("test", geometry.header().unwrap().bytes as usize).unwrap();
    let theirs = RingMemory::create(Mapping::sealed(&file).unwrap().region(), &geometry).unwrap();
    let ours = RingMemory::attach(Mapping::sealed(&file).unwrap().region()).unwrap();
    let call = event();
    port.attach(ours, event().into_fd(), rustix_dup(&call)).unwrap();
    let queue = queues.into_iter().next().unwrap();
    Rig { port, queue, theirs, call, counters, faults, bell, reader: Reader::register().unwrap() }
}

fn rustix_dup(fd: &ringway_host::EventFd) -> OwnedFd {
    use std::os::fd::AsFd;
    fd.as_fd().try_clone_to_owned().unwrap()
}

fn rig() -> Rig {
    rig_with(small(), Policy::default())
}

/// Sends `bytes` as a program, in slots of 256 bytes.
fn send(rig: &Rig, producer: &mut Producer, bytes: &[u8], offload: [u8; 10]) {
    let pieces = bytes.len().div_ceil(256);
    for (piece, chunk) in bytes.chunks(256).enumerate() {
        assert!(producer.room(&rig.theirs, 1).unwrap() > 0);
        let buf_idx = producer.slot(&rig.theirs, 0).buf_idx;
        rig.theirs.buffer(buf_idx, chunk.len() as u32).unwrap().write(chunk);
        let flags = if piece + 1 < pieces { MOREFRAG } else { 0 };
        producer.write(&rig.theirs, 0, Slot { buf_idx, len: chunk.len() as u16, flags, offload });
        producer.advance(1);
    }
}

/// Receives one frame as a program.
fn receive(rig: &Rig, consumer: &mut Consumer) -> Option<(Vec<u8>, [u8; 10])> {
    let mut whole = Vec::new();
    let mut offload = None;
    while consumer.available(&rig.theirs, 1).unwrap() > 0 {
        let slot = consumer.slot(&rig.theirs, 0);
        let mut piece = vec![0; usize::from(slot.len)];
        rig.theirs.buffer(slot.buf_idx, u32::from(slot.len)).unwrap().as_span().read(&mut piece);
        whole.extend(piece);
        consumer.advance(1);
        let first = *offload.get_or_insert(slot.offload);
        if !slot.has_more() {
            return Some((whole, first));
        }
    }
    assert!(whole.is_empty(), "half a frame");
    None
}

/// Takes and releases all frames.
fn take(rig: &mut Rig) -> Vec<(Vec<u8>, Offload)> {
    let mut storage = Storage::default();
    let turn = rig.reader.turn(0);
    let mut burst = Burst::begin(&mut storage);
    rig.queue.tx.take(&turn, &mut burst);
    let frames = (0..burst.len()).map(|index| {
        let mut bytes = vec![0; burst.meta(index).len as usize];
        burst.read(index, 0, &mut bytes);
        (bytes, burst.meta(index).offload)
    });
    let frames: Vec<_> = frames.collect();
    rig.queue.tx.release(&turn, frames.len());
    frames
}

/// Puts frames as a worker does; returns the number for which there was room.
fn put(rig: &mut Rig, frames: &[(Vec<u8>, Offload)], now: u64) -> usize {
    let mut storage = Storage::default();
    let turn = rig.reader.turn(now);
    let mut burst = Burst::begin(&mut storage);
    for (bytes, offload) in frames {
        burst.push(*offload, Span::of(bytes)).unwrap();
    }
    let which: Vec<u16> = (0..frames.len() as u16).collect();
    let count = rig.queue.rx.reserve(&turn, &burst, &which);
    rig.queue.rx.put(&turn, &burst, &which[..count]);
    rig.queue.rx.publish(&turn);
    count
}

fn frame(len: usize, first: u8) -> Vec<u8> {
    (0..len).map(|at| first.wrapping_add(at as u8)).collect()
}

fn dropped(counters: &Counters, reason: Reason) -> u64 {
    counters.tx_drops[reason as usize].load(Relaxed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn frames_pass_whole_and_in_order(
        lens in prop::collection::vec(prop_oneof![14usize..256, 14usize..3000], 1..60),
    ) {
        let mut rig = rig();
        let (mut producer, mut consumer) = (Producer::new(&rig.theirs, TX), Consumer::new(&rig.theirs, RX));
        for (number, len) in lens.into_iter().enumerate() {
            let sent = frame(len, number as u8);
            send(&rig, &mut producer, &sent, [0; 10]);
            prop_assert!(!producer.publish(&rig.theirs));
            let taken = take(&mut rig);
            prop_assert_eq!(&taken, &[(sent.clone(), Offload::default())]);
            prop_assert_eq!(put(&mut rig, &taken, 0), 1);
            prop_assert_eq!(receive(&rig, &mut consumer), Some((sent, [0; 10])));
            consumer.publish(&rig.theirs);
        }
        prop_assert!(rig.faults.lock().unwrap().is_empty());
    }

    #[test]
    fn random_ring_contents_are_harmless(
        writes in prop::collection::vec((0usize..4096, any::<u64>(), any::<bool>()), 1..300),
        indices in prop::collection::vec(0u32..200, 1..20),
    ) {
        let mut rig = rig();
        for (at, word, near) in writes {
            let buf_idx = if near { word as u16 % 160 } else { word as u16 };
            let len = if near { (word >> 16) as u16 % 300 } else { (word >> 16) as u16 };
            let slot = Slot { buf_idx, len, flags: (word >> 32) as u16, offload: [(word >> 48) as u8; 10] };
            rig.theirs.write_slot(at & 1, (at >> 1) as u32, slot);
        }
        let mut producer = Producer::new(&rig.theirs, TX);
        for index in indices {
            if let Ok(room) = producer.room(&rig.theirs, 64) {
                producer.advance(index.min(room));
                producer.publish(&rig.theirs);
            }
            let taken = take(&mut rig);
            for (bytes, offload) in &taken {
                prop_assert!((14..=LARGEST as usize).contains(&bytes.len()));
                prop_assert!(offload.check(bytes.len() as u32, Needs::ALL).is_ok());
            }
            put(&mut rig, &taken, 0);
        }
        prop_assert!(rig.faults.lock().unwrap().len() <= 1);
    }
}

#[test]
fn unreleased_frames_are_taken_again() {
    let mut rig = rig();
    let mut producer = Producer::new(&rig.theirs, TX);
    for number in 0..5 {
        send(&rig, &mut producer, &frame(64, number), [0; 10]);
    }
    producer.publish(&rig.theirs);
    let mut storage = Storage::default();
    let turn = rig.reader.turn(0);
    let mut burst = Burst::begin(&mut storage);
    rig.queue.tx.take(&turn, &mut burst);
    assert_eq!(burst.len(), 5);
    rig.queue.tx.release(&turn, 1);
    rig.queue.tx.release(&turn, 2);
    let rest: Vec<u8> = take(&mut rig).iter().map(|(bytes, _)| bytes[0]).collect();
    assert_eq!(rest, [3, 4]);
}

#[test]
fn broken_frames_are_skipped_and_counted_once() {
    let mut rig = rig();
    let mut producer = Producer::new(&rig.theirs, TX);
    let bad = |slot: Slot, producer: &mut Producer| {
        producer.room(&rig.theirs, 1).unwrap();
        producer.write(&rig.theirs, 0, slot);
        producer.advance(1);
    };
    send(&rig, &mut producer, &frame(64, 1), [0; 10]);
    bad(Slot { buf_idx: 1, len: 13, ..Slot::default() }, &mut producer);
    bad(Slot { buf_idx: 9999, len: 64, ..Slot::default() }, &mut producer);
    bad(Slot { buf_idx: 3, len: 257, ..Slot::default() }, &mut producer);
    let past_end = Offload::checksum(60, 10).to_bytes();
    bad(Slot { buf_idx: 4, len: 64, flags: 0, offload: past_end }, &mut producer);
    send(&rig, &mut producer, &frame(64, 2), [0; 10]);
    bad(Slot { buf_idx: 6, len: 64, flags: MOREFRAG, ..Slot::default() }, &mut producer);
    producer.publish(&rig.theirs);
    for _ in 0..3 {
        let mut storage = Storage::default();
        let turn = rig.reader.turn(0);
        let mut burst = Burst::begin(&mut storage);
        rig.queue.tx.take(&turn, &mut burst);
        assert_eq!(burst.len(), 2);
    }
    assert_eq!(take(&mut rig).len(), 2);
    assert!(take(&mut rig).is_empty(), "half a frame is none");
    let counts = [Reason::Short, Reason::BadAddress, Reason::BadOffload, Reason::BadDescriptor]
        .map(|reason| dropped(&rig.counters, reason));
    assert_eq!(counts, [1, 2, 1, 1]);
    assert_eq!(producer.room(&rig.theirs, 64), Ok(64), "every slot came back");
}

#[test]
fn an_invalid_index_closes_only_this_port_until_reattached() {
    let mut rig = rig();
    let whole = Memory::new(vec![rig.theirs.region().clone()]).unwrap();
    // The TX ring's producer line.
    whole.span_mut(1024, 4, &mut Hint::default()).unwrap().write(&65u32.to_le_bytes());
    assert!(take(&mut rig).is_empty());
    assert_eq!(*rig.faults.lock().unwrap(), [Fault::Broken(Broken::Index)]);
    assert_eq!(rig.counters.faults.load(Relaxed), 1);
    let turn = rig.reader.turn(0);
    assert!(rig.queue.rx.caps(&turn).is_none());
    assert!(rig.queue.tx.arm(&turn), "nothing keeps the worker awake");
    rig.reader.rest();
    let file = memfd("test", small().header().unwrap().bytes as usize).unwrap();
    rig.theirs = RingMemory::create(Mapping::sealed(&file).unwrap().region(), &small()).unwrap();
    let ours = RingMemory::attach(Mapping::sealed(&file).unwrap().region()).unwrap();
    rig.port.attach(ours, event().into_fd(), event().into_fd()).unwrap();
    let mut producer = Producer::new(&rig.theirs, TX);
    send(&rig, &mut producer, &frame(64, 7), [0; 10]);
    producer.publish(&rig.theirs);
    assert_eq!(take(&mut rig).len(), 1);
}

#[test]
fn an_invalid_buffer_number_closes_the_port() {
    let mut rig = rig();
    rig.theirs.write_slot(RX, 0, Slot { buf_idx: 5000, ..Slot::default() });
    put(&mut rig, &[(frame(64, 0), Offload::default())], 0);
    assert_eq!(*rig.faults.lock().unwrap(), [Fault::Broken(Broken::Buffer)]);
    assert_eq!(rig.counters.rx_drops[Reason::BadAddress as usize].load(Relaxed), 1);
}

#[test]
fn a_program_with_a_slow_eventfd_loses_its_ring() {
    let mut rig = rig_with(small(), Policy::NONE);
    let _watchers = crate::vhost_user::tests::slow::watch_by_thousands(&rig.call);
    let mut frames = 0;
    while rig.faults.lock().unwrap().is_empty() {
        put(&mut rig, &[(frame(60, 0), Offload::default())], 0);
        frames += 1;
        assert!(frames < 60, "signals that take milliseconds, again and again");
    }
    assert_eq!(*rig.faults.lock().unwrap(), [Fault::Slow]);
    assert!(frames > 2 && rig.port.rest(0) > 0, "{frames}");
    assert_eq!(rig.counters.faults.load(Relaxed), 1);
}

#[test]
fn a_full_ring_accepts_what_fits() {
    let mut rig = rig();
    let jumbo = (frame(2560, 0), Offload::default());
    assert_eq!(put(&mut rig, &vec![jumbo.clone(); 8], 0), 6, "64 slots, 10 each");
    assert_eq!(put(&mut rig, &vec![jumbo; 1], 0), 0);
    let small = (frame(60, 0), Offload::default());
    assert_eq!(put(&mut rig, &vec![small; 8], 0), 4);
    let mut consumer = Consumer::new(&rig.theirs, RX);
    let lens: Vec<usize> =
        std::iter::from_fn(|| receive(&rig, &mut consumer)).map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(lens, [[2560; 6].as_slice(), &[60; 4]].concat());
    let turn = rig.reader.turn(0);
    assert_eq!(rig.queue.rx.caps(&turn).unwrap().largest, 64 * 256);
}

#[test]
fn offload_metadata_reaches_a_program_that_accepts_it() {
    let mut rig = rig_with(Geometry { features: 3, ..small() }, Policy::default());
    let offload = Offload { gso_type: 1, gso_size: 100, ..Offload::checksum(34, 16) };
    let mut producer = Producer::new(&rig.theirs, TX);
    send(&rig, &mut producer, &frame(1000, 0), offload.to_bytes());
    producer.publish(&rig.theirs);
    let taken = take(&mut rig);
    assert_eq!(taken[0].1, offload);
    let turn = rig.reader.turn(0);
    assert_eq!(rig.queue.rx.caps(&turn).unwrap().offloads, Needs::CSUM.with(Needs::TSO4));
    put(&mut rig, &taken, 0);
    let received = receive(&rig, &mut Consumer::new(&rig.theirs, RX)).unwrap();
    assert_eq!(received, (frame(1000, 0), offload.to_bytes()));
}

#[test]
fn only_programs_that_request_it_are_notified() {
    let mut rig = rig_with(small(), Policy { moderate: 1000, ..Policy::default() });
    let one = [(frame(64, 0), Offload::default())];
    put(&mut rig, &one, 0);
    assert!(!rig.call.clear());
    let mut consumer = Consumer::new(&rig.theirs, RX);
    assert_eq!(consumer.available(&rig.theirs, 1), Ok(1));
    consumer.advance(1);
    assert_eq!(consumer.arm(&rig.theirs, 1), Ok(true));
    put(&mut rig, &one, 10);
    assert!(rig.call.clear());
    assert_eq!(consumer.available(&rig.theirs, 1), Ok(1));
    consumer.advance(1);
    assert_eq!(consumer.arm(&rig.theirs, 1), Ok(true));
    put(&mut rig, &one, 20);
    assert!(!rig.call.clear(), "one in a window");
    assert_eq!(rig.queue.rx.next_due(), Some(1010));
    let turn = rig.reader.turn(1010);
    rig.queue.rx.publish(&turn);
    assert!(rig.call.clear(), "held back, not lost");
    assert_eq!(rig.counters.interrupts.load(Relaxed), 2);
}

#[test]
fn notifications_of_one_turn_are_combined() {
    let mut rig = rig_with(small(), Policy { combine: 1000, ..Policy::default() });
    let one = [(frame(64, 0), Offload::default())];
    let mut consumer = Consumer::new(&rig.theirs, RX);
    assert_eq!(consumer.arm(&rig.theirs, 1), Ok(true));
    for _ in 0..3 {
        put(&mut rig, &one, 10);
    }
    assert!(!rig.call.clear() && rig.queue.rx.defers_signal());
    let turn = rig.reader.turn(10);
    rig.queue.rx.end_turn(&turn);
    assert!(rig.call.clear() && !rig.queue.rx.defers_signal());
    assert_eq!((rig.counters.interrupts.load(Relaxed), rig.queue.rx.next_due()), (1, None));
}

#[test]
fn arming_a_queue_enables_kicks_unless_frames_are_waiting() {
    let mut rig = rig();
    assert_eq!(rig.bell.woken.load(Relaxed), 1, "woken when the program came");
    assert!(rig.bell.watched.lock().unwrap().is_some());
    let mut producer = Producer::new(&rig.theirs, TX);
    let turn = rig.reader.turn(0);
    assert!(rig.queue.tx.arm(&turn));
    send(&rig, &mut producer, &frame(64, 0), [0; 10]);
    assert!(producer.publish(&rig.theirs), "the program is to kick");
    let turn = rig.reader.turn(0);
    assert!(!rig.queue.tx.arm(&turn));
    send(&rig, &mut producer, &frame(64, 0), [0; 10]);
    assert!(!producer.publish(&rig.theirs));
    rig.reader.rest();
    rig.port.detach();
    assert!(rig.bell.watched.lock().unwrap().is_none());
    let turn = rig.reader.turn(0);
    assert!(!rig.port.is_up(&turn));
    assert!(rig.queue.rx.caps(&turn).is_none());
}

fn listener(name: &str) -> RingListener {
    let path = std::env::temp_dir().join(format!("ringway-ring-test-{}-{name}", std::process::id()));
    RingListener::bind(&path, Default::default()).unwrap()
}

/// Reads any answer.
fn answer(mut stream: UnixStream) -> Welcome {
    let mut bytes = [0; Welcome::SIZE];
    stream.read_exact(&mut bytes).unwrap();
    Welcome::from_bytes(&bytes).unwrap()
}

#[test]
fn a_program_attaches_with_its_parameters_and_its_exit_is_seen() {
    let listener = listener("gets");
    assert!(listener.accept().unwrap().is_none());
    let mut stream = UnixStream::connect(listener.path()).unwrap();
    let mut newcomer = listener.accept().unwrap().unwrap();
    assert!(newcomer.hello().unwrap().is_none(), "it has sent nothing yet");
    let hello = Hello { slots: [128, 0], ..Hello::default() };
    stream.write_all(&hello.to_bytes()[..10]).unwrap();
    assert!(newcomer.hello().unwrap().is_none(), "nor all of it");
    stream.write_all(&hello.to_bytes()[10..]).unwrap();
    assert_eq!(newcomer.hello().unwrap(), Some(hello));
    let program = newcomer.welcome(&hello, &Geometry::default()).unwrap();
    let memory = program.descriptors()[0].try_clone_to_owned().unwrap();
    let memory = RingMemory::attach(Mapping::sealed(&memory).unwrap().region()).unwrap();
    assert_eq!(memory.header().slots, [128, 512]);
    assert!(!program.is_gone());
    stream.write_all(&[0; 500]).unwrap();
    assert!(!program.is_gone(), "what it says is of no interest");
    drop(stream);
    assert!(program.is_gone());
    assert!(!memory.is_closed());
    drop(program);
    assert!(memory.is_closed());
}

#[test]
fn invalid_requests_are_answered_with_a_reason() {
    let listener = listener("nonsense");
    let ask = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(listener.path()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut newcomer = listener.accept().unwrap().unwrap();
        let got = newcomer.hello();
        (stream, newcomer, got)
    };
    let (stream, _, got) = ask(&[0xff; 40]);
    assert!(got.is_err());
    assert!(answer(stream).end().unwrap_err().contains("doesn't speak"));
    let hello = Hello { slots: [100, 64], ..Hello::default() };
    let (stream, newcomer, got) = ask(&hello.to_bytes());
    assert!(newcomer.welcome(&got.unwrap().unwrap(), &Geometry::default()).is_err());
    let refused = answer(stream);
    assert!(refused.end().unwrap_err().contains("power of two") && refused.is_final());
    let (stream, newcomer, _) = ask(&Hello::default().to_bytes());
    newcomer.refuse("the port has a program already");
    let refused = answer(stream);
    assert_eq!((refused.end(), refused.is_final()), (Err("the port has a program already"), false));
    let (stream, mut newcomer, got) = ask(&[]);
    assert!(got.unwrap().is_none());
    drop(stream);
    assert!(newcomer.hello().is_err());
}

/// Where a program's buffers are in a memory of 400 of them.
const POOL: BufferPool = BufferPool { at: 4096, buffers: 400, first: 2 };
const POOL_BYTES: usize = 4096 + 400 * 256;

/// A program that brings its buffers in these files.
fn with_pool(listener: &RingListener, files: &[&OwnedFd]) -> (UnixStream, Newcomer, Hello) {
    let mut stream = UnixStream::connect(listener.path()).unwrap();
    let mut newcomer = listener.accept().unwrap().unwrap();
    let hello = Hello { slots: [64, 64], slot_size: 256, has_pool: true, ..Hello::default() };
    stream.write_all(&hello.to_bytes()).unwrap();
    assert!(newcomer.hello().unwrap().is_none(), "it has not said where they are");
    let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    send_with(&stream, &POOL.to_bytes()[..7], &files).unwrap();
    stream.write_all(&POOL.to_bytes()[7..]).unwrap();
    (stream, newcomer, hello)
}

#[test]
fn two_programs_bring_the_same_buffers() {
    let listener = listener("pool");
    let pool = memfd("pool", POOL_BYTES).unwrap();
    let rings: Vec<(UnixStream, Program)> = (0..2)
        .map(|_| {
            let (stream, mut newcomer, hello) = with_pool(&listener, &[&pool]);
            assert_eq!(newcomer.hello().unwrap(), Some(hello));
            (stream, newcomer.welcome(&hello, &Geometry::default()).unwrap())
        })
        .collect();
    let theirs = |program: &Program| {
        let memory = program.descriptors()[0].try_clone_to_owned().unwrap();
        let pool = Mapping::sealed(&pool).unwrap().region();
        RingMemory::attach_with(Mapping::sealed(&memory).unwrap().region(), Some(pool)).unwrap()
    };
    let [one, two] = [0, 1].map(|at| theirs(&rings[at].1));
    one.buffer(399, 5).unwrap().write(b"bytes");
    assert_eq!(two.buffer(399, 5).unwrap().as_span().read_array(), Some(*b"bytes"));
    // Another process goes on with it, and the data path gets a fourth descriptor.
    let descriptors: Vec<OwnedFd> = rings[0]
        .1
        .descriptors()
        .iter()
        .chain(&rings[0].1.pool())
        .map(|fd| fd.try_clone_to_owned().unwrap())
        .collect();
    assert_eq!(descriptors.len(), 4);
    let mut peer = opened();
    let copies = descriptors.iter().map(|fd| fd.try_clone().unwrap()).collect();
    peer.attach(copies).unwrap();
    assert!(peer.attach(descriptors.iter().take(3).map(|fd| fd.try_clone().unwrap()).collect()).is_err());
    let next = Program::adopt(rings[0].0.try_clone().unwrap().into(), descriptors).unwrap();
    assert!(next.pool().is_some());
}

fn opened() -> Box<dyn Peer> {
    let port = Port::new("a", Kind::new("ring", &Settings { slots: 64, slot_size: 256 }), None);
    let check = Arc::new(event());
    let context = Context { port: &port, doorbells: Vec::new(), counters: &[], check: &check, keeper: None };
    (super::KIND.open)(context).unwrap().0
}

/// Attack: memory that is too short, that could shrink, that is none; no memory, or too much of it.
#[test]
fn buffers_that_can_not_be_used_are_refused() {
    let listener = listener("pools");
    let good = memfd("pool", POOL_BYTES).unwrap();
    let short = memfd("pool", POOL_BYTES - 1).unwrap();
    let shrinks = rustix::fs::memfd_create("pool", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&shrinks, POOL_BYTES as u64).unwrap();
    let no_memory = event().into_fd();
    // A hole in huge pages may be impossible to fill again.
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::HUGETLB;
    let huge = rustix::fs::memfd_create("pool", flags).unwrap();
    rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&huge, rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW).unwrap();
    let [memory, kick, call] = [memfd("ring", 1 << 20).unwrap(), event().into_fd(), event().into_fd()];
    let refused = opened().attach(vec![memory, kick, call, huge.try_clone().unwrap()]).unwrap_err();
    assert!(refused.to_string().contains("buffers"), "the data path refuses it itself: {refused}");
    let long = memfd("pool", 1 << 40).unwrap();
    for file in [&short, &long] {
        let (stream, mut newcomer, hello) = with_pool(&listener, &[file]);
        newcomer.hello().unwrap().unwrap();
        assert!(newcomer.welcome(&hello, &Geometry::default()).is_err());
        assert!(answer(stream).is_final());
    }
    for files in [&[&shrinks][..], &[], &[&huge], &[&no_memory]] {
        let (stream, mut newcomer, _) = with_pool(&listener, files);
        assert!(newcomer.hello().is_err());
        assert!(answer(stream).end().unwrap_err().contains("buffers"));
    }
    // Descriptors are received again when the one that is no memory is closed. Two are one too many.
    let is_pool = || {
        let (_stream, mut newcomer, hello) = with_pool(&listener, &[&good, &good]);
        newcomer.hello().unwrap().unwrap();
        newcomer.welcome(&hello, &Geometry::default()).unwrap().pool().is_some()
    };
    while !is_pool() {}
}
