//! Tests of a queue of the port, with a driver at the other end of the ring.

use super::{Space, Vring, VringState, Which};
use crate::vhost_user::dirty_log::Log;
use crate::vhost_user::rarp::Rarp;
use crate::vhost_user::rx::VringRx;
use crate::vhost_user::tx::VringTx;
use proptest::prelude::*;
use ringway_frame::{Burst, CountersRef, LARGEST, Needs, Offload, Reason, RxQueue, Storage, TxQueue};
use ringway_host::{EventFd, map_region, memfd, reclaim};
use ringway_mem::{Hint, Memory, Published, Reader, Span, SpanMut};
use ringway_ring::Policy;
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Ring as RingConfig, VringAddr};
use ringway_virtq::{Areas, Buffer, Driver, Layout, QueueError};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SIZE: u64 = 1 << 20;
const USER: u64 = 0x7000_0000_0000;
/// Addresses of the ring's parts and the buffers.
const PLACES: [u64; 3] = [0, 0x1_0000, 0x2_0000];
const DATA: u64 = 0x4_0000;
const MODERN: u64 = virtio::VERSION_1;
const NOW: u64 = 1_000;

/// A guest with one ring, and the port's end of it.
struct Bench {
    memory: Arc<Memory>,
    features: u64,
    config: RingConfig,
    state: Arc<VringState>,
    published: Arc<Published<Option<Vring>>>,
    counters: CountersRef,
    call: EventFd,
    next: Cell<u64>,
}

impl Bench {
    fn new(features: u64, size: u16) -> Bench {
        let file = memfd("guest", SIZE as usize).unwrap();
        let memory = Memory::new(vec![map_region(&file, 0, SIZE, 0, USER).unwrap()]).unwrap();
        let call = EventFd::new().unwrap();
        let [descriptors, available, used] = PLACES.map(|at| USER + at);
        let mut config = RingConfig::default();
        config.size = size;
        config.addresses = Some(VringAddr { index: 0, flags: 0, descriptors, used, available, log: 0 });
        config.call = Some(Arc::new(call.as_fd().try_clone_to_owned().unwrap()));
        config.enabled = true;
        let state = Arc::new(VringState::new(&Arc::default(), CountersRef::private(), Which::Rx));
        state.restart(RingConfig::first(features), features);
        let bench = Bench {
            memory: Arc::new(memory),
            features,
            config,
            state,
            published: Arc::new(Published::new(Arc::new(None))),
            counters: CountersRef::private(),
            call,
            next: Cell::new(DATA),
        };
        bench.publish(Policy::default());
        bench
    }

    fn describe(&self) -> Vring {
        Vring::new(Space::Direct(&self.memory), self.features, &self.config, &Log::default(), &self.state)
            .unwrap()
    }

    /// Enables or disables the ring.
    fn enable(&self, enabled: bool) {
        let mut config = self.config.clone();
        config.enabled = enabled;
        let vring =
            Vring::new(Space::Direct(&self.memory), self.features, &config, &Log::default(), &self.state);
        reclaim(self.published.replace(Arc::new(Some(vring.unwrap().with_policy(Policy::default())))));
    }

    fn publish(&self, policy: Policy) {
        reclaim(self.published.replace(Arc::new(Some(self.describe().with_policy(policy)))));
    }

    fn park(&self) {
        reclaim(self.published.replace(Arc::new(None)));
    }

    fn tx(&self) -> VringTx {
        VringTx::new(self.published.clone(), self.counters.clone())
    }

    fn rx(&self) -> VringRx {
        VringRx::new(self.published.clone(), self.counters.clone())
    }

