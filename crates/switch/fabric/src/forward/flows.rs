//! Frames on a switch with flow tables.
//!
//! A frame with one unchanged copy gets a verdict, as by any lookup: it may wait until its destination has room. The
//! copies of other frames are made here, in the worker's memory, and go on as mirrored ones do: they wait for nobody. A
//! frame that waits is taken again with the next burst: it is looked up again by what it is then, but neither counted
//! nor metered nor copied again.

use super::drops::without_destination;
use super::mirror::{MirrorCopies, Room};
use super::{ETHERNET, Source};
use crate::topology::{Port, Switch, Topology};
use ringway_flow::{
    Dropped, FlowMod, Headers, Output, PRIORITY, Pipeline, Published, Step, To, Verdict, Worker,
};
use ringway_frame::{BURST, Burst, HEAD, Offload, Reason, Storage, add};
use ringway_switch::{
    FLOOD, FLOW_LIMIT, FLOWN, FlowHash, FlowLookup, FrameVlans, LONG_HEADERS, METERED, NO_FLOW, NOWHERE,
    PORTS, PortId, Verdicts, vlan,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes behind a frame's head that flows may be looked up by.
const BEHIND: usize = ringway_flow::LONGEST_HEADERS - HEAD;

/// What a worker keeps of switches with flow tables.
#[derive(Default)]
pub(super) struct Flows {
    known: Vec<Known>,
    pulled: Box<[[u8; BEHIND]]>,
    making: Making,
    /// The copies of the frame that is traced.
    pub(super) traced: Vec<(PortId, Vec<u8>, Offload)>,
}

/// What is needed to make copies.
struct Making {
    /// For frames that are forwarded as `normal` says, one by one.
    one: Storage,
    /// The copies of a frame that go nowhere, and why.
    refused: Vec<PortId>,
    /// The mirrored ports that get copies of a frame, and the numbers of the outputs.
    mirrored: Vec<(PortId, usize)>,
}

impl Default for Making {
    fn default() -> Making {
        Making { one: Storage::new(1), refused: Vec::new(), mirrored: Vec::new() }
    }
}

/// A switch's tables as a worker has them.
struct Known {
    published: Arc<Published>,
    pipeline: Arc<Pipeline>,
    worker: Worker,
}

/// The frames of a source that were run through its switch's tables and have not left: they are taken again.
#[derive(Debug, Default)]
pub(super) struct Flown {
    /// The number of the first one, counted as `tx_frames` counts those that left.
    first: u64,
    /// What became of each.
    verdicts: Vec<PortId>,
}

impl Flown {
    /// The source is empty: frames that were run and did not leave are gone.
    #[inline]
    pub(super) fn rest(&mut self) {
        self.verdicts.clear();
    }

    /// What became of frame `frame` of a source of which `left` have left, if it was run before.
    fn of(&self, left: u64, frame: usize) -> Option<PortId> {
        let before = usize::try_from(left.checked_sub(self.first)?).ok()?;
        self.verdicts.get(before.checked_add(frame)?).copied()
    }
}

/// Whether nothing is left to do for a frame but to count it. Attack: a peer that changes a frame which waits: what
/// becomes of another one is decided again, by what it is.
fn is_final(verdict: PortId) -> bool {
    matches!(verdict, FLOWN | NO_FLOW | METERED | FLOW_LIMIT | LONG_HEADERS)
}

/// Where frames are looked up.
pub(super) struct Place<'p> {
    pub(super) topology: &'p Topology,
    pub(super) switch: &'p Switch,
    pub(super) lookup: &'p FlowLookup,
    pub(super) port: &'p Port,
    /// The hash of flows, and now.
    pub(super) times: (FlowHash, u64),
}

/// What becomes of a frame.
enum Way {
    /// It has this verdict.
    As(PortId),
    /// It is forwarded as a switch without flows does.
    Normal,
    /// Its copies have to be made.
    Copies,
}

fn way_of(lookup: &FlowLookup, from: PortId, found: &Verdict<'_>) -> Way {
    if let Some(dropped) = found.dropped {
        return Way::As(match dropped {
            Dropped::NoMatch | Dropped::NoOutput => NO_FLOW,
            Dropped::Metered => METERED,
            Dropped::Limit => FLOW_LIMIT,
            Dropped::Headers => LONG_HEADERS,
        });
    }
    match found.outputs {
        [Output { to: To::Port(number), headers: None }] => match lookup.port(*number) {
            Some(port) if port == from => Way::Copies,
            Some(port) => Way::As(port),
            None => Way::As(NOWHERE),
        },
        [Output { to: To::Others, headers: None }] => Way::As(FLOOD),
        [Output { to: To::Normal, headers: None }] => Way::Normal,
        _ => Way::Copies,
    }
}

