//! What happens to frames of a port whose capture has verdicts. Such a port's frames are served one by one.

use super::policing::Policing;
use super::tags::Retag;
use super::trace::{COPIES, Traced, TracedCopy, Verdict, lookup_name};
use super::{Source, Target};
use crate::capture::{CapturePoint, LONGEST_COPY, LiveFrame};
use crate::proto;
use crate::topology::{Port, Topology};
use ringway_frame::{BURST, Burst, Reason};
use ringway_host::since_1970;
use ringway_switch::{NOWHERE, PortId};
use std::cell::RefCell;

/// What has happened so far to a frame.
#[derive(Debug)]
pub(super) struct LiveTrace {
    traced: Traced,
    data: Vec<u8>,
    len: u32,
    /// When it was taken first.
    time: u64,
}

impl LiveTrace {
    /// Records what happened to the frame, or to those made from it, at a destination.
    pub(super) fn record(&mut self, port: PortId, verdict: Verdict, frames: usize) {
        let copies = &mut self.traced.copies;
        // A frame that waits is tried again.
        if copies.len() >= COPIES {
            self.traced.omitted += 1;
            return;
        }
        copies.push(TracedCopy { port, queue: 0, verdict, retag: Retag::Keep, completed: None, frames });
    }

    /// Records that the frame was dropped at a destination, or at its own port.
    pub(super) fn drop_at(&mut self, port: Option<PortId>, reason: Reason) {
        match port {
            Some(port) => self.record(port, Verdict::Dropped(reason), 1),
            None => self.traced.dropped = Some(reason),
        }
    }
}

fn point(port: Option<&Port>) -> Option<&CapturePoint> {
    port.and_then(|port| port.captures.as_deref()).filter(|point| point.has_verdicts())
}

/// Leaves the first frame in the burst, if it is to be traced.
#[inline]
pub(super) fn shorten(topology: &Topology, port: Option<&Port>, burst: &mut Burst<'_>) {
    if topology.has_captures && point(port).is_some() {
        burst.truncate(1);
    }
}

/// Begins to record what happens to the only frame of the burst, or goes on if it has waited.
#[inline]
pub(super) fn begin(
    port: &Port,
    source: &mut Source,
    burst: &Burst<'_>,
    now: u64,
) -> Option<RefCell<Box<LiveTrace>>> {
    port.captures.as_ref()?;
    begin_one(port, source, burst, now).map(RefCell::new)
}

#[cold]
fn begin_one(port: &Port, source: &mut Source, burst: &Burst<'_>, now: u64) -> Option<Box<LiveTrace>> {
    let waited = source.captured.live.take();
    point(Some(port))?;
    if waited.is_some() {
        return waited;
    }
    let (mut vlan, mut sender) = (None, None);
    let learned = match &port.target {
        Target::Switch(switch) if switch.lookup.flows().is_some() => None,
        Target::Switch(switch) if switch.has_policies => {
            let (mut policing, mut verdicts) = (Policing::default(), [NOWHERE; BURST]);
            let (said, learned) = policing.preview(switch, (port, source.port), burst, (now, &mut verdicts));
            sender = said;
            vlan = (!policing.is_refused(0)).then(|| policing.vlan(0));
            learned
        }
        Target::Switch(switch) => switch.lookup.preview(burst, source.port, now, &mut [NOWHERE; BURST]),
        _ => None,
    };
    let len = burst.meta(0).len;
    let mut data = vec![0; len.min(LONGEST_COPY) as usize];
    let count = burst.read(0, 0, &mut data);
    data.truncate(count);
    let traced = Traced { learned, vlan, sender, ..Traced::default() };
    Some(Box::new(LiveTrace { traced, data, len, time: since_1970() }))
}

/// Passes on what happened to the frame once it has left its port.
#[inline]
pub(super) fn end(
    live: Option<RefCell<Box<LiveTrace>>>,
    has_left: bool,
    verdict: PortId,
    places: (&Topology, &Port),
    source: &mut Source,
) {
    let Some(live) = live.map(RefCell::into_inner) else { return };
    if has_left {
        pass_on(*live, verdict, places, source);
    } else {
        source.captured.live = Some(live);
    }
}

#[cold]
fn pass_on(mut live: LiveTrace, verdict: PortId, (topology, port): (&Topology, &Port), source: &Source) {
    let Some(point) = point(Some(port)) else { return };
    live.traced.lookup = lookup_name(&port.target, verdict);
    let name = |id: PortId| {
        let port = topology.port(id);
        port.map_or_else(|| format!("(port {id})"), |port| port.name.to_string())
    };
    let traced = proto::Traced::of(std::mem::take(&mut live.traced), name);
    point.add_live(source.worker(), &LiveFrame { traced, data: &live.data }, (live.time, live.len));
}

