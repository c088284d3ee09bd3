//! Clients that drive, kill and attack a card.

use super::backend::{Backend, BackendError};
use super::device::{CardDevice, Config, budget};
use super::{MEMORY, MODELS};
use crate::SocketError;
use crate::{Queue, Silent, State};
use ringway_frame::{Burst, CountersRef, Storage};
use ringway_host::{EventFd, memfd};
use ringway_mem::Reader;
use ringway_nic::Techniques;
use ringway_nic::e1000::Model;
use ringway_vfio_user::{
    Access, Capabilities, Client, ClientError, DmaMap, DmaUnmap, IrqAction, IrqData, Packet, Request,
    SetIrqs, Transport, errno, pci,
};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const SIZE: u64 = 1 << 20;
const ICR: u64 = 0xc0;
const ICS: u64 = 0xc8;
const IMS: u64 = 0xd0;
/// Writes that start both rings: bases, lengths, tails, the interrupt mask, RCTL and TCTL.
const RINGS: [(u64, u32); 9] = [
    (0x2800, 0x1000),
    (0x2808, 4096),
    (0x2818, 255),
    (0x3800, 0x2000),
    (0x3808, 4096),
    (0x3818, 1),
    (IMS, 0xff),
    (0x100, 2),
    (0x400, 2),
];

fn port(memory: u64) -> (Backend, Queue, CountersRef) {
    port_of(MODELS[0], memory)
}

fn port_of(model: &'static Model, memory: u64) -> (Backend, Queue, CountersRef) {
    let counters = CountersRef::private();
    let mac = [2, 0, 0, 0, 0, 1];
    let config = Config { model, mac, mtu: None, memory, techniques: Techniques::default() };
    let check = Arc::new(EventFd::new().unwrap());
    let made = CardDevice::new(&config, Arc::new(Silent), counters.clone(), budget(&check));
    let (device, queue) = made.unwrap();
    (Backend::new(device, counters.clone()), queue, counters)
}

/// A client's end of a connection; the port handles each message when it is sent.
struct Wire<'a> {
    stream: UnixStream,
    backend: &'a mut Backend,
    end: Option<BackendError>,
}

impl<'a> Wire<'a> {
    fn new(backend: &'a mut Backend) -> Wire<'a> {
        Wire { stream: connect(backend), backend, end: None }
    }
}

impl Transport for Wire<'_> {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        send(&self.stream, &packet, packet.bytes.len());
        self.end = self.backend.readable().err().or(self.end.take());
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        Ok((self.stream.read(bytes)?, Vec::new()))
    }
}

fn connect(backend: &mut Backend) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    backend.connect(theirs.into()).unwrap();
    ours
}

fn send(stream: &UnixStream, packet: &Packet, len: usize) {
    let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
    assert_eq!(ringway_host::send_with(stream.as_fd(), &packet.bytes[..len], &fds).unwrap(), len);
}

fn copy(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

fn eventfds(index: u32, action: IrqAction, event: &EventFd) -> SetIrqs<'static> {
    SetIrqs { index, start: 0, count: 1, action, data: IrqData::Eventfds(vec![copy(event)]) }
}

fn map(address: u64, size: u64) -> DmaMap {
    let (argsz, flags) = (size_of::<DmaMap>() as u32, DmaMap::READ | DmaMap::WRITE);
    DmaMap { argsz, flags, address, size, offset: 0 }
}

fn errno_of<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u32 {
    match result {
        Err(ClientError::Refused { errno, .. }) => errno,
        other => panic!("{other:?}"),
    }
}

/// Waits until an eventfd is signalled: the signal is asynchronous.
fn comes(event: &EventFd) -> bool {
    ringway_host::wait_readable(&[event.as_fd()], Some(20_000_000_000)).unwrap();
    event.clear()
}