impl Flows {
    /// Gives each frame of a burst its verdict, and makes the copies of those that have [`FLOWN`]. If there are many,
    /// the last frames leave the burst, for the next one; so does a frame whose copies have no room now.
    #[inline(never)]
    pub(super) fn look_up<'b>(
        &'b mut self,
        place: &Place<'_>,
        source: &mut Source,
        burst: &mut Burst<'b>,
        (verdicts, copies): (&mut Verdicts, &mut MirrorCopies),
    ) {
        let Flows { known, pulled, making, .. } = self;
        pull(pulled, burst);
        let Place { lookup, times: (_, now), .. } = *place;
        let Known { pipeline, worker, .. } = known_of(known, lookup.published());
        let (from, left) = (source.port, source.counters.tx_frames.load(Relaxed));
        let all = burst.len();
        let (mut normal, mut count, mut run) = (0u64, all, all);
        let mut batch = pipeline.begin(worker, now);
        for (frame, own) in verdicts.iter_mut().enumerate().take(all) {
            let (meta, kept) = (burst.meta(frame), source.flown.of(left, frame));
            let verdict = match kept {
                Some(verdict) if is_final(verdict) => verdict,
                // It is dropped as too short.
                _ if meta.len < ETHERNET => NOWHERE,
                _ => {
                    let arrival = lookup.arrival(from, meta.len, &meta.offload);
                    let read = |offset: usize, out: &mut [u8]| burst.read(frame, offset, out);
                    let found = match kept {
                        Some(_) => batch.run_again(arrival, read),
                        None => batch.run(arrival, read),
                    };
                    match way_of(lookup, from, &found) {
                        Way::As(verdict) => verdict,
                        Way::Normal => {
                            normal |= 1 << frame;
                            NOWHERE
                        }
                        Way::Copies => match copies.room(size(place, &found, meta.len)) {
                            Room::Enough => make(place, (source, burst, frame), &found, (making, copies)),
                            Room::Never => FLOW_LIMIT,
                            Room::Later => {
                                // It is not counted again.
                                (*own, count, run) = (NOWHERE, frame, frame + 1);
                                break;
                            }
                        },
                    }
                }
            };
            *own = verdict;
            if copies.is_nearly_full() && frame + 1 < all {
                (count, run) = (frame + 1, frame + 1);
                break;
            }
        }
        drop(batch);
        burst.leave(count);
        if normal != 0 {
            let moved = forward_normally(lookup, burst, (from, now), normal, verdicts);
            add(&source.counters.moved, moved.into());
        }
        source.flown.first = left;
        source.flown.verdicts.clear();
        source.flown.verdicts.extend_from_slice(&verdicts[..run]);
    }

    /// What would become of the only frame of a burst: its verdict, and a line for each step. Copies are in `traced`.
    pub(super) fn trace(
        &mut self,
        place: &Place<'_>,
        from: PortId,
        burst: &mut Burst<'_>,
    ) -> (PortId, Vec<String>) {
        let Place { lookup, times: (_, now), .. } = *place;
        let name = |number: u16| {
            let port = place.topology.port(lookup.port(number)?)?;
            Some(port.name.to_string())
        };
        let names = Names(&name);
        self.traced.clear();
        let Flows { known, making: Making { one, .. }, traced, .. } = self;
        let Known { pipeline, worker, .. } = known_of(known, lookup.published());
        let meta = burst.meta(0);
        if meta.len < ETHERNET {
            return (NOWHERE, Vec::new());
        }
        let arrival = lookup.arrival(from, meta.len, &meta.offload);
        let read = |offset: usize, out: &mut [u8]| burst.read(0, offset, out);
        let (steps, found) = pipeline.trace(worker, (arrival, now), read);
        let rows = steps.iter().map(|step| row(step, &names)).collect();
        let verdict = match way_of(lookup, from, &found) {
            Way::As(verdict) => verdict,
            Way::Normal => normal_of(lookup, (one, burst.head(0)), (from, now), true),
            Way::Copies if !MirrorCopies::has_room(size(place, &found, meta.len)) => FLOW_LIMIT,
            Way::Copies => {
                let mut verdict = NOWHERE;
                for output in found.outputs {
                    let headers = found.headers(output);
                    let done = destinations(place, (from, burst, 0), (output, headers, true), one, |to| {
                        traced.push((to, bytes_of(burst, headers), offload_of(&meta.offload, headers)));
                        true
                    });
                    verdict = done.err().unwrap_or(verdict);
                }
                if traced.is_empty() { verdict } else { FLOWN }
            }
        };
        (verdict, rows)
    }
}