    fn driver(&self) -> Driver<'_> {
        let layout = Layout {
            packed: self.features & virtio::RING_PACKED != 0,
            size: self.config.size,
            event_idx: self.features & virtio::EVENT_IDX != 0,
            indirect: true,
        };
        let lengths = layout.lengths().unwrap();
        let span = |at, len| self.memory.user_span(USER + at, len).unwrap();
        let areas = Areas {
            descriptors: span(PLACES[0], lengths.descriptors),
            driver: span(PLACES[1], lengths.driver),
            device: span(PLACES[2], lengths.device),
        };
        Driver::new(&layout, areas).unwrap()
    }

    fn span(&self, at: u64, len: usize) -> SpanMut<'_> {
        self.memory.span_mut(at, len as u32, &mut Hint::default()).unwrap()
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.span(at, len).as_span().read(&mut bytes);
        bytes
    }

    fn buffer(&self, len: usize, write: bool) -> Buffer {
        let address = self.next.get();
        self.next.set(address + len as u64);
        Buffer { address, len: len as u32, write }
    }

    /// A chain with `bytes`, split at `cuts`.
    fn chain(&self, bytes: &[u8], cuts: &[usize]) -> Vec<Buffer> {
        let ends: Vec<usize> = cuts.iter().copied().chain([bytes.len()]).collect();
        let mut begin = 0;
        let mut chain = Vec::new();
        for end in ends {
            let buffer = self.buffer(end - begin, false);
            self.span(buffer.address, end - begin).write(&bytes[begin..end]);
            chain.push(buffer);
            begin = end;
        }
        chain
    }

    fn dropped(&self, reason: Reason) -> (u64, u64) {
        let at = reason as usize;
        let load = |counters: &[std::sync::atomic::AtomicU64]| counters[at].load(Ordering::Relaxed);
        (load(&self.counters.tx_drops), load(&self.counters.rx_drops))
    }

    fn faults(&self) -> u64 {
        self.counters.faults.load(Ordering::Relaxed)
    }
}

/// The frames of one `take`, with their metadata; the first `release` frames are released.
fn take(tx: &mut VringTx, release: usize) -> Vec<(Vec<u8>, Offload)> {
    take_at(NOW, tx, release)
}

fn take_at(now: u64, tx: &mut VringTx, release: usize) -> Vec<(Vec<u8>, Offload)> {
    let mut reader = Reader::register().unwrap();
    let turn = reader.turn(now);
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    tx.take(&turn, &mut burst);
    let frames = (0..burst.len()).map(|index| {
        let meta = burst.meta(index);
        let mut bytes = vec![0; meta.len as usize];
        burst.read(index, 0, &mut bytes);
        (bytes, meta.offload)
    });
    let frames = frames.collect();
    tx.release(&turn, release);
    frames
}

/// Delivers frames to a queue as a worker does; returns how many it accepted.
fn give(rx: &mut VringRx, frames: &[(&[u8], Offload)]) -> usize {
    let mut reader = Reader::register().unwrap();
    let turn = reader.turn(NOW);
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    for (bytes, offload) in frames {
        let (front, back) = bytes.split_at(bytes.len() / 2);
        burst.push_pieces(*offload, &[Span::of(front), Span::of(back)]).unwrap();
    }
    let which: Vec<u16> = (0..frames.len() as u16).collect();
    if rx.caps(&turn).is_none() {
        return 0;
    }
    let fits = rx.reserve(&turn, &burst, &which);
    rx.put(&turn, &burst, &which[..fits]);
    rx.publish(&turn);
    fits
}

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|byte| byte as u8).collect()
}

fn with_header(header: usize, offload: Offload, frame: &[u8]) -> Vec<u8> {
    let mut bytes = offload.to_bytes().to_vec();
    bytes.resize(header, 0);
    bytes.extend(frame);
    bytes
}

#[test]
fn a_frame_is_read_however_its_header_is_split() {
    for (features, header) in
        [(MODERN, 12), (0, 10), (virtio::NET_MRG_RXBUF, 12), (MODERN | virtio::RING_PACKED, 12)]
    {
        let bench = Bench::new(features | virtio::NET_CSUM, 256);
        let mut tx = bench.tx();
        let offload = Offload::checksum(34, 16);
        let bytes = with_header(header, offload, &frame(200));
        let cuts: [&[usize]; 6] = [&[], &[header], &[5], &[3, 7, 11], &[1, 40], &[header, 60, 61]];
        for cut in cuts {
            let chain = bench.chain(&bytes, cut);
            let mut driver = bench.driver();
            bench.state.restart(RingConfig::first(features), features);
            for at in PLACES {
                bench.span(at, 0x1_0000).write(&[0; 0x1_0000]);
            }
            bench.publish(Policy::default());
            driver.add(&chain, None).unwrap();
            driver.publish();
            assert_eq!(take(&mut tx, 0), [(frame(200), offload)], "taken, not released: {cut:?}");
            assert_eq!(driver.take_used(), Ok(None));
            assert_eq!(take(&mut tx, 1), [(frame(200), offload)]);
            assert!(matches!(driver.take_used(), Ok(Some((_, 0)))));
            assert_eq!(take(&mut tx, 0), []);
        }
    }
}

