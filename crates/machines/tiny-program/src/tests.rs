//! Programs with a scripted monitor and a peer: each sleep of the machine is a step of both, and time is a counter.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::runtime::{End, Host, run};
use crate::{Error, Network, Port, Program};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::Future;
use core::time::Duration;
use ringway_frame::{Needs, Offload};
use ringway_mem::Region;
use ringway_netstack::{Cidr, Frames, InterfaceConfig, Settings, SocketError, SocketId, Stack};
use ringway_ring::{Consumer, Geometry, Producer, RX, RingMemory, TX};
use ringway_tiny::channel::{Channel, RingPlace, ToGuest, ToMonitor};
use ringway_tiny::{FunctionStart, Machine, Monitor};
use std::boxed::Box;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
    static MEMORY: RefCell<Vec<Region>> = const { RefCell::new(Vec::new()) };
    /// Frames on the first port that nobody had taken when the program ended.
    static LEFT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A counter that advances by 100 ns with each look.
fn ticks() -> u64 {
    NOW.with(|now| now.replace(now.get() + 100))
}

/// Addresses are numbers of regions.
fn map(address: u64, _: u64) -> Option<Region> {
    MEMORY.with_borrow(|memory| memory.get(address as usize).cloned())
}

fn memory(bytes: u64) -> (u64, Region) {
    MEMORY.with_borrow_mut(|memory| {
        let region = Region::private(0, 0, bytes as usize);
        memory.push(region.clone());
        (memory.len() as u64 - 1, region)
    })
}

/// The fabric's side of a port's ring.
struct Far {
    place: RingPlace,
    memory: RingMemory,
    to_guest: Producer,
    from_guest: Consumer,
}

impl Far {
    fn new() -> Far {
        let geometry = Geometry { slots: [64, 64], ..Geometry::default() };
        let (address, region) = memory(geometry.header().unwrap().bytes);
        let place = RingPlace { address, len: region.len, doorbell: memory(4096).0, is_second: false };
        let memory = RingMemory::create(region, &geometry).unwrap();
        let (to_guest, from_guest) = (Producer::new(&memory, RX), Consumer::new(&memory, TX));
        Far { place, memory, to_guest, from_guest }
    }

    fn send(&mut self, frame: &[u8], offload: Offload) {
        assert!(self.to_guest.push(&self.memory, frame, offload.to_bytes()).unwrap());
        self.to_guest.publish(&self.memory);
    }

    fn next(&mut self) -> Option<(Vec<u8>, Offload)> {
        let mut frame = vec![0; 70_000];
        let received = self.from_guest.pop(&self.memory, &mut frame).unwrap()?;
        self.from_guest.publish(&self.memory);
        frame.truncate(received.len);
        Some((frame, Offload::from_bytes(&received.offload)))
    }
}

/// The monitor's side, a peer with a stack on each port, and what the program said.
pub(crate) struct World {
    channel: Channel,
    far: Vec<Far>,
    /// The peer on the first port.
    pub peer: Stack,
    /// Whether the peer's stack has the first port; otherwise the script has it.
    networked: bool,
    pub said: Vec<String>,
}

pub(crate) const PEER: [u8; 4] = [10, 0, 0, 1];

impl World {
    fn new(channel: Channel, ports: usize) -> World {
        let mut peer = Stack::new(Settings::default(), [1, 2]);
        peer.add_interface(InterfaceConfig {
            mac: [2, 0, 0, 0, 0, 1].into(),
            mtu: 1500,
            addresses: vec![Cidr::new(PEER, 24), Cidr::new([0xfd00, 0, 0, 0, 0, 0, 0, 1], 64)],
            offloads: Needs::NONE,
        });
        let far = (0..ports).map(|_| Far::new()).collect();
        World { channel, far, peer, networked: true, said: Vec::new() }
    }

    pub fn now(&self) -> u64 {
        NOW.with(Cell::get)
    }

    fn tell(&mut self, message: &ToGuest<'_>) {
        self.channel.send(message.to_bytes());
        self.channel.flush().unwrap();
    }

