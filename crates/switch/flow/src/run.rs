//! Runs frames through the tables.

use crate::action::{Action, Bits};
use crate::cache::Cache;
use crate::field::Needs;
use crate::flow::Flow;
use crate::group::{Bucket, GroupKind};
use crate::headers::Headers;
use crate::key::{Key, WORDS, place};
use crate::pipeline::Pipeline;
use arrayvec::ArrayVec;
use std::sync::Arc;

/// Most look-ups of a frame, as in Open vSwitch. Attack: flows that resubmit frames to each other without end, or as a
/// tree.
pub const LOOKUPS: usize = 4096;
/// Most steps of a frame: subtables that are looked into, actions and buckets. Attack: groups that send frames to each
/// other as a tree, or look-ups of many masks each, by which a worker has one frame for seconds.
pub const WORK: usize = 1 << 14;
/// How deep tables, if they are not later ones, and groups may be within each other.
pub const DEPTH: usize = 64;
/// How deep tables, groups and `clone` may be within each other. Attack: a worker whose stack is too small.
pub const NESTED: usize = 320;
/// Most outputs of a frame. Attack: a frame whose headers, as they were at each, fill the memory.
pub const OUTPUTS: usize = 256;
/// Most copies of a frame, if it has more than one output: `all`, `flood` and `normal` count as one to each port.
/// Attack: a frame that fills the memory, and every port, by outputs that are all `flood`.
pub const COPIES: usize = 4096;
/// Flows whose frames are counted at once.
const TALLY: usize = 16;
/// A mask of all bits.
const ALL: Key = Key([u64::MAX; WORDS]);

/// Where a copy of a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To this port, even if the frame came from there.
    Port(u16),
    /// To every port except that from which the frame came.
    Others,
    /// Where a switch without flows sends it.
    Normal,
}

/// A copy of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where it goes.
    pub to: To,
    /// The number of its headers, for [`Verdict::headers`]; `None`: it is as it came.
    pub headers: Option<u16>,
}

/// Why a frame has no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// No flow matches it.
    NoMatch,
    /// Its flow has no action that sends it.
    NoOutput,
    /// It is beyond a meter's rate.
    Metered,
    /// Its flows have no end within [`LOOKUPS`], [`WORK`], [`DEPTH`], [`NESTED`], [`OUTPUTS`] and [`COPIES`], or add
    /// too many tags.
    Limit,
    /// Its headers are longer than [`LONGEST_HEADERS`](crate::LONGEST_HEADERS), or has too many extension headers.
    Headers,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Verdict<'v> {
    /// Its copies, in the order of the actions.
    pub outputs: &'v [Output],
    /// Why there is none.
    pub dropped: Option<Dropped>,
    versions: &'v [Headers],
}

impl Verdict<'_> {
    /// The changed headers of a copy, if they are changed.
    #[inline]
    pub fn headers(&self, output: &Output) -> Option<&Headers> {
        self.versions.get(usize::from(output.headers?))
    }
}

/// A frame's arrival.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Number of the port that it came from.
    pub in_port: u16,
    /// Number of the switch's ports, which is that of the copies of a flooded frame.
    pub ports: u16,
    /// Its length.
    pub len: u32,
    /// Offset of a checksum that is pending.
    pub pending: Option<u16>,
}

/// What a worker keeps between frames: no frame needs memory.
#[derive(Debug, Default)]
pub struct Worker {
    cache: Cache,
    headers: Headers,
    outputs: Vec<Output>,
    versions: Vec<Headers>,
}

/// Sees what happens to a frame.
trait Watch<'p> {
    /// Whether meters count it.
    const COUNTS: bool;
    /// Whether it passed meters before.
    const HAS_PASSED: bool = false;
    /// A table was looked into.
    fn looked_up(&mut self, table: u8, flow: Option<&'p Arc<Flow>>, len: u32);
    /// A group was entered.
    fn grouped(&mut self, _id: u32, _bucket: u32) {}
    /// A meter was passed, or not.
    fn metered(&mut self, _id: u32, _is_passed: bool) {}
}

/// Counts frames by flow, for a burst.
struct Tally<'p> {
    counts: ArrayVec<(&'p Arc<Flow>, u64, u64), TALLY>,
    now: u64,
}

impl Tally<'_> {
    fn flush(&mut self) {
        for (flow, frames, bytes) in self.counts.drain(..) {
            flow.counters.add(frames, bytes, self.now);
        }
    }
}