#[test]
fn invalid_frames_are_skipped_and_counted_once() {
    let bench = Bench::new(MODERN | virtio::INDIRECT_DESC, 256);
    let mut tx = bench.tx();
    let good = with_header(12, Offload::default(), &frame(60));
    let refused = with_header(12, Offload::checksum(34, 16), &frame(60));
    let short = vec![0; 11];
    let chains =
        [good.clone(), refused, short.clone(), good.clone(), short].map(|bytes| bench.chain(&bytes, &[]));
    let long = bench.buffer(LARGEST as usize + 13, false);
    let mut driver = bench.driver();
    for chain in &chains {
        driver.add(chain, None).unwrap();
    }
    driver.add(&[long], None).unwrap();
    driver.publish();
    assert_eq!(take(&mut tx, 1).len(), 2);
    assert_eq!(take(&mut tx, 0).len(), 1);
    assert_eq!(take(&mut tx, 1).len(), 1);
    assert_eq!(take(&mut tx, 0), []);
    for id in 0..6 {
        assert_eq!(driver.take_used(), Ok(Some((id, 0))));
    }
    assert_eq!(bench.dropped(Reason::BadOffload).0, 1);
    assert_eq!(bench.dropped(Reason::Short).0, 2);
    assert_eq!(bench.dropped(Reason::Long).0, 1);
    assert_eq!((bench.faults(), bench.state.fault()), (0, None));
}

#[test]
fn a_broken_ring_stays_stopped_until_restarted() {
    for packed in [0, virtio::RING_PACKED] {
        let bench = Bench::new(MODERN | packed, 256);
        let mut tx = bench.tx();
        let mut driver = bench.driver();
        let chain = bench.chain(&with_header(12, Offload::default(), &frame(60)), &[]);
        driver.add(&chain, None).unwrap();
        driver.add(&[Buffer { address: SIZE, len: 100, write: false }], None).unwrap();
        driver.publish();
        assert_eq!(take(&mut tx, 1).len(), 1);
        assert_eq!(take(&mut tx, 0), []);
        assert_eq!(take(&mut tx, 0), []);
        assert_eq!(bench.state.fault(), Some(QueueError::Address));
        assert_eq!((bench.faults(), bench.dropped(Reason::BadAddress).0), (1, 1));
        // With a new description the ring stays broken; restarting it clears that.
        bench.publish(Policy::default());
        assert_eq!(take(&mut tx, 0), []);
        assert_eq!(bench.faults(), 1);
        bench.state.restart(bench.state.position(), bench.features);
        bench.publish(Policy::default());
        assert_eq!(take(&mut tx, 0), []);
        assert_eq!(bench.faults(), 2);
    }
}

#[test]
fn a_disabled_ring_is_not_accessed() {
    for features in [MODERN, MODERN | virtio::RING_PACKED] {
        let bench = Bench::new(features, 256);
        let (mut tx, mut driver) = (bench.tx(), bench.driver());
        let chain = bench.chain(&with_header(12, Offload::default(), &frame(60)), &[]);
        bench.enable(false);
        driver.add(&chain, None).unwrap();
        driver.publish();
        assert_eq!(take(&mut tx, 0), []);
        assert_eq!(driver.take_used(), Ok(None));
        assert_eq!(give(&mut bench.rx(), &[(&frame(60), Offload::default())]), 0);
        bench.enable(true);
        assert_eq!(take(&mut tx, 1), [(frame(60), Offload::default())]);
        assert!(matches!(driver.take_used(), Ok(Some(_))));
    }
}

#[test]
fn memory_of_a_disabled_ring_is_not_read() {
    // A driver that disables its ring and frees the memory; nothing read from there since may reach anyone.
    for features in [MODERN, MODERN | virtio::RING_PACKED] {
        let bench = Bench::new(features, 256);
        let mut tx = bench.tx();
        assert_eq!(take(&mut tx, 0), []);
        bench.enable(false);
        bench.span(0, SIZE as usize).write(&vec![0xa5; SIZE as usize]);
        assert_eq!(take(&mut tx, 0), []);
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(0);
        assert!(tx.arm(&turn) && tx.next_due().is_none());
        tx.disarm(&turn);
        assert_eq!(bench.faults(), 0);
        assert!(bench.bytes(0, SIZE as usize).iter().all(|byte| *byte == 0xa5));
    }
}

