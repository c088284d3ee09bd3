use super::super::Served;
use super::super::capture::tests::{buffer, settings};
use super::super::tests::{Bench, HOLD};
use proptest::prelude::*;
use ringway_frame::{Burst, Caps, LARGEST, Needs, Offload, Reason, Storage};
use ringway_mem::Span;
use ringway_port::offload::Completer;
use ringway_spec::Policy;
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Ipv4, Protocol, Tcp};
use std::sync::atomic::Ordering::Relaxed;

/// A flow from one station to another, and how far it is.
#[derive(Clone, Debug)]
struct Flow {
    from: u8,
    to: u8,
    port: u16,
    number: u16,
}

impl Flow {
    /// The next segment, of `len` bytes.
    fn segment(&mut self, len: usize, flags: Flags) -> &'static [u8] {
        let mut tcp = Tcp { flags, data_offset: 5 << 4, ..Tcp::EMPTY };
        tcp.source_port.set(self.port);
        tcp.sequence_number.set(u32::from(self.number) * 1_000);
        let mut upper = [tcp.bytes(), &vec![self.number as u8; len]].concat();
        let mut ip = Ipv4 {
            total_length: ((20 + upper.len()) as u16).into(),
            identification: self.number.into(),
            ttl: 64,
            protocol: Protocol::TCP,
            source: (0x0a00_0000 + u32::from(self.from)).into(),
            destination: (0x0a00_0000 + u32::from(self.to)).into(),
            ..Ipv4::EMPTY
        };
        ip.fill_checksum(&[]);
        let mut sum = ip.pseudo_header(upper.len() as u16);
        sum.add(&upper);
        upper[16..18].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
        self.number += 1;
        let ethernet = [2, 0, 0, 0, 0, self.to, 2, 0, 0, 0, 0, self.from, 8, 0];
        [&ethernet[..], ip.bytes(), &upper].concat().leak()
    }
}

/// Ports 0.., all of which take large frames.
fn bench(ports: u16) -> Bench {
    let mut bench = Bench::new(ports);
    bench.teach();
    for port in bench.ports() {
        bench.change(port, |peer| {
            peer.takes = Needs::ALL;
            peer.got_offloads.clear();
        });
    }
    bench
}

/// What a port got, and its frames as they are after segmentation.
fn got(bench: &Bench, port: usize) -> (usize, Vec<Vec<u8>>) {
    let frames = bench.got(port);
    let mut offloads = Vec::new();
    bench.change(port, |peer| offloads = std::mem::take(&mut peer.got_offloads));
    let (mut completer, mut all) = (Completer::default(), Vec::new());
    for (bytes, offload) in frames.iter().zip(offloads) {
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        burst.push(offload, Span::of(bytes)).unwrap();
        let done = completer.complete(&burst, &[0], Caps { offloads: Needs::NONE, largest: LARGEST });
        for frame in 0..done.burst.len() {
            let mut bytes = vec![0; done.burst.meta(frame).len as usize];
            done.burst.read(frame, 0, &mut bytes);
            all.push(bytes);
        }
    }
    (frames.len(), all)
}

fn counts(bench: &Bench, port: usize) -> (u64, u64) {
    let counters = bench.counters(port);
    (counters.rx_frames.load(Relaxed), counters.joined.load(Relaxed))
}

#[test]
fn a_stream_to_a_port_is_joined_unless_that_is_turned_off() {
    for (setting, takes, expected) in [
        (None, Needs::ALL, 2),
        (Some(true), Needs::CSUM.with(Needs::TSO4), 2),
        (Some(false), Needs::ALL, 40),
        (None, Needs::CSUM, 40),
        (Some(true), Needs::NONE, 40),
        (None, Needs::CSUM.with(Needs::TSO6), 40),
    ] {
        let mut bench = bench(2);
        bench.change(1, |peer| peer.takes = takes);
        bench.set_reassembly(1, setting);
        let before = counts(&bench, 1);
        let mut flow = Flow { from: 0, to: 1, port: 1, number: 0 };
        let frames: Vec<_> = (0..40).map(|_| flow.segment(1_000, Flags::ACK)).collect();
        bench.send(0, &frames);
        assert_eq!(bench.serve(0), Served::Moved(40));
        let (count, all) = got(&bench, 1);
        assert_eq!(count, expected, "{setting:?}, {takes:?}");
        assert!(all.iter().map(|frame| &frame[..]).eq(frames));
        let (rx, joined) = counts(&bench, 1);
        assert_eq!((rx - before.0, joined - before.1), (expected as u64, 40 - expected as u64));
    }
}

