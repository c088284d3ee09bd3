//! One burst from its source to its destinations. [`Forwarder::serve`] takes all of the steps.

mod backlog;
mod capture;
mod destination;
mod drops;
mod features;
mod flood;
mod flows;
mod joining;
mod limits;
mod live_trace;
mod mirror;
mod multicast;
mod path_mtu;
mod policing;
#[cfg(test)]
mod pressure;
mod private_copy;
mod properties;
mod tags;
#[cfg(test)]
mod tests;
mod trace;
mod wait;

use crate::instances::InstanceSide;
use crate::memory_access::{Access, Meter};
use crate::profile::Stage;
use crate::topology::{Port, RxSlot, Steer, Switch, Target, Topology, is_closed};
use backlog::Backlog;
use capture::Captured;
use destination::{Busy, Destination, Unsuited};
use drops::before;
use features::{Decided, Features};
use flows::Flown;
use joining::{OpenDestinations, Pairs};
use live_trace::LiveTrace;
pub use mirror::MirrorPlace;
use mirror::Mirrored;
pub use multicast::MulticastTrace;
use private_copy::PrivateCopy;
use properties::Properties;
use ringway_frame::{BURST, Burst, Caps, CountersRef, Reason, Storage, TxQueue, add};
use ringway_mem::Turn;
use ringway_port::offload::{Completer, Whole};
use ringway_port::too_big::Answered;
use ringway_switch::{FlowHash, List, NOWHERE, PortId, Run, Sorter, Verdicts};
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
pub use tags::{Retag, TagType};
pub use trace::{OneFrame, Traced, TracedCopy, Verdict};
use wait::{Cause, Cut, Full, Waiting};

/// Length of an Ethernet header, and minimum length of a frame.
const ETHERNET: u32 = 14;

/// A worker's state for forwarding, reused for every burst.
pub struct Forwarder {
    storage: Storage,
    verdicts: Verdicts,
    sorter: Sorter,
    copies: Copies,
    hash: FlowHash,
    /// RX queues that delay a notification, and until when.
    pub due: Vec<(u64, Arc<RxSlot>)>,
    /// Number of those that delay it at least until the turn ends.
    combining: usize,
    /// Tracks whose memory is accessed.
    pub meter: Meter,
    /// Copies of frames in our own memory, used while accesses are timed.
    own: PrivateCopy,
    features: Features,
}

impl Forwarder {
    /// A forwarder that distributes flows to queues by `hash`.
    pub fn new(hash: FlowHash, meter: Meter) -> Forwarder {
        Forwarder {
            storage: Storage::default(),
            verdicts: [NOWHERE; BURST],
            sorter: Sorter::default(),
            copies: Copies::default(),
            hash,
            due: Vec::new(),
            combining: 0,
            meter,
            own: PrivateCopy::default(),
            features: Features::default(),
        }
    }