#[test]
fn a_stopped_ring_resumes_at_its_index() {
    for features in [MODERN, MODERN | virtio::RING_PACKED] {
        let bench = Bench::new(features, 4);
        let mut tx = bench.tx();
        let bytes: Vec<Vec<u8>> =
            (0..11).map(|len| with_header(12, Offload::default(), &frame(60 + len))).collect();
        let chains: Vec<_> = bytes.iter().map(|bytes| bench.chain(bytes, &[12])).collect();
        let mut driver = bench.driver();
        for (number, chain) in chains.iter().enumerate() {
            driver.add(chain, None).unwrap();
            driver.publish();
            // Taken but not released when the ring stops: the frame is taken again after the restart.
            assert_eq!(take(&mut tx, 0).len(), 1);
            bench.park();
            assert_eq!(take(&mut tx, 1), []);
            let position = bench.state.position();
            let packed = features & virtio::RING_PACKED != 0;
            let index = if packed {
                (2 * number as u16 % 4) | (u16::from(number / 2 % 2 == 0) << 15)
            } else {
                number as u16
            };
            assert_eq!(position, index);
            bench.state.restart(position, features);
            bench.publish(Policy::default());
            assert_eq!(take(&mut tx, 1), [(frame(60 + number), Offload::default())]);
            assert!(matches!(driver.take_used(), Ok(Some(_))));
        }
    }
}

/// What a ring becomes within a turn: it is described anew, disabled, or withdrawn.
fn changes(bench: &Bench) -> [Option<Vring>; 3] {
    let mut config = bench.config.clone();
    config.enabled = false;
    let disabled =
        Vring::new(Space::Direct(&bench.memory), bench.features, &config, &Log::default(), &bench.state);
    [Some(bench.describe()), Some(disabled.unwrap()), None]
}

#[test]
fn a_ring_that_changes_within_a_turn_loses_and_repeats_no_frame() {
    let mut reader = Reader::register().unwrap();
    for (features, change) in [MODERN, MODERN | virtio::RING_PACKED]
        .into_iter()
        .flat_map(|features| [0, 1, 2].map(|at| (features, at)))
    {
        let next = |bench: &Bench| {
            let changed = changes(bench).into_iter().nth(change).unwrap();
            bench.published.replace(Arc::new(changed))
        };
        let bench = Bench::new(features, 256);
        let (mut tx, mut driver) = (bench.tx(), bench.driver());
        let chain = bench.chain(&with_header(12, Offload::default(), &frame(60)), &[]);
        driver.add(&chain, None).unwrap();
        driver.publish();
        let mut storage = Storage::default();
        let turn = reader.turn(NOW);
        let mut burst = Burst::begin(&mut storage);
        tx.take(&turn, &mut burst);
        assert_eq!(burst.len(), 1);
        let former = next(&bench);
        tx.release(&turn, 1);
        reader.rest();
        reclaim(former);
        assert!(matches!(driver.take_used(), Ok(Some(_))), "the driver gets its buffer back");
        bench.state.restart(bench.state.position(), features);
        bench.publish(Policy::default());
        assert_eq!(take(&mut tx, 0), [], "it is not taken again");

        let bench = Bench::new(features, 256);
        let (mut rx, mut driver) = (bench.rx(), bench.driver());
        driver.add(&[bench.buffer(100, true)], None).unwrap();
        driver.publish();
        let bytes = frame(60);
        let turn = reader.turn(NOW);
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(&bytes)).unwrap();
        assert!(rx.caps(&turn).is_some());
        assert_eq!(rx.reserve(&turn, &burst, &[0]), 1);
        rx.put(&turn, &burst, &[0]);
        let former = next(&bench);
        rx.publish(&turn);
        reader.rest();
        reclaim(former);
        assert!(matches!(driver.take_used(), Ok(Some((_, 72)))), "the driver gets the frame");
    }
}