impl<'p> Watch<'p> for Tally<'p> {
    const COUNTS: bool = true;

    #[inline]
    fn looked_up(&mut self, _table: u8, flow: Option<&'p Arc<Flow>>, len: u32) {
        let Some(flow) = flow else { return };
        if let Some((_, frames, bytes)) = self.counts.iter_mut().find(|(own, ..)| Arc::ptr_eq(own, flow)) {
            (*frames, *bytes) = (*frames + 1, *bytes + u64::from(len));
            return;
        }
        if self.counts.is_full() {
            self.flush();
        }
        self.counts.push((flow, 1, u64::from(len)));
    }
}

/// What happens to a traced frame.
#[derive(Clone, Debug)]
pub enum Step<'p> {
    /// A table was looked into, with the flow that was found.
    Table(u8, Option<&'p Arc<Flow>>),
    /// A bucket of a group was entered: the numbers of both.
    Group(u32, u32),
    /// A meter was passed, or not.
    Meter(u32, bool),
}

/// A frame that waits: it was counted before.
struct Again;

impl<'p> Watch<'p> for Again {
    const COUNTS: bool = false;
    const HAS_PASSED: bool = true;

    fn looked_up(&mut self, _table: u8, _flow: Option<&'p Arc<Flow>>, _len: u32) {}
}

struct Trace<'p>(Vec<Step<'p>>);

impl<'p> Watch<'p> for Trace<'p> {
    const COUNTS: bool = false;

    fn looked_up(&mut self, table: u8, flow: Option<&'p Arc<Flow>>, _len: u32) {
        self.0.push(Step::Table(table, flow));
    }

    fn grouped(&mut self, id: u32, bucket: u32) {
        self.0.push(Step::Group(id, bucket));
    }

    fn metered(&mut self, id: u32, is_passed: bool) {
        self.0.push(Step::Meter(id, is_passed));
    }
}

/// A burst on its way through the tables. What it counts is added when it ends.
pub struct Batch<'p, 'w> {
    pipeline: &'p Pipeline,
    worker: &'w mut Worker,
    tally: Tally<'p>,
}

impl Pipeline {
    /// Begins a burst at `now`, in nanoseconds.
    pub fn begin<'p, 'w>(&'p self, worker: &'w mut Worker, now: u64) -> Batch<'p, 'w> {
        Batch { pipeline: self, worker, tally: Tally { counts: ArrayVec::new(), now } }
    }

    /// As [`Batch::run`], of one frame, without counting it; and what happens to it.
    pub fn trace<'p, 'w>(
        &'p self,
        worker: &'w mut Worker,
        (arrival, now): (Arrival, u64),
        read: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> (Vec<Step<'p>>, Verdict<'w>) {
        let mut trace = Trace(Vec::new());
        let verdict = run(self, worker, &mut trace, (arrival, now), read);
        (trace.0, verdict)
    }
}

impl Batch<'_, '_> {
    /// Runs a frame, whose bytes from an offset on `read` writes to a slice; it returns their number.
    #[inline]
    pub fn run(&mut self, arrival: Arrival, read: impl FnMut(usize, &mut [u8]) -> usize) -> Verdict<'_> {
        let now = self.tally.now;
        run(self.pipeline, self.worker, &mut self.tally, (arrival, now), read)
    }

    /// As [`Batch::run`] of a frame that was run before and has not left since: it is neither counted nor metered
    /// again.
    pub fn run_again(
        &mut self,
        arrival: Arrival,
        read: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Verdict<'_> {
        let now = self.tally.now;
        run(self.pipeline, self.worker, &mut Again, (arrival, now), read)
    }
}

impl Drop for Batch<'_, '_> {
    fn drop(&mut self) {
        self.tally.flush();
    }
}

#[inline]
fn run<'p, 'w, W: Watch<'p>>(
    pipeline: &'p Pipeline,
    worker: &'w mut Worker,
    watch: &mut W,
    (arrival, now): (Arrival, u64),
    read: impl FnMut(usize, &mut [u8]) -> usize,
) -> Verdict<'w> {
    let Worker { cache, headers, outputs, versions } = worker;
    outputs.clear();
    versions.clear();
    let Ok(key) = headers.read((arrival.len, arrival.pending), arrival.in_port, read) else {
        return Verdict { outputs, dropped: Some(Dropped::Headers), versions };
    };
    let state = State { key, is_edited: false, saved: None };
    let mut run = Run {
        pipeline,
        cache,
        headers,
        outputs,
        versions,
        watch,
        arrival,
        now,
        state,
        lookups: 0,
        work: 0,
        copies: 0,
        lost: None,
    };
    let end = run.table(0, None, Depth::default());
    let lost = run.lost;
    if let Next::Fail = end {
        outputs.clear();
    }
    let dropped = match end {
        Next::Fail => Some(Dropped::Limit),
        _ => outputs.is_empty().then(|| lost.unwrap_or(Dropped::NoOutput)),
    };
    Verdict { outputs, dropped, versions }
}