#[cfg(test)]
mod tests {
    use super::super::Served;
    use super::super::tests::{Bench, frame};
    use super::*;
    use crate::capture::CaptureBuffer;
    use crate::proto::Capture;
    use proptest::prelude::*;
    use ringway_host::{Mapping, memfd};
    use ringway_ring::capture::{Consumer, Geometry};
    use std::sync::Arc;

    /// A capture with verdicts of port 0 of three, and what it has got.
    struct Live {
        memory: Arc<Mapping>,
        geometry: Geometry,
        consumer: Consumer,
        buffer: Arc<CaptureBuffer>,
    }

    impl Live {
        fn new(bytes: usize, filter: &str) -> Live {
            let geometry = Geometry::new(1, 3, bytes);
            let file = memfd("ringway-test-live", geometry.bytes()).unwrap();
            let memory = Mapping::sealed(&file).unwrap();
            geometry.initialize(memory.words());
            let (ports, filter) = (["0", "1", "2"].map(String::from).to_vec(), filter.into());
            let settings = Capture {
                ports,
                inbound: true,
                outbound: true,
                drops: true,
                filter,
                snap_len: 40,
                verdicts: true,
            };
            let buffer = Arc::new(CaptureBuffer::new(&file, settings).unwrap());
            Live { memory, geometry, consumer: Consumer::default(), buffer }
        }

        /// What happened to frames since the last call, and the frames.
        fn read(&mut self) -> Vec<(proto::Traced, Vec<u8>)> {
            let lane = self.geometry.lane(self.memory.words(), 0).unwrap();
            let mut read = Vec::new();
            let each = |_, data: &[u8]| {
                let LiveFrame { traced, data } = LiveFrame::of(data).unwrap();
                read.push((traced, data.to_vec()));
            };
            self.consumer.drain(&lane, each).unwrap();
            read
        }
    }

    proptest! {
        #[test]
        fn what_is_recorded_is_what_a_trace_says_just_before(
            steps in prop::collection::vec(
                (
                    0usize..3,
                    prop::collection::vec((prop_oneof![0u8..5, Just(0xff)], 0u8..5, 14usize..100), 1..5),
                    [0usize..3, 0..3, 0..3], [0u8..8, 0..8, 0..8],
                ),
                1..20,
            ),
            hold in prop_oneof![Just(0), Just(100_000)],
        ) {
            let mut bench = Bench::new(3);
            bench.set_hold(hold);
            let mut live = Live::new(1 << 20, "");
            bench.capture(&[live.buffer.clone()]);
            for (port, frames, rooms, away) in steps {
                for receiver in 0..3 {
                    bench.got(receiver);
                    bench.set_room(receiver, rooms[receiver]);
                    bench.change(receiver, |peer| peer.set_away(away[receiver] == 0));
                }
                let frames: Vec<_> = frames.into_iter().map(|(to, from, len)| frame(to, from, len)).collect();
                bench.send(port, &frames);
                for bytes in frames {
                    let name = |id: PortId| id.to_string();
                    let mut before = proto::Traced::of(bench.trace(port, bytes), name);
                    let mut served = bench.serve(port);
                    let mut waits = 0;
                    while served == Served::Waiting && waits < 8 {
                        bench.now += hold;
                        waits += 1;
                        served = bench.serve(port);
                    }
                    prop_assert_eq!(served, Served::Moved(1), "one by one");
                    let records = live.read();
                    prop_assert_eq!(records.len(), 1);
                    let (mut traced, data) = records.into_iter().next().unwrap_or_default();
                    prop_assert_eq!(data, &bytes[..bytes.len().min(40)]);
                    // A frame that waited was dropped then.
                    for copy in before.copies.iter_mut().filter(|copy| copy.verdict == "waits") {
                        (copy.verdict, copy.hold) = ("dropped".into(), 0);
                    }
                    for traced in [&mut before, &mut traced] {
                        traced.copies.sort_by(|one, other| one.port.cmp(&other.port));
                    }
                    prop_assert_eq!(traced, before);
                }
            }
        }
    }

    #[test]
    fn a_slow_reader_loses_records_and_no_frames_and_others_are_not_traced() {
        let mut bench = Bench::new(3);
        let mut live = Live::new(1 << 10, "greater 61");
        bench.capture(&[live.buffer.clone()]);
        let frames = [frame(1, 0, 62); 100];
        bench.send(0, &frames);
        (0..100).for_each(|_| assert_eq!(bench.serve(0), Served::Moved(1)));
        let count = live.read().len() as u64;
        let lane = live.geometry.lane(live.memory.words(), 0).unwrap();
        let (lost, dropped) = (lane.statistics(0).dropped, bench.got(1).len());
        assert!((1..100).contains(&count) && count + lost == 100, "{count} {lost}");
        assert_eq!(dropped, 100, "frames pass");
        bench.send(0, &[frame(1, 0, 60)]);
        bench.serve(0);
        assert!(live.read().is_empty(), "the expression excludes it");
        bench.capture(&[]);
        bench.send(0, &frames);
        assert_eq!(bench.serve(0), Served::Moved(64), "whole bursts again");
    }
}
