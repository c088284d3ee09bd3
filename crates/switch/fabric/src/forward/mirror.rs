//! Copies of mirrored frames, on their way to the ports that get them; and those that flow tables make.
//!
//! Frames are copied into the worker's memory where they pass: before policy where they arrive, in the form in which
//! their destination gets them where they leave. They go on to the ports that get copies at the end of the turn, when
//! no source is locked, or earlier if there are many. So a mirrored port waits for no copy: what its receiver has no
//! room for is dropped, and counted there.

use super::capture::numbers;
use super::destination::{Busy, Destination};
use super::policing::Frames;
use super::properties::Properties;
use super::tags::{TagType, vlan_of};
use super::{ETHERNET, Source, limits};
use crate::capture::CaptureEvent;
use crate::memory_access::{Access, Meter};
use crate::mirror::{MirrorTarget, Missed};
use crate::topology::{Port, RxSlot, Topology};
use ringway_flow::Headers;
use ringway_frame::{BURST, Burst, Caps, HEAD, LARGEST, Offload, Reason, Storage};
use ringway_mem::{Span, Turn};
use ringway_port::offload::{Completer, Outcome};
use ringway_switch::{FlowHash, PORTS, PortId};
use ringway_wire::pcapng::Direction;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Most copies that a worker has in hand, and most bytes of them. Attack: a burst that is flooded to a thousand
/// mirrored ports.
const COPIES: usize = 1024;
const BYTES: usize = 2 << 20;
/// Most copies that a worker has in hand where flows make them: those of a frame go to any number of ports. Their bytes
/// are there once for all copies with the same headers. Attack: as above, by flows that flood each frame of a burst.
const FLOWN_COPIES: usize = PORTS;
/// Nanoseconds that a copy waits for a queue that other workers have locked each time.
const WAIT: u64 = 100_000;
/// Length of the addresses of a frame, behind which a tag is.
const ADDRESSES: usize = 12;
/// Length of a tag.
const TAG: usize = 4;

/// A copy.
#[derive(Clone)]
struct Copied {
    target: Arc<MirrorTarget>,
    slot: Arc<RxSlot>,
    offload: Offload,
    /// Where its bytes are.
    start: usize,
    len: usize,
    /// When the frame was copied.
    time: u64,
}

/// The copies that a worker has in hand.
#[derive(Default)]
pub(super) struct MirrorCopies {
    copies: Vec<Copied>,
    bytes: Vec<u8>,
    storage: Storage,
    /// Queues whose receivers were not there the last time, and how many frames were not copied for each.
    skipped: Vec<(Arc<RxSlot>, usize)>,
    /// Whether a frame waits for room.
    is_awaited: bool,
}

/// Whether there is room for the copies that flows make of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is.
    Enough,
    /// There will be, once other copies are delivered.
    Later,
    /// There never is.
    Never,
}

/// Which of a source's frames were mirrored: those that wait are taken again.
#[derive(Debug, Default)]
pub(super) struct Mirrored {
    /// The number of the first one that was not, counted as `tx_frames` counts those that left.
    next: u64,
}

impl Mirrored {
    /// The source is empty: frames that were mirrored and did not leave are gone.
    #[inline]
    pub(super) fn rest(&mut self) {
        self.next = 0;
    }
}

/// The places at which a frame is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorPlace {
    /// Where it enters the fabric.
    From(PortId),
    /// Where it leaves the fabric.
    To(PortId),
}

/// The ports that get copies of frames which a port's peer sends.
fn of_arriving(port: &Port) -> impl Iterator<Item = &Arc<MirrorTarget>> {
    let rules = port.mirrors.as_deref().unwrap_or_default();
    rules.iter().filter(|rule| rule.from).map(|rule| &rule.target)
}

/// The ports that get copies of frames which a port's peer receives, from port `from` if a peer sent them. Those that
/// got one when the frame arrived get no second one.
fn of_leaving<'p>(
    to: &'p Port,
    from: impl Into<Option<&'p Port>>,
) -> impl Iterator<Item = &'p Arc<MirrorTarget>> {
    let (rules, from) = (to.mirrors.as_deref().unwrap_or_default(), from.into());
    let has_one = move |target: &MirrorTarget| {
        from.is_some_and(|from| of_arriving(from).any(|own| own.port == target.port))
    };
    rules.iter().filter(move |rule| rule.to && !has_one(&rule.target)).map(|rule| &rule.target)
}

