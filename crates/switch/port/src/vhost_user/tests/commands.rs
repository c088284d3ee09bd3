//! Commands on the control queue, and announcements on behalf of a guest, on ports whose rings a front-end
//! set up.

use super::session::{Wire, region};
use super::{Backend, Config, new};
use crate::{Queue, Silent};
use ringway_frame::{Burst, CountersRef, Storage};
use ringway_host::{EventFd, wait_readable};
use ringway_mem::{Hint, Memory, Reader, SpanMut};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Frontend, FrontendError, Request, SharedRegion, Vring, VringAddr};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const SIZE: u64 = 1 << 20;
/// Where commands and their replies are.
const COMMANDS: u64 = 0x2_0000;
const ANSWERS: u64 = 0x3_0000;
const MODERN: u64 = virtio::VERSION_1 | virtio::EVENT_IDX | virtio::INDIRECT_DESC | virtio::NET_STATUS;
const CONTROL: u64 = virtio::NET_CTRL_VQ | virtio::NET_GUEST_ANNOUNCE;
const PROTOCOL: u64 = protocol::REPLY_ACK
    | protocol::CONFIG
    | protocol::BACKEND_REQ
    | protocol::RARP
    | protocol::MTU
    | protocol::MQ;

/// A guest's memory, and the descriptors of its control queue.
struct Guest {
    file: OwnedFd,
    memory: Memory,
    layout: Layout,
    kick: OwnedFd,
    call: EventFd,
}

fn place(ring: u32) -> u64 {
    0x4000 * u64::from(ring)
}

impl Guest {
    fn new(packed: bool) -> Guest {
        let file = ringway_host::memfd("guest", SIZE as usize).unwrap();
        let region = ringway_host::map_region(&file, 0, SIZE, 0, 0).unwrap();
        let layout = Layout { packed, size: 256, event_idx: true, indirect: true };
        let (kick, call) = (EventFd::new().unwrap().into_fd(), EventFd::new().unwrap());
        Guest { file, memory: Memory::new(vec![region]).unwrap(), layout, kick, call }
    }

    fn features(&self) -> u64 {
        MODERN | if self.layout.packed { virtio::RING_PACKED } else { 0 }
    }

    fn span(&self, at: u64, len: u32) -> SpanMut<'_> {
        self.memory.span_mut(at, len, &mut Hint::default()).unwrap()
    }

    fn driver(&self, ring: u32) -> Driver<'_> {
        let (at, lengths) = (place(ring), self.layout.lengths().unwrap());
        let areas = Areas {
            descriptors: self.span(at, lengths.descriptors),
            driver: self.span(at + 0x1000, lengths.driver),
            device: self.span(at + 0x2000, lengths.device),
        };
        Driver::new(&self.layout, areas).unwrap()
    }

    fn vring(&self, index: u32, base: u32) -> Vring {
        let at = region(place(index), 1, 0).user;
        let (available, used) = (at + 0x1000, at + 0x2000);
        let addresses = VringAddr { index, flags: 0, descriptors: at, available, used, log: 0 };
        let base = base | if self.layout.packed { 0x8000 } else { 0 };
        Vring { size: 256, addresses, base, kick: None, call: None }
    }

    fn share(&self) -> Vec<SharedRegion> {
        vec![SharedRegion { region: region(0, SIZE, 0), fd: copy(&self.file) }]
    }

    /// Negotiates `features` and starts the rings below `control`, and `control` itself.
    fn start<'a>(&self, backend: &'a mut Backend, features: u64, control: u32) -> Frontend<Wire<'a>> {
        let features = self.features() | features;
        let mut front = Frontend::negotiate(Wire::new(backend), features, PROTOCOL).unwrap();
        front.set_memory(self.share()).unwrap();
        (0..control).for_each(|ring| front.start(self.vring(ring, 0)).unwrap());
        let (kick, call) = (Some(copy(&self.kick)), Some(copy(&self.call)));
        front.start(Vring { kick, call, ..self.vring(control, 0) }).unwrap();
        front
    }

    /// Adds a command; `number` determines where its bytes are.
    fn add(&self, driver: &mut Driver<'_>, number: u64, command: &[u8]) {
        let (at, answer) = (COMMANDS + 16 * number, ANSWERS + number);
        self.span(at, 16).write(command);
        self.span(answer, 1).write(&[0xee]);
        // Laid out as Linux does: class and command, data, room for the reply.
        let (first, data) = (command.len().min(2) as u32, command.len().saturating_sub(2) as u32);
        let mut parts = vec![Buffer { address: at, len: first, write: false }];
        if data > 0 {
            parts.push(Buffer { address: at + 2, len: data, write: false });
        }
        parts.push(Buffer { address: answer, len: 1, write: true });
        driver.add(&parts, None).unwrap();
    }

    /// Sends a command and lets the port answer it.
    fn ask(&self, backend: &mut Backend, driver: &mut Driver<'_>, command: &[u8]) -> u8 {
        driver.set_flag(true);
        self.add(driver, 0, command);
        driver.publish();
        assert!(driver.wants_kick(), "{command:?}");
        kick(&self.kick);
        assert!(is_readable(backend), "the kick is kicked");
        backend.readable().unwrap();
        assert!(!is_readable(backend), "once");
        assert!(self.call.clear(), "the driver is interrupted");
        assert_eq!(driver.take_used().unwrap().map(|used| used.1), Some(1));
        self.answer(0)
    }

    fn answer(&self, number: u64) -> u8 {
        let [answer] = self.span(ANSWERS + number, 1).as_span().read_array().unwrap();
        answer
    }
}

