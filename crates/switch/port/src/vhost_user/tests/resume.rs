//! Sessions that go on after the data path crashed, at every step of a turn.

use super::session::region;
use super::{Backend, BackendError, Config, new};
use crate::vhost_user::plants::{Plant, plant};
use crate::{PeerRecord, PeerRecords, Queue, Silent, State};
use ringway_frame::{Burst, Counters, CountersRef, Storage};
use ringway_host::{EventFd, wait_readable};
use ringway_mem::{Hint, Memory, Reader, SpanMut};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Frontend, Packet, Request, SharedRegion, Transport, Vring, VringAddr};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const SIZE: usize = 1 << 20;
const HEADER: usize = 12;
const RING: u16 = 16;
/// Addresses of the rings and the buffers.
const RINGS: [u64; 2] = [0, 0x4000];
const BUFFERS: [u64; 2] = [0x1_0000, 0x8_0000];
/// Distance and size of the buffers for frames to the guest and from it.
const STEP: u64 = 4096;
const ROOM: u32 = 1024;
/// Frames sent together.
const TOGETHER: usize = 4;

/// A message and its descriptors.
type Message = (Vec<u8>, Vec<OwnedFd>);

/// What `control` keeps.
#[derive(Default)]
struct Records(Mutex<BTreeMap<u32, Message>>);

fn copies(fds: &[OwnedFd]) -> Vec<OwnedFd> {
    fds.iter().map(|fd| fd.try_clone().unwrap()).collect()
}

impl PeerRecords for Records {
    fn keep(&self, port: &str, key: u32, message: Option<(&[u8], &[OwnedFd])>) {
        assert_eq!(port, "p");
        let mut kept = self.0.lock().unwrap();
        match message {
            Some((bytes, fds)) => drop(kept.insert(key, (bytes.to_vec(), copies(fds)))),
            None => drop(kept.remove(&key)),
        }
    }
}

impl Records {
    fn all(&self) -> Vec<PeerRecord> {
        let kept = self.0.lock().unwrap();
        let all = kept.iter();
        all.map(|(key, (bytes, fds))| PeerRecord { key: *key, bytes: bytes.clone(), fds: copies(fds) })
            .collect()
    }
}

type Served = Rc<RefCell<Option<Backend>>>;

/// A front-end's end, whose messages the present back-end handles at once.
struct Link(UnixStream, Served);

impl Transport for Link {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        ringway_host::send_with(self.0.as_fd(), &packet.bytes, &fds).map_err(io::Error::other)?;
        self.1.borrow_mut().as_mut().unwrap().readable().map_err(io::Error::other)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        Ok((self.0.read(bytes)?, Vec::new()))
    }
}

/// Where in a turn the data path ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Taken,
    Put,
    Released,
    Published,
}

const POINTS: [Point; 4] = [Point::Taken, Point::Put, Point::Released, Point::Published];

/// A fabric of one port, whose guest gets its own frames back.
struct World {
    packed: bool,
    file: OwnedFd,
    page: Arc<Vec<Counters>>,
    kept: Arc<Records>,
    /// `control`'s duplicate of the socket.
    socket: OwnedFd,
    served: Served,
    queues: Vec<Queue>,
    front: Frontend<Link>,
    /// The front-end's end of the connection, for messages that nobody handles at once.
    raw: UnixStream,
    calls: [EventFd; 2],
    /// Of a guest that kicks; the rings of others are polled.
    kicks: Option<[EventFd; 2]>,
    reader: Reader,
}

fn back_end(page: &Arc<Vec<Counters>>, kept: &Arc<Records>) -> (Backend, Vec<Queue>) {
    let counters = vec![CountersRef::new(page.clone(), 0).unwrap()];
    let (mut backend, queues) = new(Config::default(), vec![Arc::new(Silent)], counters);
    backend.keep_in("p", kept.clone());
    (backend, queues)
}

