//! Clients that drive, kill and attack a card.

use super::device::{CardDevice, Config};
use super::{Backend, MEMORY, PAGES, Techniques};
use crate::SocketError;
use crate::pci_session::{BackendError, Connection, PciDevice, budget};
use crate::session_loop::Connection as _;
use crate::{Doorbell, Queue, Silent, State};
use ringway_frame::{Burst, CountersRef, Storage};
use ringway_host::{EventFd, Mapping, memfd};
use ringway_mem::{Hint, Memory, Reader, Words};
use ringway_nic::e1000::{Model, Nic};
use ringway_nic::{Chip, i82540em, i82574l, rtl8139};
use ringway_vfio_user::{
    Access, Capabilities, Client, ClientError, DmaMap, DmaUnmap, IrqAction, IrqData, Packet, RegionInfo,
    Request, SetIrqs, Transport, errno, pci,
};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

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

fn port(memory: u64) -> (Backend<Nic>, Queue, CountersRef) {
    port_of(&i82540em::MODEL, memory, Techniques::default())
}

fn port_of(model: &'static Model, memory: u64, techniques: Techniques) -> (Backend<Nic>, Queue, CountersRef) {
    port_as(model, memory, techniques)
}

fn port_as<N: Chip>(
    model: N::Model,
    memory: u64,
    techniques: Techniques,
) -> (Backend<N>, Queue, CountersRef) {
    let counters = CountersRef::private();
    let mac = [2, 0, 0, 0, 0, 1];
    let config = Config { model, mac, mtu: None, memory, carrier: true, techniques };
    let check = Arc::new(EventFd::new().unwrap());
    let made = CardDevice::new(&config, Arc::new(Silent), counters.clone(), budget(&check));
    let (device, queue) = made.unwrap();
    (Backend::new(device, counters.clone()), queue, counters)
}

/// A client's end of a connection; the port handles each message when it is sent.
struct Wire<'a, N: Chip = Nic> {
    stream: UnixStream,
    backend: &'a mut Backend<N>,
    end: Option<BackendError>,
}

impl<'a, N: Chip> Wire<'a, N> {
    fn new(backend: &'a mut Backend<N>) -> Wire<'a, N> {
        Wire { stream: connect(backend), backend, end: None }
    }
}

impl<N: Chip> Transport for Wire<'_, N> {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        send(&self.stream, &packet, packet.bytes.len());
        self.end = self.backend.readable().err().or(self.end.take());
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        ringway_host::receive_with(self.stream.as_fd(), bytes, 8).map_err(io::Error::other)
    }
}

fn connect<N: Chip>(backend: &mut Backend<N>) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    backend.connect(theirs.into(), Some(memfd("registers", PAGES).unwrap())).unwrap();
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
    for model in [&i82540em::MODEL, &i82574l::MODEL] {
        let (mut backend, _queue, _counters) = port_of(model, MEMORY, Techniques::default());
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
    assert_eq!(client.transport().backend.device.detail(), "82540em intx");
}

/// A doorbell that notes what it watches.
#[derive(Default)]
struct Watching(Mutex<Option<Arc<OwnedFd>>>);

impl Doorbell for Watching {
    fn wake(&self) {}

    fn watch(&self, kick: Arc<OwnedFd>) {
        *self.0.lock().unwrap() = Some(kick);
    }

    fn unwatch(&self) {
        *self.0.lock().unwrap() = None;
    }
}

