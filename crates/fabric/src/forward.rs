//! One burst from its source to its destinations: take, look up, sort, reserve, copy, release, publish.

mod flood;
mod own;
#[cfg(test)]
mod tests;

use crate::meter::{Access, Meter};
use crate::world::{Port, RxSlot, Switch, Target, World, is_closed};
use arrayvec::ArrayVec;
use own::Own;
use ringway_frame::{BURST, Burst, Caps, CountersRef, Needs, Reason, RxQueue, Storage, TxQueue, add};
use ringway_mem::Turn;
use ringway_port::offload::{Completed, Completer, Outcome, Whole};
use ringway_switch::{FlowHash, INVALID, List, NOWHERE, PortId, Run, Sorter, Verdicts};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, TryLockError};

/// Length of an Ethernet header; shorter frames are no frames.
const ETHERNET: u32 = 14;

/// A sending queue and what its worker keeps of it.
pub struct Source {
    /// The queue.
    pub tx: Box<dyn TxQueue>,
    /// Its port.
    pub port: PortId,
    /// Its number within the port.
    pub queue: u16,
    /// Its counters.
    pub counters: CountersRef,
    /// While its first frame waits for a full destination.
    pub waiting: Option<Waiting>,
    /// Ports of the switch that have its first frame already, which is flooded in several turns.
    pub flooded: usize,
    /// Ports that are yet to have a copy of its first frames, since another worker had their queue.
    pub missed: Missed,
}

impl Source {
    /// Source `tx` of queue `queue` of a port.
    pub fn new(tx: Box<dyn TxQueue>, port: PortId, queue: u16, counters: CountersRef) -> Source {
        Source { tx, port, queue, counters, waiting: None, flooded: 0, missed: Missed::default() }
    }
}

/// Ports whose queue another worker had when frames were flooded.
#[derive(Debug, Default)]
pub struct Missed {
    ports: Vec<PortId>,
    /// How many frames they are to get; 0: none.
    frames: usize,
}

/// A frame waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Since when.
    since: u64,
    /// When it was last found to.
    last: u64,
}

/// What came of serving a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It had no frames.
    Idle,
    /// So many frames left it.
    Moved(usize),
    /// Its first frame waits for a full destination.
    Waiting,
    /// Its peer cost too much, and is to go.
    Closed,
}

/// What a worker needs for forwarding, kept from burst to burst.
pub struct Forwarder {
    storage: Storage,
    verdicts: Verdicts,
    sorter: Sorter,
    completer: Completer,
    hash: FlowHash,
    /// Receiving queues that hold a notification back, and until when.
    pub due: Vec<(u64, Arc<RxSlot>)>,
    /// Of those, how many hold it back until the turn ends, at least.
    combining: usize,
    /// Whose memory is accessed.
    pub meter: Meter,
    /// Frames in memory of ours, while accesses are timed.
    own: Own,
}

/// What is true of all frames of a burst.
struct Survey {
    needs: Needs,
    longest: u32,
}

impl Survey {
    fn of(burst: &Burst<'_>, verdicts: &mut Verdicts) -> (Survey, u64) {
        let bounds = burst.bounds();
        if !bounds.undone && bounds.shortest >= ETHERNET {
            return (Survey { needs: Needs::NONE, longest: bounds.longest }, burst.bytes() as u64);
        }
        let mut survey = Survey { needs: Needs::NONE, longest: 0 };
        let mut bytes = 0;
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            let meta = burst.meta(index);
            survey.needs = survey.needs.with(meta.offload.needs());
            survey.longest = survey.longest.max(meta.len);
            bytes += u64::from(meta.len);
            if meta.len < ETHERNET {
                *verdict = NOWHERE;
            }
        }
        (survey, bytes)
    }

    #[inline]
    fn suits(&self, caps: &Caps) -> bool {
        caps.offloads.covers(self.needs) && self.longest <= caps.largest
    }
}