impl World {
    fn new(packed: bool) -> World {
        let (page, kept) = (Arc::new(vec![Counters::default()]), Arc::new(Records::default()));
        let (mut backend, queues) = back_end(&page, &kept);
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let socket = OwnedFd::from(other);
        backend.connect(socket.try_clone().unwrap()).unwrap();
        let served = Rc::new(RefCell::new(Some(backend)));
        let format = if packed { virtio::RING_PACKED } else { 0 };
        let features = virtio::VERSION_1 | virtio::NET_MRG_RXBUF | virtio::EVENT_IDX | format;
        let raw = stream.try_clone().unwrap();
        let front = Frontend::negotiate(Link(stream, served.clone()), features, protocol::REPLY_ACK).unwrap();
        let file = ringway_host::memfd("guest", SIZE).unwrap();
        let calls = [(); 2].map(|()| EventFd::new().unwrap());
        let reader = Reader::register().unwrap();
        let kicks = None;
        World { packed, file, page, kept, socket, served, queues, front, raw, calls, kicks, reader }
    }

    /// The front-end describes the guest.
    fn describe(&mut self) {
        let fd = self.file.try_clone().unwrap();
        self.front.set_memory(vec![SharedRegion { region: region(0, SIZE as u64, 0), fd }]).unwrap();
        (0..2).for_each(|ring| self.start(ring, if self.packed { 0x8000 } else { 0 }));
    }

    fn start(&mut self, ring: usize, base: u32) {
        let at = region(RINGS[ring], 1, 0).user;
        let (index, descriptors, available, used) = (ring as u32, at, at + 0x1000, at + 0x2000);
        let addresses = VringAddr { index, flags: 0, descriptors, available, used, log: 0 };
        let copy = |event: &EventFd| event.as_fd().try_clone_to_owned().unwrap();
        let (call, kick) =
            (Some(copy(&self.calls[ring])), self.kicks.as_ref().map(|kicks| copy(&kicks[ring])));
        self.front.start(Vring { size: RING, addresses, base, kick, call }).unwrap();
    }

    /// The data path ends without a trace, but for what `control` has.
    fn crash(&mut self) {
        let former = self.served.borrow_mut().take();
        former.unwrap().crash();
        let (backend, queues) = back_end(&self.page, &self.kept);
        self.queues = queues;
        *self.served.borrow_mut() = Some(backend);
    }

    fn resume(&mut self) -> Result<(), BackendError> {
        let mut served = self.served.borrow_mut();
        served.as_mut().unwrap().resume(self.socket.try_clone().unwrap(), self.kept.all())
    }

    /// A turn that may end early.
    fn turn(&mut self, end: Option<Point>) {
        let mut storage = Storage::default();
        let turn = self.reader.turn(1);
        let queue = &mut self.queues[0];
        let mut burst = Burst::begin(&mut storage);
        queue.tx.take(&turn, &mut burst);
        let which: Vec<u16> = (0..burst.len() as u16).collect();
        let fits = queue.rx.reserve(&turn, &burst, &which);
        let steps: [&mut dyn FnMut(&mut Queue); 4] = [
            &mut |_| {},
            &mut |queue| _ = queue.rx.put(&turn, &burst, &which[..fits]),
            &mut |queue| queue.tx.release(&turn, fits),
            &mut |queue| queue.rx.publish(&turn),
        ];
        for (step, point) in steps.into_iter().zip(POINTS) {
            step(queue);
            if end == Some(point) {
                break;
            }
        }
        self.reader.rest();
    }

    /// The worker goes to sleep; whether the ring of frames from the guest was empty.
    fn arm(&mut self) -> bool {
        let turn = self.reader.turn(1);
        let is_empty = self.queues[0].tx.arm(&turn);
        self.reader.rest();
        is_empty
    }

    fn words(&self) -> &Counters {
        &self.page[0]
    }
}

fn span(memory: &Memory, at: u64, len: u32) -> SpanMut<'_> {
    memory.span_mut(at, len, &mut Hint::default()).unwrap()
}

/// The guest, which numbers its frames.
struct Guest<'a> {
    memory: &'a Memory,
    drivers: [Driver<'a>; 2],
    /// Places of the buffers in flight, by id, and free places.
    places: [HashMap<u16, u64>; 2],
    free: [Vec<u64>; 2],
    /// Bytes of a frame, and the descriptors that it takes.
    len: usize,
    parts: usize,
    next: u32,
    seen: Vec<u32>,
    /// Buffers that came back without a frame.
    empty: usize,
}