    /// Takes one burst from `source` and delivers it, in seven steps: **take** frames, **look up** the port of each,
    /// **sort** them by destination, **reserve** room there, **copy** them, **release** them at their source, and
    /// **publish** them to their destinations. The last five are [`Delivery::unicast`]'s, or `flood`'s for frames that
    /// go to all ports of the switch.
    pub fn serve(&mut self, turn: &Turn<'_>, topology: &Topology, source: &mut Source) -> Served {
        let Forwarder { storage, verdicts, sorter, copies, hash, due, combining, meter, own, features } =
            self;
        let port = topology.port(source.port);
        if let Some(unserved) = port.and_then(unserved) {
            return unserved;
        }
        meter.at(Access::of(source.port));
        meter.stopwatch.enter(Stage::Take, 0);
        let mut burst = Burst::begin(storage);
        source.tx.take(turn, &mut burst);
        live_trace::shorten(topology, port, &mut burst);
        let (mut burst, is_own) = before_locks(burst, own, port, meter);
        let count = burst.len();
        if count == 0 {
            meter.stopwatch.was_empty();
            return source.rest(turn.now, topology);
        }
        let Some(port) = port else { return source.drop_all(turn, count) };
        if let Some(held) = &port.held {
            held.wait();
            source.backlog.block(true);
            return Served::Waiting;
        }
        meter.stopwatch.took(count);
        meter.stopwatch.enter(Stage::LookUp, count);
        features.arrived(port, source, &burst, (*hash, turn.now));
        port.place.iter().for_each(|place| place.sent(&burst, *hash, turn.now));
        let live = live_trace::begin(port, source, &burst, turn.now);
        let flood = look_up(&port.target, &burst, (&*source, *hash), turn.now, verdicts);
        let at = ((*hash, turn.now), &mut *verdicts);
        let decided = features.decide((topology, flood), (port, &mut *source), &mut burst, at);
        let (count, near) = (burst.len(), source.near(turn, &burst, &port.target));
        let (properties, bytes) = Properties::of(&burst, verdicts);
        record_flows(port, &burst, *hash, source);
        let mut delivery = Delivery {
            turn,
            topology,
            burst: &burst,
            verdicts,
            properties,
            near,
            source,
            port,
            hash: *hash,
            due,
            combining,
            meter,
            is_own,
            live: live.as_ref(),
            decided,
        };
        let done = delivery.deliver(flood, sorter, copies, count);
        meter.stopwatch.enter(Stage::Rest, 0);
        decided
            .policing
            .iter()
            .for_each(|own| own.settle(topology, (port, source), &burst, (turn.now, verdicts), done));
        source.backlog.end(done < count);
        live_trace::end(live, done > 0, verdicts[0], (topology, port), source);
        let left = if done == count { bytes } else { bytes_of(&burst, 0, done) };
        source.count(done, decided.policing.map_or(left, |policing| policing.arrived(left, done)));
        self.end_burst(turn, topology, source.worker);
        if done > 0 {
            source.waiting = None;
            return Served::Moved(done);
        }
        Served::Waiting
    }

    /// Sends answers, and delivers copies for the ports that mirror others if there are so many that the next burst's
    /// may find no room; others wait for the end of the turn. Attack: a receiver whose memory blocks would hold a
    /// source.
    #[inline]
    fn end_burst(&mut self, turn: &Turn<'_>, topology: &Topology, worker: usize) {
        if self.features.mirrored.get_mut().is_nearly_full() {
            self.deliver_mirrored(turn, worker);
        }
        if !self.features.answers.get_mut().is_empty() {
            self.send_answers(turn, topology);
        }
    }

    /// Delivers copies for the ports that mirror others, if there are any.
    #[inline]
    fn deliver_mirrored(&mut self, turn: &Turn<'_>, worker: usize) {
        let Forwarder { features, meter, copies, due, combining, .. } = self;
        let mirrored = features.mirrored.get_mut();
        if !mirrored.is_empty() {
            mirrored.deliver(turn, (meter, &mut copies.completer), worker, (due, combining));
        }
    }

    /// Whether the end of a turn has nothing to do.
    #[inline]
    pub fn is_done(&mut self) -> bool {
        self.due.is_empty() && self.features.mirrored.get_mut().is_empty()
    }

