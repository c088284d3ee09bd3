//! The places where captured ports' frames are copied.

use super::live_trace::LiveTrace;
use super::{Delivery, Destination, Source, Verdict};
use crate::capture::{CaptureEvent, CapturePoint};
use crate::topology::Port;
use ringway_frame::{Burst, Lost, Reason};
use ringway_switch::PortId;
use ringway_wire::pcapng::Direction;
use std::sync::atomic::Ordering::Relaxed;

/// Which of a source's frames were captured.
#[derive(Debug, Default)]
pub(super) struct Captured {
    epoch: u64,
    /// The number of the first one that was not, counted as `tx_frames` counts those that left.
    next: u64,
    /// What has happened so far to the first frame, if that is captured.
    pub(super) live: Option<Box<LiveTrace>>,
}

impl Captured {
    /// The source is empty: frames that were captured and did not leave are gone.
    #[inline]
    pub(super) fn rest(&mut self) {
        self.next = 0;
        self.live = None;
    }
}

/// Captures the frames of a burst that were not captured yet: those that wait are taken again.
#[cold]
pub(super) fn arrived(point: &CapturePoint, source: &mut Source, burst: &Burst<'_>) {
    let left = source.counters.tx_frames.load(Relaxed);
    if source.captured.epoch != point.epoch {
        source.captured = Captured { epoch: point.epoch, next: left, live: None };
    }
    let known = usize::try_from(source.captured.next.saturating_sub(left)).unwrap_or(usize::MAX);
    let count = burst.len();
    point.add(source.worker(), CaptureEvent::passing(Direction::Inbound), burst, known.min(count)..count);
    source.captured.next = source.captured.next.max(left + count as u64);
}

impl Delivery<'_, '_, '_> {
    fn point(&self, port: PortId) -> Option<&CapturePoint> {
        self.topology.port(port).and_then(|port: &Port| port.captures.as_deref())
    }

    /// Copies frames to a destination, and captures and mirrors them there.
    #[inline]
    pub(super) fn put(&self, to: &mut Destination<'_>, burst: &Burst<'_>, frames: &[u16]) {
        if self.topology.is_observed {
            let lost = self.put_and_capture(to, burst, frames);
            if (lost.frames as usize) < frames.len() {
                let times = (self.hash, self.turn.now);
                // Answers were not mirrored where they arrived.
                let from = self.source.answers.is_none().then_some(self.port);
                let ends = (from, to.slot.port);
                self.decided.mirrored.borrow_mut().delivered(self.topology, ends, burst, frames, times);
            }
            return;
        }
        to.put(self.turn, burst, frames);
    }

    #[cold]
    fn put_and_capture(&self, to: &mut Destination<'_>, burst: &Burst<'_>, frames: &[u16]) -> Lost {
        let point = self.point(to.slot.port);
        if point.is_none() && self.live.is_none() {
            return to.put(self.turn, burst, frames);
        }
        let counters = &to.slot.counters;
        let before: Vec<u64> = counters.all_rx_drops().map(|count| count.load(Relaxed)).collect();
        let all_lost = to.put(self.turn, burst, frames);
        let Lost { frames: lost, .. } = all_lost;
        let mut drops = to.slot.counters.all_rx_drops().zip(&before);
        let reason = drops.position(|(count, before)| count.load(Relaxed) != *before);
        let drop = (lost > 0).then(|| reason.and_then(|reason| Reason::ALL.get(reason)).copied()).flatten();
        let is_uncertain = drop.is_some() && lost < frames.len() as u64;
        let event = CaptureEvent { direction: Direction::Outbound, drop, is_uncertain };
        if let Some(point) = point {
            point.add(self.source.worker(), event, burst, numbers(frames));
        }
        if let Some(live) = self.live.filter(|_| !frames.is_empty()) {
            let verdict = drop.filter(|_| !is_uncertain).map_or(Verdict::Delivered, Verdict::Dropped);
            live.borrow_mut().record(to.slot.port, verdict, frames.len());
        }
        all_lost
    }

    /// Captures frames that are dropped at a port.
    #[cold]
    pub(super) fn capture_dropped(
        &self,
        port: PortId,
        reason: Reason,
        frames: impl Iterator<Item = usize> + Clone,
    ) {
        self.capture_dropped_in(port, reason, self.burst, frames);
    }

    /// As [`Delivery::capture_dropped`], of frames of `burst`, which were made for the port.
    #[cold]
    pub(super) fn capture_dropped_in(
        &self,
        port: PortId,
        reason: Reason,
        burst: &Burst<'_>,
        frames: impl Iterator<Item = usize> + Clone,
    ) {
        if !self.topology.has_captures {
            return;
        }
        let is_own = port == self.source.port;
        if let Some(live) = self.live.filter(|_| frames.clone().next().is_some()) {
            live.borrow_mut().drop_at((!is_own).then_some(port), reason);
        }
        let Some(point) = self.point(port) else { return };
        let direction = if is_own { Direction::Inbound } else { Direction::Outbound };
        let event = CaptureEvent { direction, drop: Some(reason), is_uncertain: false };
        point.add(self.source.worker(), event, burst, frames);
    }
}