    fn up(&mut self, port: u16) {
        let place = self.far[usize::from(port)].place;
        self.tell(&ToGuest::PortUp(port, place));
    }

    /// Answers the program; whether there was anything.
    pub fn listen(&mut self) -> bool {
        let mut wanted = Vec::new();
        let before = self.said.len();
        while let Some(message) = self.channel.receive().unwrap() {
            let message = ToMonitor::from_bytes(message).unwrap();
            if let ToMonitor::Wanted(port, _) = message {
                wanted.push(port);
            }
            self.said.push(match message {
                ToMonitor::Print(_, text) => String::from_utf8_lossy(text).into_owned(),
                ToMonitor::Wrong(_, text) => std::format!("wrong: {}", String::from_utf8_lossy(text)),
                message => std::format!("{message:?}"),
            });
        }
        self.channel.flush().unwrap();
        wanted.into_iter().for_each(|port| self.up(port));
        self.said.len() > before
    }

    /// Carries frames between the peer and the first port; whether there were any.
    fn carry(&mut self) -> bool {
        let (now, mut any) = (self.now(), false);
        if !self.networked {
            return false;
        }
        while let Some((frame, offload)) = self.far[0].next() {
            self.peer.receive(now, 0, &frame, offload);
            any = true;
        }
        self.peer.expire(now);
        let mut frames = Frames::new(16);
        self.peer.transmit(now, 0, &mut frames);
        for (frame, offload) in frames.iter() {
            self.far[0].send(frame, offload);
            any = true;
        }
        any
    }

    pub fn has_said(&self, what: &str) -> bool {
        self.said.iter().any(|said| said == what)
    }
}

/// The machine: a sleep is a step of the world, and of the script.
pub(crate) struct Script {
    world: Rc<RefCell<World>>,
    step: Box<dyn FnMut(&mut World)>,
    steps: u32,
}

impl fmt::Write for Script {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

impl Machine for Script {
    fn ticks(&self) -> u64 {
        ticks()
    }

    fn park(&mut self, microseconds: u32) {
        self.steps += 1;
        assert!(self.steps < 100_000, "the program does not end");
        let mut world = self.world.borrow_mut();
        let mut any = world.listen();
        (self.step)(&mut world);
        any |= world.carry() | !world.channel.arm().unwrap();
        world.channel.disarm();
        let sleep = if any { 10_000 } else { u64::from(microseconds) * 1000 };
        let peer = world.peer.next_deadline().map_or(u64::MAX, |due| due.saturating_sub(world.now()));
        NOW.with(|now| now.set(now.get() + sleep.min(peer.max(1000))));
    }
}

pub(crate) fn start(ports: usize, settings: &[(&str, &str)]) -> FunctionStart {
    let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    FunctionStart {
        ports: ["a", "b", "c"].iter().take(ports).map(ToString::to_string).collect(),
        settings,
        parameters: vec![("GREETING".into(), "hello".into())],
        handlers: "/run/f.sock".into(),
        hz: 1_000_000_000,
        seed: 7,
        ..FunctionStart::default()
    }
}

pub(crate) const ADDRESS: &[(&str, &str)] = &[("address", "10.0.0.2/24"), ("address", "fd00::2/64")];

/// Runs a program with a script; what it said, and how it ended.
fn play<F: Future<Output = Result<(), Error>> + 'static>(
    start: FunctionStart,
    main: impl FnOnce(Program) -> F,
    step: impl FnMut(&mut World) + 'static,
) -> (End, Vec<String>) {
    play_with(start, 32 << 20, main, step)
}

