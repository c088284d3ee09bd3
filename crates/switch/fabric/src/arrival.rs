//! RX queues of a port whose guest arrives from another fabric, or leaves for one: frames for the guest that come while
//! it runs nowhere are kept where it arrives, and delivered once it runs there.
//!
//! The source's switch forgets the guest's address when its rings stop, and floods frames for it, so that they reach
//! this port's switch. It floods them too, wherever it has learned the address from frames of the guest, until the
//! guest runs here: they reach the guest at the source before it stops, and this port. No clock says which of them came
//! too late at the source, since they are on their way for a while. So the source notes the frames that the guest gets
//! in its last moments, and this port does not deliver those again.
//!
//! When the guest gives its rings back at the source, frames for it wait where they are until the switch has forgotten
//! its address: then they are flooded.
//!
//! Frames for other addresses, and those for groups, had reached the guest before it stopped, or concern it no more
//! than others: they are dropped as for any port without a peer.

use crate::proto::DeliveredFrames;
use crate::topology::RxSlot;
use arrayvec::ArrayVec;
use ringway_frame::packet::{Lent, OwnedFrame};
use ringway_frame::{
    BURST, Burst, Caps, CountersRef, LARGEST, Lost, Needs, Reason, RxQueue, Storage, add, fnv1a,
};
use ringway_mem::Turn;
use ringway_spec::MacAddress;
use ringway_switch::Mac;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Frames that a queue keeps, and their bytes; the oldest give way.
///
/// Attack: a sender that floods a guest which never arrives.
const FRAMES: usize = 4096;
const BYTES: usize = 4 << 20;
/// Nanoseconds for which a frame is kept: longer than a guest stands still.
const AGE: u64 = 5_000_000_000;
/// Nanoseconds between two attempts to deliver what is kept.
const RETRY: u64 = 200_000;
/// How long a worker may have a queue locked until its port counts as blocked.
const LOCKED: Duration = Duration::from_millis(100);

/// Nanoseconds before a guest's stop for which the frames that it got are of interest: longer than a frame is on its
/// way from one fabric to the other, and than it takes from the return of the guest's rings until its stop is reported.
const WINDOW: u64 = 100_000_000;
/// Nanoseconds before those in which other frames are of interest too: where a switch floods frames for the guest, they
/// reach it at both places, here later by their way.
const WAY: u64 = 10_000_000;
/// Most frames that are noted of a guest that leaves, of all its queues; the oldest give way. Attack: a sender that
/// floods a guest which never leaves.
const NOTED: usize = 4096;
/// Most frames that the ports of a guest name together: a line of text to another host has room for them.
const NAMED: usize = 8 * NOTED;
/// Nanoseconds for which frames wait for the switch to forget the address of a guest that has given its rings back.
const FORGETTING: u64 = 10_000_000;
/// Bits of a fingerprint: as many as a number of JSON has.
const FINGERPRINT: u64 = (1 << 53) - 1;

/// Stages of an arrival or a departure, the three lowest bits of its state; the others count changes.
const KEEP: u64 = 1;
const DELIVER: u64 = 2;
const DROP: u64 = 3;
const LEAVE: u64 = 4;
const STAGE: u64 = 7;

/// The arrival of a port's guest, or its departure, shared by the port's queues and the one thread that changes it.
#[derive(Debug, Default)]
pub struct Arrival {
    state: AtomicU64,
    /// How often the guest got each frame before it left its former place, by fingerprint.
    got: Mutex<HashMap<u64, u32>>,
    /// What the guest gets before it leaves.
    noted: Mutex<Noted>,
    /// The guest's address.
    mac: AtomicU64,
    /// When the guest stopped: frames that came before had reached it.
    since: AtomicU64,
}

/// The frames that a guest gets that leaves.
#[derive(Debug, Default)]
struct Noted {
    /// Since when all are noted.
    since: u64,
    /// When each was delivered, and its fingerprint.
    frames: VecDeque<(u64, u64)>,
}

impl Noted {
    fn add(&mut self, now: u64, fingerprint: u64) {
        if self.frames.len() >= NOTED
            && let Some((when, _)) = self.frames.pop_front()
        {
            // Others were delivered in the same turn.
            self.since = when + 1;
        }
        self.frames.push_back((now, fingerprint));
    }
}

/// A number by which two places know a frame that its port gets as it is: of its first 64 bytes, in which are the
/// checksums of TCP and UDP over IPv4 and of UDP over IPv6, and its length (FNV-1a). Attack: a sender that makes
/// frames with the number of others, of which one may be lost in the moment of a move; it could as well send in the
/// name of the others.
fn fingerprint(head: &[u8], len: u32) -> u64 {
    let hash = fnv1a(head.iter().copied().chain(len.to_le_bytes()));
    (hash ^ (hash >> 53)) & FINGERPRINT
}