    /// Called at the end of a turn: publishes delayed notifications that are due; returns when the next one is due.
    pub fn publish_due(&mut self, turn: &Turn<'_>) -> Option<u64> {
        self.deliver_mirrored(turn, 0);
        let combining = std::mem::take(&mut self.combining) > 0;
        let meter = &self.meter;
        self.due.retain_mut(|(when, slot)| {
            if *when > turn.now && !combining {
                return true;
            }
            if is_closed(&slot.budget) {
                return false;
            }
            // A destination locked by another worker is published by that worker.
            let mut queue = match slot.queue.try_lock() {
                Ok(queue) => queue,
                Err(TryLockError::WouldBlock) => return true,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            meter.at(Access::of(slot.port));
            meter.stopwatch.enter(Stage::Publish, 0);
            if queue.defers_signal() {
                queue.end_turn(turn);
            } else {
                queue.publish(turn);
            }
            match queue.next_due() {
                Some(next) => {
                    *when = next;
                    true
                }
                None => false,
            }
        });
        meter.stopwatch.enter(Stage::Rest, 0);
        // Copies that wait are tried again in the next turn.
        let waiting = (!self.features.mirrored.get_mut().is_empty()).then_some(turn.now);
        self.due.iter().map(|(when, _)| *when).chain(waiting).min()
    }
}

/// A source that one thread at a time serves. A worker locks it for each burst; the lock is free except while a
/// predecessor of the worker, which a peer blocks, still has it.
pub type SharedSource = Arc<Mutex<Source>>;

/// The source, unless another thread serves it.
#[inline]
pub fn free(source: &SharedSource) -> Option<MutexGuard<'_, Source>> {
    match source.try_lock() {
        Ok(source) => Some(source),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
    }
}

/// A TX queue and its worker's state for it.
pub struct Source {
    /// The queue.
    pub tx: Box<dyn TxQueue>,
    /// Its port.
    pub port: PortId,
    /// Its number within the port.
    pub queue: u16,
    /// Its counters.
    pub counters: CountersRef,
    /// Set while its first frame waits for a full destination.
    pub waiting: Option<Waiting>,
    /// Ports of the switch that have its first frame already, which is flooded in several turns.
    pub flooded: usize,
    /// Ports that still need a copy of its first frames, since another worker had their queue locked.
    pub missed: Missed,
    /// The number of the worker that served it last.
    worker: usize,
    backlog: Backlog,
    captured: Captured,
    mirrored: Mirrored,
    /// When frames of it were answered since they were too long.
    answered: Answered,
    /// Its frames are answers to this port alone.
    answers: Option<PortId>,
    flown: Flown,
}

impl Source {
    /// Source `tx` of queue `queue` of a port.
    pub fn new(tx: Box<dyn TxQueue>, port: PortId, queue: u16, counters: CountersRef) -> Source {
        Source {
            tx,
            port,
            queue,
            counters,
            waiting: None,
            flooded: 0,
            missed: Missed::default(),
            worker: 0,
            backlog: Backlog::default(),
            captured: Captured::default(),
            mirrored: Mirrored::default(),
            answered: Answered::default(),
            answers: None,
            flown: Flown::default(),
        }
    }

    /// Answers go to the sender of what they answer, or nowhere.
    #[inline]
    fn keep_to_asker(&self, verdicts: &mut [PortId]) {
        if let Some(to) = self.answers {
            verdicts.iter_mut().filter(|verdict| **verdict != to).for_each(|verdict| *verdict = NOWHERE);
        }
    }

    /// Makes it a source of worker number `worker`. Called by a thread of that worker.
    #[cold]
    pub fn move_to(&mut self, worker: usize) {
        (self.worker, self.backlog) = (worker, Backlog::default());
    }

    /// The number of the worker that served it last.
    #[inline]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Drops a burst: its port is not there any more.
    #[cold]
    fn drop_all(&mut self, turn: &Turn<'_>, frames: usize) -> Served {
        self.tx.release(turn, frames);
        self.counters.drop_tx(Reason::NoPort, frames);
        Served::Moved(frames)
    }

    /// Counts a burst of which so many frames left.
    #[inline]
    fn count(&self, frames: usize, bytes: u64) {
        add(&self.counters.bursts, 1);
        add(&self.counters.tx_frames, frames as u64);
        add(&self.counters.tx_bytes, bytes);
    }

    /// Notes that the source has no frames.
    fn rest(&mut self, now: u64, topology: &Topology) -> Served {
        (self.waiting, self.flooded, self.missed.frames) = (None, 0, 0);
        self.captured.rest();
        self.mirrored.rest();
        self.flown.rest();
        self.backlog.rest(now, |queue| {
            // Another port may have this place by now.
            let slot = topology.rx.get(queue as usize).filter(|slot| slot.place.is_some());
            slot.and_then(|slot| slot.queue.try_lock().ok()).is_some_and(|queue| has_burst(queue.waiting()))
        });
        Served::Idle
    }