/// A machine with a script for a program with so many ports.
pub(crate) fn machine(
    ports: usize,
    memory: u64,
    step: impl FnMut(&mut World) + 'static,
) -> (Host<Script>, Monitor, Rc<RefCell<World>>) {
    let region = Region::private(0, 0, Channel::bytes().unwrap() as usize);
    let monitor = Channel::create(region.clone()).unwrap();
    let world = Rc::new(RefCell::new(World::new(monitor, ports)));
    let machine = Script { world: world.clone(), step: Box::new(step), steps: 0 };
    let host = Host { machine, notify: Box::new(|| ()), ticks, map, memory, nets: Vec::new() };
    (host, Monitor::Channel(Channel::attach(region).unwrap()), world)
}

fn play_with<F: Future<Output = Result<(), Error>> + 'static>(
    start: FunctionStart,
    memory: u64,
    main: impl FnOnce(Program) -> F,
    step: impl FnMut(&mut World) + 'static,
) -> (End, Vec<String>) {
    let (host, channel, world) = machine(start.ports.len(), memory, step);
    let end = run(host, channel, start, main);
    world.borrow_mut().listen();
    LEFT.set(core::iter::from_fn(|| Some(world.borrow_mut().far[0].next()?.0)).collect());
    let said = core::mem::take(&mut world.borrow_mut().said);
    (end, said)
}

async fn echo(mut stream: crate::TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(count) = stream.read(&mut bytes).await {
        if count == 0 || stream.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Echoes TCP streams on port 7 until a datagram comes on port 9.
async fn echo_server(program: Program) -> Result<(), Error> {
    let network = program.network()?;
    let mut end = network.bind(9)?;
    let mut listener = network.listen(7)?;
    let own = program.clone();
    program.spawn(async move {
        while let Ok(stream) = listener.accept().await {
            own.spawn(echo(stream)).unwrap();
        }
    })?;
    let (bytes, from) = end.recv_from().await?;
    end.send_to(&bytes, from)?;
    crate::log!(program, "ended by {from}");
    Ok(())
}

/// A client of the peer that sends bytes and expects them back.
pub(crate) struct Client {
    pub id: SocketId,
    sent: usize,
    received: Vec<u8>,
}

impl Client {
    pub fn new(world: &mut World, by_ip6: bool) -> Client {
        let now = world.now();
        let to = if by_ip6 { "[fd00::2]:7" } else { "10.0.0.2:7" };
        let id = world.peer.connect(now, to.parse().unwrap()).unwrap();
        Client { id, sent: 0, received: Vec::new() }
    }

    /// Whether all came back.
    pub fn step(&mut self, world: &mut World, bytes: &[u8]) -> bool {
        let now = world.now();
        match world.peer.send(now, self.id, &bytes[self.sent..]) {
            Ok(count) => self.sent += count,
            Err(SocketError::WouldBlock) => {}
            Err(error) => panic!("{error}"),
        }
        let mut out = [0; 8192];
        while let Ok(count @ 1..) = world.peer.recv(now, self.id, &mut out) {
            self.received.extend_from_slice(&out[..count]);
        }
        assert_eq!(self.received, bytes[..self.received.len()]);
        self.received.len() == bytes.len()
    }
}

/// Tells the program to end, with a datagram.
fn end(world: &mut World) {
    let now = world.now();
    let id = world.peer.bind((PEER, 0).into()).unwrap();
    world.peer.send_to(now, id, b"end", ([10, 0, 0, 2], 9).into()).unwrap();
}

#[test]
fn streams_of_several_tasks_and_datagrams_pass() {
    let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at / 7) as u8).collect();
    let mut clients = Vec::new();
    let mut ended = false;
    let (how, said) = play(start(1, ADDRESS), echo_server, move |world| {
        if clients.is_empty() {
            clients = (0..3).map(|at| Client::new(world, at == 2)).collect();
        }
        let done = clients.iter_mut().filter_map(|client| client.step(world, &bytes).then_some(())).count();
        if done == clients.len() && !ended {
            ended = true;
            end(world);
        }
    });
    assert_eq!(how, End::Returned, "{said:?}");
    assert!(said.last().unwrap().starts_with("ended by 10.0.0.1:"), "{said:?}");
    assert!(said.contains(&"Up([0, 0, 0])".into()) && said.contains(&"Wanted(0, true)".into()), "{said:?}");
}