/// Whether a port gets a copy of a frame, in the form in which the mirrored port's peer sends or receives it.
fn is_wanted(target: &MirrorTarget, port: &Port, burst: &Burst<'_>, frame: usize) -> bool {
    let len = burst.meta(frame).len;
    len >= ETHERNET && target.wants(|| vlan_of(port, burst.head(frame), len))
}

/// The copies that would be made of the only frame of a burst, as a port's peer sends it.
pub(super) fn preview_arriving((port, id): (&Port, PortId), burst: &Burst<'_>) -> Vec<(PortId, MirrorPlace)> {
    let wanting = of_arriving(port).filter(|target| is_wanted(target, port, burst, 0));
    wanting.map(|target| (target.port, MirrorPlace::From(id))).collect()
}

/// The copies that would be made of the only frame of a burst, as a port's peer receives it.
pub(super) fn preview_leaving(
    (to, id): (&Port, PortId),
    from: &Port,
    burst: &Burst<'_>,
) -> Vec<(PortId, MirrorPlace)> {
    let wanting = of_leaving(to, from).filter(|target| is_wanted(target, to, burst, 0));
    wanting.map(|target| (target.port, MirrorPlace::To(id))).collect()
}

impl MirrorCopies {
    /// Copies the frames of a burst that were not mirrored yet.
    #[cold]
    pub(super) fn arrived(
        &mut self,
        port: &Port,
        source: &mut Source,
        burst: &Burst<'_>,
        times: (FlowHash, u64),
    ) {
        let left = source.counters.tx_frames.load(Relaxed);
        let known = usize::try_from(source.mirrored.next.saturating_sub(left)).unwrap_or(usize::MAX);
        let count = burst.len();
        source.mirrored.next = source.mirrored.next.max(left + count as u64);
        for target in of_arriving(port) {
            self.add_all((target, port), burst, known.min(count)..count, times);
        }
    }

    /// Copies frames that a destination got.
    pub(super) fn delivered(
        &mut self,
        topology: &Topology,
        (from, to): (Option<&Port>, PortId),
        burst: &Burst<'_>,
        frames: &[u16],
        times: (FlowHash, u64),
    ) {
        let Some(to) = topology.port(to).filter(|to| to.mirrors.is_some()) else { return };
        for target in of_leaving(to, from) {
            self.add_all((target, to), burst, numbers(frames), times);
        }
    }

    /// Copies frames of a mirrored port.
    fn add_all(
        &mut self,
        (target, port): (&Arc<MirrorTarget>, &Port),
        burst: &Burst<'_>,
        frames: impl Iterator<Item = usize>,
        times: (FlowHash, u64),
    ) {
        // Without a receiver frames need not be looked at.
        if let [slot] = &target.slots[..]
            && target.vlans.is_none()
            && slot.missed.is_down.load(Relaxed)
            && burst.bounds().shortest >= ETHERNET
        {
            return self.skip(slot, frames.count());
        }
        frames
            .filter(|frame| is_wanted(target, port, burst, *frame))
            .for_each(|frame| self.add(target, burst, frame, times));
    }

    /// Counts frames whose receiver was not there the last time.
    fn skip(&mut self, slot: &Arc<RxSlot>, frames: usize) {
        match self.skipped.iter_mut().find(|(own, _)| Arc::ptr_eq(own, slot)) {
            Some((_, count)) => *count += frames,
            None => self.skipped.push((slot.clone(), frames)),
        }
    }

    /// Copies a frame.
    fn add(&mut self, target: &Arc<MirrorTarget>, burst: &Burst<'_>, frame: usize, times: (FlowHash, u64)) {
        self.add_changed(target, (burst, frame), (None, COPIES, &mut None), times);
    }

    /// Whether there ever is room for so many copies that flows make of a frame, and so many bytes of them.
    pub(super) fn has_room((copies, bytes): (usize, usize)) -> bool {
        copies <= FLOWN_COPIES && bytes <= BYTES
    }