    #[inline]
    fn near(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, target: &Target) -> NearInstances {
        let Target::Instances(ends) = target else { return NearInstances::default() };
        let instances = ends.near(self.worker);
        if instances == 0 {
            return NearInstances::default();
        }
        self.backlog.see(burst.room() == 0 || self.tx.is_half_full(turn) == Some(true), turn.now);
        NearInstances { instances, crowded: self.backlog.since() }
    }
}

/// The instances to which a source's frames go that its worker runs.
#[derive(Clone, Copy, Default)]
struct NearInstances {
    /// As a mask.
    instances: u32,
    /// Since when the worker has not kept up: most of the time it takes whole bursts, or the queue is half full, or a
    /// burst waits for one of them.
    crowded: Option<u64>,
}

/// Whether so many frames wait as a function takes at once.
fn has_burst(waiting: Option<usize>) -> bool {
    waiting.is_some_and(|frames| frames >= BURST)
}

/// Ports whose queue another worker had locked when frames were flooded.
#[derive(Debug, Default)]
pub struct Missed {
    ports: Vec<PortId>,
    /// Number of frames that these ports still need; 0: none.
    frames: usize,
}

/// Result of serving a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The source had no frames.
    Idle,
    /// This many frames left the source.
    Moved(usize),
    /// The source's first frame waits for a full destination.
    Waiting,
    /// The source's peer exceeded its budget and must be detached.
    Closed,
}

/// Why no frame is taken from a port now, if it is not served.
#[inline]
fn unserved(port: &Port) -> Option<Served> {
    match is_closed(&port.budget) {
        true => Some(Served::Closed),
        false => port.rests().then_some(Served::Idle),
    }
}

/// Finds the destination of each frame of a burst, and the switch on which it may be flooded.
#[inline]
fn look_up<'w>(
    target: &'w Target,
    burst: &Burst<'_>,
    (source, hash): (&Source, FlowHash),
    now: u64,
    verdicts: &mut Verdicts,
) -> Option<&'w Switch> {
    match target {
        // The policy decides which frames are looked up.
        Target::Switch(switch) if switch.has_policies => return Some(switch),
        Target::Switch(switch) => {
            let moved = switch.lookup.lookup(burst, source.port, now, verdicts);
            if moved > 0 {
                add(&source.counters.moved, moved.into());
            }
            return Some(switch);
        }
        Target::Patch(peer) => verdicts[..burst.len()].fill(*peer),
        Target::Instances(ends) => ends.look_up(burst, hash, now, verdicts),
        Target::Nowhere => verdicts[..burst.len()].fill(NOWHERE),
    }
    None
}

/// What must be read of a burst before a destination is locked; returns whether its frames are in our own memory.
#[inline]
fn before_locks<'b>(
    burst: Burst<'b>,
    own: &'b mut PrivateCopy,
    port: Option<&Port>,
    meter: &Meter,
) -> (Burst<'b>, bool) {
    let is_shared = port.is_some_and(|port| port.budget.is_some());
    if meter.is_close() || port.is_some_and(|port| port.is_suspect) {
        (own.copy(&burst), true)
    } else {
        (touched(burst, is_shared), !is_shared)
    }
}

/// Size of the smallest pages.
const PAGE: usize = 4096;

