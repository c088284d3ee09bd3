//! RX queues of a port whose guest arrives from another fabric: frames for the guest that come while it runs nowhere
//! are kept, and delivered once it runs here.
//!
//! The source's switch forgets the guest's address when its rings stop, and floods frames for it, so that they reach
//! this port's switch. It floods them too, wherever it has learned the address from frames of the guest, until the
//! guest runs here: they reach the guest at the source before it stops, and this port.
//!
//! Frames for other addresses, and those for groups, had reached the guest before it stopped, or concern it no more
//! than others: they are dropped as for any port without a peer.

use crate::topology::RxSlot;
use ringway_frame::packet::{Lent, OwnedFrame};
use ringway_frame::{BURST, Burst, Caps, CountersRef, LARGEST, Lost, Needs, Reason, RxQueue, Storage, add};
use ringway_mem::Turn;
use ringway_spec::MacAddress;
use ringway_switch::Mac;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

/// Frames that a queue keeps, and their bytes; the oldest give way.
///
/// Attack: a sender that floods a guest which never arrives.
const FRAMES: usize = 1024;
const BYTES: usize = 4 << 20;
/// Nanoseconds for which a frame is kept: longer than a guest stands still.
const AGE: u64 = 5_000_000_000;
/// Nanoseconds between two attempts to deliver what is kept.
const RETRY: u64 = 200_000;
/// How long a worker may have a queue locked until its port counts as blocked.
const LOCKED: Duration = Duration::from_millis(100);

/// Stages of an arrival, the two lowest bits of its state; the others count changes.
const KEEP: u64 = 1;
const DELIVER: u64 = 2;
const DROP: u64 = 3;
const STAGE: u64 = 3;

const INDICES: [u16; BURST] = {
    let (mut indices, mut at) = ([0; BURST], 0);
    while at < BURST {
        indices[at] = at as u16;
        at += 1;
    }
    indices
};

/// The arrival of a port's guest, shared by the queues of the port and the one thread that changes it.
#[derive(Debug, Default)]
pub struct Arrival {
    state: AtomicU64,
    /// The guest's address.
    mac: AtomicU64,
    /// When the guest stopped: frames that came before had reached it.
    since: AtomicU64,
}

impl Arrival {
    /// Keeps frames for `mac` from now on.
    pub fn keep(&self, mac: MacAddress) {
        self.mac.store(number(&mac.0), Release);
        self.enter(KEEP);
    }

    /// Has the queues deliver what came after `since`, in nanoseconds of the turns' clock, once the guest can receive.
    pub fn deliver(&self, since: u64) {
        self.since.store(since, Release);
        self.enter(DELIVER);
    }

    /// The guest does not arrive: what is kept is dropped.
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
        // Frames are delivered or dropped once.
        if stage == KEEP || before & STAGE == KEEP {
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

/// A queue that keeps frames while its port's guest arrives.
struct ArrivalQueue {
    inner: Box<dyn RxQueue>,
    arrival: Arc<Arrival>,
    counters: CountersRef,
    kept: Lent,
    /// When each came, and its bytes.
    came: VecDeque<(u64, usize)>,
    bytes: usize,
    storage: Storage,
    /// The arrival's state in which frames pass, since nothing is left to do.
    passed: u64,
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
            now: 0,
        }
    }

    /// Frees the first `count` kept frames.
    fn remove(&mut self, count: usize) {
        self.kept.release(count);
        let removed: usize = self.came.drain(..count.min(self.came.len())).map(|(_, bytes)| bytes).sum();
        self.bytes -= removed.min(self.bytes);
    }

    /// Drops the frames that came before an instant.
    fn drop_before(&mut self, instant: u64) {
        let old = self.came.iter().take_while(|(when, _)| *when < instant).count();
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
        self.came.push_back((self.now, owned_frame.len()));
        self.kept.push(owned_frame);
    }

    /// Whether frames pass.
    #[inline]
    fn passes(&self) -> bool {
        self.arrival.state.load(Acquire) == self.passed
    }