impl Arrival {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn got(&self) -> MutexGuard<'_, HashMap<u64, u32>> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes from `now` on which frames for `mac` the guest gets, which leaves.
    pub fn watch(&self, mac: MacAddress, now: u64) {
        self.mac.store(number(&mac.0), Release);
        *self.noted() = Noted { since: now, frames: VecDeque::new() };
        self.enter(LEAVE);
    }

    /// What the guest, which has so many ports, had got when it stopped, at `stopped`; `None` if that is not known.
    pub fn delivered(&self, stopped: u64, ports: usize) -> Option<DeliveredFrames> {
        if self.state.load(Acquire) & STAGE != LEAVE {
            return None;
        }
        let noted = self.noted();
        let window = stopped.saturating_sub(WINDOW);
        let (mut since, mut early) = (noted.since.max(window), window.saturating_sub(WAY));
        if let Some(former) = noted.frames.len().checked_sub(NAMED / ports.max(1) + 1)
            && let Some((when, _)) = noted.frames.get(former)
        {
            (since, early) = (since.max(when + 1), early.max(when + 1));
        }
        let frames = noted.frames.iter().filter(|(when, _)| *when >= early).map(|(_, frame)| *frame);
        Some(DeliveredFrames { known: stopped.saturating_sub(since), frames: frames.collect() })
    }

    /// Keeps frames for `mac` from now on.
    pub fn keep(&self, mac: MacAddress) {
        self.mac.store(number(&mac.0), Release);
        self.enter(KEEP);
    }

    /// Has the queues deliver what came after the guest stopped, at `stopped` in nanoseconds of the turns' clock, once
    /// the guest can receive; and what came shortly before, but for what it had got at any of its ports, if that is
    /// known.
    pub fn deliver(&self, stopped: u64, delivered: Option<&DeliveredFrames>) {
        let mut got = HashMap::new();
        // Attack: a source that names frames without end.
        for frame in delivered.iter().flat_map(|delivered| delivered.frames.iter().take(NAMED)) {
            *got.entry(*frame).or_insert(0) += 1;
        }
        *self.got() = got;
        let before = delivered.map_or(0, |delivered| delivered.known.min(WINDOW));
        self.since.store(stopped.saturating_sub(before), Release);
        self.enter(DELIVER);
    }

    /// The guest does not arrive: what is kept is dropped; or it does not leave, or has left.
    pub fn abandon(&self) {
        self.enter(DROP);
    }

    /// The guest's address while frames for it are kept.
    pub fn kept(&self) -> Option<Mac> {
        let is_kept = self.state.load(Acquire) & STAGE == KEEP;
        let [_, _, bytes @ ..] = self.mac.load(Acquire).to_be_bytes();
        is_kept.then(|| Mac::new(bytes))
    }

    fn enter(&self, stage: u64) {
        let before = self.state.load(Acquire);
        let is_next = match (stage, before & STAGE) {
            (KEEP, _) => true,
            (LEAVE, former) => former != KEEP,
            // Frames are delivered or dropped once.
            (DROP, former) => matches!(former, KEEP | LEAVE),
            (_, former) => former == KEEP,
        };
        if is_next {
            self.state.store((before & !STAGE) + STAGE + 1 + stage, Release);
        }
    }
}

fn number(mac: &[u8; 6]) -> u64 {
    mac.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Makes the queues of a port follow `arrival`; `false` if a worker has had one locked for too long, whose frames are
/// dropped while the guest runs nowhere.
pub fn follow(slots: &[Arc<RxSlot>], arrival: &Arc<Arrival>) -> bool {
    let end = Instant::now() + LOCKED;
    slots.iter().all(|slot| {
        loop {
            let mut queue = match slot.queue.try_lock() {
                Ok(queue) => queue,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    std::thread::yield_now();
                    continue;
                }
                Err(TryLockError::WouldBlock) => return false,
            };
            let inner = std::mem::replace(&mut *queue, Box::new(Nobody));
            *queue = Box::new(ArrivalQueue::new(inner, arrival.clone(), slot.counters.clone()));
            return true;
        }
    })
}

/// A queue without a peer.
struct Nobody;

impl RxQueue for Nobody {
    fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
        None
    }

    fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, _which: &[u16]) -> usize {
        0
    }

    fn put(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, _which: &[u16]) -> Lost {
        Lost::default()
    }

    fn publish(&mut self, _turn: &Turn<'_>) {}
}

/// A frame that is kept.
struct Kept {
    /// When it came.
    when: u64,
    bytes: usize,
    fingerprint: u64,
    /// Whether the guest got it where it was.
    is_delivered: bool,
}

/// What becomes of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It passes.
    Pass,
    /// It is kept.
    Keep,
    /// It passes, and is noted.
    Leave,
}