fn copy(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

fn is_readable(backend: &Backend) -> bool {
    wait_readable(&[backend.fd().unwrap()], Some(0)).unwrap()[0]
}

pub(crate) fn port(queues: u16) -> (Backend, Vec<Queue>, Vec<CountersRef>) {
    let counters: Vec<_> = (0..queues).map(|_| CountersRef::private()).collect();
    let doorbells = counters.iter().map(|_| Arc::new(Silent) as Arc<dyn crate::Doorbell>).collect();
    let config = Config { mac: Some([2, 0, 0, 0, 0, 1]), mtu: Some(9000), queues, ..Config::default() };
    let (backend, queues) = new(config, doorbells, counters.clone());
    (backend, queues, counters)
}

/// For each queue, the maximum length of frames, if it accepts frames.
fn receiving(queues: &mut [Queue]) -> Vec<Option<u32>> {
    let mut reader = Reader::register().unwrap();
    let turn = reader.turn(1);
    let caps = queues.iter_mut().map(|queue| queue.rx.caps(&turn).map(|caps| caps.largest)).collect();
    reader.rest();
    caps
}

fn pairs(packed: bool) {
    let (mut backend, mut queues, counters) = port(2);
    let guest = Guest::new(packed);
    let mut driver = guest.driver(4);
    let front = guest.start(&mut backend, CONTROL | virtio::NET_MQ, 4);
    assert_eq!(front.features() & (CONTROL | virtio::NET_MQ), CONTROL | virtio::NET_MQ);
    std::mem::forget(front);
    let open = |queues: &mut [Queue]| receiving(queues).iter().map(Option::is_some).collect::<Vec<_>>();
    // One pair, until the driver requests more (virtio 1.3, 5.1.6.5.6.1).
    assert_eq!((open(&mut queues), backend.receiving()), (vec![true, false], 1));
    assert_eq!(guest.ask(&mut backend, &mut driver, &[4, 0, 2, 0]), 0);
    assert_eq!((open(&mut queues), backend.receiving()), (vec![true, true], 2));
    for wrong in [[4, 0, 0, 0], [4, 0, 3, 0], [4, 0, 2, 0x80], [4, 1, 1, 0], [9, 0, 1, 0]] {
        assert_eq!(guest.ask(&mut backend, &mut driver, &wrong), 1, "{wrong:?}");
    }
    assert_eq!(guest.ask(&mut backend, &mut driver, &[4, 0, 1]), 1, "half a number");
    assert_eq!(backend.receiving(), 2);
    assert_eq!(guest.ask(&mut backend, &mut driver, &[4, 0, 1, 0]), 0);
    assert_eq!((open(&mut queues), backend.receiving()), (vec![true, false], 1));
    assert_eq!(counters[0].faults.load(Relaxed), 0);
}

fn kick(event: &OwnedFd) {
    rustix::io::write(event, &1_u64.to_ne_bytes()).unwrap();
}

#[test]
fn queue_pairs_command_opens_split_queues() {
    pairs(false);
}

#[test]
fn queue_pairs_command_opens_packed_queues() {
    pairs(true);
}

#[test]
fn commands_about_filters_and_addresses_are_acknowledged() {
    let (mut backend, _queues, _) = port(3);
    let guest = Guest::new(false);
    let mut driver = guest.driver(2);
    // Without `NET_MQ` there is one pair, and the control queue is the third ring.
    std::mem::forget(guest.start(&mut backend, CONTROL, 2));
    let address = [1, 1, 2, 0, 0, 0, 0, 9];
    for fine in [&[0, 0, 1][..], &[0, 5, 0], &[2, 0, 7, 0], &[2, 1, 7, 0], &[1, 0, 0, 0, 0, 0], &address] {
        assert_eq!(guest.ask(&mut backend, &mut driver, fine), 0, "{fine:?}");
    }
    for wrong in [&[0][..], &[0, 0], &[0, 6, 1], &[2, 0, 7], &[1, 1, 2, 0, 0, 0, 0], &[4, 0, 2, 0]] {
        assert_eq!(guest.ask(&mut backend, &mut driver, wrong), 1, "{wrong:?}");
    }
    assert_eq!(backend.receiving(), 1);
}

#[test]
fn a_flood_of_commands_does_not_starve_other_ports() {
    let (mut backend, _queues, _) = port(1);
    let guest = Guest::new(false);
    let mut driver = guest.driver(2);
    std::mem::forget(guest.start(&mut backend, CONTROL, 2));
    (0..80).for_each(|number| guest.add(&mut driver, number, &[3, 0]));
    driver.publish();
    kick(&guest.kick);
    backend.readable().unwrap();
    let answered = (0..80).filter(|number| guest.answer(*number) == 0).count();
    assert_eq!(answered, 64);
    assert!(is_readable(&backend), "the rest is not forgotten");
    backend.readable().unwrap();
    assert!((0..80).all(|number| guest.answer(number) == 0));
    assert!(!is_readable(&backend));
}

#[test]
fn a_command_with_an_invalid_reply_buffer_closes_the_port() {
    for packed in [false, true] {
        let (mut backend, _queues, counters) = port(1);
        let guest = Guest::new(packed);
        let mut driver = guest.driver(2);
        std::mem::forget(guest.start(&mut backend, CONTROL, 2));
        let command = Buffer { address: COMMANDS, len: 2, write: false };
        driver.add(&[command, Buffer { address: SIZE, len: 1, write: true }], None).unwrap();
        driver.publish();
        kick(&guest.kick);
        let error = backend.readable().unwrap_err();
        assert!(error.to_string().contains("ring 2"), "{error}");
        assert!(backend.fd().is_none());
        assert_eq!(counters[0].faults.load(Relaxed), 2, "the ring's and the session's");
    }
}

#[test]
fn descriptors_that_do_not_notify_are_refused() {
    let (mut backend, _queues, _) = port(1);
    let guest = Guest::new(false);
    let mut front = guest.start(&mut backend, CONTROL, 2);
    let file = || Some(copy(&guest.file));
    let pipe = || Some(OwnedFd::from(std::io::pipe().unwrap().0));
    for ring in [1, 2] {
        let vrings = [
            Vring { kick: file(), ..guest.vring(ring, 0) },
            Vring { kick: pipe(), ..guest.vring(ring, 0) },
            Vring { call: file(), ..guest.vring(ring, 0) },
        ];
        for vring in vrings {
            assert!(matches!(front.start(vring), Err(FrontendError::Refused { request: 12, .. })));
            front.stop(ring).unwrap();
        }
    }
    // A kick descriptor that is always readable is drained once.
    let kick = EventFd::new().unwrap();
    kick.signal();
    front.start(Vring { kick: Some(kick.into_fd()), ..guest.vring(2, 0) }).unwrap();
    std::mem::forget(front);
    backend.readable().unwrap();
    assert!(!is_readable(&backend));
}

/// The first bytes of each frame that the port sends on the guest's behalf.
fn sent(queue: &mut Queue, release: usize) -> Vec<[u8; 64]> {
    let mut reader = Reader::register().unwrap();
    let turn = reader.turn(1);
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    queue.tx.take(&turn, &mut burst);
    let frames = (0..burst.len()).map(|frame| *burst.head(frame)).collect();
    queue.tx.release(&turn, release.min(burst.len()));
    frames
}

#[test]
fn a_migrated_guest_is_announced_once() {
    let (mut backend, mut queues, _) = port(1);
    let guest = Guest::new(false);
    let mut driver = guest.driver(1);
    let mut front = guest.start(&mut backend, 0, 1);
    front.start(guest.vring(0, 0)).unwrap();
    let (len, write) = (100, false);
    driver.add(&[Buffer { address: COMMANDS, len, write }], None).unwrap();
    driver.publish();
    front.set(Request::SendRarp([2, 0, 0, 0, 0, 9])).unwrap();
    for released in [0, 64] {
        let frames = sent(&mut queues[0], released);
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0][..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 0x80, 0x35]);
        assert_eq!(frames[0][14..32], [0, 1, 8, 0, 6, 4, 0, 3, 2, 0, 0, 0, 0, 9, 0, 0, 0, 0]);
        assert_eq!(frames[0][32..42], [2, 0, 0, 0, 0, 9, 0, 0, 0, 0]);
    }
    assert!(driver.take_used().unwrap().is_none(), "the guest's own frame waits behind it");
    front.enable(1, true).unwrap();
    assert_eq!(sent(&mut queues[0], 64), [[0; 64]]);
    assert!(driver.take_used().unwrap().is_some());
    assert!(sent(&mut queues[0], 64).is_empty());
}