    /// Delivers or drops what is kept, as far as the arrival's stage permits.
    #[cold]
    fn settle(&mut self, turn: &Turn<'_>) {
        self.now = turn.now;
        self.kept.reclaim(&mut Vec::new());
        let state = self.arrival.state.load(Acquire);
        let oldest = turn.now.saturating_sub(AGE);
        match state & STAGE {
            KEEP => self.drop_before(oldest),
            DELIVER => {
                self.drop_before(oldest.max(self.arrival.since.load(Acquire)));
                if self.inner.caps(turn).is_some() {
                    self.deliver(turn);
                    // Until the guest has what came before, frames join the others.
                    if self.came.is_empty() {
                        self.passed = state;
                    }
                }
            }
            _ => {
                self.drop_before(u64::MAX);
                self.passed = state;
            }
        }
    }

    fn deliver(&mut self, turn: &Turn<'_>) {
        let mut delivered = false;
        while !self.came.is_empty() {
            let ArrivalQueue { inner, kept, storage, .. } = self;
            let mut burst = Burst::begin(storage);
            kept.lend(turn, &mut burst);
            let which = &INDICES[..burst.len()];
            let fits = inner.reserve(turn, &burst, which).min(which.len());
            if fits == 0 {
                break;
            }
            let bytes: u64 = (0..fits).map(|frame| u64::from(burst.meta(frame).len)).sum();
            let lost = inner.put(turn, &burst, &which[..fits]);
            add(&self.counters.rx_frames, (fits as u64).saturating_sub(lost.frames));
            add(&self.counters.rx_bytes, bytes.saturating_sub(lost.bytes));
            self.remove(fits);
            delivered = true;
        }
        if delivered {
            self.inner.publish(turn);
        }
    }
}