/// Memory for the least number of streams: twice that of 16 with 256 KB for each direction, and 64 KB.
pub(crate) const LEAST: u64 = 2 * 16 * (576 << 10);

#[test]
fn as_many_streams_are_accepted_as_the_memory_permits() {
    let mut clients: Vec<Client> = Vec::new();
    let (mut steps, mut ended) = (0, false);
    let (how, said) = play_with(start(1, ADDRESS), LEAST, echo_server, move |world| {
        if clients.is_empty() {
            clients = (0..20).map(|_| Client::new(world, false)).collect();
        }
        steps += 1;
        let answered = |clients: &mut Vec<Client>, world: &mut World| {
            clients.iter_mut().filter_map(|client| client.step(world, b"x").then_some(())).count()
        };
        let count = answered(&mut clients, world);
        if steps < 2000 {
            assert!(count <= 16, "{count}");
        } else if steps == 2000 {
            assert_eq!(count, 16);
            let now = world.now();
            clients.drain(..4).for_each(|client| world.peer.close(now, client.id).unwrap());
        } else if count == 16 && !ended {
            ended = true;
            end(world);
        }
    });
    assert_eq!(how, End::Returned, "{said:?}");
}

/// Closes streams to peers that take nothing, and waits until they are given up.
async fn closer(program: Program) -> Result<(), Error> {
    let network = program.network()?;
    let mut listener = network.listen(7)?;
    let counts = || network.with(|network, _| network.counts());
    let bytes = vec![0; 1 << 20];
    for number in 1..=20 {
        let mut stream = listener.accept().await?;
        let written = program.timeout(Duration::from_secs(1), stream.write_all(&bytes)).await;
        assert_eq!(written, None, "the peer takes nothing");
        drop(stream);
        assert_eq!(counts(), (number.min(8), number.min(8)), "closed ones count, and are half at most");
    }
    program.sleep(Duration::from_nanos(crate::network::LINGER)).await;
    program.sleep(Duration::from_millis(1)).await;
    assert_eq!(counts(), (0, 0));
    Ok(())
}

#[test]
fn closed_streams_to_peers_that_take_nothing_are_counted_and_given_up() {
    let mut clients = Vec::new();
    let (how, said) = play_with(start(1, ADDRESS), LEAST, closer, move |world| {
        let now = world.now();
        if clients.is_empty() {
            clients = (0..20).map(|_| world.peer.connect(now, ([10, 0, 0, 2], 7).into()).unwrap()).collect();
        }
    });
    assert_eq!(how, End::Returned, "{said:?}");
}

#[test]
fn streams_with_buffers_for_which_there_is_no_memory_are_refused() {
    let main = |program: Program| async move {
        let config = program.network_config()?;
        let why = program.network_on("a", crate::NetworkConfig { buffer: usize::MAX, ..config.clone() });
        assert!(why.err().unwrap().to_string().starts_with("buffer: 16 streams with so much do not fit"));
        program.network_on("a", crate::NetworkConfig { buffer: 4096, ..config }).map(drop)
    };
    assert_eq!(play_with(start(1, ADDRESS), LEAST, main, |_| ()).0, End::Returned);
}

#[test]
fn what_the_last_turn_wrote_is_sent() {
    let main = |program: Program| async move {
        let mut port = program.port("a")?;
        while port.state().is_err() {
            program.sleep(Duration::from_millis(1)).await;
        }
        assert!(port.try_send(&[7; 60])?);
        Ok(())
    };
    assert_eq!(play(start(1, &[]), main, |world| world.networked = false).0, End::Returned);
    assert_eq!(LEFT.take(), [[7; 60]]);
    // The bytes of a stream, and its end.
    let main = |program: Program| async move {
        let mut stream = program.network()?.connect((PEER, 80).into()).await?;
        stream.write_all(b"last words").await
    };
    let mut listener = None;
    let step = move |world: &mut World| {
        listener.get_or_insert_with(|| world.peer.listen((PEER, 80).into(), 4).unwrap());
    };
    assert_eq!(play(start(1, ADDRESS), main, step).0, End::Returned);
    let frames = LEFT.take();
    let has = |frame: &Vec<u8>| frame.windows(10).any(|part| part == b"last words");
    assert!(frames.iter().any(has), "{frames:?}");
    // A header of TCP without options for Ethernet and IPv4: its flags.
    assert!(frames.iter().any(|frame| frame[47] & 1 == 1), "a FIN: {frames:?}");
}