/// Numbers of frames.
pub(super) fn numbers(frames: &[u16]) -> impl Iterator<Item = usize> + Clone {
    frames.iter().map(|&frame| usize::from(frame))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::{Bench, frame};
    use super::*;
    use crate::capture::CaptureBuffer;
    use crate::proto::Capture;
    use proptest::prelude::*;
    use ringway_frame::Counters;
    use ringway_host::{Mapping, memfd};
    use ringway_ring::capture::{Consumer, Geometry};
    use std::sync::Arc;

    /// A capture of ports 0..3 of a bench, and its memory.
    pub(in super::super) struct Reading {
        memory: Arc<Mapping>,
        geometry: Geometry,
        consumers: Vec<Consumer>,
        /// The port, what happened, when, and the first bytes.
        pub(in super::super) frames: Vec<(u16, CaptureEvent, u64, Vec<u8>)>,
    }

    pub(in super::super) fn buffer(bytes: usize, settings: &Capture) -> (Arc<CaptureBuffer>, Reading) {
        let geometry = Geometry::new(2, 3, bytes);
        let file = memfd("ringway-test-capture", geometry.bytes()).unwrap();
        let memory = Mapping::sealed(&file).unwrap();
        geometry.initialize(memory.words());
        let buffer = CaptureBuffer::new(&file, settings.clone()).unwrap();
        (
            Arc::new(buffer),
            Reading { memory, geometry, consumers: vec![Consumer::default(); 2], frames: Vec::new() },
        )
    }

    impl Reading {
        pub(in super::super) fn read(&mut self) {
            for (number, consumer) in self.consumers.iter_mut().enumerate() {
                let lane = self.geometry.lane(self.memory.words(), number).unwrap();
                let frames = &mut self.frames;
                let each = |record: ringway_ring::capture::Record, data: &[u8]| {
                    frames.push((
                        record.port,
                        CaptureEvent::of_kind(record.kind),
                        record.time,
                        data.to_vec(),
                    ));
                };
                consumer.drain(&lane, each).unwrap();
            }
        }

        /// Frames captured at a port, and those for which there was no room.
        fn count(&self, port: u16, is: impl Fn(CaptureEvent) -> bool) -> u64 {
            self.frames.iter().filter(|frame| frame.0 == port && is(frame.1)).count() as u64
        }

        fn statistics(&self, port: usize) -> [u64; 3] {
            let mut sum = [0; 3];
            for lane in 0..2 {
                let found = self.geometry.lane(self.memory.words(), lane).unwrap().statistics(port);
                for (sum, one) in sum.iter_mut().zip([found.received, found.accepted, found.dropped]) {
                    *sum += one;
                }
            }
            sum
        }
    }

    pub(in super::super) fn settings(filter: &str) -> Capture {
        let ports = ["a", "b", "c"].map(String::from).to_vec();
        let filter = filter.into();
        Capture { ports, inbound: true, outbound: true, drops: true, filter, snap_len: 40, verdicts: false }
    }

    fn sum<'c>(counters: impl Iterator<Item = &'c std::sync::atomic::AtomicU64>) -> u64 {
        counters.map(|count| count.load(Relaxed)).sum()
    }

    proptest! {
        #[test]
        fn copies_and_own_drops_are_the_frames_of_the_port(
            steps in prop::collection::vec(
                (
                    0usize..3, prop::collection::vec((0u8..6, 0usize..200), 0..40),
                    0usize..3, 0usize..40, any::<bool>(), 0u64..200_000,
                ),
                1..30,
            ),
            is_small: bool,
        ) {
            let mut bench = Bench::new(3);
            let all = settings("");
            let (first, mut everything) = buffer(if is_small { 8192 } else { 1 << 22 }, &all);
            let (second, mut short) = buffer(1 << 22, &settings("less 100"));
            bench.capture(&[first, second]);
            for (port, frames, receiver, room, is_away, time) in steps {
                bench.set_room(receiver, room);
                bench.change(receiver, |peer| peer.set_away(is_away));
                let frames: Vec<_> = frames
                    .into_iter()
                    .map(|(to, len)| frame(if to > 4 { 0xff } else { to }, port as u8, len))
                    .collect();
                bench.send(port, &frames);
                bench.serve(port);
                bench.serve(port);
                bench.now += time;
                everything.read();
                short.read();
            }
            // No frame waits any more.
            for port in (0..3).cycle().take(30) {
                bench.set_room(port, usize::MAX);
                bench.change(port, |peer| peer.set_away(false));
                bench.now += 1_000_000_000;
                bench.serve(port);
                everything.read();
                short.read();
            }
            for port in 0..3u16 {
                let counters: &Counters = &bench.counters(port.into());
                let (tx, rx) = (counters.tx_frames.load(Relaxed), counters.rx_frames.load(Relaxed));
                let drops = sum(counters.all_tx_drops()) + sum(counters.all_rx_drops());
                let [received, accepted, lost] = everything.statistics(port.into());
                prop_assert_eq!((received, accepted), (tx + rx + drops, tx + rx + drops));
                prop_assert_eq!(everything.count(port, |_| true) + lost, received);
                if !is_small {
                    let inbound = |event: CaptureEvent| event == CaptureEvent::passing(Direction::Inbound);
                    prop_assert_eq!(everything.count(port, inbound), tx);
                    let outbound = |event: CaptureEvent| event == CaptureEvent::passing(Direction::Outbound);
                    prop_assert_eq!(everything.count(port, outbound), rx);
                    for reason in Reason::ALL {
                        let counted = counters.tx_drops_of(*reason).load(Relaxed)
                            + counters.rx_drops_of(*reason).load(Relaxed);
                        let captured = everything.count(port, |event| event.drop == Some(*reason));
                        prop_assert_eq!(captured, counted, "{:?}", reason);
                    }
                }
                let [received, accepted, lost] = short.statistics(port.into());
                prop_assert_eq!((received, lost), (tx + rx + drops, 0));
                prop_assert_eq!(short.count(port, |_| true), accepted);
            }
            prop_assert!(everything.frames.iter().all(|(.., data)| data.len() <= 40));
            let is_sorted = everything.frames.is_sorted_by_key(|(_, _, time, _)| *time);
            prop_assert!(is_sorted, "one worker, one order");
        }
    }

    #[test]
    fn a_second_capture_of_a_port_does_not_repeat_frames_that_wait() {
        let mut bench = Bench::new(3);
        let (first, mut one) = buffer(1 << 20, &settings(""));
        let (second, mut two) = buffer(1 << 20, &settings(""));
        bench.capture(std::slice::from_ref(&first));
        bench.teach();
        one.read();
        one.frames.clear();
        bench.set_room(1, 1);
        bench.send(0, &[frame(1, 0, 60), frame(1, 0, 61), frame(1, 0, 62)]);
        bench.serve(0);
        bench.capture(&[first.clone(), second]);
        bench.set_room(1, 100);
        bench.serve(0);
        one.read();
        two.read();
        let inbound = |event: CaptureEvent| event.direction == Direction::Inbound;
        assert_eq!((one.count(0, inbound), two.count(0, inbound)), (3, 0), "they had arrived before");
        assert_eq!((one.count(1, |event| !inbound(event)), two.count(1, |event| !inbound(event))), (3, 2));
        // Without captures nothing is copied.
        bench.capture(&[]);
        bench.send(0, &[frame(1, 0, 60)]);
        bench.serve(0);
        one.read();
        assert_eq!(one.count(0, inbound), 3);
        bench.capture(&[first]);
        bench.send(0, &[frame(1, 0, 60)]);
        bench.serve(0);
        one.read();
        assert_eq!(one.count(0, inbound), 4);
    }
}