    /// Whether there is room for so many copies that flows make of a frame, and so many bytes of them.
    pub(super) fn room(&mut self, (copies, bytes): (usize, usize)) -> Room {
        if !MirrorCopies::has_room((copies, bytes)) {
            return Room::Never;
        }
        if self.copies.len() + copies <= FLOWN_COPIES && self.bytes.len() + bytes <= BYTES {
            return Room::Enough;
        }
        self.is_awaited = true;
        Room::Later
    }

    /// Copies a frame that flows send to a port, with these headers if they changed it. `bytes`: where those of a copy
    /// with the same headers are. Whether the port has a queue, which gets the copy or counts it as dropped.
    pub(super) fn flown(
        &mut self,
        topology: &Topology,
        to: PortId,
        at: (&Burst<'_>, usize),
        (headers, bytes): (Option<&Headers>, &mut Option<usize>),
        times: (FlowHash, u64),
    ) -> bool {
        let target = topology.receivers.get(usize::from(to)).and_then(Option::as_ref);
        target.is_some_and(|target| self.add_changed(target, at, (headers, FLOWN_COPIES, bytes), times))
    }

    /// Copies a frame that flows have sent to a port, for the ports that mirror that one.
    pub(super) fn flown_mirrors(
        &mut self,
        topology: &Topology,
        (from, to): (&Port, PortId),
        (burst, frame): (&Burst<'_>, usize),
        headers: Option<&Headers>,
        times: (FlowHash, u64),
    ) {
        let Some(to) = topology.port(to) else { return };
        let head = head_of(burst, frame, headers);
        let len = burst.meta(frame).len;
        for target in of_leaving(to, from).filter(|target| target.wants(|| vlan_of(to, &head, len))) {
            self.add_changed(target, (burst, frame), (headers, COPIES, &mut None), times);
        }
    }

    /// Copies a frame, with these headers if they are others than those with which it came, unless there are `most`
    /// copies. `known`: where the bytes of a copy with the same headers are, if there is one. Whether there is a queue,
    /// which gets the copy or counts it as dropped.
    fn add_changed(
        &mut self,
        target: &Arc<MirrorTarget>,
        (burst, frame): (&Burst<'_>, usize),
        (headers, most, known): (Option<&Headers>, usize, &mut Option<usize>),
        (hash, now): (FlowHash, u64),
    ) -> bool {
        let meta = burst.meta(frame);
        let (front, replaced, grown) =
            headers.map_or((&[][..], 0, 0), |own| (own.bytes(), own.replaces(), own.grown()));
        let len = front.len() + (meta.len as usize).saturating_sub(replaced);
        let Some(slot) = target.slot(|| hash.of(&head_of(burst, frame, headers))) else { return false };
        if slot.missed.is_down.load(Relaxed) {
            self.skip(slot, 1);
            return true;
        }
        let kept = len.min(target.snap as usize).max(ETHERNET as usize);
        let tag = target.tag.map_or(0, |_| TAG);
        let is_same = kept == len && tag == 0;
        let start = known.filter(|_| is_same).unwrap_or(self.bytes.len());
        let end = start + kept + tag;
        if self.copies.len() >= most || end > BYTES || kept + tag > LARGEST as usize {
            slot.missed.full.fetch_add(1, Relaxed);
            return true;
        }
        // What is pending of a whole frame can't be done to a part of it.
        let offload = if kept < len { Offload::default() } else { meta.offload.moved(grown) };
        if start == self.bytes.len() {
            self.bytes.resize(end, 0);
            let bytes = &mut self.bytes[start..];
            let (own, behind) = bytes[tag..].split_at_mut(front.len().min(kept));
            own.copy_from_slice(&front[..own.len()]);
            burst.read(frame, replaced, behind);
            if let Some(vlan) = target.tag {
                bytes.copy_within(TAG..TAG + ADDRESSES, 0);
                bytes[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&TagType::Vlan.tag(vlan));
            }
            if is_same {
                *known = Some(start);
            }
        }
        self.copies.push(Copied {
            target: target.clone(),
            slot: slot.clone(),
            offload: offload.moved(tag as i16),
            start,
            len: kept + tag,
            time: now,
        });
        true
    }

    /// Whether a further burst may find no room.
    #[inline]
    pub(super) fn is_nearly_full(&self) -> bool {
        self.copies.len() >= COPIES / 2 || self.bytes.len() >= BYTES / 2 || self.is_awaited
    }

    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty() && self.skipped.is_empty()
    }

    /// Delivers the copies. Called while no queue is locked. Those whose queue other workers have locked stay, for a
    /// short time.
    #[cold]
    pub(super) fn deliver(
        &mut self,
        turn: &Turn<'_>,
        (meter, completer): (&Meter, &mut Completer),
        worker: usize,
        (due, combining): (&mut Vec<(u64, Arc<RxSlot>)>, &mut usize),
    ) {
        self.is_awaited = false;
        let MirrorCopies { copies, bytes, storage, skipped, .. } = self;
        for (slot, frames) in skipped.drain(..) {
            meter.at(Access::of(slot.port));
            slot.missed.down.fetch_add(frames as u64, Relaxed);
            // The receiver may be there again.
            if let Ok(Some(_locked)) = open(turn, &slot, 0) {
                Missed::settle(&slot);
            }
        }
        let mut all = std::mem::take(copies);
        // Those for a queue stay in their order.
        all.sort_by_key(|copy| Arc::as_ptr(&copy.slot));
        let mut rest = &all[..];
        while let Some(first) = rest.first() {
            let mut burst = Burst::begin(storage);
            let fits = rest
                .iter()
                .take_while(|copy| {
                    let span = bytes.get(copy.start..copy.start + copy.len).map(Span::of);
                    let is_next = Arc::ptr_eq(&copy.slot, &first.slot) && burst.room() > 0;
                    is_next && span.is_some_and(|span| burst.push(copy.offload, span).is_ok())
                })
                .count();
            meter.at(Access::of(first.slot.port));
            let receiver = Receiver { turn, target: &first.target, slot: &first.slot, worker };
            if fits > 0 && receiver.deliver(&burst, completer, (due, combining)).is_ok() {
                rest = &rest[fits..];
                continue;
            }
            // Those behind them wait too.
            let same = rest.iter().take_while(|copy| Arc::ptr_eq(&copy.slot, &first.slot)).count();
            let (own, others) = rest.split_at(same);
            let waits = |copy: &&Copied| turn.now.saturating_sub(copy.time) < WAIT;
            let waiting = copies.len();
            copies.extend(own.iter().filter(waits).cloned());
            let late = same - (copies.len() - waiting);
            first.slot.missed.busy.fetch_add(late as u64, Relaxed);
            rest = others;
        }
        meter.at(Access::NONE);
        self.compact();
    }

    /// Forgets the bytes of copies that are gone.
    fn compact(&mut self) {
        if self.copies.is_empty() {
            self.bytes.clear();
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        // Copies that share bytes are beside each other then; those for a queue stay in their order.
        self.copies.sort_by_key(|copy| copy.start);
        let mut last = None;
        for copy in &mut self.copies {
            let own = bytes.get(copy.start..copy.start + copy.len).unwrap_or_default();
            match last {
                Some((start, moved)) if start == copy.start => copy.start = moved,
                _ => {
                    last = Some((copy.start, self.bytes.len()));
                    copy.start = self.bytes.len();
                    self.bytes.extend_from_slice(own);
                }
            }
        }
    }
}

/// The head of a frame with these headers.
pub(super) fn head_of(burst: &Burst<'_>, frame: usize, headers: Option<&Headers>) -> [u8; HEAD] {
    let mut head = *burst.head(frame);
    let Some(headers) = headers else { return head };
    let (front, count) = (headers.bytes(), headers.bytes().len().min(HEAD));
    head[..count].copy_from_slice(&front[..count]);
    burst.read(frame, headers.replaces(), &mut head[count..]);
    head
}

/// Locks the queue of a receiver; if that is not there, counts so many frames as dropped.
fn open<'w>(
    turn: &Turn<'_>,
    slot: &'w Arc<RxSlot>,
    frames: usize,
) -> Result<Option<(Destination<'w>, Caps)>, Busy> {
    let opened = Destination::new(slot, 0, turn)?;
    slot.missed.is_down.store(opened.is_none(), Relaxed);
    if opened.is_none() {
        slot.missed.down.fetch_add(frames as u64, Relaxed);
        if let Ok(_locked) = slot.queue.try_lock() {
            Missed::settle(slot);
        }
    }
    Ok(opened)
}

/// A queue that gets copies.
struct Receiver<'r> {
    turn: &'r Turn<'r>,
    target: &'r MirrorTarget,
    slot: &'r Arc<RxSlot>,
    worker: usize,
}

impl Receiver<'_> {
    /// Delivers a burst of copies; what there is no room for is dropped.
    fn deliver(
        &self,
        burst: &Burst<'_>,
        completer: &mut Completer,
        (due, combining): (&mut Vec<(u64, Arc<RxSlot>)>, &mut usize),
    ) -> Result<(), Busy> {
        let Some((mut to, caps)) = open(self.turn, self.slot, burst.len())? else { return Ok(()) };
        Missed::settle(self.slot);
        let frames = self.within_rate(burst);
        if Properties::of_all(burst).suits(&caps) {
            to.reserve(self.turn, burst, &frames);
            let fits = to.fits;
            self.put(&mut to, burst, &frames[..fits]);
            self.drop_frames(burst, &frames[fits..], Reason::Full);
        } else {
            self.complete(&mut to, burst, &frames, (completer, caps));
        }
        to.publish(self.turn, due, combining);
        Ok(())
    }