#[test]
fn a_wrong_or_missing_setting_is_the_reason_for_the_end() {
    let why = |settings| {
        let (how, said) = play(start(1, settings), echo_server, |_| ());
        assert_eq!(how, End::Failed);
        said.into_iter().find(|said| said.starts_with("wrong: ")).unwrap()
    };
    assert!(why(&[]).contains("address: it is missing; add address = "));
    assert!(why(&[("address", "10.0.0.300/24")]).contains("an address with a prefix is needed"));
    assert!(why(&[("address", "10.0.0.2/24"), ("gateway", "x")]).starts_with("wrong: gateway: "));
    assert!(why(&[("address", "10.0.0.2/24"), ("mac", "x")]).starts_with("wrong: mac: "));
}

#[test]
fn a_program_knows_its_settings_ports_and_time() {
    let settings = &[("argument", "one"), ("argument", "two")];
    let main = |program: Program| async move {
        let arguments: Vec<&str> = program.arguments().collect();
        assert_eq!((arguments, program.parameter("GREETING")), (vec!["one", "two"], Some("hello")));
        assert_eq!(program.ports().collect::<Vec<_>>(), ["a", "b"]);
        let begun = program.now();
        program.sleep(Duration::from_millis(1500)).await;
        let slept = program.now() - begun;
        assert!((1500..1502).contains(&slept.as_millis()), "{slept:?}");
        let never = core::future::pending::<()>();
        assert_eq!(program.timeout(Duration::from_millis(10), never).await, None);
        assert_eq!(program.timeout(Duration::from_secs(1), async { 7 }).await, Some(7));
        assert_eq!(program.shared.state.borrow().timers.len(), 0, "cancelled");
        program.pause().await;
        Err(Error::other(std::format!("{}\nand more", "x".repeat(3000))))
    };
    let (how, said) = play(start(2, settings), main, |_| ());
    assert_eq!(how, End::Failed);
    let why: Vec<usize> = said.iter().filter(|said| said.starts_with("wrong")).map(String::len).collect();
    assert_eq!(why.iter().sum::<usize>(), 3 * "wrong: ".len() + 3009, "in three parts: {why:?}");
}

#[test]
fn there_are_as_many_tasks_as_the_memory_permits() {
    let main = |program: Program| async move {
        for _ in 0..64 {
            program.spawn(core::future::pending())?;
        }
        assert_eq!(program.spawn(async {}), Err(Error::TooManyTasks(64)));
        Ok(())
    };
    assert_eq!(play_with(start(1, &[]), 0, main, |_| ()).0, End::Returned);
}

async fn pass(mut from: Port, mut to: Port, count: u32) -> Result<(), Error> {
    let mut frame = vec![0; 2048];
    for _ in 0..count {
        let len = from.receive(&mut frame).await;
        to.send(&frame[..len]).await?;
    }
    Ok(())
}