#[test]
fn a_capable_driver_announces_itself_after_reconnecting() {
    let (mut backend, _queues, _) = port(1);
    let guest = Guest::new(false);
    let mut driver = guest.driver(2);
    let status = |front: &mut Frontend<Wire<'_>>| front.config(6, 2).unwrap()[0];
    let mut front = guest.start(&mut backend, CONTROL, 2);
    assert_eq!(status(&mut front), 1);
    drop(front);
    assert!(backend.readable().is_err(), "the front-end is gone");
    let features = guest.features() | CONTROL;
    let mut front = Frontend::negotiate(Wire::new(&mut backend), features, PROTOCOL).unwrap();
    // User-Mode Linux is interrupted by a pipe.
    let (mut reader, writer) = std::io::pipe().unwrap();
    front.set(Request::SetBackendReqFd(writer.into())).unwrap();
    front.set_memory(guest.share()).unwrap();
    // One command was answered since the driver started.
    guest.add(&mut driver, 0, &[3, 0]);
    driver.publish();
    File::from(copy(&guest.file)).write_all_at(&1_u16.to_le_bytes(), place(2) + 0x2002).unwrap();
    let (kick, call) = (Some(copy(&guest.kick)), Some(copy(&guest.call)));
    front.start(Vring { kick, call, ..guest.vring(2, 1) }).unwrap();
    assert_eq!(status(&mut front), 3);
    let mut message = [0; 64];
    assert_eq!(reader.read(&mut message).unwrap(), 12);
    assert_eq!(message[..4], 2_u32.to_ne_bytes(), "CONFIG_CHANGE_MSG");
    assert!(driver.take_used().unwrap().is_some());
    std::mem::forget(front);
    assert_eq!(guest.ask(&mut backend, &mut driver, &[3, 0]), 0);
}