    /// Delivers copies that the receiver can't take as they are.
    fn complete(
        &self,
        to: &mut Destination<'_>,
        burst: &Burst<'_>,
        frames: &[u16],
        (completer, caps): (&mut Completer, Caps),
    ) {
        let mut rest = frames;
        while !rest.is_empty() {
            let completed = completer.complete(burst, rest, caps);
            to.reserve(self.turn, &completed.burst, completed.names());
            let whole = completed.whole(to.fits);
            for (frame, outcome) in rest.iter().zip(completed.outcomes).take(whole.inputs) {
                if let Outcome::Dropped(reason) = outcome {
                    self.drop_frames(burst, &[*frame], *reason);
                }
            }
            self.put(to, &completed.burst, &completed.names()[..whole.outputs]);
            if whole.inputs < completed.outcomes.len() || whole.inputs == 0 {
                return self.drop_frames(burst, &rest[whole.inputs..], Reason::Full);
            }
            rest = &rest[whole.inputs..];
        }
    }

    fn put(&self, to: &mut Destination<'_>, burst: &Burst<'_>, frames: &[u16]) {
        if frames.is_empty() {
            return;
        }
        to.put(self.turn, burst, frames);
        if let Some(point) = &self.target.captures {
            let event = CaptureEvent::passing(Direction::Outbound);
            point.add(self.worker, event, burst, numbers(frames));
        }
    }