#[test]
fn a_shared_block_has_a_doorbell_that_its_worker_watches() {
    let csb = Techniques { csb: true, ..Techniques::default() };
    let others = [Techniques::default(), Techniques { mapped: Some(true), ..csb }];
    for (techniques, wanted) in
        others.map(|techniques| (techniques, vec![])).into_iter().chain([(csb, vec![0x2838])])
    {
        let doorbell = Arc::new(Watching::default());
        let mac = [2, 0, 0, 0, 0, 1];
        let config =
            Config { model: &i82540em::MODEL, mac, mtu: None, memory: MEMORY, carrier: true, techniques };
        let (check, counters) = (Arc::new(EventFd::new().unwrap()), CountersRef::private());
        let (device, _queue) =
            CardDevice::<Nic>::new(&config, doorbell.clone(), counters.clone(), budget(&check)).unwrap();
        let mut backend = Backend::new(device, counters);
        let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
        let doorbells = client.doorbells(pci::BAR0).unwrap();
        assert_eq!(doorbells.iter().map(|doorbell| doorbell.offset).collect::<Vec<_>>(), wanted);
        let watched = doorbell.0.lock().unwrap().as_ref().map(|kick| EventFd::from(copy(kick)));
        assert_eq!(watched.is_some(), !doorbells.is_empty());
        for (doorbell, watched) in doorbells.iter().zip(&watched) {
            EventFd::from(copy(&doorbell.eventfd)).signal();
            assert!(watched.clear());
        }
        drop(client);
        backend.disconnect();
        assert!(doorbell.0.lock().unwrap().is_none());
    }
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
        let is_fault = Connection::<CardDevice<Nic>>::is_fault(&end);
        assert_eq!(is_fault, killed % 2 == 1 && killed < 2 * messages, "{killed}: {end}");
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

const TDH: u64 = 0x3810;
const TDT: u64 = 0x3818;
const MAPPED: Techniques = Techniques {
    mapped: Some(true),
    moderate: 0,
    timers: true,
    combine: false,
    batch: true,
    poll: 100_000,
    in_place: true,
    csb: false,
    cached: true,
};

/// The parts of BAR 0 that a client maps, at their offsets.
fn map_registers(client: &mut Client<Wire<'_>>) -> Memory {
    let bar = client.region(pci::BAR0).unwrap();
    assert_ne!(bar.info.flags & RegionInfo::MMAP, 0);
    let map = |area: &ringway_vfio_user::Area| {
        let mapping = Mapping::shared(bar.file.as_ref().unwrap(), area.offset, area.size as usize).unwrap();
        Arc::new(mapping).region_at(area.offset, area.offset)
    };
    Memory::new(bar.areas.iter().map(map).collect()).unwrap()
}

fn register(pages: &Memory, offset: u64) -> Words<'_, u32> {
    Words::new(pages.span_mut(offset, 4, &mut Hint::default()).unwrap()).unwrap()
}

/// Starts both rings of a card whose client maps its registers; only what isn't mapped is a message.
fn start_mapped(client: &mut Client<Wire<'_>>, pages: &Memory, file: &OwnedFd) {
    client.dma_map(map(0, SIZE), Some(copy(file))).unwrap();
    client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
    for (offset, value) in RINGS {
        match pages.span(offset, 4, &mut Hint::default()) {
            Some(_) => register(pages, offset).store_release(0, value),
            None => client.write(pci::BAR0, offset, &value.to_le_bytes()).unwrap(),
        }
    }
}

/// Takes and releases what the guest announced; returns the lengths of the frames.
fn take(queue: &mut Queue, reader: &mut Reader, now: u64) -> Vec<u32> {
    let mut storage = Storage::default();
    let turn = reader.turn(now);
    let mut burst = Burst::begin(&mut storage);
    queue.tx.take(&turn, &mut burst);
    let lens = (0..burst.len()).map(|frame| burst.meta(frame).len).collect();
    queue.tx.release(&turn, burst.len());
    reader.rest();
    lens
}

/// Guest memory whose transmit descriptors, all of them, are frames of 60 bytes.
fn frames() -> (OwnedFd, Memory) {
    let file = memfd("guest", SIZE as usize).unwrap();
    let region = Arc::new(Mapping::shared(&file, 0, SIZE as usize).unwrap()).region_at(0, 0);
    let memory = Memory::new(vec![region]).unwrap();
    for index in 0..256 {
        let descriptor = [0x8000_u64, 0x0b00_0000 | 60].map(u64::to_le_bytes).concat();
        memory.span_mut(0x2000 + 16 * index, 16, &mut Hint::default()).unwrap().write(&descriptor);
    }
    (file, memory)
}