#[test]
fn a_masked_pin_interrupts_again_when_it_is_unmasked_with_a_cause() {
    let (mut backend, _queue, counters) = port(MEMORY);
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    let (call, unmask) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    // Memory accesses, bus master.
    client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
    client.set_irqs(eventfds(pci::INTX, IrqAction::Trigger, &call)).unwrap();
    client.write(pci::BAR0, IMS, &[0xff, 0, 0, 0]).unwrap();
    client.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap();
    assert!(comes(&call));
    client.write(pci::BAR0, ICS, &[1, 0, 0, 0]).unwrap();
    assert_eq!(counters.interrupts.load(Relaxed), 1, "the pin is masked");
    let (start, count) = (0, 1);
    let unmasked =
        || SetIrqs { index: pci::INTX, start, count, action: IrqAction::Unmask, data: IrqData::All };
    client.set_irqs(unmasked()).unwrap();
    assert!(comes(&call));
    let mut causes = [0; 4];
    client.read(pci::BAR0, ICR, &mut causes).unwrap();
    assert_eq!(causes, [5, 0, 0, 0]);
    client.set_irqs(unmasked()).unwrap();
    assert_eq!(counters.interrupts.load(Relaxed), 2, "no cause is left");
    // A client that unmasks by an eventfd, twice.
    client.set_irqs(eventfds(pci::INTX, IrqAction::Unmask, &unmask)).unwrap();
    for round in 3..5 {
        client.write(pci::BAR0, ICS, &[1, 0, 0, 0]).unwrap();
        if round == 3 {
            assert!(comes(&call));
        }
        unmask.signal();
        client.transport().backend.readable().unwrap();
        assert!(comes(&call));
    }
    client.read(pci::BAR0, ICR, &mut causes).unwrap();
}

#[test]
fn every_model_is_served_with_its_regions_and_interrupts() {
    for model in MODELS {
        let (mut backend, _queue, _counters) = port_of(model, MEMORY);
        let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
        let mut id = [0; 4];
        client.read(pci::CONFIG, 0, &mut id).unwrap();
        assert_eq!(id, [[0x86, 0x80], model.identity.device.to_le_bytes()].concat()[..]);
        assert_eq!(client.region(pci::BAR0).unwrap().info.size, 128 << 10);
        let vectors = if model.name == "82574l" { 5 } else { 0 };
        let counts = [pci::INTX, pci::MSI, pci::MSIX].map(|index| client.irq(index).unwrap().count);
        assert_eq!(counts, [1, 1, vectors]);
    }
}

#[test]
fn msi_replaces_the_pin() {
    let (mut backend, _queue, counters) = port(MEMORY);
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    let [pin, message] = [(); 2].map(|()| EventFd::new().unwrap());
    client.set_irqs(eventfds(pci::INTX, IrqAction::Trigger, &pin)).unwrap();
    // MSI, enabled before it has an eventfd.
    client.write(pci::CONFIG, 0xf2, &[1, 0]).unwrap();
    client.write(pci::BAR0, IMS, &[0xff, 0, 0, 0]).unwrap();
    client.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap();
    client.set_irqs(eventfds(pci::MSI, IrqAction::Trigger, &message)).unwrap();
    assert!(comes(&message), "the cause that came before the eventfd");
    let mut causes = [0; 4];
    client.read(pci::BAR0, ICR, &mut causes).unwrap();
    client.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap();
    assert!(comes(&message));
    assert_eq!((counters.interrupts.load(Relaxed), pin.clear()), (2, false));
    client.reset().unwrap();
    assert_eq!(client.transport().backend.detail(), "82540em intx");
}

/// The messages of a session, from set-up to take-down.
fn life(file: &OwnedFd) -> Vec<Packet> {
    let event = EventFd::new().unwrap();
    let mut life = Vec::new();
    let mut add = |request: Request<'_>| life.push(request.encode(life.len() as u16, false));
    add(Request::Version(0, 0, Capabilities::default()));
    add(Request::DmaMap(map(0, SIZE), Some(copy(file))));
    add(Request::SetIrqs(eventfds(pci::INTX, IrqAction::Trigger, &event)));
    add(Request::SetIrqs(eventfds(pci::INTX, IrqAction::Unmask, &event)));
    add(Request::RegionWrite(Access { offset: 4, region: pci::CONFIG, count: 2 }, &[6, 0]));
    for (offset, value) in RINGS.into_iter().chain([(ICS, 4)]) {
        add(Request::RegionWrite(Access { offset, region: pci::BAR0, count: 4 }, &u32::to_le_bytes(value)));
    }
    add(Request::Reset);
    let argsz = size_of::<DmaUnmap>() as u32;
    add(Request::DmaUnmap(DmaUnmap { argsz, flags: 0, address: 0, size: SIZE }));
    life
}