impl RxQueue for ArrivalQueue {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        if !self.passes() {
            self.settle(turn);
        }
        match self.passes() {
            true => self.inner.caps(turn),
            // What it keeps any guest can receive.
            false => Some(Caps { offloads: Needs::NONE, largest: LARGEST }),
        }
    }

    fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> usize {
        if self.passes() { self.inner.reserve(turn, burst, which) } else { which.len() }
    }

    fn refusal(&self, place: usize) -> Option<Reason> {
        if self.passes() { self.inner.refusal(place) } else { None }
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        if self.passes() {
            return self.inner.put(turn, burst, which);
        }
        let mac = self.arrival.mac.load(Acquire);
        let mut all = Lost::default();
        for &frame in which {
            let head = burst.head(usize::from(frame));
            let is_for_guest = head.first_chunk().is_some_and(|to| number(to) == mac);
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
        if !self.passes() {
            self.settle(turn);
        }
        self.inner.publish(turn);
    }

    fn is_half_full(&mut self, turn: &Turn<'_>) -> bool {
        self.passes() && self.inner.is_half_full(turn)
    }

    fn waiting(&self) -> Option<usize> {
        self.inner.waiting()
    }

    fn awaits_translation(&self) -> bool {
        self.inner.awaits_translation()
    }

    fn defers_signal(&self) -> bool {
        self.passes() && self.inner.defers_signal()
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
mod tests {
    use super::*;
    use ringway_frame::Offload;
    use ringway_mem::{Reader, Span};
    use std::sync::Mutex;

    const GUEST: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    /// A guest's queue: whether it can receive, how many frames it has room for, and what it has got.
    #[derive(Default)]
    struct Guest {
        is_up: bool,
        room: usize,
        got: Vec<u8>,
        published: usize,
    }

    #[derive(Clone, Default)]
    struct GuestQueue(Arc<Mutex<Guest>>);

    impl RxQueue for GuestQueue {
        fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
            self.0.lock().unwrap().is_up.then_some(Caps { offloads: Needs::NONE, largest: 1514 })
        }

        fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
            self.0.lock().unwrap().room.min(which.len())
        }

        fn put(&mut self, _turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
            let mut guest = self.0.lock().unwrap();
            guest.room -= which.len();
            guest.got.extend(which.iter().map(|&frame| burst.head(usize::from(frame))[14]));
            Lost::default()
        }

        fn publish(&mut self, _turn: &Turn<'_>) {
            self.0.lock().unwrap().published += 1;
        }
    }

    struct Rig {
        guest: GuestQueue,
        arrival: Arc<Arrival>,
        slot: Arc<RxSlot>,
        reader: Reader,
        now: u64,
    }

    impl Rig {
        fn new() -> Rig {
            let guest = GuestQueue::default();
            let slot = RxSlot::new(Box::new(guest.clone()), 0, CountersRef::private(), None);
            let (slot, arrival) = (Arc::new(slot), Arc::new(Arrival::default()));
            assert!(follow(std::slice::from_ref(&slot), &arrival));
            Rig { guest, arrival, slot, reader: Reader::register().unwrap(), now: 1_000_000_000 }
        }

        /// Sends a frame with this number, as a worker does; whether the port is up.
        fn send(&mut self, to: u8, numbered: u8) -> bool {
            self.now += 1000;
            let mut frame = [0; 60];
            frame[..6].copy_from_slice(&[to, 0, 0, 0, 0, 1]);
            frame[14] = numbered;
            let mut storage = Storage::default();
            let turn = self.reader.turn(self.now);
            let mut burst = Burst::begin(&mut storage);
            burst.push(Offload::default(), Span::of(&frame)).unwrap();
            let mut queue = self.slot.queue.lock().unwrap();
            if queue.caps(&turn).is_none() {
                return false;
            }
            let fits = queue.reserve(&turn, &burst, &[0]);
            queue.put(&turn, &burst, &INDICES[..fits]);
            queue.publish(&turn);
            true
        }

        /// A turn in which nothing is sent.
        fn turn(&mut self) -> Option<u64> {
            self.now += RETRY;
            let turn = self.reader.turn(self.now);
            let mut queue = self.slot.queue.lock().unwrap();
            queue.publish(&turn);
            queue.next_due()
        }

        fn drops(&self, reason: Reason) -> u64 {
            self.slot.counters.rx_drops[reason as usize].load(std::sync::atomic::Ordering::Relaxed)
        }

        fn got(&self) -> Vec<u8> {
            self.guest.0.lock().unwrap().got.clone()
        }
    }

    #[test]
    fn frames_since_the_guest_stopped_are_delivered_in_order_before_later_ones() {
        let mut rig = Rig::new();
        assert!(!rig.send(2, 0), "a port without a peer is down");
        rig.arrival.keep(GUEST);
        assert!(rig.send(2, 1) && rig.send(2, 2));
        let stopped = rig.now + 1;
        assert!(rig.send(2, 3) && rig.send(2, 4));
        // A group, and another station.
        rig.send(3, 9);
        assert_eq!((rig.drops(Reason::Down), rig.got()), (1, vec![]));
        rig.arrival.deliver(stopped);
        assert!(rig.turn().is_some(), "it is tried again");
        *rig.guest.0.lock().unwrap() = Guest { is_up: true, room: 1, ..Guest::default() };
        rig.turn();
        assert_eq!((rig.got(), rig.drops(Reason::Down)), (vec![3], 3));
        assert!(rig.send(2, 5), "joins those that wait");
        rig.guest.0.lock().unwrap().room = 100;
        rig.send(2, 6);
        assert_eq!(rig.got(), [3, 4, 5, 6]);
        assert_eq!(rig.turn(), None, "nothing waits");
        rig.send(2, 7);
        assert_eq!(rig.got(), [3, 4, 5, 6, 7]);
        let received = rig.slot.counters.rx_frames.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(received, 3, "those that it delivered; a worker counts the others");
    }

    #[test]
    fn what_is_kept_is_bounded_by_number_bytes_and_age() {
        let mut rig = Rig::new();
        rig.arrival.keep(GUEST);
        for number in 0..FRAMES + 10 {
            rig.send(2, number as u8);
        }
        assert_eq!(rig.drops(Reason::Full), 10);
        rig.now += AGE + 1_000_000_000;
        assert_eq!(rig.turn(), None);
        assert_eq!(rig.drops(Reason::Down), FRAMES as u64);
    }

    #[test]
    fn a_guest_that_does_not_arrive_gets_nothing_and_the_next_attempt_begins_anew() {
        let mut rig = Rig::new();
        rig.arrival.keep(GUEST);
        rig.send(2, 1);
        rig.arrival.abandon();
        assert_eq!((rig.turn(), rig.drops(Reason::Down)), (None, 1));
        assert!(!rig.send(2, 2));
        // Without an attempt there is nothing to deliver.
        rig.arrival.deliver(0);
        assert!(!rig.send(2, 3));
        rig.arrival.keep(GUEST);
        rig.send(2, 4);
        *rig.guest.0.lock().unwrap() = Guest { is_up: true, room: 9, ..Guest::default() };
        rig.turn();
        assert_eq!(rig.got(), [] as [u8; 0], "it is not activated yet");
        rig.arrival.deliver(0);
        rig.turn();
        assert_eq!(rig.got(), [4]);
    }
}