/// What is known of the frame at hand, besides its headers.
#[derive(Clone, Copy)]
struct State {
    key: Key,
    /// Whether its headers differ from those with which it came.
    is_edited: bool,
    /// The number of the stored headers that are the same.
    saved: Option<u16>,
}

/// How a list of actions ends.
enum Next {
    /// Those behind it follow.
    On,
    /// Another table follows.
    Goto(u8),
    /// Nothing follows.
    Exit,
    /// This copy of the frame is dropped, by a meter.
    Metered,
    /// The frame is dropped, with all its copies.
    Fail,
}

struct Run<'p, 'r, W> {
    pipeline: &'p Pipeline,
    cache: &'r mut Cache,
    headers: &'r mut Headers,
    outputs: &'r mut Vec<Output>,
    versions: &'r mut Vec<Headers>,
    watch: &'r mut W,
    arrival: Arrival,
    now: u64,
    state: State,
    lookups: usize,
    work: usize,
    copies: usize,
    lost: Option<Dropped>,
}

/// How deep a list of actions is within others.
#[derive(Clone, Copy, Default)]
struct Depth {
    /// Those that [`DEPTH`] bounds.
    counted: usize,
    /// All of them.
    nested: usize,
}

impl Depth {
    /// One deeper, unless that is too deep.
    fn deeper(self, counts: bool) -> Option<Depth> {
        let deeper = Depth { counted: self.counted + usize::from(counts), nested: self.nested + 1 };
        Some(deeper).filter(|deeper| deeper.counted <= DEPTH && deeper.nested <= NESTED)
    }
}

impl<'p, W: Watch<'p>> Run<'p, '_, W> {
    /// Whether so many steps more are not too many.
    #[inline]
    fn works(&mut self, steps: usize) -> bool {
        self.work += steps;
        self.work <= WORK
    }

    /// Looks the frame up in a table, as if it came from `port`, and runs the actions of its flow.
    fn table(&mut self, mut table: u8, mut port: Option<u16>, depth: Depth) -> Next {
        loop {
            self.lookups += 1;
            // The actions, and the tables behind this one, have the port from which the frame came.
            let (port, is_fragment) = (port.take(), self.state.key.get8(place::FRAG) != 0);
            let (flow, looked) = match port {
                None if !is_fragment => self.cache.find(self.pipeline, table, &self.state.key),
                _ => {
                    let mut key = self.state.key;
                    port.iter().for_each(|port| key.set(place::IN_PORT, *port));
                    if is_fragment {
                        // As in Open vSwitch, all fragments match alike: those behind the first one have no ports.
                        key.set(place::TP_SRC, 0u16);
                        key.set(place::TP_DST, 0u16);
                    }
                    self.cache.find(self.pipeline, table, &key)
                }
            };
            if self.lookups > LOOKUPS || !self.works(looked) {
                return Next::Fail;
            }
            self.watch.looked_up(table, flow, self.arrival.len);
            let Some(flow) = flow else {
                self.lost.get_or_insert(Dropped::NoMatch);
                return Next::On;
            };
            match self.list(&flow.flow.actions, table, depth) {
                Next::Goto(next) => table = next,
                end => return end,
            }
        }
    }

    fn resubmit(&mut self, port: Option<u16>, (from, to): (u8, u8), depth: Depth) -> Next {
        // As in Open vSwitch, a later table is not deeper: there are few of them.
        match depth.deeper(to <= from) {
            Some(depth) => self.table(to, port, depth),
            None => Next::Fail,
        }
    }

    fn list(&mut self, actions: &'p [Action], table: u8, depth: Depth) -> Next {
        for action in actions {
            if !self.works(1) {
                return Next::Fail;
            }
            let next = match action {
                Action::Output(port) if *port == self.arrival.in_port => Next::On,
                Action::Output(port) => self.emit(To::Port(*port)),
                Action::OutputBits(bits) => match self.state.key.get16(bits.place()) {
                    port if port == self.arrival.in_port => Next::On,
                    port => self.emit(To::Port(port)),
                },
                Action::InPort => self.emit(To::Port(self.arrival.in_port)),
                Action::All | Action::Flood => self.emit(To::Others),
                Action::Normal => self.emit(To::Normal),
                Action::Resubmit(port, to) => self.resubmit(*port, (table, to.unwrap_or(table)), depth),
                Action::Goto(table) => Next::Goto(*table),
                Action::Group(id) => self.group(*id, table, depth),
                Action::Meter(id) => self.meter(*id),
                Action::Clone(actions) => match depth.deeper(false) {
                    Some(depth) => self.copy(actions, table, depth),
                    None => Next::Fail,
                },
                Action::Exit => Next::Exit,
                // Those behind are not run, and the caller goes on.
                Action::DecTtl if !self.dec_ttl() => return Next::On,
                _ => self.edit(action),
            };
            if !matches!(next, Next::On) {
                return next;
            }
        }
        Next::On
    }