#[test]
fn an_announcement_comes_behind_a_frame_that_some_ports_have_got() {
    let bench = Bench::new(MODERN, 256);
    let (mut tx, mut driver) = (bench.tx(), bench.driver());
    let chains = [60, 61].map(|len| bench.chain(&with_header(12, Offload::default(), &frame(len)), &[]));
    chains.iter().for_each(|chain| assert!(driver.add(chain, None).is_some()));
    driver.publish();
    let lens = |frames: Vec<(Vec<u8>, Offload)>| frames.iter().map(|frame| frame.0.len()).collect::<Vec<_>>();
    assert_eq!(lens(take(&mut tx, 0)), [60, 61]);
    let rarp = Rarp::of([2, 0, 0, 0, 0, 1]);
    let vring = bench.describe().with_policy(Policy::default()).with_rarp(Some(rarp));
    reclaim(bench.published.replace(Arc::new(Some(vring))));
    assert_eq!(lens(take(&mut tx, 1)), [60, 61]);
    assert_eq!(lens(take(&mut tx, 1)), [61]);
    assert_eq!(take(&mut tx, 0)[0].0, rarp.frame);
    assert_eq!(take(&mut tx, 1)[0].0, rarp.frame, "it was not released");
    assert_eq!(take(&mut tx, 1), []);
}