#[test]
fn a_front_ends_mtu_limits_delivered_frames() {
    let (mut backend, mut queues, _) = port(1);
    let guest = Guest::new(false);
    let mut front = guest.start(&mut backend, virtio::NET_MRG_RXBUF, 1);
    front.start(guest.vring(0, 0)).unwrap();
    assert_eq!(receiving(&mut queues), [Some(ringway_frame::LARGEST)]);
    front.set(Request::NetSetMtu(1400)).unwrap();
    assert_eq!(receiving(&mut queues), [Some(1418)]);
    for wrong in [9001, 67, 0, 65_536, u64::MAX] {
        assert!(matches!(front.set(Request::NetSetMtu(wrong)), Err(FrontendError::Refused { .. })));
    }
    assert_eq!(receiving(&mut queues), [Some(1418)]);
}

#[test]
fn a_lost_carrier_is_seen_by_the_driver_and_stops_all_rings() {
    let (mut backend, mut queues, _) = port(1);
    let guest = Guest::new(false);
    let mut front = guest.start(&mut backend, 0, 1);
    front.start(guest.vring(0, 0)).unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    front.set(Request::SetBackendReqFd(writer.into())).unwrap();
    let mut message = [0; 64];
    for carrier in [false, true] {
        front.transport().set_carrier(carrier);
        front.transport().set_carrier(carrier);
        assert_eq!(receiving(&mut queues)[0].is_some(), carrier);
        assert_eq!(front.config(6, 2).unwrap(), [u8::from(carrier), 0]);
        assert_eq!((reader.read(&mut message).unwrap(), message[0]), (12, 2), "one CONFIG_CHANGE_MSG");
    }
}