/// A queue that keeps frames while its port's guest arrives, and notes what it gets while it leaves.
struct ArrivalQueue {
    inner: Box<dyn RxQueue>,
    arrival: Arc<Arrival>,
    counters: CountersRef,
    kept: Lent,
    came: VecDeque<Kept>,
    bytes: usize,
    storage: Storage,
    /// The arrival's state in which frames pass, since nothing is left to do.
    passed: u64,
    /// Of the burst for which it was asked last what the guest can receive: the state may change in between.
    mode: Mode,
    /// The arrival's state in which it was found out which of them the guest had got.
    compared: u64,
    /// Since when a guest that leaves does not receive.
    gone: Option<u64>,
    /// The clock of the last turn.
    now: u64,
}

impl ArrivalQueue {
    fn new(inner: Box<dyn RxQueue>, arrival: Arc<Arrival>, counters: CountersRef) -> ArrivalQueue {
        ArrivalQueue {
            inner,
            arrival,
            counters,
            kept: Lent::default(),
            came: VecDeque::new(),
            bytes: 0,
            storage: Storage::default(),
            passed: 0,
            mode: Mode::Pass,
            compared: 0,
            gone: None,
            now: 0,
        }
    }

    /// Frees the first `count` kept frames.
    fn remove(&mut self, count: usize) {
        self.kept.release(count);
        let removed: usize = self.came.drain(..count.min(self.came.len())).map(|kept| kept.bytes).sum();
        self.bytes -= removed.min(self.bytes);
    }

    /// Drops the frames that came before an instant.
    fn drop_before(&mut self, instant: u64) {
        let old = self.came.iter().take_while(|kept| kept.when < instant).count();
        if old > 0 {
            self.counters.drop_rx(Reason::Down, old);
            self.remove(old);
        }
    }

    fn keep(&mut self, burst: &Burst<'_>, frame: u16) {
        let meta = burst.meta(usize::from(frame));
        let mut owned_frame = OwnedFrame::large(meta.len as usize);
        if !owned_frame.fill(burst, usize::from(frame)) {
            return self.counters.drop_rx(Reason::Long, 1);
        }
        while !self.came.is_empty() && (self.came.len() >= FRAMES || self.bytes + owned_frame.len() > BYTES) {
            self.counters.drop_rx(Reason::Full, 1);
            self.remove(1);
        }
        self.bytes += owned_frame.len();
        let fingerprint = fingerprint(burst.head(usize::from(frame)), meta.len);
        let bytes = owned_frame.len();
        self.came.push_back(Kept { when: self.now, bytes, fingerprint, is_delivered: false });
        self.kept.push(owned_frame);
    }

    /// Finds the frames that the guest had got where it was. Of frames that are alike, these are the first.
    fn compare(&mut self) {
        let mut got = self.arrival.got();
        for kept in &mut self.came {
            if let Some(left) = got.get_mut(&kept.fingerprint).filter(|left| **left > 0) {
                *left -= 1;
                kept.is_delivered = true;
            }
        }
    }

    /// Whether frames wait since a guest that leaves has just given its rings back.
    fn is_forgotten_soon(&self) -> bool {
        self.gone.is_some_and(|gone| self.now.saturating_sub(gone) < FORGETTING)
    }

    /// What a guest can receive that leaves.
    #[cold]
    fn leaving_caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        self.now = turn.now;
        let caps = self.inner.caps(turn);
        self.gone = match caps {
            Some(_) => None,
            None => self.gone.or(Some(turn.now)),
        };
        // Without room: senders wait, and look up the address again.
        caps.or_else(|| self.is_forgotten_soon().then_some(Caps { offloads: Needs::NONE, largest: LARGEST }))
    }

    /// Delivers or drops what is kept, as far as the arrival's stage in `state` permits.
    #[cold]
    fn settle(&mut self, turn: &Turn<'_>, state: u64) {
        self.now = turn.now;
        self.kept.reclaim(&mut Vec::new());
        let oldest = turn.now.saturating_sub(AGE);
        match state & STAGE {
            KEEP => self.drop_before(oldest),
            DELIVER => {
                self.drop_before(oldest.max(self.arrival.since.load(Acquire)));
                if self.compared != state {
                    self.compare();
                    self.compared = state;
                }
                if self.inner.caps(turn).is_some() {
                    self.deliver(turn);
                    // Until the guest has what came before, frames join the others.
                    if self.came.is_empty() {
                        self.passed = state;
                    }
                }
            }
            LEAVE => {
                self.drop_before(oldest);
                // Of its arrival, shortly before.
                if !self.came.is_empty() && self.inner.caps(turn).is_some() {
                    self.deliver(turn);
                }
            }
            _ => {
                self.drop_before(u64::MAX);
                (self.passed, self.gone) = (state, None);
            }
        }
    }

    fn deliver(&mut self, turn: &Turn<'_>) {
        let mut delivered = false;
        while !self.came.is_empty() {
            let ArrivalQueue { inner, kept, storage, came, .. } = self;
            let mut burst = Burst::begin(storage);
            kept.lend(turn, &mut burst);
            let lent = burst.len();
            let is_new = |frame: &u16| came.get(usize::from(*frame)).is_some_and(|kept| !kept.is_delivered);
            let which: ArrayVec<u16, BURST> = (0..lent as u16).filter(is_new).collect();
            let fits = match which.is_empty() {
                true => 0,
                false => inner.reserve(turn, &burst, &which).min(which.len()),
            };
            // With those among them that the guest has got already.
            let done = which.get(fits).map_or(lent, |first| usize::from(*first));
            if done == 0 {
                break;
            }
            self.counters.drop_rx(Reason::Down, done - fits);
            if fits > 0 {
                let fitting = &which[..fits];
                let bytes: u64 =
                    fitting.iter().map(|frame| u64::from(burst.meta(usize::from(*frame)).len)).sum();
                let lost = inner.put(turn, &burst, fitting);
                add(&self.counters.rx_frames, (fits as u64).saturating_sub(lost.frames));
                add(&self.counters.rx_bytes, bytes.saturating_sub(lost.bytes));
                delivered = true;
            }
            self.remove(done);
        }
        if delivered {
            self.inner.publish(turn);
        }
    }
}

