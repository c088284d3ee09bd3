//! The places where captured ports' frames are copied.

use super::{Delivery, Destination, Source};
use crate::capture::{Seen, Taps};
use crate::topology::Port;
use ringway_frame::{Burst, Lost, Reason};
use ringway_switch::PortId;
use ringway_wire::pcapng::Direction;
use std::sync::atomic::Ordering::Relaxed;

/// Which of a source's frames were captured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Captured {
    epoch: u64,
    /// The number of the first one that was not, counted as `tx_frames` counts those that left.
    next: u64,
}

impl Captured {
    /// The source is empty: frames that were captured and did not leave are gone.
    #[inline]
    pub(super) fn rest(&mut self) {
        self.next = 0;
    }
}

/// Captures the frames of a burst that were not captured yet: those that wait are taken again.
#[cold]
pub(super) fn arrived(taps: &Taps, source: &mut Source, burst: &Burst<'_>) {
    let left = source.counters.tx_frames.load(Relaxed);
    if source.captured.epoch != taps.epoch {
        source.captured = Captured { epoch: taps.epoch, next: left };
    }
    let known = usize::try_from(source.captured.next.saturating_sub(left)).unwrap_or(usize::MAX);
    let count = burst.len();
    taps.see(source.worker(), Seen::passing(Direction::Inbound), burst, known.min(count)..count);
    source.captured.next = source.captured.next.max(left + count as u64);
}

impl Delivery<'_, '_, '_> {
    fn taps(&self, port: PortId) -> Option<&Taps> {
        self.topology.port(port).and_then(|port: &Port| port.taps.as_deref())
    }

    /// Copies frames to a destination, and captures them there.
    #[inline]
    pub(super) fn put(&self, to: &mut Destination<'_>, burst: &Burst<'_>, frames: &[u16]) {
        if self.topology.has_captures {
            return self.put_captured(to, burst, frames);
        }
        to.put(self.turn, burst, frames);
    }

    #[cold]
    fn put_captured(&self, to: &mut Destination<'_>, burst: &Burst<'_>, frames: &[u16]) {
        let Some(taps) = self.taps(to.slot.port) else {
            to.put(self.turn, burst, frames);
            return;
        };
        let drops = &to.slot.counters.rx_drops;
        let before: Vec<u64> = drops.iter().map(|count| count.load(Relaxed)).collect();
        let Lost { frames: lost, .. } = to.put(self.turn, burst, frames);
        let drops = &to.slot.counters.rx_drops;
        let reason = drops.iter().zip(&before).position(|(count, before)| count.load(Relaxed) != *before);
        let drop = (lost > 0).then(|| reason.and_then(|reason| Reason::ALL.get(reason)).copied()).flatten();
        let is_uncertain = drop.is_some() && lost < frames.len() as u64;
        let seen = Seen { direction: Direction::Outbound, drop, is_uncertain };
        taps.see(self.source.worker(), seen, burst, numbers(frames));
    }

    /// Captures frames that are dropped at a port.
    #[cold]
    pub(super) fn see_dropped(
        &self,
        port: PortId,
        reason: Reason,
        frames: impl Iterator<Item = usize> + Clone,
    ) {
        if !self.topology.has_captures {
            return;
        }
        let Some(taps) = self.taps(port) else { return };
        let is_own = port == self.source.port;
        let direction = if is_own { Direction::Inbound } else { Direction::Outbound };
        let seen = Seen { direction, drop: Some(reason), is_uncertain: false };
        taps.see(self.source.worker(), seen, self.burst, frames);
    }
}