#[test]
fn frames_of_ports_pass_and_rings_may_be_lost() {
    let main = |program: Program| async move {
        assert_eq!(program.port("x").err(), Some(Error::NoPort("x".into())));
        let (a, b) = (program.port("a")?, program.port("b")?);
        assert_eq!(program.port("a").err(), Some(Error::PortInUse("a".into())));
        pass(a, b, 300).await?;
        // Its ring is lost meanwhile, and comes again.
        pass(program.port("a")?, program.port("b")?, 1).await
    };
    let (mut sent, mut received, mut stage) = (0_u32, 0_u32, 0);
    let (how, said) = play(start(2, &[]), main, move |world| {
        world.networked = false;
        if !world.has_said("Wanted(1, false)") {
            return;
        }
        while sent < 300 && sent - received < 50 {
            world.far[0].send(&[&sent.to_le_bytes()[..], &[7; 56]].concat(), Offload::default());
            sent += 1;
        }
        while let Some((frame, _)) = world.far[1].next() {
            assert_eq!(frame.len(), 60);
            if received < 300 {
                assert_eq!(frame[..4], received.to_le_bytes());
            }
            received += 1;
        }
        if received == 300 && stage == 0 {
            stage = 1;
            world.far[1].memory.close();
        }
        if stage == 1 && world.said.iter().filter(|said| said.starts_with("Released(1")).count() > 1 {
            stage = 2;
            world.far[1] = Far::new();
            world.up(1);
            world.far[0].send(&[9; 60], Offload::default());
        }
    });
    assert_eq!(how, End::Returned, "{said:?}");
}

#[test]
fn programs_that_connect_to_handlers_are_told_that_there_are_none() {
    let main = |program: Program| async move {
        program.sleep(Duration::from_millis(100)).await;
        Ok(())
    };
    let mut told = false;
    let (_, said) = play(start(1, &[]), main, move |world| {
        if !core::mem::replace(&mut told, true) {
            world.tell(&ToGuest::Opened(3));
            world.tell(&ToGuest::Data(3, b"read x"));
            world.tell(&ToGuest::Snapshot);
        }
    });
    assert!(said.contains(&"Closed(3)".into()), "{said:?}");
}

#[test]
fn lines_that_the_monitor_does_not_read_are_counted() {
    let main = |program: Program| async move {
        for number in 0..5000 {
            crate::log!(program, "line {number}");
        }
        program.sleep(Duration::from_secs(1)).await;
        crate::log!(program, "last");
        Ok(())
    };
    let (_, said) = play(start(1, &[]), main, |_| ());
    assert!(said.iter().any(|said| said.ends_with("more messages suppressed")), "{}", said.len());
    assert!(said.len() < 1100 && said.last().unwrap() == "last");
}

async fn client(network: Network) -> Result<(), Error> {
    let refused = network.connect((PEER, 1).into()).await.err();
    assert_eq!(refused, Some(Error::Socket(SocketError::Connection(crate::ConnectionError::Refused))));
    let mut stream = network.connect((PEER, 80).into()).await?;
    assert_eq!(stream.peer(), (PEER, 80).into());
    stream.set_nodelay(true)?;
    stream.write_all(b"question").await?;
    stream.shutdown()?;
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).await?;
    assert_eq!((&answer, stream.skip(1).await?, stream.skip(100).await?), (b"answer", 1, 4));
    assert_eq!((stream.read(&mut answer).await?, stream.skip(1).await?), (0, 0));
    assert_eq!(stream.read_exact(&mut answer).await, Err(Error::Ended));
    Ok(())
}

#[test]
fn a_program_connects_to_others() {
    let main = |program: Program| async move { client(program.network()?).await };
    let (mut listener, mut accepted, mut got) = (None, None, Vec::new());
    let (how, said) = play(start(1, ADDRESS), main, move |world| {
        let now = world.now();
        let listener = *listener.get_or_insert_with(|| world.peer.listen((PEER, 80).into(), 4).unwrap());
        accepted = accepted.or_else(|| world.peer.accept(listener).ok());
        let Some(stream) = accepted else { return };
        let mut bytes = [0; 64];
        match world.peer.recv(now, stream.socket, &mut bytes) {
            Ok(0) if got == b"question" => {
                got.clear();
                world.peer.send(now, stream.socket, b"answer+rest").unwrap();
                world.peer.close(now, stream.socket).unwrap();
            }
            Ok(count) => got.extend_from_slice(&bytes[..count]),
            Err(_) => {}
        }
    });
    assert_eq!(how, End::Returned, "{said:?}");
}