impl RxQueue for ArrivalQueue {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        let state = self.arrival.state.load(Acquire);
        if state != self.passed {
            self.settle(turn, state);
        }
        self.mode = match state {
            _ if state == self.passed => Mode::Pass,
            _ if state & STAGE == LEAVE => Mode::Leave,
            _ => Mode::Keep,
        };
        match self.mode {
            Mode::Pass => self.inner.caps(turn),
            Mode::Leave => self.leaving_caps(turn),
            // What it keeps any guest can receive.
            Mode::Keep => Some(Caps { offloads: Needs::NONE, largest: LARGEST }),
        }
    }

    fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> usize {
        match self.mode {
            Mode::Leave if self.gone.is_some() => 0,
            Mode::Pass | Mode::Leave => self.inner.reserve(turn, burst, which),
            Mode::Keep => which.len(),
        }
    }

    fn framing(&self) -> u32 {
        self.inner.framing()
    }

    fn refusal(&self, place: usize) -> Option<Reason> {
        if self.mode == Mode::Keep { None } else { self.inner.refusal(place) }
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        if self.mode == Mode::Pass {
            return self.inner.put(turn, burst, which);
        }
        let mac = self.arrival.mac.load(Acquire);
        let is_for_guest = |frame: u16| {
            let head = burst.head(usize::from(frame));
            head.first_chunk().is_some_and(|to| number(to) == mac)
        };
        if self.mode == Mode::Leave {
            let lost = self.inner.put(turn, burst, which);
            let mut noted = self.arrival.noted();
            for &frame in which.iter().filter(|frame| is_for_guest(**frame)) {
                let len = burst.meta(usize::from(frame)).len;
                noted.add(turn.now, fingerprint(burst.head(usize::from(frame)), len));
            }
            return lost;
        }
        let mut all = Lost::default();
        for &frame in which {
            let is_for_guest = is_for_guest(frame);
            let bytes = u64::from(burst.meta(usize::from(frame)).len);
            match is_for_guest {
                true => self.keep(burst, frame),
                false => self.counters.drop_rx(Reason::Down, 1),
            }
            // What is kept counts as received when it is delivered.
            all += Lost { frames: 1, bytes };
        }
        all
    }

    fn publish(&mut self, turn: &Turn<'_>) {
        let state = self.arrival.state.load(Acquire);
        if state != self.passed {
            self.settle(turn, state);
        }
        self.inner.publish(turn);
    }

    fn is_half_full(&mut self, turn: &Turn<'_>) -> bool {
        self.mode != Mode::Keep && self.inner.is_half_full(turn)
    }

    fn waiting(&self) -> Option<usize> {
        self.inner.waiting()
    }

    fn awaits_translation(&self) -> bool {
        // Senders wait longer than for a queue that is full.
        self.inner.awaits_translation() || self.mode == Mode::Leave && self.is_forgotten_soon()
    }

    fn defers_signal(&self) -> bool {
        self.mode != Mode::Keep && self.inner.defers_signal()
    }

    fn end_turn(&mut self, turn: &Turn<'_>) {
        self.inner.end_turn(turn);
    }

    fn next_due(&self) -> Option<u64> {
        let retry = (!self.came.is_empty()).then_some(self.now + RETRY);
        retry.into_iter().chain(self.inner.next_due()).min()
    }
}

#[cfg(test)]
mod tests;