/// Numbers of frames.
pub(super) fn numbers(frames: &[u16]) -> impl Iterator<Item = usize> + Clone {
    frames.iter().map(|&frame| usize::from(frame))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, frame};
    use super::*;
    use crate::capture::Tap;
    use crate::proto::Capture;
    use proptest::prelude::*;
    use ringway_frame::Counters;
    use ringway_host::{Mapping, memfd};
    use ringway_ring::capture::{Consumer, Geometry};
    use std::sync::Arc;

    /// A capture of ports 0..3 of a bench, and its memory.
    struct Reading {
        memory: Arc<Mapping>,
        geometry: Geometry,
        consumers: Vec<Consumer>,
        frames: Vec<(u16, Seen, u64, Vec<u8>)>,
    }

    fn tap(bytes: usize, settings: &Capture) -> (Arc<Tap>, Reading) {
        let geometry = Geometry::new(2, 3, bytes);
        let file = memfd("ringway-test-capture", geometry.bytes()).unwrap();
        let memory = Mapping::sealed(&file).unwrap();
        geometry.initialize(memory.words());
        let tap = Tap::new(&file, settings.clone()).unwrap();
        (
            Arc::new(tap),
            Reading { memory, geometry, consumers: vec![Consumer::default(); 2], frames: Vec::new() },
        )
    }

    impl Reading {
        fn read(&mut self) {
            for (number, consumer) in self.consumers.iter_mut().enumerate() {
                let lane = self.geometry.lane(self.memory.words(), number).unwrap();
                let frames = &mut self.frames;
                let each = |record: ringway_ring::capture::Record, data: &[u8]| {
                    frames.push((record.port, Seen::of_kind(record.kind), record.time, data.to_vec()));
                };
                consumer.drain(&lane, each).unwrap();
            }
        }

        /// Frames captured at a port, and those for which there was no room.
        fn count(&self, port: u16, is: impl Fn(Seen) -> bool) -> u64 {
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

    fn settings(filter: &str) -> Capture {
        let ports = ["a", "b", "c"].map(String::from).to_vec();
        Capture { ports, inbound: true, outbound: true, drops: true, filter: filter.into(), snap_len: 40 }
    }

    fn sum(counters: &[std::sync::atomic::AtomicU64]) -> u64 {
        counters.iter().map(|count| count.load(Relaxed)).sum()
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
            let (first, mut everything) = tap(if is_small { 8192 } else { 1 << 22 }, &all);
            let (second, mut short) = tap(1 << 22, &settings("less 100"));
            bench.tap(&[first, second]);
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
                let drops = sum(&counters.tx_drops) + sum(&counters.rx_drops);
                let [received, accepted, lost] = everything.statistics(port.into());
                prop_assert_eq!((received, accepted), (tx + rx + drops, tx + rx + drops));
                prop_assert_eq!(everything.count(port, |_| true) + lost, received);
                if !is_small {
                    let inbound = |seen: Seen| seen == Seen::passing(Direction::Inbound);
                    prop_assert_eq!(everything.count(port, inbound), tx);
                    let outbound = |seen: Seen| seen == Seen::passing(Direction::Outbound);
                    prop_assert_eq!(everything.count(port, outbound), rx);
                    for reason in Reason::ALL {
                        let counted = counters.tx_drops[*reason as usize].load(Relaxed)
                            + counters.rx_drops[*reason as usize].load(Relaxed);
                        let seen = everything.count(port, |seen| seen.drop == Some(*reason));
                        prop_assert_eq!(seen, counted, "{:?}", reason);
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
        let (first, mut one) = tap(1 << 20, &settings(""));
        let (second, mut two) = tap(1 << 20, &settings(""));
        bench.tap(std::slice::from_ref(&first));
        bench.teach();
        one.read();
        one.frames.clear();
        bench.set_room(1, 1);
        bench.send(0, &[frame(1, 0, 60), frame(1, 0, 61), frame(1, 0, 62)]);
        bench.serve(0);
        bench.tap(&[first.clone(), second]);
        bench.set_room(1, 100);
        bench.serve(0);
        one.read();
        two.read();
        let inbound = |seen: Seen| seen.direction == Direction::Inbound;
        assert_eq!((one.count(0, inbound), two.count(0, inbound)), (3, 0), "they had arrived before");
        assert_eq!((one.count(1, |seen| !inbound(seen)), two.count(1, |seen| !inbound(seen))), (3, 2));
        // Without captures nothing is copied.
        bench.tap(&[]);
        bench.send(0, &[frame(1, 0, 60)]);
        bench.serve(0);
        one.read();
        assert_eq!(one.count(0, inbound), 3);
        bench.tap(&[first]);
        bench.send(0, &[frame(1, 0, 60)]);
        bench.serve(0);
        one.read();
        assert_eq!(one.count(0, inbound), 4);
    }
}