#[test]
fn frames_without_a_buffer_wait_and_too_long_ones_are_dropped() {
    let bench = Bench::new(MODERN, 256);
    let mut rx = bench.rx();
    let (small, large) = (bench.buffer(80, true), bench.buffer(600, true));
    let mut driver = bench.driver();
    let frames: [Vec<u8>; 3] = [frame(100), frame(68), frame(500)];
    let offered = frames.each_ref().map(|frame| (&frame[..], Offload::default()));
    assert_eq!(give(&mut rx, &offered), 0, "no buffers");
    driver.add(&[small], None).unwrap();
    driver.publish();
    assert_eq!(give(&mut rx, &offered), 2, "one too long, one whole, one without a buffer");
    assert_eq!(driver.take_used(), Ok(Some((0, 80))));
    assert_eq!(bench.dropped(Reason::Long).1, 1);
    assert_eq!(bench.bytes(small.address, 80)[..13], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
    driver.add(&[large], None).unwrap();
    driver.publish();
    assert_eq!(give(&mut rx, &offered[2..]), 1);
    assert_eq!(driver.take_used(), Ok(Some((1, 512))));
    assert_eq!(bench.bytes(large.address + 12, 500), frames[2]);
}

#[test]
fn offload_metadata_reaches_a_driver_that_negotiated_it() {
    for (features, header, flags) in
        [(MODERN | virtio::NET_GUEST_CSUM, 12, 1), (virtio::NET_GUEST_CSUM, 10, 1), (MODERN, 12, 0)]
    {
        let bench = Bench::new(features, 256);
        let mut rx = bench.rx();
        let buffer = bench.buffer(200, true);
        let mut driver = bench.driver();
        driver.add(&[buffer], None).unwrap();
        driver.publish();
        let offload = Offload { flags, ..Offload::checksum(34, 16) };
        assert_eq!(give(&mut rx, &[(&frame(100), offload)]), 1);
        assert_eq!(driver.take_used(), Ok(Some((0, 100 + header as u32))));
        assert_eq!(
            bench.bytes(buffer.address, header),
            with_header(header, offload, &[])
                .iter()
                .enumerate()
                .map(|(at, &byte)| if at == 10 { 1 } else { byte })
                .collect::<Vec<u8>>()
        );
        assert_eq!(bench.bytes(buffer.address + header as u64, 100), frame(100));
    }
}

#[test]
fn capabilities_follow_the_negotiated_features() {
    let caps = |features| {
        let mut rx = Bench::new(features, 256).rx();
        let mut reader = Reader::register().unwrap();
        rx.caps(&reader.turn(NOW)).unwrap()
    };
    assert_eq!((caps(0).offloads, caps(0).largest), (Needs::NONE, 1518));
    assert_eq!(caps(virtio::NET_MRG_RXBUF).largest, LARGEST);
    let tso = caps(virtio::NET_GUEST_CSUM | virtio::NET_GUEST_TSO4);
    assert_eq!((tso.offloads, tso.largest), (Needs::CSUM.with(Needs::TSO4), LARGEST));
    assert_eq!(caps(virtio::NET_GUEST_USO4).offloads, Needs::NONE);
    assert_eq!(caps(virtio::NET_GUEST_USO4 | virtio::NET_GUEST_USO6).offloads, Needs::USO);
}

#[test]
fn a_driver_is_interrupted_only_on_request() {
    for packed in [0, virtio::RING_PACKED] {
        for event_idx in [0, virtio::EVENT_IDX] {
            let bench = Bench::new(MODERN | packed | event_idx, 256);
            let mut rx = bench.rx();
            let buffers: Vec<_> = (0..8).map(|_| bench.buffer(100, true)).collect();
            let mut driver = bench.driver();
            for buffer in &buffers {
                driver.add(&[*buffer], None).unwrap();
            }
            driver.publish();
            let bytes = frame(60);
            let mut deliver = |wanted| {
                assert_eq!(give(&mut rx, &[(&bytes, Offload::default())]), 1);
                assert_eq!(bench.call.clear(), wanted, "packed {packed:#x} event {event_idx:#x}");
            };
            driver.set_flag(false);
            // Once for a new ring, whose call descriptor may have changed.
            deliver(true);
            while let Ok(Some(_)) = driver.take_used() {}
            driver.set_flag(true);
            deliver(true);
            driver.set_flag(false);
            deliver(false);
            deliver(false);
            while let Ok(Some(_)) = driver.take_used() {}
            driver.set_flag(true);
            deliver(true);
            assert_eq!(bench.counters.interrupts.load(Ordering::Relaxed), 3);
        }
    }
}

#[test]
fn arming_enables_kicks_and_rechecks_the_ring() {
    for packed in [0, virtio::RING_PACKED] {
        for event_idx in [0, virtio::EVENT_IDX] {
            let bench = Bench::new(MODERN | packed | event_idx, 256);
            let mut tx = bench.tx();
            let chains: Vec<_> =
                (0..4).map(|_| bench.chain(&with_header(12, Offload::default(), &frame(60)), &[])).collect();
            let mut driver = bench.driver();
            let mut reader = Reader::register().unwrap();
            tx.disarm(&reader.turn(NOW));
            let mut send = |number: usize| {
                driver.add(&chains[number], None).unwrap();
                driver.publish();
                driver.wants_kick()
            };
            if event_idx == 0 || packed != 0 {
                assert!(!send(0), "packed {packed:#x} event {event_idx:#x}");
            } else {
                send(0);
            }
            assert!(!tx.arm(&reader.turn(NOW)), "a frame is there");
            assert_eq!(take(&mut tx, 1).len(), 1);
            assert!(tx.arm(&reader.turn(NOW)));
            assert!(send(1));
            tx.disarm(&reader.turn(NOW));
            assert!(!send(2));
            assert_eq!(take(&mut tx, 2).len(), 2);
            assert!(tx.arm(&reader.turn(NOW)));
            assert!(send(3));
        }
    }
}

#[test]
fn a_deferred_interrupt_is_sent_later() {
    let bench = Bench::new(MODERN, 256);
    bench.publish(Policy { moderate: 500, ..Policy::default() });
    let mut rx = bench.rx();
    let buffers = [bench.buffer(100, true), bench.buffer(100, true)];
    let mut driver = bench.driver();
    for buffer in buffers {
        driver.add(&[buffer], None).unwrap();
    }
    driver.publish();
    assert_eq!(give(&mut rx, &[(&frame(60), Offload::default())]), 1);
    assert!(bench.call.clear());
    assert_eq!(give(&mut rx, &[(&frame(60), Offload::default())]), 1);
    assert!(!bench.call.clear());
    assert_eq!(rx.next_due(), Some(NOW + 500));
    let mut reader = Reader::register().unwrap();
    rx.publish(&reader.turn(NOW + 500));
    assert!(bench.call.clear());
    assert_eq!(rx.next_due(), None);
}

#[test]
fn arming_a_disabled_ring_ends_its_deferred_interrupt() {
    let bench = Bench::new(MODERN, 256);
    let (mut tx, mut driver) = (bench.tx(), bench.driver());
    let bytes = with_header(12, Offload::default(), &frame(60));
    for _ in 0..2 {
        driver.add(&bench.chain(&bytes, &[]), None).unwrap();
        driver.publish();
        assert_eq!(take(&mut tx, 1).len(), 1);
    }
    assert!(tx.next_due().is_some());
    bench.enable(false);
    let mut reader = Reader::register().unwrap();
    assert!(tx.arm(&reader.turn(0)));
    assert_eq!(tx.next_due(), None);
}

#[test]
fn a_deferred_interrupt_survives_a_new_ring_description() {
    let bench = Bench::new(MODERN | virtio::EVENT_IDX, 256);
    let (mut tx, mut driver) = (bench.tx(), bench.driver());
    let bytes = with_header(12, Offload::default(), &frame(60));
    for _ in 0..2 {
        driver.add(&bench.chain(&bytes, &[]), None).unwrap();
        driver.publish();
        driver.set_flag(true);
        assert_eq!(take(&mut tx, 1).len(), 1);
        while driver.take_used().unwrap().is_some() {}
    }
    assert!(tx.next_due().is_some() && bench.call.clear());
    bench.publish(Policy::default());
    assert!(take(&mut tx, 0).is_empty());
    assert!(bench.call.clear());
    assert_eq!(tx.next_due(), None);
}

#[test]
fn a_disconnected_guest_has_no_deadline() {
    let (receives, sends) = (Bench::new(MODERN, 256), Bench::new(MODERN, 256));
    receives.publish(Policy { moderate: 500, ..Policy::default() });
    let (mut rx, mut tx) = (receives.rx(), sends.tx());
    let (mut rx_driver, mut tx_driver) = (receives.driver(), sends.driver());
    let bytes = with_header(12, Offload::default(), &frame(60));
    for _ in 0..2 {
        rx_driver.add(&[receives.buffer(100, true)], None).unwrap();
        rx_driver.publish();
        assert_eq!(give(&mut rx, &[(&frame(60), Offload::default())]), 1);
        tx_driver.add(&sends.chain(&bytes, &[]), None).unwrap();
        tx_driver.publish();
        assert_eq!(take(&mut tx, 1).len(), 1);
    }
    assert!(rx.next_due().is_some() && tx.next_due().is_some(), "the second one is held back");
    receives.park();
    sends.park();
    let mut reader = Reader::register().unwrap();
    let turn = reader.turn(NOW + 500);
    rx.publish(&turn);
    assert!(tx.arm(&turn));
    assert_eq!((rx.next_due(), tx.next_due()), (None, None));
    reader.rest();
    assert!(sends.call.clear());
    sends.publish(Policy::default());
    assert!(take(&mut tx, 0).is_empty());
    assert!(sends.call.clear(), "a returning guest is notified");
}

proptest! {
    #[test]
    fn frames_pass_from_one_guest_to_another(
        packed in any::<[bool; 2]>(),
        mergeable in any::<bool>(),
        lens in prop::collection::vec(14usize..3000, 1..60),
        cut in 1usize..60,
        room in 60usize..2000,
    ) {
        let features = |packed| MODERN
            | if packed { virtio::RING_PACKED } else { 0 }
            | if mergeable { virtio::NET_MRG_RXBUF } else { 0 };
        let (from, to) = (Bench::new(features(packed[0]), 128), Bench::new(features(packed[1]), 128));
        let (mut tx, mut rx) = (from.tx(), to.rx());
        let mut sum = 0;
        let lens: Vec<usize> = lens.into_iter().take_while(|len| { sum += len; sum < 100_000 }).collect();
        let frames: Vec<Vec<u8>> = lens.iter().map(|&len| frame(len)).collect();
        let chains: Vec<_> = frames
            .iter()
            .map(|frame| from.chain(&with_header(12, Offload::default(), frame), &[cut.min(12), 20]))
            .collect();
        let buffers: Vec<_> = (0..128).map(|_| to.buffer(room, true)).collect();
        let mut sender = from.driver();
        let mut receiver = to.driver();
        for buffer in &buffers {
            receiver.add(&[*buffer], None).unwrap();
        }
        receiver.publish();
        let mut reader = Reader::register().unwrap();
        let mut arrived = Vec::new();
        for chain in &chains {
            sender.add(chain, None).unwrap();
            sender.publish();
            let turn = reader.turn(NOW);
            let mut storage = Storage::default();
            let mut burst = Burst::begin(&mut storage);
            tx.take(&turn, &mut burst);
            prop_assert_eq!(burst.len(), 1);
            if rx.reserve(&turn, &burst, &[0]) == 1 {
                rx.put(&turn, &burst, &[0]);
            }
            tx.release(&turn, 1);
            rx.publish(&turn);
            prop_assert!(matches!(sender.take_used(), Ok(Some(_))));
            let mut bytes = Vec::new();
            while let Some((id, len)) = receiver.take_used().unwrap() {
                bytes.extend(to.bytes(buffers[usize::from(id)].address, len as usize));
            }
            arrived.push(bytes);
        }
        let lost = to.dropped(Reason::Long).1;
        let mut room_left = 128 * room;
        for (frame, bytes) in frames.iter().zip(&arrived) {
            if bytes.is_empty() {
                prop_assert!(room_left < frame.len() + 12 || !mergeable && room < frame.len() + 12);
                continue;
            }
            let buffers = usize::from(u16::from_le_bytes([bytes[10], bytes[11]]));
            prop_assert_eq!(buffers, (frame.len() + 12).div_ceil(room));
            room_left -= buffers * room;
            prop_assert_eq!(&bytes[12..], &frame[..]);
        }
        prop_assert!(mergeable || lost as usize == arrived.iter().filter(|bytes| bytes.is_empty()).count());
    }
}

/// Sends `count` frames, which are taken at `now`; returns how many the driver then sees as used.
fn send(bench: &Bench, driver: &mut Driver<'_>, tx: &mut VringTx, now: u64, count: usize) -> usize {
    for _ in 0..count {
        driver.add(&bench.chain(&with_header(12, Offload::default(), &frame(60)), &[]), None).unwrap();
    }
    driver.publish();
    assert_eq!(take_at(now, tx, count).len(), count);
    came_back(driver)
}

fn came_back(driver: &mut Driver<'_>) -> usize {
    std::iter::from_fn(|| driver.take_used().unwrap()).count()
}

#[test]
fn used_buffers_of_a_polling_driver_are_deferred_by_a_burst() {
    let bench = Bench::new(MODERN, 128);
    let (mut driver, mut tx) = (bench.driver(), bench.tx());
    driver.set_flag(false);
    assert_eq!(send(&bench, &mut driver, &mut tx, 0, 32), 0);
    assert_eq!(send(&bench, &mut driver, &mut tx, 1_000, 32), 32);
    assert_eq!(send(&bench, &mut driver, &mut tx, 2_000, 31), 63, "fewer are not worth it");
    assert_eq!(send(&bench, &mut driver, &mut tx, 3_000, 32), 0);
    assert!(take_at(22_999, &mut tx, 0).is_empty() && came_back(&mut driver) == 0);
    assert!(
        take_at(23_000, &mut tx, 0).is_empty() && came_back(&mut driver) == 32,
        "nothing came after them"
    );
    assert_eq!(send(&bench, &mut driver, &mut tx, 30_000, 33), 33, "more than a quarter of the ring");
    assert_eq!(send(&bench, &mut driver, &mut tx, 40_000, 32), 0);
    let mut reader = Reader::register().unwrap();
    assert!(tx.arm(&reader.turn(41_000)) && came_back(&mut driver) == 32, "nobody looks for a while");
}

#[test]
fn used_buffers_are_deferred_only_for_polling_drivers() {
    let (events, packed) = (MODERN | virtio::EVENT_IDX, MODERN | virtio::RING_PACKED);
    for (features, waits) in
        [(MODERN, true), (events, true), (events, false), (packed, true), (packed, false)]
    {
        let bench = Bench::new(features, 256);
        let (mut driver, mut tx) = (bench.driver(), bench.tx());
        driver.set_flag(waits);
        assert_eq!(send(&bench, &mut driver, &mut tx, 0, 40), 40, "{features:x} {waits}");
    }
}

#[test]
fn deferred_used_buffers_are_published_by_the_next_owner() {
    let bench = Bench::new(MODERN, 128);
    let (mut driver, mut tx) = (bench.driver(), bench.tx());
    driver.set_flag(false);
    assert_eq!(send(&bench, &mut driver, &mut tx, 0, 32), 0);
    // A new description of the ring is published.
    bench.publish(Policy::default());
    assert!(take_at(1, &mut tx, 0).is_empty() && came_back(&mut driver) == 32);
    assert_eq!(send(&bench, &mut driver, &mut tx, 2, 32), 0);
    // Stopped: no worker serves the ring, and its index counts what was taken.
    let last = bench.describe();
    bench.park();
    last.publish_held_back();
    assert_eq!((came_back(&mut driver), bench.state.position()), (32, 64));
}