#[test]
fn mapped_doorbells_are_seen_without_a_message_and_by_a_timer_when_asleep() {
    for model in [&i82540em::MODEL, &i82574l::MODEL] {
        let (mut backend, mut queue, _counters) = port_of(model, MEMORY, MAPPED);
        let (file, _memory) = frames();
        let mut reader = Reader::register().unwrap();
        let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
        let pages = map_registers(&mut client);
        assert_eq!(pages.regions().iter().map(|region| region.guest).collect::<Vec<_>>(), [0x2000, 0x5000]);
        start_mapped(&mut client, &pages, &file);
        assert_eq!(take(&mut queue, &mut reader, 1), [60], "bases and lengths were taken over at TCTL.EN");
        let tdh = || register(&pages, TDH).load_acquire(0);
        assert_eq!(tdh(), 1, "the head is in the page");
        register(&pages, TDT).store_release(0, 5);
        assert_eq!(take(&mut queue, &mut reader, 2), [60; 4], "a worker that polls sees the tail");
        // Bases that change while the ring is enabled have no effect.
        register(&pages, 0x3800).store_release(0, 0xffff_fff0);
        assert_eq!(take(&mut queue, &mut reader, 3), [0_u32; 0]);
        let turn = reader.turn(250_000);
        assert!(queue.tx.arm(&turn));
        reader.rest();
        assert_eq!(queue.tx.next_due(), Some(300_000), "the next multiple of the interval");
        register(&pages, TDT).store_release(0, 7);
        assert_eq!(take(&mut queue, &mut reader, 300_000), [60; 2]);
        assert_eq!((tdh(), queue.tx.next_due()), (7, None));
        let exits = client.transport().backend.device.exits();
        assert_eq!(exits.tx_doorbells, 3);
        assert!(exits.registers.iter().all(|register| !register.mapped && register.reads == 0), "{exits:?}");
        assert!(client.transport().backend.device.detail().contains(" mapped in-place"));
    }
}

#[test]
fn hostile_values_in_mapped_registers_reach_nothing() {
    let (mut backend, mut queue, _counters) = port_of(&i82574l::MODEL, MEMORY, MAPPED);
    let (file, memory) = frames();
    let mut reader = Reader::register().unwrap();
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    let pages = map_registers(&mut client);
    for round in 0..3 {
        for value in [u32::MAX, 0x8000_0000, 0x000f_ffff, 256, 255, 3] {
            for offset in [TDT, TDH, 0x2818, 0x2810, 0x3820, 0x382c, 0x2820, 0x282c, 0x2c00, 0x5008, 0x2170] {
                register(&pages, offset).store_release(0, value);
            }
            let lens = take(&mut queue, &mut reader, 1);
            assert!(lens.len() <= 64 && lens.iter().all(|len| *len == 60), "{round} {value:#x}");
        }
        // Bases and lengths of any value, taken over when the ring is enabled.
        let bases = [(0x3800, u32::MAX), (0x3804, 0x7fff_ffff), (0x3808, u32::MAX)];
        if round == 1 {
            bases.iter().for_each(|(offset, value)| register(&pages, *offset).store_release(0, *value));
            client.write(pci::BAR0, 0x400, &[0; 4]).unwrap();
            client.write(pci::BAR0, 0x400, &[2, 0, 0, 0]).unwrap();
            assert_eq!(take(&mut queue, &mut reader, 1), [0_u32; 0]);
            client.write(pci::BAR0, 0x400, &[0; 4]).unwrap();
            register(&pages, 0x3804).store_release(0, 0);
        }
        start_mapped_again(&mut client, &pages, &file, round);
    }
    let untouched = memory.span(0x8000, 60, &mut Hint::default()).unwrap().read_array::<60>().unwrap();
    assert_eq!(untouched, [0; 60]);
    // A former client's mapping is not that of the next one's card.
    drop(client);
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    let new = map_registers(&mut client);
    start_mapped(&mut client, &new, &file);
    register(&pages, TDT).store_release(0, 200);
    assert_eq!(take(&mut queue, &mut reader, 1), [60]);
}