    fn emit(&mut self, to: To) -> Next {
        self.copies += match to {
            To::Port(_) => 1,
            To::Others | To::Normal => usize::from(self.arrival.ports).max(1),
        };
        let has_others = !self.outputs.is_empty();
        if self.outputs.len() >= OUTPUTS || has_others && self.copies > COPIES {
            return Next::Fail;
        }
        let state = &mut self.state;
        if state.is_edited && state.saved.is_none() {
            state.saved = Some(self.versions.len() as u16);
            self.versions.push(self.headers.clone());
        }
        self.outputs.push(Output { to, headers: state.saved });
        Next::On
    }

    /// Runs actions, and undoes what they change. A meter ends this copy of the frame only.
    fn copy(&mut self, actions: &'p [Action], table: u8, depth: Depth) -> Next {
        let before = (self.headers.clone(), self.state);
        let end = self.list(actions, table, depth);
        (*self.headers, self.state) = before;
        if let Next::Metered = end { Next::On } else { end }
    }

    fn group(&mut self, id: u32, table: u8, depth: Depth) -> Next {
        let Some(group) = self.pipeline.group(id) else { return Next::On };
        let Some(depth) = depth.deeper(true) else { return Next::Fail };
        if group.kind == GroupKind::Select {
            // Each bucket has a score.
            let bucket = group.select(&self.state.key, self.pipeline.seed);
            return match (self.works(group.buckets.len()), bucket) {
                (true, Some(bucket)) => self.bucket((id, bucket), table, depth),
                (true, None) => Next::On,
                (false, _) => Next::Fail,
            };
        }
        for bucket in &group.buckets {
            if !self.works(1) {
                return Next::Fail;
            }
            if let Next::Fail = self.bucket((id, bucket), table, depth) {
                return Next::Fail;
            }
        }
        Next::On
    }

    /// Runs a bucket, with a copy of the frame, which ends with it.
    fn bucket(&mut self, (id, bucket): (u32, &'p Bucket), table: u8, depth: Depth) -> Next {
        self.watch.grouped(id, bucket.id);
        match self.copy(&bucket.actions, table, depth) {
            Next::Fail => Next::Fail,
            _ => Next::On,
        }
    }

    fn meter(&mut self, id: u32) -> Next {
        let Some(meter) = self.pipeline.meter(id) else { return Next::On };
        let is_passed = W::HAS_PASSED || meter.passes(self.arrival.len, self.now, W::COUNTS);
        self.watch.metered(id, is_passed);
        if is_passed {
            return Next::On;
        }
        self.lost = Some(Dropped::Metered);
        Next::Metered
    }

    /// Whether the frame's time has not ended, which is a time less now.
    fn dec_ttl(&mut self) -> bool {
        let key = &mut self.state.key;
        if !Needs::Ip.is_met(key, &ALL) {
            return true;
        }
        let ttl = key.get8(place::TTL);
        if ttl <= 1 {
            return false;
        }
        self.headers.set(key, Needs::Ip, place::TTL, u128::from(ttl) - 1, 0xff);
        self.edited();
        true
    }

    fn edited(&mut self) {
        (self.state.is_edited, self.state.saved) = (true, None);
    }

    /// An action that changes the frame.
    fn edit(&mut self, action: &Action) -> Next {
        let State { key, .. } = &mut self.state;
        let pushed = match action {
            Action::Set { field, value, mask } => {
                self.headers.set(key, field.needs, field.place, *value, *mask);
                Ok(())
            }
            Action::Move(from, to) => {
                if from.field.needs.is_met(key, &ALL) {
                    let value = key.get(from.place());
                    self.headers.set(key, to.field.needs, to.place(), value, ones_of(to));
                }
                Ok(())
            }
            Action::ModVlanVid(number) => {
                self.headers.set_tag(key, place::VLAN_VID, number | crate::key::TAGGED)
            }
            Action::ModVlanPcp(priority) => self.headers.set_tag(key, place::VLAN_PCP, u16::from(*priority)),
            Action::PushVlan(of) => self.headers.push_tag(key, *of),
            Action::StripVlan => {
                self.headers.pop_tag(key);
                Ok(())
            }
            _ => return Next::On,
        };
        let is_of_frame = !matches!(action, Action::Set { field, .. } | Action::Move(_, Bits { field, .. })
            if place::is_metadata(field.place));
        if is_of_frame {
            self.edited();
        }
        if pushed.is_ok() { Next::On } else { Next::Fail }
    }
}

fn ones_of(bits: &Bits) -> u128 {
    crate::key::ones(bits.count)
}

#[cfg(test)]
mod tests;