/// A destination while its lock is held.
struct Open<'w> {
    queue: MutexGuard<'w, Box<dyn RxQueue>>,
    slot: &'w Arc<RxSlot>,
    list: usize,
    fits: usize,
}

impl<'w> Open<'w> {
    /// Takes the destination's lock without waiting, and asks what it can take. `Ok(None)`: it isn't there.
    #[inline]
    fn new(slot: &'w Arc<RxSlot>, list: usize, turn: &Turn<'_>) -> Result<Option<(Open<'w>, Caps)>, Busy> {
        let mut queue = match slot.queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::WouldBlock) => return Err(Busy),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        if slot.given_up.load(Relaxed) {
            slot.given_up.store(false, Relaxed);
        }
        if is_closed(&slot.budget) {
            return Ok(None);
        }
        let Some(caps) = queue.caps(turn) else { return Ok(None) };
        Ok(Some((Open { queue, slot, list, fits: 0 }, caps)))
    }

    #[inline]
    fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, frames: &[u16]) {
        self.fits = self.queue.reserve(turn, burst, frames).min(frames.len());
    }

    /// It has room for all that is offered.
    #[inline]
    fn fits_all(&self, now: u64, hold: u64) {
        if self.slot.patience.is_over() {
            self.slot.patience.renew(now, hold);
        }
    }

    #[inline]
    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, frames: &[u16]) {
        let lost = self.queue.put(turn, burst, frames);
        let bytes: u64 = if frames.len() == burst.len() {
            burst.bytes() as u64
        } else {
            frames.iter().map(|&frame| u64::from(burst.meta(usize::from(frame)).len)).sum()
        };
        add(&self.slot.counters.rx_frames, (frames.len() as u64).saturating_sub(lost.frames));
        add(&self.slot.counters.rx_bytes, bytes.saturating_sub(lost.bytes));
    }

    #[inline]
    fn publish(&mut self, turn: &Turn<'_>, due: &mut Vec<(u64, Arc<RxSlot>)>, combining: &mut usize) {
        self.queue.publish(turn);
        if let Some(when) = self.queue.next_due() {
            *combining += usize::from(self.queue.combines());
            if !due.iter().any(|(_, slot)| Arc::ptr_eq(slot, self.slot)) {
                due.push((when, self.slot.clone()));
            }
        }
    }
}

/// A destination that can't take its frames as they are, and the frames as it can.
struct Unsuited<'d, 'c> {
    to: Open<'d>,
    completed: Completed<'c>,
    whole: Whole,
}

impl Unsuited<'_, '_> {
    fn reserve(&mut self, turn: &Turn<'_>) {
        let Unsuited { to, completed, whole } = self;
        to.reserve(turn, &completed.burst, completed.names());
        // Attack: room for some segments of a frame, never for all. Whole frames count, or its sender would wait
        // for ever.
        *whole = completed.whole(to.fits);
    }

    /// Puts what the first `inputs` frames became, and counts those among them that nothing could be made of.
    fn put(&mut self, turn: &Turn<'_>, inputs: usize) {
        let Unsuited { to, completed, whole } = self;
        let outcomes = &completed.outcomes[..inputs.min(whole.inputs)];
        let outputs = outcomes.iter().map(|outcome| match outcome {
            Outcome::Frames(frames) => usize::from(*frames),
            Outcome::Dropped(reason) => {
                to.slot.counters.drop_rx(*reason, 1);
                0
            }
        });
        let outputs = outputs.sum();
        to.put(turn, &completed.burst, &completed.names()[..outputs]);
    }
}

/// Another worker has the destination's queue.
struct Busy;

/// Nanoseconds that frames wait for a destination that asks its peer's side for something, if `hold` is not more and
/// not 0: a front-end answers when its host lets it run.
const ANSWER: u64 = 10_000_000;
/// Nanoseconds that frames wait for a queue that another worker has, if `hold` is not more. Two workers that send to
/// one port meet there all the time, and one of them may be preempted meanwhile.
const OCCUPIED: u64 = 10_000_000;