fn start_mapped_again(client: &mut Client<Wire<'_>>, pages: &Memory, file: &OwnedFd, round: u32) {
    if round > 0 {
        client.reset().unwrap();
        client.dma_unmap(DmaUnmap { size: SIZE, ..DmaUnmap::default() }).unwrap();
    }
    register(pages, TDH).store_release(0, 0);
    start_mapped(client, pages, file);
}

#[test]
fn techniques_change_while_the_card_runs_and_doorbells_with_the_next_client() {
    let (mut backend, _queue, counters) = port_of(&i82540em::MODEL, MEMORY, Techniques::default());
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    assert!(client.region(pci::BAR0).unwrap().file.is_none(), "trapped, for the pin");
    client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
    let event = EventFd::new().unwrap();
    client.set_irqs(eventfds(pci::MSI, IrqAction::Trigger, &event)).unwrap();
    client.write(pci::CONFIG, 0xf2, &[1, 0]).unwrap();
    client.write(pci::BAR0, IMS, &[0xff, 0, 0, 0]).unwrap();
    // The chip's throttle: 65535 units of 256 ns.
    client.write(pci::BAR0, 0xc4, &[0xff, 0xff, 0, 0]).unwrap();
    let interrupts = |client: &mut Client<Wire<'_>>| {
        let before = counters.interrupts.load(Relaxed);
        for _ in 0..3 {
            client.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap();
            client.read(pci::BAR0, ICR, &mut [0; 4]).unwrap();
        }
        counters.interrupts.load(Relaxed) - before
    };
    assert_eq!(interrupts(&mut client), 1);
    let techniques = Techniques { timers: false, csb: true, moderate: 50_000, ..MAPPED };
    client.transport().backend.device.set_techniques(techniques);
    assert_eq!(interrupts(&mut client), 3);
    let exits = client.transport().backend.device.exits();
    assert_eq!((exits.raised, exits.held), (4, 2));
    let ics = exits.registers.iter().find(|register| register.name == "ICS").unwrap();
    assert_eq!((ics.reads, ics.writes, ics.mapped), (0, 6, false));
    let detail = "82540em msi csb no-timers moderate=50us";
    assert_eq!(client.transport().backend.device.detail(), detail);
    drop(client);
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    assert!(client.region(pci::BAR0).unwrap().file.is_some());
    assert_eq!(client.transport().backend.device.exits().raised, 0);
    let mut subsystem = [0; 2];
    client.read(pci::CONFIG, 0x2e, &mut subsystem).unwrap();
    assert_eq!(subsystem, [0x01, 0x11], "a driver finds the shared block by it");
}

#[test]
fn doorbells_are_mapped_by_default_for_clients_of_kvm_whose_drivers_use_messages() {
    for (model, on_kvm, mapped) in
        [("82574l", true, true), ("82574l", false, false), ("82540em", true, false)]
    {
        let usual = Techniques::default();
        assert_eq!(usual.maps(model, || on_kvm), mapped, "{model}");
        assert!(Techniques { in_place: true, ..usual }.maps(model, || on_kvm));
        assert!(Techniques { mapped: Some(true), ..usual }.maps(model, || on_kvm));
        assert!(!Techniques { mapped: Some(false), ..usual }.maps(model, || on_kvm));
    }
    for (model, detail) in [(&i82540em::MODEL, "82540em intx"), (&i82574l::MODEL, "82574l intx mapped")] {
        let (mut backend, _queue, _counters) = port_of(model, MEMORY, Techniques::default());
        let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
        // Memory accesses, bus master.
        client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
        assert_eq!(client.transport().backend.device.detail(), detail);
    }
    let (mut backend, _queue, _counters) = port_of(&i82574l::MODEL, MEMORY, MAPPED);
    let (_ours, theirs) = UnixStream::pair().unwrap();
    backend.connect(theirs.into(), None).unwrap();
    assert!(!backend.device.detail().contains("mapped"), "a client without the file maps nothing");
}

