//! Clients, their guests and the programs in these that use, leave and attack a device.

use super::peer::Client as Port;
use super::{KIND, Settings};
use crate::peer::{Context, Peer};
use crate::{Doorbell, Queue, State};
use proptest::prelude::*;
use ringway_frame::{Burst, CountersRef, Offload, Storage};
use ringway_host::{EventFd, Mapping, memfd};
use ringway_mem::{Hint, Memory, Reader, Region, Span};
use ringway_nic::shared_ring::{DOORBELL, RESET, STATUS};
use ringway_ring::{Consumer, Producer, RX, RingMemory, Slot, TX};
use ringway_spec::{Kind, Notify};
use ringway_vfio_user::{
    Client, DmaMap, IrqAction, IrqData, Packet, RegionInfo, SetIrqs, Transport, errno, pci,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Default)]
struct Bell {
    woken: AtomicUsize,
    watched: AtomicUsize,
}

impl Doorbell for Bell {
    fn wake(&self) {
        self.woken.fetch_add(1, Relaxed);
    }

    fn watch(&self, _kick: Arc<OwnedFd>) {
        self.watched.fetch_add(1, Relaxed);
    }

    fn unwatch(&self) {
        self.watched.fetch_sub(1, Relaxed);
    }
}

/// A port as `data` has it.
struct Rig {
    port: Port,
    queue: Queue,
    settings: Settings,
    counters: CountersRef,
    bell: Arc<Bell>,
    reader: Reader,
}

const SMALL: Settings = Settings { slots: 64, slot_size: 256, mapped: false, poll: 100_000 };

fn rig(settings: Settings) -> Rig {
    let (counters, bell) = (CountersRef::private(), Arc::new(Bell::default()));
    let check = Arc::new(EventFd::new().unwrap());
    let port = ringway_spec::Port::new("p", Kind::new(KIND.name, &settings), None);
    assert_eq!(port.notify, Notify::default());
    let doorbells = vec![bell.clone() as Arc<dyn Doorbell>];
    let context = Context {
        port: &port,
        doorbells,
        counters: std::slice::from_ref(&counters),
        check: &check,
        keeper: None,
    };
    let (port, queues) = Port::new(context).unwrap();
    let queue = queues.into_iter().next().unwrap();
    Rig { port, queue, settings, counters, bell, reader: Reader::register().unwrap() }
}

/// A client's end of a connection; the port handles each message when it is sent.
struct Wire<'a> {
    stream: UnixStream,
    rig: &'a mut Rig,
    end: Option<String>,
}

impl Transport for Wire<'_> {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        ringway_host::send_with(self.stream.as_fd(), &packet.bytes, &fds).map_err(io::Error::other)?;
        self.end = self.rig.port.check().err().map(|gone| gone.reason).or(self.end.take());
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        ringway_host::receive_with(self.stream.as_fd(), bytes, 8).map_err(io::Error::other)
    }
}

/// Connects a client, as `control` does.
fn connect(rig: &mut Rig) -> Client<Wire<'_>> {
    let (stream, theirs) = UnixStream::pair().unwrap();
    let memory = rig.settings.memory().unwrap();
    rig.port.attach(vec![theirs.into(), memory]).unwrap();
    Client::negotiate(Wire { stream, rig, end: None }).unwrap()
}

/// The memory that the client maps.
fn map(client: &mut Client<Wire<'_>>) -> Region {
    let bar = client.region(2).unwrap();
    assert_ne!(bar.info.flags & RegionInfo::MMAP, 0);
    let [area] = bar.areas[..] else { panic!("{:?}", bar.areas) };
    assert!(area.offset == 0 && area.size <= bar.info.size && bar.info.size.is_power_of_two());
    let mapping = Mapping::shared(bar.file.unwrap(), 0, area.size as usize).unwrap();
    Arc::new(mapping).region()
}