impl<'a> Guest<'a> {
    fn new(memory: &'a Memory, packed: bool, len: usize, parts: usize) -> Guest<'a> {
        let layout = Layout { packed, size: RING, event_idx: true, indirect: false };
        let lengths = layout.lengths().unwrap();
        let drivers = RINGS.map(|at| {
            let areas = Areas {
                descriptors: span(memory, at, lengths.descriptors),
                driver: span(memory, at + 0x1000, lengths.driver),
                device: span(memory, at + 0x2000, lengths.device),
            };
            Driver::new(&layout, areas).unwrap()
        });
        let free = BUFFERS.map(|at| (0..u64::from(RING)).map(|index| at + index * STEP).collect());
        let (places, seen) = (Default::default(), Vec::new());
        Guest { memory, drivers, places, free, len, parts, next: 0, seen, empty: 0 }
    }

    fn post(&mut self) {
        while let Some(place) = self.free[0].pop() {
            let Some(id) = self.drivers[0].add(&[Buffer { address: place, len: ROOM, write: true }], None)
            else {
                self.free[0].push(place);
                break;
            };
            self.places[0].insert(id, place);
        }
        self.drivers[0].publish();
    }

    fn send(&mut self) {
        for _ in 0..TOGETHER {
            let Some(place) = self.free[1].pop() else { break };
            let whole = HEADER + self.len;
            let mut frame = vec![0; whole];
            frame[HEADER..HEADER + 4].copy_from_slice(&self.next.to_le_bytes());
            frame[whole - 4..].copy_from_slice(&self.next.to_le_bytes());
            span(self.memory, place, whole as u32).write(&frame);
            let cut = if self.parts == 1 { whole } else { HEADER + 2 };
            let buffer = |from: usize, to: usize| Buffer {
                address: place + from as u64,
                len: (to - from) as u32,
                write: false,
            };
            let buffers = [buffer(0, cut), buffer(cut, whole)];
            let Some(id) = self.drivers[1].add(&buffers[..self.parts], None) else {
                self.free[1].push(place);
                break;
            };
            self.places[1].insert(id, place);
            self.next += 1;
        }
        self.drivers[1].publish();
    }

    fn collect(&mut self) {
        while let Some((id, _)) = self.drivers[1].take_used().unwrap() {
            self.free[1].push(self.places[1].remove(&id).unwrap());
        }
        while let Some(first) = self.received() {
            if first.is_empty() {
                self.empty += 1;
                continue;
            }
            let buffers = u16::from_le_bytes([first[10], first[11]]);
            let mut frame = first[HEADER..].to_vec();
            (1..buffers).for_each(|_| frame.extend(self.received().expect("all buffers of a frame")));
            assert_eq!(frame.len(), self.len);
            let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
            let (front, back) = (number(&frame[..4]), number(&frame[self.len - 4..]));
            assert_eq!(front, back, "a frame of two halves");
            self.seen.push(front);
        }
    }

    fn received(&mut self) -> Option<Vec<u8>> {
        let (id, len) = self.drivers[0].take_used().unwrap()?;
        let place = self.places[0].remove(&id).unwrap();
        let mut bytes = vec![0; len as usize];
        span(self.memory, place, len).as_span().read(&mut bytes);
        self.free[0].push(place);
        Some(bytes)
    }

    fn round(&mut self, world: &mut World, end: Option<Point>) {
        self.post();
        self.send();
        world.turn(end);
        self.collect();
    }

    /// The faults that the numbers of the frames show: those that came twice or in another order, and those that are
    /// missing.
    fn check(&self) -> (usize, usize) {
        let wrong = self.seen.windows(2).filter(|pair| pair[0] >= pair[1]).count();
        (wrong, (self.next as usize).saturating_sub(self.seen.len()))
    }
}

fn mapped(world: &World) -> Memory {
    Memory::new(vec![ringway_host::map_region(&world.file, 0, SIZE as u64, 0, 0).unwrap()]).unwrap()
}

/// Crashes at `point` every few turns, at every index and wrap of the rings.
fn crashes(packed: bool, (len, parts): (usize, usize), point: Point) {
    let mut world = World::new(packed);
    world.describe();
    let memory = mapped(&world);
    let mut guest = Guest::new(&memory, packed, len, parts);
    let mut ends = 0;
    for round in 0..300 {
        let ends_now = round % 3 == 1;
        guest.round(&mut world, ends_now.then_some(point));
        if ends_now {
            ends += 1;
            world.crash();
            world.calls.iter().for_each(|call| _ = call.clear());
            world.resume().unwrap();
            assert_eq!(world.served.borrow().as_ref().unwrap().state(), State::Up);
            let calls = world.calls.each_ref().map(|call| call.as_fd());
            assert_eq!(wait_readable(&calls, Some(0)).unwrap(), [true; 2], "the driver is woken");
            guest.collect();
        }
    }
    let before = guest.check();
    (0..20).for_each(|_| guest.round(&mut world, None));
    let (wrong, lost) = guest.check();
    let what = format!("packed {packed}, {len} bytes, {parts} parts, {point:?}: {before:?}");
    assert_eq!(wrong, 0, "frames came twice: {what}");
    assert!(guest.next > 400, "the rings go on: {what}");
    assert!(lost <= ends * TOGETHER, "{lost} lost by {ends} crashes: {what}");
    let most = if point == Point::Released { ends * TOGETHER } else { guest.empty };
    assert!(lost <= most, "{lost} lost, {} buffers were empty: {what}", guest.empty);
    assert_eq!(world.words().faults.load(Ordering::Relaxed), 0, "{what}");
}

#[test]
fn no_frame_comes_twice_and_few_are_lost_wherever_the_data_path_ends() {
    for packed in [false, true] {
        // Short frames, chains, and frames of several receive buffers.
        for shape in [(60, 1), (60, 2), (2600, 1)] {
            POINTS.into_iter().for_each(|point| crashes(packed, shape, point));
        }
    }
}

/// Planted: the state that outlives the data path is one frame older than the ring.
#[test]
fn a_frame_that_is_published_twice_is_found() {
    let mut world = World::new(false);
    world.describe();
    let memory = mapped(&world);
    let mut guest = Guest::new(&memory, false, 60, 1);
    (0..5).for_each(|_| guest.round(&mut world, None));
    let place = &world.words().tx_place.position;
    place.store(place.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    world.crash();
    world.resume().unwrap();
    (0..5).for_each(|_| {
        world.turn(None);
        guest.post();
        while guest.drivers[1].take_used().is_ok_and(|used| used.is_some()) {}
    });
    while let Some(bytes) = guest.received() {
        guest.seen.push(u32::from_le_bytes(bytes[HEADER..HEADER + 4].try_into().unwrap()));
    }
    assert_ne!(guest.check().0, 0, "the check finds a frame that came twice");
}

/// Planted: the data path does not give back what it has delivered.
#[test]
fn frames_that_are_delivered_and_not_released_are_found() {
    for packed in [false, true] {
        let mut world = World::new(packed);
        world.describe();
        let memory = mapped(&world);
        let mut guest = Guest::new(&memory, packed, 60, 1);
        plant(Some(Plant::UnreleasedFrames));
        (0..3).for_each(|_| guest.round(&mut world, None));
        plant(None);
        (0..3).for_each(|_| guest.round(&mut world, None));
        assert_eq!(guest.check().0, 1, "packed {packed}: frames came twice, once");
    }
}

/// Planted: nothing of the session was kept.
#[test]
fn a_session_of_which_nothing_was_kept_is_found() {
    let mut world = World::new(true);
    world.describe();
    let memory = mapped(&world);
    let mut guest = Guest::new(&memory, true, 60, 1);
    (0..5).for_each(|_| guest.round(&mut world, None));
    let before = guest.seen.len();
    world.crash();
    world.kept.0.lock().unwrap().clear();
    world.resume().unwrap();
    (0..20).for_each(|_| guest.round(&mut world, None));
    assert_eq!(guest.seen.len(), before);
    assert!(guest.check().1 > TOGETHER, "the check finds that the rings don't go on");
}

#[test]
fn a_session_goes_on_where_it_was_and_a_ring_that_is_reset_starts_anew() {
    for packed in [false, true] {
        let mut world = World::new(packed);
        // Before the guest's memory is known, and with half of the rings.
        world.crash();
        world.resume().unwrap();
        let fd = world.file.try_clone().unwrap();
        world.front.set_memory(vec![SharedRegion { region: region(0, SIZE as u64, 0), fd }]).unwrap();
        world.start(0, if packed { 0x8000 } else { 0 });
        world.crash();
        world.resume().unwrap();
        world.start(1, if packed { 0x8000 } else { 0 });
        let memory = mapped(&world);
        let mut guest = Guest::new(&memory, packed, 60, 1);
        (0..7).for_each(|_| guest.round(&mut world, None));
        assert_eq!(guest.check(), (0, 0));
        world.crash();
        // The reset arrives while nobody serves the session.
        world.resume().unwrap();
        let base = [0, 1].map(|ring| world.front.stop(ring).unwrap() & 0x7fff);
        assert_eq!(base, [28 % if packed { 16 } else { 0x8000 }; 2]);
        assert_eq!(world.kept.all().len(), 11, "the rings' descriptors for kicks are not kept");
        world.crash();
        world.resume().unwrap();
        for ring in RINGS {
            span(&memory, ring, 0x3000).write(&[0; 0x3000]);
        }
        (0..2).for_each(|ring| world.start(ring, if packed { 0x8000 } else { 0 }));
        let mut guest = Guest::new(&memory, packed, 60, 1);
        (0..7).for_each(|_| guest.round(&mut world, None));
        assert_eq!(guest.check(), (0, 0));
        world.crash();
        world.resume().unwrap();
        (0..7).for_each(|_| guest.round(&mut world, None));
        assert_eq!(guest.check(), (0, 0));
    }
}

/// The driver resets the device while there is no data path, wherever in a turn that ended: the front-end's requests
/// wait, and the rings are given back behind what they showed. The device starts at 0 with what the driver offers then.
#[test]
fn rings_that_are_reset_while_nobody_serves_them_start_anew() {
    for (packed, point) in [false, true].into_iter().flat_map(|packed| POINTS.map(|point| (packed, point))) {
        let what = format!("packed {packed}, {point:?}");
        let mut world = World::new(packed);
        world.describe();
        let memory = mapped(&world);
        let mut guest = Guest::new(&memory, packed, 60, 1);
        (0..6).for_each(|_| guest.round(&mut world, None));
        guest.round(&mut world, Some(point));
        world.crash();
        // GET_VRING_BASE of both rings (vhost-user, "Front-end message types": 11), of version 1.
        for ring in [0, 1_u32] {
            let words = [11, 1, 8, ring, 0];
            let message: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
            world.raw.write_all(&message).unwrap();
        }
        world.resume().unwrap();
        let mut given = Vec::new();
        while given.len() < 2 * 20 {
            world.served.borrow_mut().as_mut().unwrap().readable().unwrap();
            let mut some = [0; 40];
            let read = world.raw.read(&mut some).unwrap();
            given.extend_from_slice(&some[..read]);
        }
        guest.collect();
        assert_eq!(guest.check().0, 0, "{what}: {:?}", guest.seen);
        // What was taken and not released comes again from another device, if the driver offers it again.
        let is_released = matches!(point, Point::Released | Point::Published);
        let sent = if is_released { 28 } else { 24 };
        let base = u32::from_le_bytes(given[36..40].try_into().unwrap()) & 0x7fff;
        assert_eq!(base, sent % if packed { 16 } else { 0x8000 }, "{what}");
        for ring in RINGS {
            span(&memory, ring, 0x3000).write(&[0; 0x3000]);
        }
        (0..2).for_each(|ring| world.start(ring, if packed { 0x8000 } else { 0 }));
        let mut guest = Guest::new(&memory, packed, 60, 1);
        (0..7).for_each(|_| guest.round(&mut world, None));
        assert_eq!((guest.check(), guest.empty), ((0, 0), 0), "{what}");
    }
}

/// An index from before the end of the data path would suppress the driver's kicks for ever.
#[test]
fn a_stale_event_index_suppresses_no_kick() {
    for (packed, stale) in
        [false, true].into_iter().flat_map(|packed| [0, 7, 0x7fff, 0xfff0].map(|n| (packed, n)))
    {
        let mut world = World::new(packed);
        world.kicks = Some([(); 2].map(|()| EventFd::new().unwrap()));
        world.describe();
        let memory = mapped(&world);
        let mut guest = Guest::new(&memory, packed, 60, 1);
        (0..5).for_each(|_| guest.round(&mut world, None));
        world.crash();
        // In a packed ring the flags behind it say that it counts.
        let at = RINGS[1] + 0x2000 + if packed { 0 } else { 4 + 8 * u64::from(RING) };
        span(&memory, at, 2).write(&u16::to_le_bytes(stale));
        if packed {
            span(&memory, at + 2, 2).write(&[2, 0]);
        }
        world.resume().unwrap();
        world.turn(None);
        guest.collect();
        assert!(world.arm(), "packed {packed}, {stale:#x}: the ring is empty");
        guest.send();
        assert!(guest.drivers[1].wants_kick(), "packed {packed}, {stale:#x}: the worker must be woken");
        world.turn(None);
        guest.collect();
        assert_eq!(guest.check(), (0, 0), "packed {packed}, {stale:#x}");
    }
}

/// Attack: messages without end that crash the data path. What it had not kept is not guessed.
#[test]
fn a_session_interrupted_in_a_message_is_not_resumed_and_the_next_one_starts_anew() {
    let mut world = World::new(false);
    world.describe();
    world.words().session.store(2, Ordering::Relaxed);
    world.crash();
    assert!(matches!(world.resume(), Err(BackendError::Interrupted)));
    let socket = UnixStream::pair().unwrap().0;
    world.served.borrow_mut().as_mut().unwrap().connect(socket.into()).unwrap();
    let Counters { session, rx_place, tx_place, .. } = world.words();
    let words = [session, &rx_place.position, &tx_place.position].map(|word| word.load(Ordering::Relaxed));
    assert_eq!(words, [1, 0, 0]);
}

/// The state is the data path's own, and is checked all the same.
#[test]
fn any_state_gives_a_position_in_the_ring() {
    let mut seed = 7u64;
    for round in 0..200 {
        let mut world = World::new(round % 2 == 0);
        world.describe();
        let Counters { rx_place, tx_place, settings, .. } = world.words();
        for word in [&rx_place.position, &rx_place.first, &tx_place.position, &tx_place.first, settings] {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.store(seed ^ seed >> 29, Ordering::Relaxed);
        }
        world.crash();
        world.resume().unwrap();
        (0..3).for_each(|_| world.turn(None));
    }
}

#[test]
fn regions_that_are_added_and_removed_one_by_one_are_kept() {
    let mut world = World::new(false);
    let protocol = protocol::REPLY_ACK | protocol::CONFIGURE_MEM_SLOTS;
    world.front.set(Request::SetProtocolFeatures(protocol)).unwrap();
    let part = SIZE as u64 / 4;
    let shared = |file: &OwnedFd, index: u64| SharedRegion {
        region: region(index * part, part, index * part),
        fd: file.try_clone().unwrap(),
    };
    for (index, add) in [(0, true), (1, true), (0, false), (2, true), (1, false), (0, true), (3, true)] {
        let region = shared(&world.file, index);
        let request = if add { Request::AddMemReg(region) } else { Request::RemMemReg(region.region) };
        world.front.set(request).unwrap();
        world.crash();
        world.resume().unwrap();
    }
    let mut regions: Vec<u64> = world
        .kept
        .all()
        .into_iter()
        .filter(|kept| (0x1_0000..0x2_0000).contains(&kept.key))
        .map(|kept| u64::from_le_bytes(kept.bytes[20..28].try_into().unwrap()) / part)
        .collect();
    regions.sort_unstable();
    assert_eq!(regions, [0, 2, 3]);
    // It has the ring in a region that was added again.
    world.start(0, 0);
    assert_eq!(world.served.borrow().as_ref().unwrap().state(), State::Attached);
}