/// Reads a byte of each page of the frames of a port whose peer shares memory.
///
/// Attack: frames in pages that the peer takes away, so that the copy blocks, and with it the destination, which is
/// locked meanwhile. Here no destination is locked yet, and only the source can be whose memory blocks.
#[inline]
fn touched(burst: Burst<'_>, is_shared: bool) -> Burst<'_> {
    if !is_shared {
        return burst;
    }
    for piece in (0..burst.len()).flat_map(|frame| burst.tail(frame)) {
        let last = piece.len().saturating_sub(1);
        for offset in (0..last).step_by(PAGE).chain([last]) {
            std::hint::black_box(piece.split(offset).1.read(&mut [0]));
        }
    }
    burst
}

/// Records the queue of a port from which each frame's flow comes, for those of the other direction.
#[inline]
fn record_flows(port: &Port, burst: &Burst<'_>, hash: FlowHash, source: &Source) {
    // Answers are not the port's own.
    if let Some(steer) = port.steer.as_ref().filter(|_| source.answers.is_none()) {
        (0..burst.len()).for_each(|frame| steer.record_flow(hash.of(burst.head(frame)), source.queue));
    }
}

fn bytes_of(burst: &Burst<'_>, from: usize, to: usize) -> u64 {
    (from..to).map(|frame| u64::from(burst.meta(frame).len)).sum()
}

/// The RX queue of a port for a frame, whose flow has the hash that `hash` computes.
#[inline]
fn queue_of(port: &Port, hash: impl FnOnce() -> u32) -> u32 {
    port.first + Steer::queue(port.steer.as_ref(), port.queues, hash)
}

/// The delivery of one burst.
struct Delivery<'d, 'b, 't> {
    turn: &'t Turn<'t>,
    topology: &'d Topology,
    burst: &'d Burst<'b>,
    verdicts: &'d Verdicts,
    properties: Properties,
    near: NearInstances,
    source: &'d mut Source,
    port: &'d Port,
    hash: FlowHash,
    due: &'d mut Vec<(u64, Arc<RxSlot>)>,
    combining: &'d mut usize,
    meter: &'d Meter,
    /// Whether the frames are in our own memory.
    is_own: bool,
    /// Records what happens to the only frame of the burst.
    live: Option<&'d RefCell<Box<LiveTrace>>>,
    /// What policy and snooping decided.
    decided: Decided<'d>,
}

/// Memory for frames that their destinations get in another form.
#[derive(Default)]
struct Copies {
    completer: Completer,
    /// Copies of frames that are flooded with other tags than they came with.
    retagged: Storage,
    joined: Pairs,
}

impl<'d> Delivery<'d, '_, '_> {
    /// The RX queue of `port` for `frame`.
    #[inline]
    fn destination(&self, frame: usize, port: PortId) -> Option<u32> {
        if port == self.source.port {
            return None;
        }
        Some(queue_of(self.topology.port(port)?, || self.hash.of(self.burst.head(frame))))
    }

    /// The RX queue of all frames `start..end`, if they all go to one port with a single queue.
    #[inline]
    fn only(&self, start: usize, end: usize) -> Option<u32> {
        let (first, rest) = self.verdicts[start..end].split_first()?;
        let several = rest.iter().fold(0, |differ, verdict| differ | (verdict ^ first));
        let to = self.topology.port(*first)?;
        (several == 0 && to.queues <= 1 && *first != self.source.port).then_some(to.first)
    }

    /// Delivers the first `count` frames; returns the first that must stay.
    #[inline]
    fn deliver(
        &mut self,
        flood: Option<&Switch>,
        sorter: &mut Sorter,
        copies: &mut Copies,
        count: usize,
    ) -> usize {
        let mut done = 0;
        while done < count {
            let (end, stop) = match Run::at(self.verdicts, done, count) {
                Run::Unicast(end) => (end, self.unicast(sorter, copies, done, end)),
                Run::Flood(end) => (end, self.flood(flood, copies, done, end)),
            };
            done = stop;
            if stop < end {
                break;
            }
        }
        done
    }

