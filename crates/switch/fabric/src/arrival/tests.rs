//! Arrivals and departures, with a guest's queue in memory.

use super::*;
use ringway_frame::Offload;
use ringway_mem::{Reader, Span};

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
        self.offer(to, numbered).is_some()
    }

    /// The same; for how many frames it had room, if it is up.
    fn offer(&mut self, to: u8, numbered: u8) -> Option<usize> {
        self.now += 1000;
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&[to, 0, 0, 0, 0, 1]);
        frame[14] = numbered;
        let mut storage = Storage::default();
        let turn = self.reader.turn(self.now);
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(&frame)).unwrap();
        let mut queue = self.slot.queue.lock().unwrap();
        queue.caps(&turn)?;
        let fits = queue.reserve(&turn, &burst, &[0]);
        if fits > 0 {
            queue.put(&turn, &burst, &[0]);
        }
        queue.publish(&turn);
        Some(fits)
    }

    fn awaits(&self) -> bool {
        self.slot.queue.lock().unwrap().awaits_translation()
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
    rig.arrival.deliver(stopped, None);
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
    rig.arrival.deliver(0, None);
    assert!(!rig.send(2, 3));
    rig.arrival.keep(GUEST);
    rig.send(2, 4);
    *rig.guest.0.lock().unwrap() = Guest { is_up: true, room: 9, ..Guest::default() };
    rig.turn();
    assert_eq!(rig.got(), [] as [u8; 0], "it is not activated yet");
    rig.arrival.deliver(0, None);
    rig.turn();
    assert_eq!(rig.got(), [4]);
}

/// A guest with much room.
fn up() -> Guest {
    Guest { is_up: true, room: 9999, ..Guest::default() }
}

#[test]
fn what_the_guest_got_where_it_was_is_not_delivered_again_and_all_else_is() {
    let (mut source, mut destination) = (Rig::new(), Rig::new());
    *source.guest.0.lock().unwrap() = up();
    source.arrival.watch(GUEST, source.now);
    destination.arrival.keep(GUEST);
    // Each is flooded at the destination, and reaches the source later: 4 and 5 after the guest's rings were given
    // back. Of two that are alike, one reaches it in time.
    for number in [1, 2, 7, 3] {
        assert!(destination.send(2, number));
        assert_eq!(source.offer(2, number), Some(1));
    }
    for number in [4, 7, 5] {
        assert!(destination.send(2, number));
    }
    source.guest.0.lock().unwrap().is_up = false;
    // A group's, and the guest's, which waits.
    source.send(3, 9);
    assert_eq!((source.offer(2, 4), source.awaits()), (Some(0), true));
    assert_eq!(source.got(), [1, 2, 7, 3]);
    // The stop is reported later than all of them.
    let stopped = source.now + 3_000_000;
    let got = source.arrival.delivered(stopped, 1).unwrap();
    assert_eq!((got.frames.len(), got.known), (4, stopped - 1_000_000_000));
    source.now += FORGETTING;
    assert_eq!((source.offer(2, 5), source.awaits()), (None, false), "the switch has forgotten it");
    source.arrival.abandon();
    assert_eq!(source.arrival.delivered(stopped, 1), None);
    assert_eq!(source.turn(), None);

    *destination.guest.0.lock().unwrap() = up();
    destination.arrival.deliver(stopped, Some(&got));
    destination.turn();
    assert_eq!(destination.got(), [4, 7, 5]);
    assert_eq!(destination.drops(Reason::Down), 4);
    destination.send(2, 1);
    assert_eq!(destination.got(), [4, 7, 5, 1], "a new one that is alike");
}

#[test]
fn frames_with_little_room_are_delivered_in_order_without_those_that_were_got() {
    let mut rig = Rig::new();
    rig.arrival.keep(GUEST);
    (1..=9).for_each(|number| assert!(rig.send(2, number)));
    let mut other = Rig::new();
    *other.guest.0.lock().unwrap() = up();
    other.arrival.watch(GUEST, other.now);
    for number in [1, 4, 5, 9] {
        assert!(other.send(2, number));
    }
    let got = other.arrival.delivered(rig.now, 1);
    rig.arrival.deliver(rig.now, got.as_ref());
    for room in [0, 1, 2, 9] {
        let got = rig.got();
        *rig.guest.0.lock().unwrap() = Guest { room, got, ..up() };
        rig.turn();
    }
    assert_eq!(rig.got(), [2, 3, 6, 7, 8]);
    assert_eq!((rig.drops(Reason::Down), rig.turn()), (4, None));
}

#[test]
fn notes_of_a_guest_that_leaves_are_bounded_and_say_since_when_they_are_whole() {
    let mut rig = Rig::new();
    *rig.guest.0.lock().unwrap() = up();
    rig.arrival.watch(GUEST, rig.now);
    let began = rig.now;
    (0..NOTED + 10).for_each(|number| assert!(rig.send(2, number as u8)));
    let got = rig.arrival.delivered(rig.now, 1).unwrap();
    assert_eq!((got.frames.len(), got.known), (NOTED, rig.now - began - 10_001));
    // Those that came long before are of no interest.
    let got = rig.arrival.delivered(rig.now + WINDOW + WAY, 1).unwrap();
    assert_eq!((got.frames.len(), got.known), (1, WINDOW));
    // Those of a guest with many ports are fewer, and the newest.
    let got = rig.arrival.delivered(rig.now, 16).unwrap();
    assert_eq!(got.frames.len(), NAMED / 16);
    let all = rig.arrival.delivered(rig.now, 1).unwrap();
    assert!(all.frames.ends_with(&got.frames) && got.known < all.known);
}