/// Where a burst had to stop, and for whom.
struct Cut {
    at: usize,
    full: Option<Full>,
    /// Lists, by number, whose destination another worker has and that is no longer waited for.
    busy: u64,
}

const _: () = assert!(BURST <= 64);

/// A destination that had no room.
#[derive(Clone, Copy)]
struct Full {
    destination: usize,
    why: Why,
}

/// Why a destination had no room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Full,
    /// It asks its peer's side for something.
    Asks,
    /// Another worker has it.
    Busy,
}

impl Full {
    fn of(to: &Open<'_>, list: &List) -> Full {
        let why = if to.queue.asks() { Why::Asks } else { Why::Full };
        Full { destination: list.destination as usize, why }
    }
}

impl Cut {
    fn lower(&mut self, at: usize, full: Option<Full>) {
        if at < self.at {
            (self.at, self.full) = (at, full);
        }
    }
}

impl Forwarder {
    /// A forwarder that spreads flows over queues by `hash`.
    pub fn new(hash: FlowHash, meter: Meter) -> Forwarder {
        Forwarder {
            storage: Storage::default(),
            verdicts: [NOWHERE; BURST],
            sorter: Sorter::default(),
            completer: Completer::default(),
            hash,
            due: Vec::new(),
            combining: 0,
            meter,
            own: Own::default(),
        }
    }

    /// Takes one burst from `source` and delivers it.
    pub fn serve(&mut self, turn: &Turn<'_>, world: &World, source: &mut Source) -> Served {
        let Forwarder { storage, verdicts, sorter, completer, hash, due, combining, meter, own } = self;
        let port = world.port(source.port);
        if port.is_some_and(|port| is_closed(&port.budget)) {
            return Served::Closed;
        }
        meter.at(Access::of(source.port));
        let mut burst = Burst::begin(storage);
        source.tx.take(turn, &mut burst);
        let burst = if meter.is_close() { own.copy(&burst) } else { burst };
        let count = burst.len();
        if count == 0 {
            (source.waiting, source.flooded, source.missed.frames) = (None, 0, 0);
            return Served::Idle;
        }
        let Some(port) = port else {
            source.tx.release(turn, count);
            source.counters.drop_tx(Reason::NoPort, count);
            return Served::Moved(count);
        };
        let flood = look_up(&port.target, &burst, source.port, turn.now, verdicts);
        let (survey, bytes) = Survey::of(&burst, verdicts);
        if let Some(steer) = &port.steer {
            (0..count).for_each(|frame| steer.note(hash.of(burst.head(frame)), source.queue));
        }
        let mut delivery = Delivery {
            turn,
            world,
            burst: &burst,
            verdicts,
            survey,
            source,
            port,
            hash: *hash,
            due,
            combining,
            meter,
        };
        let mut done = 0;
        while done < count {
            let (end, stop) = match Run::at(delivery.verdicts, done, count) {
                Run::Unicast(end) => (end, delivery.unicast(sorter, completer, done, end)),
                Run::Flood(end) => (end, delivery.flood(flood, completer, done, end)),
            };
            done = stop;
            if stop < end {
                break;
            }
        }
        let counters = &source.counters;
        add(&counters.bursts, 1);
        add(&counters.tx_frames, done as u64);
        let moved = if done == count { bytes } else { bytes_of(&burst, 0, done) };
        add(&counters.tx_bytes, moved);
        if done > 0 {
            source.waiting = None;
            return Served::Moved(done);
        }
        Served::Waiting
    }