    /// Delivers the frames `start..end`, each to at most one port; returns the first that must stay.
    fn unicast(&mut self, sorter: &mut Sorter, copies: &mut Copies, start: usize, end: usize) -> usize {
        self.meter.stopwatch.enter(Stage::Reserve, end - start);
        let lists = self.sort(sorter, start, end);
        let mut cut = Cut { at: end, full: None, busy: 0 };
        let mut open = OpenDestinations::default();
        self.reserve(lists, copies, &mut open, &mut cut);
        self.source.backlog.block(cut.full.is_some_and(|full| self.is_elsewhere(&full)));
        if cut.at == start {
            self.wait(&cut);
            return start;
        }
        (self.source.flooded, self.source.missed.frames) = (0, 0);
        self.meter.stopwatch.enter(Stage::Copy, cut.at - start);
        self.copy(lists, &mut open, cut.at);
        self.count_drops(lists, &open, start, &cut);
        // Attack: a peer that takes its rings away. The destinations of a port in quarantine are unlocked before.
        let is_suspect = self.port.is_suspect;
        if !is_suspect {
            self.release(cut.at - start);
        }
        open.iter_mut().for_each(|to| self.publish(to));
        if is_suspect {
            drop(open);
            self.release(cut.at - start);
        }
        cut.at
    }

