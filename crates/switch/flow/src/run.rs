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

/// Most look-ups of a frame. Attack: flows that resubmit frames to each other without end, or as a tree.
pub const LOOKUPS: usize = 256;
/// How deep tables and groups may be within each other.
pub const DEPTH: usize = 64;
/// Most copies of a frame. Attack: a frame whose copies fill the memory.
pub const OUTPUTS: usize = 256;
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
    /// Its flows have no end within [`LOOKUPS`], [`DEPTH`] and [`OUTPUTS`], or add too many tags.
    Limit,
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
    /// Its length.
    pub len: u32,
    /// Whether its checksum behind IP is pending.
    pub is_partial: bool,
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
        read: impl FnOnce(&mut [u8]) -> usize,
    ) -> (Vec<Step<'p>>, Verdict<'w>) {
        let mut trace = Trace(Vec::new());
        let verdict = run(self, worker, &mut trace, (arrival, now), read);
        (trace.0, verdict)
    }
}

impl Batch<'_, '_> {
    /// Runs a frame, whose first bytes `read` writes to a slice; it returns their number.
    #[inline]
    pub fn run(&mut self, arrival: Arrival, read: impl FnOnce(&mut [u8]) -> usize) -> Verdict<'_> {
        let now = self.tally.now;
        run(self.pipeline, self.worker, &mut self.tally, (arrival, now), read)
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
    read: impl FnOnce(&mut [u8]) -> usize,
) -> Verdict<'w> {
    let Worker { cache, headers, outputs, versions } = worker;
    outputs.clear();
    versions.clear();
    let key = headers.read((arrival.len, arrival.is_partial), arrival.in_port, read);
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
        lost: None,
    };
    let end = run.table(0, None, 0);
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
    lost: Option<Dropped>,
}

impl<'p, W: Watch<'p>> Run<'p, '_, W> {
    /// Looks the frame up in a table, as if it came from `port`, and runs the actions of its flow.
    fn table(&mut self, mut table: u8, port: Option<u16>, depth: usize) -> Next {
        if depth >= DEPTH {
            return Next::Fail;
        }
        loop {
            self.lookups += 1;
            if self.lookups > LOOKUPS {
                return Next::Fail;
            }
            let flow = match port {
                None => self.cache.find(self.pipeline, table, &self.state.key),
                Some(port) => {
                    let mut key = self.state.key;
                    key.set(place::IN_PORT, port);
                    self.cache.find(self.pipeline, table, &key)
                }
            };
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

    fn list(&mut self, actions: &'p [Action], table: u8, depth: usize) -> Next {
        for action in actions {
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
                Action::Resubmit(port, to) => self.table(to.unwrap_or(table), *port, depth + 1),
                Action::Goto(table) => Next::Goto(*table),
                Action::Group(id) => self.group(*id, table, depth),
                Action::Meter(id) => self.meter(*id),
                Action::Clone(actions) => self.copy(actions, table, depth),
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
        if self.outputs.len() >= OUTPUTS {
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

    /// Runs actions, and undoes what they change.
    fn copy(&mut self, actions: &'p [Action], table: u8, depth: usize) -> Next {
        if depth >= DEPTH {
            return Next::Fail;
        }
        let before = (self.headers.clone(), self.state);
        let end = self.list(actions, table, depth + 1);
        (*self.headers, self.state) = before;
        end
    }

    fn group(&mut self, id: u32, table: u8, depth: usize) -> Next {
        let Some(group) = self.pipeline.group(id) else { return Next::On };
        if group.kind == GroupKind::Select {
            let bucket = group.select(&self.state.key, self.pipeline.seed);
            return bucket.map_or(Next::On, |bucket| self.bucket((id, bucket), table, depth));
        }
        for bucket in &group.buckets {
            match self.bucket((id, bucket), table, depth) {
                Next::On => {}
                end => return end,
            }
        }
        Next::On
    }

    fn bucket(&mut self, (id, bucket): (u32, &'p Bucket), table: u8, depth: usize) -> Next {
        self.watch.grouped(id, bucket.id);
        match self.copy(&bucket.actions, table, depth) {
            // A bucket has no table that others are behind.
            Next::Goto(_) => Next::On,
            end => end,
        }
    }

    fn meter(&mut self, id: u32) -> Next {
        let Some(meter) = self.pipeline.meter(id) else { return Next::On };
        let is_passed = meter.passes(self.arrival.len, self.now, W::COUNTS);
        self.watch.metered(id, is_passed);
        if is_passed {
            return Next::On;
        }
        self.lost = Some(Dropped::Metered);
        Next::Exit
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