    /// Publishes what destinations held back until now, or until the end of the turn, which this is; returns when the
    /// next of them is due.
    pub fn publish_due(&mut self, turn: &Turn<'_>) -> Option<u64> {
        let combining = std::mem::take(&mut self.combining) > 0;
        let meter = &self.meter;
        self.due.retain_mut(|(when, slot)| {
            if *when > turn.now && !combining {
                return true;
            }
            if is_closed(&slot.budget) {
                return false;
            }
            // A destination that another worker has is being published by it.
            let mut queue = match slot.queue.try_lock() {
                Ok(queue) => queue,
                Err(TryLockError::WouldBlock) => return true,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            meter.at(Access::of(slot.port));
            if queue.combines() {
                queue.turn_ends(turn);
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
        self.due.iter().map(|(when, _)| *when).min()
    }
}

/// Where each frame of a burst goes, and the switch that it may be flooded on.
#[inline]
fn look_up<'w>(
    target: &'w Target,
    burst: &Burst<'_>,
    from: PortId,
    now: u64,
    verdicts: &mut Verdicts,
) -> Option<&'w Switch> {
    match target {
        Target::Switch(switch) => {
            switch.lookup.lookup(burst, from, now, verdicts);
            return Some(switch);
        }
        Target::Patch(peer) => verdicts[..burst.len()].fill(*peer),
        Target::Nowhere => verdicts[..burst.len()].fill(NOWHERE),
    }
    None
}

fn bytes_of(burst: &Burst<'_>, from: usize, to: usize) -> u64 {
    (from..to).map(|frame| u64::from(burst.meta(frame).len)).sum()
}

/// One burst on its way.
struct Delivery<'d, 'b, 't> {
    turn: &'t Turn<'t>,
    world: &'d World,
    burst: &'d Burst<'b>,
    verdicts: &'d Verdicts,
    survey: Survey,
    source: &'d mut Source,
    port: &'d Port,
    hash: FlowHash,
    due: &'d mut Vec<(u64, Arc<RxSlot>)>,
    combining: &'d mut usize,
    meter: &'d Meter,
}

impl<'d> Delivery<'d, '_, '_> {
    /// The receiving queue that `frame` goes to at `port`.
    #[inline]
    fn destination(&self, frame: usize, port: PortId) -> Option<u32> {
        if port == self.source.port {
            return None;
        }
        let to = self.world.port(port)?;
        match &to.steer {
            Some(steer) if to.queues > 1 => {
                Some(to.first + steer.pick(self.hash.of(self.burst.head(frame)), to.queues))
            }
            _ => Some(to.first),
        }
    }

    /// The receiving queue that all of the frames `start..end` go to, where they go to one port that has one.
    #[inline]
    fn only(&self, start: usize, end: usize) -> Option<u32> {
        let (first, rest) = self.verdicts[start..end].split_first()?;
        let several = rest.iter().fold(0, |differ, verdict| differ | (verdict ^ first));
        let to = self.world.port(*first)?;
        (several == 0 && to.queues <= 1 && *first != self.source.port).then_some(to.first)
    }

    /// Delivers the frames `start..end`, each to one port at most; returns the first that has to stay.
    fn unicast(&mut self, sorter: &mut Sorter, completer: &mut Completer, start: usize, end: usize) -> usize {
        let (world, turn, burst) = (self.world, self.turn, self.burst);
        let lists = match self.only(start, end) {
            Some(destination) => sorter.all((start, end), destination),
            None => sorter.sort(self.verdicts, (start, end), world.rx.len(), |frame, port| {
                self.destination(frame, port)
            }),
        };
        let mut cut = Cut { at: end, full: None, busy: 0 };
        let mut open: ArrayVec<Open<'d>, BURST> = ArrayVec::new();
        let mut completer = Some(completer);
        let mut unsuited = None;
        for (number, list) in lists.iter().enumerate() {
            let Some((to, caps)) = self.open(number, list, &mut cut) else { continue };
            if self.survey.suits(&caps) {
                open.extend(self.reserve(to, list, &mut cut));
            } else if let Some(completer) = completer.take() {
                unsuited = Some(self.complete(to, caps, list, completer, &mut cut));
            } else {
                // One destination a burst is completed for; the frames for a second are next.
                cut.lower(usize::from(list.frames()[0]), None);
            }
        }
        if cut.at == start {
            self.wait(&cut);
            return start;
        }
        (self.source.flooded, self.source.missed.frames) = (0, 0);
        for to in &mut open {
            let frames = before(lists[to.list].frames(), cut.at);
            self.copies_to(to.slot);
            to.put(turn, burst, &frames[..frames.len().min(to.fits)]);
        }
        if let Some(mut unsuited) = unsuited {
            self.copies_to(unsuited.to.slot);
            unsuited.put(turn, before(lists[unsuited.to.list].frames(), cut.at).len());
            let mut to = unsuited.to;
            to.fits = unsuited.whole.inputs;
            self.count_drops(lists, &open, Some(&to), start, &cut);
            self.release(cut.at - start);
            self.publish(&mut to);
        } else {
            self.count_drops(lists, &open, None, start, &cut);
            self.release(cut.at - start);
        }
        for to in &mut open {
            self.publish(to);
        }
        cut.at
    }