fn status(client: &mut Client<Wire<'_>>) -> u32 {
    let mut status = [0; 4];
    client.read(pci::BAR0, STATUS.into(), &mut status).unwrap();
    u32::from_le_bytes(status)
}

/// A program resets the device and maps the ring.
fn open(client: &mut Client<Wire<'_>>, region: &Region) -> Program {
    client.write(pci::BAR0, RESET.into(), &[0; 4]).unwrap();
    assert_eq!(status(client), 1);
    let memory = RingMemory::attach(region.clone()).unwrap();
    assert!(!memory.is_closed());
    let (tx, rx) = (Producer::new(&memory, TX), Consumer::new(&memory, RX));
    Program { memory, tx, rx }
}

struct Program {
    memory: RingMemory,
    tx: Producer,
    rx: Consumer,
}

impl Program {
    /// Sends a frame; whether the doorbell is wanted.
    fn send(&mut self, bytes: &[u8]) -> bool {
        assert!(self.tx.push(&self.memory, bytes, [0; 10]).unwrap());
        self.tx.publish(&self.memory)
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut bytes = [0; 2048];
        let received = self.rx.pop(&self.memory, &mut bytes).unwrap()?;
        self.rx.publish(&self.memory);
        Some(bytes[..received.len].to_vec())
    }
}

impl Rig {
    /// Takes and releases all frames, as a worker.
    fn take(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut storage = Storage::default();
        let turn = self.reader.turn(now);
        let mut burst = Burst::begin(&mut storage);
        self.queue.tx.take(&turn, &mut burst);
        let frames = (0..burst.len()).map(|index| {
            let mut bytes = vec![0; burst.meta(index).len as usize];
            burst.read(index, 0, &mut bytes);
            bytes
        });
        let frames: Vec<_> = frames.collect();
        self.queue.tx.release(&turn, frames.len());
        self.reader.rest();
        frames
    }

    /// Puts a frame; whether there was room.
    fn put(&mut self, bytes: &[u8]) -> bool {
        let mut storage = Storage::default();
        let turn = self.reader.turn(0);
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(bytes)).unwrap();
        let count = self.queue.rx.reserve(&turn, &burst, &[0]);
        self.queue.rx.put(&turn, &burst, &[0][..count]);
        self.queue.rx.publish(&turn);
        self.reader.rest();
        count == 1
    }

    fn arm(&mut self, now: u64) -> bool {
        let turn = self.reader.turn(now);
        let armed = self.queue.tx.arm(&turn);
        self.reader.rest();
        armed
    }
}

fn set_call(client: &mut Client<Wire<'_>>, call: Option<&EventFd>) {
    let fds = call.iter().map(|call| call.as_fd().try_clone_to_owned().unwrap()).collect();
    let (action, data) = (IrqAction::Trigger, IrqData::Eventfds(fds));
    client.set_irqs(SetIrqs { index: pci::MSIX, start: 0, count: 1, action, data }).unwrap();
}

/// Waits until an eventfd is signalled: the signal is asynchronous.
fn comes(event: &EventFd) -> bool {
    ringway_host::wait_readable(&[event.as_fd()], Some(20_000_000_000)).unwrap();
    event.clear()
}

fn frame(len: usize, first: u8) -> Vec<u8> {
    (0..len).map(|at| first.wrapping_add(at as u8)).collect()
}