#[test]
fn a_policy_says_whether_frames_are_joined_without_restricting_anything() {
    let policy = Policy { reassembly: Some(false), ..Policy::default() };
    assert!(policy.restricts_nothing() && !policy.is_empty());
}

#[test]
fn a_trace_says_that_a_frame_may_be_joined() {
    let mut bench = bench(2);
    let mut flow = Flow { from: 0, to: 1, port: 1, number: 0 };
    let (data, bare) = (flow.segment(1_000, Flags::ACK), flow.segment(0, Flags::ACK));
    let mut joins = |frame: &[u8]| bench.trace_with(0, frame, Offload::default()).copies[0].joins;
    assert!(joins(data) && !joins(bare));
    bench.set_reassembly(1, Some(false));
    assert!(!bench.trace(0, data).copies[0].joins);
}

#[test]
fn a_destination_without_room_for_large_frames_gets_small_ones() {
    let mut bench = bench(3);
    let mut flows = [1u16, 2].map(|port| Flow { from: 0, to: 1, port, number: 0 });
    let frames: Vec<_> = (0..20).map(|at| flows[at % 2].segment(1_000, Flags::ACK)).collect();
    bench.send(0, &frames);
    // Room for one frame: the segments behind the first one of the second flow stay.
    bench.set_room(1, 1);
    assert_eq!(bench.serve(0), Served::Moved(1));
    assert_eq!(got(&bench, 1).1, [frames[0]]);
    bench.set_room(1, 100);
    assert_eq!(bench.serve(0), Served::Moved(19));
    let (count, all) = got(&bench, 1);
    assert_eq!((count, all.len()), (2, 19));
}

#[test]
fn a_cut_by_another_destination_cuts_a_frame_too() {
    let mut bench = bench(3);
    let mut large = Flow { from: 0, to: 1, port: 1, number: 0 };
    let mut other = Flow { from: 0, to: 2, port: 1, number: 0 };
    let mut frames: Vec<_> = (0..10).map(|_| large.segment(1_000, Flags::ACK)).collect();
    frames.insert(6, other.segment(500, Flags::ACK));
    bench.send(0, &frames);
    bench.set_room(2, 0);
    assert_eq!(bench.serve(0), Served::Moved(6));
    let (count, all) = got(&bench, 1);
    assert_eq!((count, all.len()), (1, 6), "the four behind the one that waits stay");
    bench.set_room(2, 9);
    assert_eq!(bench.serve(0), Served::Moved(5));
    let (count, all) = got(&bench, 1);
    assert_eq!((count, all.len(), got(&bench, 2).0), (1, 4, 1));
}

#[test]
fn a_destination_that_refuses_large_frames_gets_small_ones() {
    for (longest, expected) in [(20_000, 2), (8_000, 20)] {
        let mut bench = bench(2);
        bench.change(1, |peer| peer.refuses = Some(longest));
        let mut flows = [1u16, 2].map(|port| Flow { from: 0, to: 1, port, number: 0 });
        let frames: Vec<_> = (0..20).map(|at| flows[at % 2].segment(1_000, Flags::ACK)).collect();
        bench.send(0, &frames);
        assert_eq!(bench.serve(0), Served::Moved(20));
        let (count, all) = got(&bench, 1);
        assert_eq!((count, all.len()), (expected, 20), "{longest} bytes");
    }
}