    /// Frames are copied next, from the source's memory unless that was done before.
    #[inline]
    fn copies_to(&self, slot: &RxSlot) {
        let is_own = self.meter.is_close();
        self.meter.at(if is_own { Access::of(slot.port) } else { Access::copy(self.source.port, slot.port) });
    }

    #[inline]
    fn release(&mut self, frames: usize) {
        self.meter.at(Access::of(self.source.port));
        self.source.tx.release(self.turn, frames);
    }

    #[inline]
    fn publish(&mut self, to: &mut Open<'_>) {
        self.meter.at(Access::of(to.slot.port));
        to.publish(self.turn, self.due, self.combining);
    }

    /// Opens a list's destination; `None` if it isn't there, or another worker has it, which lowers the cut as long as
    /// that is waited for.
    #[inline]
    fn open(&self, number: usize, list: &List, cut: &mut Cut) -> Option<(Open<'d>, Caps)> {
        let slot = self.world.rx.get(list.destination as usize)?;
        self.meter.at(Access::of(slot.port));
        match Open::new(slot, number, self.turn) {
            Ok(found) => found,
            Err(Busy) if slot.given_up.load(Relaxed) => {
                cut.busy |= 1 << number;
                None
            }
            Err(Busy) => {
                let full = Full { destination: list.destination as usize, why: Why::Busy };
                cut.lower(usize::from(*list.frames().first()?), Some(full));
                None
            }
        }
    }

    /// Reserves, and lowers the cut to the first frame that has to stay.
    #[inline]
    fn reserve(&self, mut to: Open<'d>, list: &List, cut: &mut Cut) -> Option<Open<'d>> {
        let frames = list.frames();
        to.reserve(self.turn, self.burst, frames);
        if to.fits == frames.len() {
            to.fits_all(self.turn.now, self.port.hold);
        } else if self.waits_for(to.slot) {
            cut.lower(usize::from(frames[to.fits]), Some(Full::of(&to, list)));
        }
        Some(to)
    }

    /// The same for a destination that lacks an offload, or takes shorter frames only.
    #[cold]
    fn complete<'c>(
        &self,
        to: Open<'d>,
        caps: Caps,
        list: &List,
        completer: &'c mut Completer,
        cut: &mut Cut,
    ) -> Unsuited<'d, 'c>
    where
        'd: 'c,
    {
        let frames = list.frames();
        let completed = completer.complete(self.burst, frames, caps);
        if let Some(&first) = frames.get(completed.outcomes.len()) {
            cut.lower(usize::from(first), None);
        }
        let mut unsuited = Unsuited { to, completed, whole: Whole { inputs: 0, outputs: 0 } };
        unsuited.reserve(self.turn);
        let inputs = unsuited.whole.inputs;
        if inputs == unsuited.completed.outcomes.len() {
            unsuited.to.fits_all(self.turn.now, self.port.hold);
        } else if self.waits_for(unsuited.to.slot) {
            cut.lower(usize::from(frames[inputs]), Some(Full::of(&unsuited.to, list)));
        }
        unsuited
    }