#[test]
fn frames_pass_both_ways_by_memory_with_a_doorbell_only_for_a_sleeping_worker() {
    let mut rig = rig(SMALL);
    let mut client = connect(&mut rig);
    // A guest's memory is not used, whatever it is.
    client
        .dma_map(DmaMap { flags: 3, size: 4096, ..DmaMap::default() }, Some(memfd("m", 4096).unwrap()))
        .unwrap();
    assert_eq!(client.doorbells(pci::BAR0).unwrap()[0].offset, u64::from(DOORBELL));
    let region = map(&mut client);
    assert_eq!((status(&mut client), client.transport().rig.port.state().0), (0, State::Attached));
    assert!(!client.transport().rig.put(&[0; 60]), "nobody uses the ring");
    let mut program = open(&mut client, &region);
    assert_eq!(client.transport().rig.port.state(), (State::Up, "64 slots of 256 no-interrupts".into()));
    for (number, len) in [14, 60, 256, 257, 1500].into_iter().enumerate() {
        let sent = frame(len, number as u8);
        assert!(!program.send(&sent), "the worker polls");
        assert_eq!(client.transport().rig.take(0), std::slice::from_ref(&sent));
        assert!(client.transport().rig.put(&sent));
        assert_eq!(program.receive(), Some(sent));
    }
    assert!(client.transport().rig.arm(0));
    let woken = client.transport().rig.bell.woken.load(Relaxed);
    assert!(program.send(&[1; 60]), "the worker sleeps");
    client.post(pci::BAR0, DOORBELL.into(), &[7; 4]).unwrap();
    let rig = &mut client.transport().rig;
    assert_eq!((rig.bell.woken.load(Relaxed), rig.take(0)), (woken + 1, vec![vec![1; 60]]));
    let exits = rig.port.exits().unwrap();
    assert_eq!((exits.tx_doorbells, exits.raised), (1, 0));
    let names: Vec<&str> = exits.registers.iter().map(|register| &*register.name).collect();
    assert_eq!(names, ["DOORBELL", "RESET", "STATUS"]);
}

#[test]
fn an_interrupt_is_sent_if_wanted_to_the_eventfd_of_the_moment() {
    let mut rig = rig(SMALL);
    let mut client = connect(&mut rig);
    let region = map(&mut client);
    let mut program = open(&mut client, &region);
    assert!(program.rx.arm(&program.memory, 1).unwrap());
    assert!(client.transport().rig.put(&[1; 60]), "without any eventfd");
    let calls = [EventFd::new().unwrap(), EventFd::new().unwrap()];
    for call in &calls {
        set_call(&mut client, Some(call));
        assert!(comes(call), "what came before was lost");
        while program.receive().is_some() {}
        assert!(client.transport().rig.put(&[1; 60]) && !call.clear(), "not asked for");
        assert_eq!(program.receive().unwrap().len(), 60);
        assert!(program.rx.arm(&program.memory, 1).unwrap());
        assert!(client.transport().rig.put(&[2; 60]) && comes(call));
        assert!(client.transport().rig.port.state().1.contains(" msi-x"));
    }
    assert_eq!(client.transport().rig.counters.interrupts.load(Relaxed), 2);
    set_call(&mut client, None);
    assert_eq!(program.receive(), Some(vec![2; 60]));
    assert!(program.rx.arm(&program.memory, 1).unwrap());
    assert!(client.transport().rig.put(&[3; 60]) && !calls[1].clear());
    assert_eq!(program.receive(), Some(vec![3; 60]), "the ring stays");
    // Only an eventfd may be set, and the interrupt can't be masked.
    let memory = memfd("no-eventfd", 4096).unwrap();
    for (action, fd) in [(IrqAction::Trigger, memory), (IrqAction::Mask, EventFd::new().unwrap().into_fd())] {
        let data = IrqData::Eventfds(vec![fd]);
        assert!(client.set_irqs(SetIrqs { index: pci::MSIX, start: 0, count: 1, action, data }).is_err());
    }
    assert_eq!(client.irq(pci::INTX).unwrap().count, 0);
}