#[test]
fn a_client_killed_at_any_point_leaves_its_port_usable() {
    let (mut backend, _queue, counters) = port(MEMORY);
    let file = memfd("guest", SIZE as usize).unwrap();
    let messages = life(&file).len();
    let mut up = 0;
    for killed in 0..=2 * messages {
        let mut stream = connect(&mut backend);
        stream.set_nonblocking(true).unwrap();
        let script = life(&file);
        for packet in &script[..killed / 2] {
            send(&stream, packet, packet.bytes.len());
            backend.readable().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() >= 16);
            assert_eq!(backend.refused(), None);
        }
        up += usize::from(backend.state() == State::Up);
        if let Some(packet) = script.get(killed / 2)
            && killed % 2 == 1
        {
            send(&stream, packet, packet.bytes.len() / 2);
            backend.readable().unwrap();
        }
        drop(stream);
        let end = backend.readable().unwrap_err();
        assert_eq!(end.is_fault(), killed % 2 == 1 && killed < 2 * messages, "{killed}: {end}");
        assert_eq!(backend.state(), State::Waiting);
    }
    assert!(up >= 4);
    assert_eq!(counters.faults.load(Relaxed) as usize, messages);
}

#[test]
fn memory_must_be_shared_memory_within_the_ports_limit() {
    let (mut backend, _queue, _counters) = port(SIZE);
    let file = memfd("guest", 2 * SIZE as usize).unwrap();
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    let event = EventFd::new().unwrap();
    assert_eq!(errno_of(client.dma_map(map(0, SIZE), Some(copy(&event)))), errno::EINVAL);
    assert_eq!(errno_of(client.dma_map(map(0, 2 * SIZE), Some(copy(&file)))), errno::EINVAL);
    assert_eq!(errno_of(client.dma_map(map(0, 1 << 40), Some(copy(&file)))), errno::EINVAL);
    client.dma_map(map(0, SIZE), Some(copy(&file))).unwrap();
    assert_eq!(errno_of(client.dma_map(map(SIZE, SIZE), Some(copy(&file)))), errno::EINVAL);
    // Memory without a file doesn't count.
    client.dma_map(map(SIZE, SIZE), None).unwrap();
    client.dma_unmap(DmaUnmap { size: SIZE, ..DmaUnmap::default() }).unwrap();
    client.dma_map(map(0, SIZE), Some(copy(&file))).unwrap();
}

#[test]
fn descriptors_of_other_kinds_end_the_session() {
    for other in [File::open("/proc/self/status").unwrap().into(), UnixStream::pair().unwrap().0.into()] {
        let (mut backend, _queue, counters) = port(MEMORY);
        let mut wire = Wire::new(&mut backend);
        let request = Request::DmaMap(map(0, SIZE), Some(other));
        wire.send(request.encode(0, false)).unwrap();
        assert!(matches!(wire.end, Some(BackendError::Socket(SocketError::Descriptor(_)))), "{:?}", wire.end);
        assert_eq!((backend.state(), counters.faults.load(Relaxed)), (State::Waiting, 1));
    }
}

#[test]
fn a_client_that_reads_no_replies_is_disconnected() {
    let (mut backend, _queue, _counters) = port(MEMORY);
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    let wire = client.transport();
    let read = || Request::RegionRead(Access { offset: 0, region: pci::BAR0, count: 4096 }).encode(9, false);
    for _ in 0..10_000 {
        if wire.end.is_some() {
            break;
        }
        wire.send(read()).unwrap();
    }
    assert!(matches!(wire.end, Some(BackendError::Socket(SocketError::Deaf))), "{:?}", wire.end);
}

#[test]
fn a_shrinking_memory_file_closes_the_port() {
    let (mut backend, mut queue, counters) = port(MEMORY);
    let path = format!("/dev/shm/ringway-card-{}", std::process::id());
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(SIZE).unwrap();
    ringway_host::catch_sigbus().unwrap();
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    client.dma_map(map(0, SIZE), Some(copy(&file))).unwrap();
    client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
    RINGS.iter().for_each(|(offset, value)| client.write(pci::BAR0, *offset, &value.to_le_bytes()).unwrap());
    file.set_len(0).unwrap();
    let mut reader = Reader::register().unwrap();
    let mut storage = Storage::default();
    let turn = reader.turn(1);
    queue.tx.take(&turn, &mut Burst::begin(&mut storage));
    reader.rest();
    assert!(matches!(client.transport().backend.readable(), Err(BackendError::Lost)));
    assert_eq!((backend.state(), counters.faults.load(Relaxed)), (State::Waiting, 1));
}