    fn waits_for(&self, slot: &RxSlot) -> bool {
        self.port.hold > 0 && !slot.patience.is_over()
    }

    /// The first frame found no room: it waits for at most `hold`, and less where it holds frames for others too often.
    fn wait(&mut self, cut: &Cut) {
        let now = self.turn.now;
        let Waiting { since, last } = *self.source.waiting.get_or_insert(Waiting { since: now, last: now });
        self.source.waiting = Some(Waiting { since, last: now });
        let Some(Full { destination, why }) = cut.full else { return };
        let Some(slot) = self.world.rx.get(destination) else { return };
        let hold = self.port.hold.max(match why {
            Why::Full => 0,
            Why::Asks => ANSWER,
            Why::Busy => OCCUPIED,
        });
        if now.saturating_sub(since) >= hold {
            match why {
                // Attack: a peer whose memory holds the worker that has its queue, and with it all that send there.
                Why::Busy => slot.given_up.store(true, Relaxed),
                Why::Full | Why::Asks => slot.patience.end(now, hold),
            }
            self.source.waiting = None;
        } else if why != Why::Busy && now > last && self.holds_others(cut.at) {
            slot.patience.charge(now, now - last, hold);
        }
    }

    /// Whether a frame behind `first` goes elsewhere.
    fn holds_others(&self, first: usize) -> bool {
        let verdicts = &self.verdicts[..self.burst.len()];
        verdicts.iter().skip(first).any(|&port| port != verdicts[first])
    }

    /// Counts frames for a destination that isn't there.
    fn count_away(&self, slot: &RxSlot, frames: usize) {
        // Whoever has the queue writes its counters, and nobody else.
        match slot.queue.try_lock() {
            Err(TryLockError::WouldBlock) => self.source.counters.drop_tx(Reason::Down, frames),
            _held => slot.counters.drop_rx(Reason::Down, frames),
        }
    }

    /// Counts the frames of `start..cut` that were not put anywhere.
    fn count_drops(
        &self,
        lists: &[List],
        open: &[Open<'_>],
        unsuited: Option<&Open<'_>>,
        start: usize,
        cut: &Cut,
    ) {
        let mut listed = 0;
        for (number, list) in lists.iter().enumerate() {
            let frames = before(list.frames(), cut.at).len();
            listed += frames;
            if cut.busy & 1 << number != 0 {
                self.source.counters.drop_tx(Reason::Busy, frames);
                continue;
            }
            let Some(slot) = self.world.rx.get(list.destination as usize) else { continue };
            match open.iter().chain(unsuited).find(|to| to.list == number) {
                Some(to) if to.fits < frames => slot.counters.drop_rx(Reason::Full, frames - to.fits),
                Some(_) => {}
                None => self.count_away(slot, frames),
            }
        }
        if listed == cut.at - start {
            return;
        }
        for frame in start..cut.at {
            let counters = &self.source.counters;
            match self.verdicts[frame] {
                NOWHERE if self.burst.meta(frame).len < ETHERNET => counters.drop_tx(Reason::Short, 1),
                INVALID => counters.drop_tx(Reason::BadSource, 1),
                port if port == self.source.port => counters.drop_tx(Reason::Hairpin, 1),
                port if self.world.port(port).is_none() => counters.drop_tx(Reason::NoPort, 1),
                _ => {}
            }
        }
    }
}

/// The frames of a list that come before `cut`.
#[inline]
fn before(frames: &[u16], cut: usize) -> &[u16] {
    match frames.last() {
        Some(&last) if usize::from(last) >= cut => {
            &frames[..frames.partition_point(|&frame| usize::from(frame) < cut)]
        }
        _ => frames,
    }
}