    /// A list of frames for each destination, in order.
    #[inline]
    fn sort<'s>(&self, sorter: &'s mut Sorter, start: usize, end: usize) -> &'s [List] {
        match self.only(start, end) {
            Some(destination) => sorter.all((start, end), destination),
            None => sorter.sort(self.verdicts, (start, end), self.topology.rx.len(), |frame, port| {
                self.destination(frame, port)
            }),
        }
    }

    /// Locks destinations and reserves room. Lowers the cut to the first frame that must stay.
    #[inline]
    fn reserve<'c>(
        &self,
        lists: &[List],
        copies: &'c mut Copies,
        open: &mut OpenDestinations<'d, 'c>,
        cut: &mut Cut,
    ) where
        'd: 'c,
    {
        let mut completer = Some(&mut copies.completer);
        let mut memory = copies.joined.iter_mut();
        for (number, list) in lists.iter().enumerate() {
            let Some((mut to, caps)) = self.open(number, list, cut) else { continue };
            if self.properties.suits(&caps) {
                if self.joins(&to, &caps, list) {
                    to = match self.reserve_joined(to, caps, list, memory.next(), cut) {
                        Ok(joined) => {
                            open.joined.push(joined);
                            continue;
                        }
                        Err(to) => to,
                    };
                }
                open.plain.push(self.reserve_suited(to, list, cut));
            } else if let Some(completer) = completer.take() {
                open.unsuited = Some(self.reserve_unsuited(to, caps, list, completer, cut));
            } else {
                // A burst is completed for one destination only; frames for a second one are left for the next burst.
                cut.lower(usize::from(list.frames()[0]), None);
            }
        }
    }

    /// Copies the frames before `end` to the destinations that have room for them.
    #[inline]
    fn copy(&self, lists: &[List], open: &mut OpenDestinations<'_, '_>, end: usize) {
        for to in &mut open.plain {
            let frames = before(lists[to.list].frames(), end);
            self.copies_to(to.slot);
            let fits = frames.len().min(to.fits);
            self.put(to, self.burst, &frames[..fits]);
        }
        open.joined.iter_mut().for_each(|joined| joined.put(self, lists, end));
        if let Some(unsuited) = &mut open.unsuited {
            self.copies_to(unsuited.to.slot);
            unsuited.put(self, before(lists[unsuited.to.list].frames(), end), true);
        }
    }

    /// Records in the meter that frames are copied next: from the source's memory, unless they are in ours already.
    #[inline]
    fn copies_to(&self, slot: &RxSlot) {
        self.meter.at(if self.is_own {
            Access::of(slot.port)
        } else {
            Access::copy(self.source.port, slot.port)
        });
    }

    #[inline]
    fn release(&mut self, frames: usize) {
        self.meter.at(Access::of(self.source.port));
        self.meter.stopwatch.enter(Stage::Release, frames);
        self.source.tx.release(self.turn, frames);
    }

    #[inline]
    fn publish(&mut self, to: &mut Destination<'_>) {
        self.meter.at(Access::of(to.slot.port));
        self.meter.stopwatch.enter(Stage::Publish, to.fits);
        to.publish(self.turn, self.due, self.combining);
    }

    /// Opens a list's destination; `None` if it is down, or if another worker has it locked. While that worker is
    /// waited for, this lowers the cut.
    #[inline]
    fn open(&self, number: usize, list: &List, cut: &mut Cut) -> Option<(Destination<'d>, Caps)> {
        let slot = self.topology.rx.get(list.destination as usize)?;
        self.meter.at(Access::of(slot.port));
        match Destination::new(slot, number, self.turn) {
            Ok(found) => found,
            Err(Busy) if slot.given_up.load(Relaxed) => {
                cut.busy |= 1 << number;
                None
            }
            Err(Busy) => {
                let full = Full { destination: list.destination as usize, cause: Cause::Locked };
                cut.lower(usize::from(*list.frames().first()?), Some(full));
                None
            }
        }
    }

    /// Reserves room, and lowers the cut to the first frame that must stay.
    #[inline]
    fn reserve_suited(&self, mut to: Destination<'d>, list: &List, cut: &mut Cut) -> Destination<'d> {
        let frames = list.frames();
        to.reserve(self.turn, self.burst, frames);
        self.see(&mut to, list);
        if to.fits == frames.len() {
            to.fits_all(self.turn.now, self.port.hold);
        } else if self.waits_for(to.slot) {
            cut.lower(usize::from(frames[to.fits]), Some(Full::of(&to, list)));
        }
        to
    }

    /// Records whether frames wait for an instance of a function: in its own queue, or, if it takes turns with this
    /// worker, where they come from.
    #[inline]
    fn see(&self, to: &mut Destination<'_>, list: &List) {
        let Some(place) = &to.slot.place else { return };
        let waiting = if self.is_near(place) { to.queue.waiting() } else { None };
        if has_burst(waiting) {
            self.source.backlog.waits_in(list.destination);
        }
        place.see(self.turn.now, to.queue.is_half_full(self.turn), waiting.and(self.near.crowded));
    }

    #[inline]
    fn is_near(&self, place: &InstanceSide) -> bool {
        self.near.instances >> place.number & 1 != 0
    }

    /// Whether a full destination is none that the worker empties itself.
    #[cold]
    fn is_elsewhere(&self, full: &Full) -> bool {
        let place = self.topology.rx.get(full.destination).and_then(|slot| slot.place.as_ref());
        full.cause != Cause::Locked && !place.is_some_and(|place| self.is_near(place))
    }

    /// As `reserve_suited`, for a destination that lacks an offload or accepts only shorter frames.
    #[cold]
    fn reserve_unsuited<'c>(
        &self,
        to: Destination<'d>,
        caps: Caps,
        list: &List,
        completer: &'c mut Completer,
        cut: &mut Cut,
    ) -> Unsuited<'d, 'c>
    where
        'd: 'c,
    {
        let frames = list.frames();
        self.meter.stopwatch.enter(Stage::Complete, frames.len());
        let completed = completer.complete(self.burst, frames, caps);
        self.meter.stopwatch.enter(Stage::Reserve, 0);
        if let Some(&first) = frames.get(completed.outcomes.len()) {
            cut.lower(usize::from(first), None);
        }
        let whole = Whole { inputs: 0, outputs: 0 };
        let mut unsuited = Unsuited { to, largest: caps.largest, completed, whole };
        unsuited.reserve(self.turn);
        self.see(&mut unsuited.to, list);
        let inputs = unsuited.whole.inputs;
        if inputs == unsuited.completed.outcomes.len() {
            unsuited.to.fits_all(self.turn.now, self.port.hold);
        } else if self.waits_for(unsuited.to.slot) {
            cut.lower(usize::from(frames[inputs]), Some(Full::of(&unsuited.to, list)));
        }
        unsuited
    }
}