#[test]
fn a_program_that_is_started_again_finds_a_new_ring() {
    let mut rig = rig(SMALL);
    let mut client = connect(&mut rig);
    let region = map(&mut client);
    for round in 0..3 {
        let mut program = open(&mut client, &region);
        assert_eq!(program.receive(), None, "no frame of a former program");
        // The program dies with frames in both rings.
        program.send(&frame(60, round));
        assert!(client.transport().rig.put(&frame(60, round)));
        if round == 1 {
            assert_eq!(client.transport().rig.take(0).len(), 1);
        }
    }
    for is_whole in [false, true] {
        let program = open(&mut client, &region);
        if is_whole { client.reset() } else { client.write(pci::BAR0, STATUS.into(), &[1; 4]) }.unwrap();
        assert_eq!((status(&mut client), client.transport().rig.put(&[0; 60])), (0, false));
        assert!(program.memory.is_closed());
    }
    let mut program = open(&mut client, &region);
    assert!(client.transport().rig.put(&frame(60, 9)));
    assert_eq!(program.receive(), Some(frame(60, 9)));
    assert_eq!(client.transport().rig.counters.faults.load(Relaxed), 0);
}

#[test]
fn a_program_that_breaks_its_ring_loses_it_until_it_resets_the_device() {
    let mut rig = rig(SMALL);
    let mut client = connect(&mut rig);
    let region = map(&mut client);
    let call = EventFd::new().unwrap();
    set_call(&mut client, Some(&call));
    assert!(comes(&call));
    let memory = Memory::new(vec![region.clone()]).unwrap();
    // The program's lines: the producer's of TX, the consumer's of RX.
    for (round, (at, index)) in
        [(1024, 65), (1024, u32::MAX), (1408, 1), (1408, 1000)].into_iter().enumerate()
    {
        let program = open(&mut client, &region);
        memory.span_mut(at, 4, &mut Hint::default()).unwrap().write(&u32::to_le_bytes(index));
        let rig = &mut client.transport().rig;
        assert_eq!(rig.take(0).len(), 0);
        // All slots must be used before the consumer's index is read.
        (0..65).for_each(|_| _ = rig.put(&[0; 60]));
        rig.port.check().unwrap();
        assert!(rig.port.refused().unwrap().contains("index moved"), "for the log");
        assert_eq!(rig.counters.faults.load(Relaxed), round as u64 + 1);
        assert_eq!((rig.port.state().0, rig.bell.watched.load(Relaxed)), (State::Attached, 0));
        assert!(program.memory.is_closed() && comes(&call), "the program is told");
        assert!(!rig.put(&[0; 60]));
        assert_eq!(status(&mut client), 0);
    }
    // Buffers that don't exist.
    let mut program = open(&mut client, &region);
    let slot = Slot { buf_idx: 128, len: 60, ..Slot::default() };
    assert!(program.tx.room(&program.memory, 1).unwrap() > 0);
    program.tx.write(&program.memory, 0, slot);
    program.tx.advance(1);
    program.tx.publish(&program.memory);
    assert_eq!(client.transport().rig.take(0).len(), 0, "dropped");
    assert_eq!((status(&mut client), client.transport().rig.counters.faults.load(Relaxed)), (1, 4));
}

#[test]
fn with_mapped_doorbells_a_sleeping_worker_looks_by_a_timer() {
    let mut rig = rig(Settings { mapped: true, ..SMALL });
    let mut client = connect(&mut rig);
    let region = map(&mut client);
    assert!(client.transport().rig.arm(1) && client.transport().rig.queue.tx.next_due().is_none());
    let mut program = open(&mut client, &region);
    assert!(client.transport().rig.arm(250_000));
    assert!(!program.send(&[1; 60]), "no doorbell is wanted");
    let rig = &mut client.transport().rig;
    assert_eq!(rig.queue.tx.next_due(), Some(300_000), "the next multiple of the interval");
    assert_eq!(rig.take(300_000).len(), 1);
    assert!(rig.queue.tx.next_due().is_none() && rig.port.state().1.ends_with(" mapped"));
    assert!(!program.send(&[2; 60]));
    assert!(!client.transport().rig.arm(400_000), "a frame is there");
}