/// The names of a switch's ports.
struct Names<'n>(&'n dyn Fn(u16) -> Option<String>);

impl ringway_flow::Ports for Names<'_> {
    fn number(&self, _word: &str) -> Option<u16> {
        None
    }

    fn name(&self, number: u16) -> Option<String> {
        (self.0)(number)
    }
}

/// A line for what happens to a traced frame.
fn row(step: &Step<'_>, names: &Names<'_>) -> String {
    match step {
        Step::Table(table, None) => format!("table {table}: no flow matches"),
        Step::Table(table, Some(flow)) => {
            let FlowMod { priority, cookie, .. } = flow.flow;
            let cookie = match cookie {
                0 => String::new(),
                cookie => format!("cookie={cookie:#x},"),
            };
            // The default priority is not shown again.
            let rest = FlowMod { priority: PRIORITY, ..flow.flow.clone() }.show_rest(names);
            format!("table {table}: priority={priority} {cookie}{}", rest.trim_start())
        }
        Step::Group(group, bucket) => format!("group {group}: bucket {bucket}"),
        Step::Meter(meter, true) => format!("meter {meter}: within its rate"),
        Step::Meter(meter, false) => format!("meter {meter}: beyond its rate"),
    }
}

/// The bytes of the only frame of a burst, with these headers.
fn bytes_of(burst: &Burst<'_>, headers: Option<&Headers>) -> Vec<u8> {
    let (front, replaced) = headers.map_or((&[][..], 0), |own| (own.bytes(), own.replaces()));
    let mut bytes = front.to_vec();
    bytes.resize(front.len() + (burst.meta(0).len as usize).saturating_sub(replaced), 0);
    burst.read(0, replaced, &mut bytes[front.len()..]);
    bytes
}

fn offload_of(offload: &Offload, headers: Option<&Headers>) -> Offload {
    offload.moved(headers.map_or(0, Headers::grown))
}

/// A worker's tables of a switch, as they are now.
fn known_of<'k>(known: &'k mut Vec<Known>, published: &Arc<Published>) -> &'k mut Known {
    let at = match known.iter().position(|own| Arc::ptr_eq(&own.published, published)) {
        Some(at) => at,
        None => {
            // Those of switches that are gone.
            known.retain(|own| Arc::strong_count(&own.published) > 1);
            let (published, pipeline) = (published.clone(), published.current());
            known.push(Known { published, pipeline, worker: Worker::default() });
            known.len() - 1
        }
    };
    let own = &mut known[at];
    own.published.refresh(&mut own.pipeline);
    own
}

/// Moves what flows are looked up by into our own memory, where it is not there yet. Attack: a peer that changes
/// headers after it was decided by them what becomes of the frame.
fn pull<'b>(pulled: &'b mut Box<[[u8; BEHIND]]>, burst: &mut Burst<'b>) {
    let wants = |burst: &Burst<'b>, frame: usize| {
        burst.meta(frame).len as usize > HEAD && !is_in_head(burst.head(frame))
    };
    if !(0..burst.len()).any(|frame| wants(&*burst, frame)) {
        return;
    }
    if pulled.is_empty() {
        *pulled = vec![[0; BEHIND]; BURST].into();
    }
    for (frame, room) in pulled.iter_mut().enumerate().take(burst.len()) {
        if wants(&*burst, frame) {
            burst.pull(frame, room);
        }
    }
}

/// Whether all headers that flows are looked up by end within a frame's first bytes, whatever protocol is in it.
fn is_in_head(head: &[u8; HEAD]) -> bool {
    let ether_type = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let at = if matches!(ether_type(12), 0x8100 | 0x88a8) { 16 } else { 12 };
    match ether_type(at) {
        0x0806 => true,
        // Without options; TCP's flags are the last that is read.
        0x0800 => head[at + 2] == 0x45,
        _ => false,
    }
}

/// Forwards the frames in `normal`, a mask, as a switch without flows does.
#[cold]
fn forward_normally(
    lookup: &FlowLookup,
    burst: &Burst<'_>,
    at: (PortId, u64),
    normal: u64,
    verdicts: &mut Verdicts,
) -> u32 {
    let mut vlans = [0; BURST];
    for (frame, own) in vlans.iter_mut().enumerate().take(burst.len()) {
        *own = vlan(burst.head(frame)).unwrap_or(0);
    }
    let vlans = FrameVlans { vlans: &vlans, refused: !normal, unlearned: 0 };
    lookup.normal().lookup_in(burst, at, &vlans, verdicts)
}