    fn drop_frames(&self, burst: &Burst<'_>, frames: &[u16], reason: Reason) {
        if frames.is_empty() {
            return;
        }
        self.slot.counters.drop_rx(reason, frames.len());
        if let Some(point) = &self.target.captures {
            let event =
                CaptureEvent { direction: Direction::Outbound, drop: Some(reason), is_uncertain: false };
            point.add(self.worker, event, burst, numbers(frames));
        }
    }

    /// The copies that do not exceed the rate of frames to the port. The others are dropped.
    fn within_rate(&self, burst: &Burst<'_>) -> Frames {
        let all = 0..burst.len().min(BURST) as u16;
        let policy = self.target.policy.as_deref();
        let Some(limit) = policy.and_then(limits::rate_to_of) else { return all.collect() };
        let mut tokens = limit.at(self.turn.now);
        let (within, beyond): (Vec<u16>, Vec<u16>) =
            all.partition(|frame| tokens.take(8 * u64::from(burst.meta(usize::from(*frame)).len)));
        drop(tokens);
        self.drop_frames(burst, &beyond, Reason::RateTo);
        within.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, frame};
    use super::super::{Served, Target};
    use super::*;
    use crate::policy::VlanSet;
    use crate::topology::Switch;
    use proptest::prelude::*;
    use ringway_spec::{Policy, Rate, Vlans};
    use ringway_switch::{Learning, Table};

    /// Ports 0, 1 and 2 on a switch, port 3 on none.
    fn bench() -> Bench {
        let lookup = Arc::new(Learning::new(Table::new(64, 16, 300, 64, 11), false));
        let switch = Arc::new(Switch { lookup, members: vec![0, 1, 2], has_policies: false, snooping: None });
        Bench::with(4, |port| if port == 3 { Target::Nowhere } else { Target::Switch(switch.clone()) })
    }

