//! A stack that several processes could share: in the image of `ringway-direct`, which one process has here.

use super::CONNECTIONS;
use super::transport::{Transport, stack_done};
use crate::Failure;
use crate::tcp::ends::ring as options;
use ringway_direct::{DirectError, Files, Image, Member, Notifiers, RingPeer, Watch, bit};
use ringway_frame::{Needs, Offload};
use ringway_host::{Clock, EventFd, HostError, Mapping, memfd, random, wait_readable};
use ringway_mem::Span;
use ringway_netstack::{InterfaceConfig, Settings, SocketId, SocketOptions, Stack, State, Transmit};
use ringway_ring::{Consumer, Geometry, Producer, RX, RingMemory, TX};
use ringway_ring_client::{PendingRing, Ring};
use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Memory of the image for connections.
const MEMORY: usize = 512 << 20;

/// The agent's stack, which opens the connections, and its ring to the image.
struct Agent {
    stack: Stack,
    wire: Wire,
    frame: Vec<u8>,
}

struct Wire {
    memory: RingMemory,
    tx: Producer,
    rx: Consumer,
    file: OwnedFd,
    len: usize,
}

impl Transmit for Wire {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let pieces = std::iter::once(Span::of(headers)).chain(payload.iter().copied());
        // What can't be sent is lost.
        self.tx.push_gathered(&self.memory, pieces, offload.to_bytes()).unwrap_or(true)
    }
}

impl Agent {
    fn new(own: &str) -> Result<Agent, Failure> {
        let [a, b, c, d, e, ..] = random()?.to_ne_bytes();
        let mut stack = Stack::new(Settings::default(), [random()?, random()?]);
        stack.add_interface(InterfaceConfig {
            mac: [2, a, b, c, d, e].into(),
            mtu: 1500,
            addresses: vec![own.parse()?],
            offloads: Needs::ALL,
        });
        let geometry = Geometry { slots: [512; 2], slot_size: options().slot_size, ..Geometry::default() };
        let len = geometry.header().map_err(|error| error.to_string())?.bytes as usize;
        let file = memfd("agent", len)?;
        let region = Mapping::sealed(&file)?.region();
        let memory = RingMemory::create(region, &geometry).map_err(|error| error.to_string())?;
        let (tx, rx) = (Producer::new(&memory, TX), Consumer::new(&memory, RX));
        Ok(Agent { stack, wire: Wire { memory, tx, rx, file, len }, frame: vec![0; 1 << 17] })
    }

    /// Receives and sends. Whether the image is to be notified.
    fn pass(&mut self, now: u64) -> bool {
        let Agent { stack, wire, frame } = self;
        while let Ok(Some(received)) = wire.rx.pop(&wire.memory, frame) {
            stack.receive(now, 0, &frame[..received.len], Offload::from_bytes(&received.offload));
        }
        stack.expire(now);
        stack.transmit(now, 0, wire);
        let asks = wire.rx.publish(&wire.memory);
        wire.tx.publish(&wire.memory) | asks
    }

    /// Answers what is for others than the connections, such as questions for the link-layer address.
    fn serve(mut self, [call, own]: [EventFd; 2]) {
        let clock = Clock::new();
        loop {
            if self.pass(clock.now()) {
                call.signal();
            }
            if self.wire.rx.arm(&self.wire.memory, 1).unwrap_or(true) {
                // The loop looks again in any case.
                let _ = wait_readable(&[own.as_fd()], Some(100_000_000));
                own.clear();
            }
        }
    }
}

/// Connections in the image.
pub struct Shared {
    member: Member,
    /// Until it has a thread of its own.
    agent: Option<Agent>,
    /// The descriptors of that thread.
    agents_bells: Option<[EventFd; 2]>,
    /// Keeps the port.
    _ring: Ring,
    sockets: Vec<SocketId>,
    /// The connection of each bit: they are fewer than there are bits.
    places: [Option<usize>; u64::BITS as usize],
    watch: Watch,
}

fn host_error(error: DirectError) -> HostError {
    match error {
        DirectError::Host(error) => error,
        _ => HostError::NotMemory,
    }
}