#[test]
fn a_capture_shows_the_frame_that_a_destination_lost() {
    let mut bench = bench(3);
    let mut flows = [1u16, 2].map(|port| Flow { from: 0, to: 1, port, number: 0 });
    let mut frames: Vec<_> = (0..20).map(|at| flows[at % 2].segment(1_000, Flags::ACK)).collect();
    frames.insert(15, Flow { from: 0, to: 2, port: 1, number: 0 }.segment(500, Flags::ACK));
    let (point, mut reading) = buffer(1 << 20, &settings(""));
    bench.capture(&[point]);
    bench.send(0, &frames);
    // 15 frames leave, as two; when they are copied there is room for one.
    bench.set_room(2, 0);
    bench.change(1, |peer| peer.rooms = [100, 100, 1].into());
    let before = bench.all_counters();
    assert_eq!(bench.serve(0), Served::Moved(15));
    assert_eq!(bench.drops_since(&before), [(1, Reason::Full)]);
    assert_eq!(got(&bench, 1).1.len(), 8, "the first flow's");
    reading.read();
    let dropped = reading.frames.iter().filter(|(port, event, ..)| *port == 1 && event.drop.is_some());
    let ports: Vec<_> = dropped.map(|(.., data)| u16::from_be_bytes([data[34], data[35]])).collect();
    assert_eq!(ports, [2], "the second flow's frame");
}

proptest! {
    #[test]
    fn every_segment_arrives_once_in_the_order_of_its_flow(
        steps in prop::collection::vec(
            (prop::collection::vec((0usize..6, 0u8..20), 0..64), 0usize..20, 0usize..20, any::<bool>()),
            1..12,
        ),
        is_off: bool,
    ) {
        let mut bench = bench(3);
        bench.set_reassembly(2, Some(!is_off));
        let mut flows: Vec<Flow> =
            (0..6).map(|port| Flow { from: 0, to: 1 + port as u8 % 2, port, number: 0 }).collect();
        let mut sent: Vec<&'static [u8]> = Vec::new();
        let mut arrived = vec![Vec::new(); 3];
        let before = [1, 2].map(|port| counts(&bench, port));
        let mut take = |bench: &Bench| {
            for port in [1, 2] {
                arrived[port].extend(got(bench, port).1);
            }
        };
        for (frames, first, second, is_late) in steps {
            let frames: Vec<_> = frames
                .into_iter()
                .map(|(flow, kind)| match kind {
                    0 => flows[flow].segment(700, Flags::ACK),
                    1 => flows[flow].segment(1_000, Flags::ACK.with(Flags::PSH)),
                    2 => flows[flow].segment(1_000, Flags::ACK.with(Flags::FIN)),
                    3 => flows[flow].segment(0, Flags::ACK),
                    _ => flows[flow].segment(1_000, Flags::ACK),
                })
                .collect();
            sent.extend(&frames);
            bench.send(0, &frames);
            bench.set_room(1, first);
            bench.set_room(2, second);
            bench.serve(0);
            // Never so late that a frame is given up.
            bench.now += if is_late { HOLD / 100 } else { 0 };
            bench.serve(0);
            take(&bench);
        }
        bench.set_room(1, usize::MAX);
        bench.set_room(2, usize::MAX);
        while matches!(bench.serve(0), Served::Moved(_)) {}
        take(&bench);
        for port in [1u8, 2] {
            for flow in flows.iter().filter(|flow| flow.to == port) {
                let own = |frame: &&[u8]| frame[34..36] == flow.port.to_be_bytes();
                let arrived = arrived[usize::from(port)].iter().map(|frame| &frame[..]).filter(own);
                prop_assert!(arrived.eq(sent.iter().copied().filter(own)), "flow {}", flow.port);
            }
            let (rx, joined) = counts(&bench, port.into());
            let before = before[usize::from(port) - 1];
            let count = sent.iter().filter(|frame| frame[5] == port).count() as u64;
            prop_assert_eq!(rx - before.0 + joined - before.1, count);
            prop_assert!(port == 1 || !is_off || joined == before.1);
        }
    }
}