#[test]
fn each_client_gets_other_memory_and_a_device_as_after_power_on() {
    let mut rig = rig(SMALL);
    let mut client = connect(&mut rig);
    let former = map(&mut client);
    let mut program = open(&mut client, &former);
    program.send(&[1; 60]);
    client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
    drop(client);
    // The former client keeps its mapping, and goes on writing there.
    let mut client = connect(&mut rig);
    assert!(program.memory.is_closed());
    let region = map(&mut client);
    let mut command = [0; 2];
    client.read(pci::CONFIG, 4, &mut command).unwrap();
    assert_eq!((command, status(&mut client)), ([0, 0], 0));
    let mut next = open(&mut client, &region);
    program.send(&[1; 60]);
    next.send(&[2; 60]);
    assert_eq!(client.transport().rig.take(0), [vec![2; 60]]);
    client.transport().rig.port.detach();
    assert_eq!(client.transport().rig.port.state(), (State::Waiting, "64 slots of 256".into()));
    assert_eq!(client.transport().rig.bell.watched.load(Relaxed), 0);
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let rig = &mut client.transport().rig;
    assert!(rig.port.attach(vec![theirs.into()]).is_err(), "without memory");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn accesses_and_memory_of_any_value_leave_the_port_usable(
        steps in prop::collection::vec(
            (0u8..8, prop_oneof![0u64..0x100, 0u64..0x8000, any::<u64>()], any::<u64>(), 1usize..40), 1..60,
        ),
    ) {
        let mut rig = rig(SMALL);
        let mut client = connect(&mut rig);
        let region = map(&mut client);
        let memory = Memory::new(vec![region.clone()]).unwrap();
        let regions = [pci::BAR0, 1, 2, pci::CONFIG];
        for (what, offset, value, len) in steps {
            let bytes: Vec<u8> = value.to_le_bytes().into_iter().cycle().take(len).collect();
            let which = regions[value as usize % 4];
            match what {
                0 | 1 => _ = client.write(which, offset, &bytes),
                2 => _ = client.read(which, offset, &mut vec![0; len]),
                3 => _ = client.write(pci::BAR0, RESET.into(), &bytes[..1]),
                4 => {
                    let at = (offset % region.len) & !7;
                    memory.span_mut(at, 8, &mut Hint::default()).unwrap().write(&value.to_le_bytes());
                }
                5 => prop_assert!(client.transport().rig.take(value).len() <= 64),
                6 => _ = client.transport().rig.put(&bytes),
                _ => _ = client.transport().rig.arm(value),
            }
            prop_assert_eq!(&client.transport().end, &None);
        }
        let mut program = open(&mut client, &region);
        program.send(&frame(300, 5));
        prop_assert_eq!(client.transport().rig.take(0), [frame(300, 5)]);
        prop_assert!(client.transport().rig.put(&frame(300, 6)));
        prop_assert_eq!(program.receive(), Some(frame(300, 6)));
    }
}

#[test]
fn wrong_requests_are_refused_and_wrong_messages_end_the_session() {
    let mut rig = rig(SMALL);
    let mut client = connect(&mut rig);
    let size = client.region(2).unwrap().info.size;
    for (region, offset, len) in [(3, 0, 4), (6, 0, 4), (2, size, 1), (2, u64::MAX, 4), (pci::BAR0, 4096, 4)]
    {
        let result = client.write(region, offset, &[0; 4][..len]);
        let refused = ringway_vfio_user::ClientError::Refused { command: 10, errno: errno::EINVAL };
        assert_eq!(result.unwrap_err().to_string(), refused.to_string(), "{region} {offset:#x}");
    }
    assert!(client.transport().rig.port.refused().is_some());
    let stream = client.transport().stream.try_clone().unwrap();
    ringway_host::send_with(stream.as_fd(), &[0xff; 16], &[]).unwrap();
    let rig = client.transport().rig.port.check();
    assert!(rig.unwrap_err().fault);
    assert_eq!(client.transport().rig.port.state().0, State::Waiting);
}