impl Shared {
    fn new(path: &str, own: &str) -> Result<Shared, Failure> {
        let image = Image::map(&Files::create(MEMORY)?)?;
        let agent = Agent::new(own)?;
        image.begin(&agent.stack.configuration(), [random()?, random()?])?;
        let len = Cell::new(0);
        let map = |file: &OwnedFd| {
            let mapping = Mapping::sealed(file)?;
            len.set(mapping.len());
            image.map_ring(RingPeer::Port, file, mapping.len()).map_err(host_error)?;
            Ok(mapping.region())
        };
        let ring = PendingRing::connect(path.as_ref(), options())?.ring_by(None, &map)?;
        image.map_ring(RingPeer::Agent, &agent.wire.file, agent.wire.len)?;
        let mut locked = image.lock()?;
        locked.attach_ring(RingPeer::Port, len.get(), ring.is_second())?;
        locked.attach_ring(RingPeer::Agent, agent.wire.len, true)?;
        drop(locked);
        let copy = |descriptor: std::os::fd::BorrowedFd<'_>| descriptor.try_clone_to_owned();
        let kick = ring.kick_fd().ok_or("a ring without a descriptor")?;
        let notifiers = Notifiers {
            call: copy(ring.as_fd())?.into(),
            port: copy(kick)?.into(),
            agent: EventFd::new()?,
            attendant: EventFd::new()?,
            followers: EventFd::new()?,
        };
        let agents_bells =
            Some([copy(notifiers.call.as_fd())?.into(), copy(notifiers.agent.as_fd())?.into()]);
        let member = Member::new(Arc::new(image), notifiers, ringway_host::Clock::new());
        let (places, watch) = ([None; u64::BITS as usize], Watch::default());
        let agent = Some(agent);
        Ok(Shared { member, agent, agents_bells, _ring: ring, sockets: Vec::new(), places, watch })
    }

    fn agent(&mut self) -> Result<&mut Agent, Failure> {
        Ok(self.agent.as_mut().ok_or("the agent has a thread")?)
    }

    /// One turn of the image and of the agent.
    fn turn(&mut self) -> Result<(), Failure> {
        self.member.turn(|locked, now| ((), locked.run(now)))?;
        let now = self.member.now();
        self.agent()?.pass(now);
        self.member.turn(|locked, now| ((), locked.run(now)))?;
        std::thread::sleep(Duration::from_micros(20));
        Ok(())
    }

    pub fn accept(
        path: &str,
        own: &str,
        address: SocketAddr,
        ready: impl FnOnce(),
    ) -> Result<Shared, Failure> {
        let mut shared = Shared::new(path, own)?;
        let listener = shared.agent()?.stack.listen(address, CONNECTIONS)?;
        ready();
        while shared.sockets.len() < CONNECTIONS {
            match shared.agent()?.stack.accept(listener) {
                Ok(accepted) => shared.sockets.push(accepted.socket),
                Err(_) => shared.turn()?,
            }
        }
        shared.move_in()
    }

    pub fn connect(
        path: &str,
        own: &str,
        address: SocketAddr,
        wait: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Shared, Failure> {
        let mut shared = Shared::new(path, own)?;
        wait()?;
        for _ in 0..CONNECTIONS {
            let now = shared.member.now();
            let socket = shared.agent()?.stack.connect(now, address)?;
            while shared.agent()?.stack.info(socket)?.tcpi_state != State::Established {
                if let Some(error) = shared.agent()?.stack.error(socket)? {
                    return Err(format!("no connection: {error:?}").into());
                }
                shared.turn()?;
            }
            shared.sockets.push(socket);
        }
        shared.move_in()
    }

    /// Moves all connections to the image.
    fn move_in(mut self) -> Result<Shared, Failure> {
        let mut agent = self.agent.take().ok_or("the agent has a thread")?;
        for (at, socket) in self.sockets.iter_mut().enumerate() {
            let (now, stack) = (self.member.now(), &mut agent.stack);
            stack.set_options(
                now,
                *socket,
                SocketOptions { tcp_nodelay: true, ..SocketOptions::default() },
            )?;
            let bytes = stack.detach(now, *socket)?;
            *socket = self.member.turn(|locked, now| locked.attach(now, &bytes))??;
            self.places[bit(*socket) as usize] = Some(at);
        }
        let notifiers = self.agents_bells.take().ok_or("the agent has a thread")?;
        std::thread::spawn(move || agent.serve(notifiers));
        Ok(self)
    }
}

impl Transport for Shared {
    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<(), Failure> {
        let bits = self.member.watch(&mut self.watch, u64::MAX, None)?;
        let found = (0..u64::BITS as usize).filter(|bit| bits >> bit & 1 != 0);
        ready.extend(found.filter_map(|bit| self.places[bit]));
        Ok(())
    }

    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<usize, Failure> {
        stack_done(self.member.turn(|locked, now| locked.recv(now, self.sockets[at], bytes))?)
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<usize, Failure> {
        stack_done(self.member.turn(|locked, now| locked.send(now, self.sockets[at], bytes))?)
    }
}