/// The verdict of a switch without flows on a frame with this head; `is_traced`: without a change of what is known.
fn normal_of(
    lookup: &FlowLookup,
    (storage, head): (&mut Storage, &[u8; HEAD]),
    (from, now): (PortId, u64),
    is_traced: bool,
) -> PortId {
    let burst = super::trace::one(storage, head, Offload::default());
    let mut verdicts = [NOWHERE; BURST];
    match is_traced {
        true => _ = lookup.normal().preview(&burst, from, now, &mut verdicts),
        false => _ = lookup.normal().lookup(&burst, from, now, &mut verdicts),
    }
    verdicts[0]
}

/// How many copies there are of a frame of `len` bytes, and how many bytes they take.
fn size(place: &Place<'_>, found: &Verdict<'_>, len: u32) -> (usize, usize) {
    let (mut count, mut bytes, mut last) = (0, 0, None);
    for output in found.outputs {
        count += match output.to {
            To::Port(_) => 1,
            To::Others | To::Normal => place.switch.members.len(),
        };
        // Copies with the same headers share their bytes.
        if last != Some(output.headers) {
            let grown = found.headers(output).map_or(0, Headers::grown);
            bytes += len as usize + usize::try_from(grown).unwrap_or(0);
            last = Some(output.headers);
        }
    }
    (count, bytes)
}

/// Makes the copies of a frame; its verdict, which is the last reason why one is refused if all are.
#[cold]
fn make(
    place: &Place<'_>,
    (source, burst, frame): (&Source, &Burst<'_>, usize),
    found: &Verdict<'_>,
    (making, copies): (&mut Making, &mut MirrorCopies),
) -> PortId {
    let Making { one, refused, mirrored } = making;
    let (mut is_any, mut bytes, mut last) = (false, None, None);
    refused.clear();
    mirrored.clear();
    for (number, output) in found.outputs.iter().enumerate() {
        let headers = found.headers(output);
        if last != Some(output.headers) {
            (bytes, last) = (None, Some(output.headers));
        }
        let each = |to: PortId| {
            let is_done =
                copies.flown(place.topology, to, (burst, frame), (headers, &mut bytes), place.times);
            if is_done && place.topology.port(to).is_some_and(|to| to.mirrors.is_some()) {
                mirrored.push((to, number));
            }
            is_done
        };
        match destinations(place, (source.port, burst, frame), (output, headers, false), one, each) {
            Ok(()) => is_any = true,
            Err(verdict) => refused.push(verdict),
        }
    }
    // What the frame's own copies leave is for those of mirrors.
    for (to, number) in mirrored.drain(..) {
        let headers = found.outputs.get(number).and_then(|output| found.headers(output));
        copies.flown_mirrors(place.topology, (place.port, to), (burst, frame), headers, place.times);
    }
    if !is_any {
        return refused.last().copied().unwrap_or(NOWHERE);
    }
    for verdict in refused.drain(..) {
        let len = burst.meta(frame).len;
        let reason = without_destination(place.topology, source.port, verdict, len);
        source.counters.drop_tx(reason.unwrap_or(Reason::NoPort), 1);
    }
    FLOWN
}

/// Calls `each` with the ports to which an output of a frame goes. If it returns true for none of them, this returns
/// why the frame goes nowhere.
fn destinations(
    place: &Place<'_>,
    (from, burst, frame): (PortId, &Burst<'_>, usize),
    (output, headers, is_traced): (&Output, Option<&Headers>, bool),
    one: &mut Storage,
    mut each: impl FnMut(PortId) -> bool,
) -> Result<(), PortId> {
    let lookup = place.lookup;
    let done = |any: bool, otherwise: PortId| if any { Ok(()) } else { Err(otherwise) };
    let to = match output.to {
        To::Port(number) => return done(lookup.port(number).is_some_and(&mut each), NOWHERE),
        To::Others => FLOOD,
        To::Normal => {
            let head = super::mirror::head_of(burst, frame, headers);
            normal_of(lookup, (one, &head), (from, place.times.1), is_traced)
        }
    };
    match to {
        FLOOD => {
            let others = place.switch.members.iter().filter(|member| **member != from);
            done(others.filter(|member| each(**member)).count() > 0, NOWHERE)
        }
        // What a switch without flows drops is not sent; nor is a frame to its own port.
        port if usize::from(port) >= PORTS || port == from => Err(port),
        port => done(each(port), NOWHERE),
    }
}

#[cfg(test)]
mod tests;