    fn vlans() -> [Policy; 4] {
        let access = Policy { vlans: Some(Vlans::Access(10)), ..Policy::default() };
        let carried = vec![(10, 10), (20, 20)];
        let trunk = Policy {
            vlans: Some(Vlans::Trunk { carried, native: None, service: false }),
            ..Policy::default()
        };
        [access, trunk, Policy::default(), Policy::default()]
    }

    fn tagged(to: u8, from: u8, vlan: u8, len: usize) -> &'static [u8] {
        let mut bytes = frame(to, from, len).to_vec();
        bytes.splice(12..12, [0x81, 0, 0, vlan]);
        bytes.leak()
    }

    fn send(bench: &mut Bench, port: usize, frames: &[&'static [u8]]) {
        bench.send(port, frames);
        while matches!(bench.serve(port), Served::Moved(_)) {}
    }

    #[test]
    fn a_mirror_gets_each_frame_once_in_the_form_in_which_it_passes() {
        for (direction, sent, received) in
            [((true, false), true, false), ((false, true), false, true), ((true, true), true, true)]
        {
            let mut bench = bench();
            bench.set_policies(&vlans());
            bench.mirror(3, &[0], direction, |_| {});
            let (plain, back) = (frame(0xff, 0, 60), tagged(0xff, 1, 10, 60));
            send(&mut bench, 0, &[plain]);
            assert_eq!(bench.got(3), if sent { vec![plain.to_vec()] } else { vec![] });
            send(&mut bench, 1, &[back]);
            let form = frame(0xff, 1, 60).to_vec();
            assert_eq!(bench.got(3), if received { vec![form] } else { vec![] }, "without its tag");
            send(&mut bench, 1, &[tagged(0xff, 1, 20, 60)]);
            assert!(bench.got(3).is_empty(), "it does not go to the port");
        }
        let mut bench = bench();
        bench.teach();
        bench.mirror(3, &[0, 1], (true, true), |_| {});
        send(&mut bench, 0, &[frame(1, 0, 60), frame(2, 0, 61)]);
        send(&mut bench, 2, &[frame(0, 2, 62), frame(0xff, 2, 63)]);
        let lengths: Vec<usize> = bench.got(3).iter().map(Vec::len).collect();
        assert_eq!(lengths, [60, 61, 62, 63, 63], "both mirrored ports get the last one");
    }

    #[test]
    fn vlans_select_frames_and_policy_comes_later() {
        let mut bench = bench();
        let [access, ..] = vlans();
        let limited = Policy { rate_from: Some(Rate { bits: 8, burst: Some(100) }), ..access };
        let [_, trunk, ..] = vlans();
        bench.set_policies(&[limited, trunk, Policy::default(), Policy::default()]);
        bench.mirror(3, &[0, 1], (true, false), |target| {
            target.vlans = Some(VlanSet::of([(10, 10)].into_iter()));
        });
        // The second one exceeds the rate, the third one is in a VLAN that the port does not carry.
        send(&mut bench, 0, &[frame(0xff, 0, 60), frame(0xff, 0, 61), tagged(0xff, 0, 10, 62)]);
        send(&mut bench, 1, &[tagged(0xff, 1, 20, 63), tagged(0xff, 1, 10, 64), frame(0xff, 1, 65)]);
        let lengths: Vec<usize> = bench.got(3).iter().map(Vec::len).collect();
        assert_eq!(lengths, [60, 61, 68]);
        bench.mirror(2, &[0], (true, false), |_| {});
        bench.got(2);
        send(&mut bench, 0, &[tagged(0xff, 0, 10, 62)]);
        assert_eq!(bench.got(2).len(), 1, "without VLANs a mirror gets what is refused too");
    }

    #[test]
    fn copies_are_cut_and_get_a_tag() {
        let mut bench = bench();
        bench.mirror(3, &[0], (true, true), |target| (target.snap, target.tag) = (40, Some(99)));
        let offload = Offload { gso_type: 1, gso_size: 100, ..Offload::checksum(34, 16) };
        bench.change(0, |peer| peer.offload = offload);
        send(&mut bench, 0, &[tagged(0xff, 0, 10, 1500)]);
        let mut expected = tagged(0xff, 0, 10, 1500)[..40].to_vec();
        expected.splice(12..12, [0x81, 0, 0, 99]);
        assert_eq!(bench.got(3), [expected], "nothing is pending of a part");
        bench.change(0, |peer| peer.offload = Offload::default());
        send(&mut bench, 0, &[frame(0xff, 0, 13), frame(0xff, 0, 14)]);
        let lengths: Vec<usize> = bench.got(3).iter().map(Vec::len).collect();
        assert_eq!(lengths, [18], "a frame that ends in its header is none");
    }

    #[test]
    fn what_is_pending_is_completed_for_the_receiver() {
        let mut bench = bench();
        bench.mirror(3, &[0], (true, false), |target| target.tag = Some(99));
        let text = "tcp,dl_dst=02:00:00:00:00:01,dl_src=02:00:00:00:00:00,nw_src=10.0.0.1,len=60054";
        let long = ringway_wire::fields::Described::parse(text).unwrap().frame.leak();
        let offload = Offload { gso_type: 1, gso_size: 1_460, ..Offload::checksum(34, 16) };
        bench.change(0, |peer| peer.offload = offload);
        send(&mut bench, 0, &[long]);
        let segments = bench.got(3);
        assert_eq!((segments.len(), segments[0].len()), (42, 1_518));
        assert!(segments.iter().all(|segment| segment[12..18] == [0x81, 0, 0, 99, 8, 0]));
    }

    #[test]
    fn a_slow_receiver_costs_only_copies() {
        let mut bench = bench();
        bench.teach();
        bench.mirror(3, &[0], (true, true), |_| {});
        bench.set_room(3, 2);
        send(&mut bench, 0, &[frame(1, 0, 60); 50]);
        assert_eq!((bench.got(1).len(), bench.got(3).len()), (50, 2));
        let dropped = |bench: &Bench, reason| bench.slot(3).counters.rx_drops_of(reason).load(Relaxed);
        assert_eq!(dropped(&bench, Reason::Full), 48);
        bench.change(3, |peer| peer.set_away(true));
        send(&mut bench, 0, &[frame(1, 0, 60); 5]);
        assert_eq!((bench.got(1).len(), dropped(&bench, Reason::Down)), (5, 5));
        // Frames that wait for their destination are mirrored when they arrive, and not again.
        bench.change(3, |peer| peer.set_away(false));
        bench.set_room(3, 100);
        send(&mut bench, 0, &[frame(1, 0, 60)]);
        assert_eq!((bench.got(1).len(), bench.got(3).len()), (1, 0), "it is looked for once a burst");
        bench.set_room(1, 0);
        bench.send(0, &[frame(1, 0, 60); 3]);
        (0..5).for_each(|_| assert_eq!(bench.serve(0), Served::Waiting));
        assert_eq!(bench.got(3).len(), 3);
        bench.set_room(1, 3);
        send(&mut bench, 0, &[]);
        assert_eq!((bench.got(1).len(), bench.got(3).len()), (3, 0));
    }

    #[test]
    fn copies_wait_shortly_for_a_queue_that_is_locked_and_are_counted_later() {
        let mut bench = bench();
        bench.teach();
        bench.mirror(3, &[0], (true, false), |_| {});
        let slot = bench.slot(3);
        let locked = slot.queue.lock().unwrap();
        send(&mut bench, 0, &[frame(1, 0, 60), frame(1, 0, 61)]);
        assert_eq!((bench.got(1).len(), bench.end_turn()), (2, Some(bench.now)));
        drop(locked);
        assert_eq!((bench.end_turn(), bench.got(3).len()), (None, 2));
        let locked = slot.queue.lock().unwrap();
        send(&mut bench, 0, &[frame(1, 0, 62); 3]);
        bench.now += WAIT;
        assert_eq!(bench.end_turn(), None);
        drop(locked);
        assert_eq!(slot.counters.rx_drops_of(Reason::Busy).load(Relaxed), 0);
        send(&mut bench, 0, &[frame(1, 0, 63)]);
        assert_eq!((slot.counters.rx_drops_of(Reason::Busy).load(Relaxed), bench.got(3).len()), (3, 1));
    }

    #[test]
    fn a_worker_has_a_bounded_number_of_copies_in_hand() {
        let mut bench = bench();
        bench.teach();
        // One frame is copied to so many queues.
        for _ in 0..40 {
            bench.mirror(3, &[0], (true, false), |_| {});
        }
        send(&mut bench, 0, &[frame(1, 0, 60); 64]);
        let full = bench.slot(3).counters.rx_drops_of(Reason::Full).load(Relaxed);
        assert_eq!((bench.got(1).len(), bench.got(3).len(), full), (64, COPIES, 64 * 40 - COPIES as u64));
    }

    type Step = (usize, Vec<(u8, usize)>, usize, usize, bool, u64);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let frames = prop::collection::vec((0u8..5, 0usize..200), 0..40);
        prop::collection::vec((0usize..3, frames, 0usize..4, 0usize..40, any::<bool>(), 0u64..200_000), 1..30)
    }

    /// What happens to a bench's frames. The receivers take all of them at last.
    fn run(bench: &mut Bench, steps: &[Step]) {
        for (port, frames, receiver, room, is_away, time) in steps {
            bench.set_room(*receiver, *room);
            bench.change(*receiver, |peer| peer.set_away(*is_away));
            let frames: Vec<_> = frames
                .iter()
                .map(|(to, len)| frame(if *to > 3 { 0xff } else { *to }, *port as u8, *len))
                .collect();
            bench.send(*port, &frames);
            bench.serve(*port);
            bench.now += time;
            bench.end_turn();
        }
        for port in (0..3).cycle().take(60) {
            bench.set_room(port, usize::MAX);
            bench.change(port, |peer| peer.set_away(false));
            bench.now += 1_000_000_000;
            bench.serve(port);
            bench.end_turn();
        }
    }

    proptest! {
        #[test]
        fn copies_and_drops_of_copies_are_the_frames_of_the_port_and_others_notice_nothing(
            steps in steps(), direction in prop_oneof![Just((true, false)), Just((false, true))],
        ) {
            let (mut plain, mut mirrored) = (bench(), bench());
            mirrored.mirror(3, &[0], direction, |_| {});
            run(&mut plain, &steps);
            run(&mut mirrored, &steps);
            prop_assert_eq!(&plain.all_counters()[..3], &mirrored.all_counters()[..3]);
            for port in 0..3 {
                prop_assert_eq!(plain.got(port), mirrored.got(port));
            }
            let slot = mirrored.slot(3);
            let drops: u64 = slot.counters.all_rx_drops().map(|count| count.load(Relaxed)).sum();
            let sent = steps.iter().filter(|step| step.0 == 0).flat_map(|step| &step.1);
            let expected = match direction.0 {
                true => sent.filter(|(_, len)| *len >= 14).count() as u64,
                false => mirrored.counters(0).rx_frames.load(Relaxed),
            };
            prop_assert_eq!(mirrored.got(3).len() as u64 + drops, expected);
        }

        #[test]
        fn a_trace_has_the_copies_that_are_made(
            steps in prop::collection::vec((0usize..3, 0u8..5, 0u8..22, 14usize..90), 1..20),
            direction in prop_oneof![Just((true, false)), Just((false, true)), Just((true, true))],
            only: bool, both: bool,
        ) {
            let mut bench = bench();
            bench.set_policies(&vlans());
            let ports: &[usize] = if both { &[0, 1] } else { &[1] };
            bench.mirror(3, ports, direction, |target| {
                target.vlans = only.then(|| VlanSet::of([(10, 10)].into_iter()));
            });
            for (port, to, vlan, len) in steps {
                let to = if to > 3 { 0xff } else { to };
                let from = port as u8;
                let bytes = if vlan % 10 == 0 { tagged(to, from, vlan, len) } else { frame(to, from, len) };
                let traced = bench.trace(port, bytes);
                prop_assert!(bench.got(3).is_empty());
                send(&mut bench, port, &[bytes]);
                let copies: Vec<Vec<u8>> = bench.got(3);
                prop_assert_eq!(copies.len(), traced.mirrored.len(), "{:?}", traced);
                for (_, place) in traced.mirrored {
                    let is_there = match place {
                        MirrorPlace::From(_) => copies.contains(&bytes.to_vec()),
                        MirrorPlace::To(_) => direction.1,
                    };
                    prop_assert!(is_there);
                }
            }
        }
    }
}