#[test]
fn a_carrier_that_is_lost_interrupts_and_stays_lost_for_the_next_client() {
    let (mut backend, mut queue, _counters) = port(MEMORY);
    let file = memfd("guest", SIZE as usize).unwrap();
    let mut reader = Reader::register().unwrap();
    let mut receives = || {
        let turn = reader.turn(1);
        let receives = queue.rx.caps(&turn).is_some();
        reader.rest();
        receives
    };
    let status = |client: &mut Client<Wire<'_>>| {
        let (mut status, mut causes) = ([0; 4], [0; 4]);
        client.read(pci::BAR0, 8, &mut status).unwrap();
        client.read(pci::BAR0, ICR, &mut causes).unwrap();
        (status[0] & 2 != 0, causes[0] & 4 != 0)
    };
    for (before, after) in [(true, false), (false, true)] {
        let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
        let event = EventFd::new().unwrap();
        client.set_irqs(eventfds(pci::INTX, IrqAction::Trigger, &event)).unwrap();
        client.dma_map(map(0, SIZE), Some(copy(&file))).unwrap();
        client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
        for (offset, value) in RINGS {
            client.write(pci::BAR0, offset, &value.to_le_bytes()).unwrap();
        }
        assert_eq!((status(&mut client).0, receives()), (before, before));
        client.transport().backend.device.set_carrier(after);
        assert!(comes(&event));
        assert_eq!((status(&mut client), receives()), ((after, true), after));
        client.transport().backend.device.set_carrier(after);
        assert_eq!(status(&mut client), (after, false), "nothing changed");
        assert_eq!(client.transport().backend.device.detail().contains(" no-carrier"), !after);
    }
}

#[test]
fn an_rtl8139_is_not_mapped_and_interrupts_by_its_pin() {
    let techniques = Techniques { mapped: Some(true), in_place: true, csb: true, ..Techniques::default() };
    let (mut backend, _queue, counters) = port_as::<rtl8139::Nic>(&rtl8139::MODEL, MEMORY, techniques);
    assert!(!techniques.maps("rtl8139", || true));
    let mut client = Client::negotiate(Wire::new(&mut backend)).unwrap();
    // A shared block has a doorbell.
    let doorbells = client.doorbells(pci::BAR0).unwrap();
    assert_eq!(doorbells.iter().map(|doorbell| doorbell.offset).collect::<Vec<_>>(), [0xd4]);
    for bar in [pci::BAR0, pci::BAR0 + 1] {
        let region = client.region(bar).unwrap();
        assert_eq!((region.info.size, region.info.flags & RegionInfo::MMAP), (256, 0));
    }
    let call = EventFd::new().unwrap();
    client.write(pci::CONFIG, 4, &[7, 0]).unwrap();
    client.set_irqs(eventfds(pci::INTX, IrqAction::Trigger, &call)).unwrap();
    // Both rings are enabled, all causes too; the driver asks for an interrupt.
    let memory = memfd("guest", SIZE as usize).unwrap();
    client.dma_map(map(0, SIZE), Some(copy(&memory))).unwrap();
    let memory = File::from(memory);
    memory.write_at(&[0xff; 66], 0x30bf).unwrap();
    let writes: [(u64, &[u8]); 5] = [
        (0xe0, &[3, 0]),
        (0xe4, &[0, 0x10, 0, 0]),
        (0x20, &[0, 0x20, 0, 0]),
        (0x37, &[0x0c]),
        (0x3c, &[0xff, 0xff]),
    ];
    for (at, bytes) in writes {
        client.write(pci::BAR0 + 1, at, bytes).unwrap();
    }
    client.write(pci::BAR0, 0xd9, &[1]).unwrap();
    assert!(comes(&call));
    // The statistics are written to the guest's memory while it is mapped.
    client.write(pci::BAR0, 0x10, &[8 | 0xc0, 0x30, 0, 0]).unwrap();
    let mut found = [1; 66];
    memory.read_at(&mut found, 0x30bf).unwrap();
    assert_eq!((found[0], &found[1..65], found[65]), (0xff, &[0; 64][..], 0xff));
    assert_eq!(counters.faults.load(Relaxed), 0);
    drop(client);
    assert_eq!(backend.state(), State::Up);
    backend.disconnect();
    assert_eq!(backend.state(), State::Waiting);
}
