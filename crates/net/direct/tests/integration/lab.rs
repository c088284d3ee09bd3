//! An agent with a port, and a peer behind the port.

use ringway_direct::{Files, Image, Notifiers, RingPeer};
use ringway_frame::{Needs, Offload};
use ringway_host::{EventFd, Mapping, memfd, send_with};
use ringway_mem::Span;
use ringway_netstack::{Cidr, InterfaceConfig, MS, Settings, SocketId, Stack, Transmit};
use ringway_ring::{Consumer, Geometry, Producer, RX, RingMemory, TX};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes for the image's connections.
const MEMORY: usize = 64 << 20;

/// The image has one place in a process.
static PLACE: Mutex<()> = Mutex::new(());

/// One end of a ring, and its memory.
pub struct Wire {
    memory: RingMemory,
    tx: Producer,
    rx: Consumer,
    frame: Vec<u8>,
    /// Notifies the processes, if they ask for it.
    bell: Option<EventFd>,
    pub file: OwnedFd,
    pub len: usize,
}

impl Wire {
    /// A new ring; `is_program`: the end that fills the first direction.
    fn new(is_program: bool) -> Wire {
        let geometry = Geometry::default();
        let len = geometry.header().unwrap().bytes as usize;
        let file = memfd("ring", len).unwrap();
        let region = Arc::new(Mapping::shared(&file, 0, len).unwrap()).region();
        let memory = RingMemory::create(region, &geometry).unwrap();
        let [tx, rx] = if is_program { [TX, RX] } else { [RX, TX] };
        let (tx, rx) = (Producer::new(&memory, tx), Consumer::new(&memory, rx));
        Wire { memory, tx, rx, frame: vec![0; 1 << 17], bell: None, file, len }
    }

    /// Gives a stack what arrived, and sends what it sends. Whether there was anything.
    pub fn pass(&mut self, now: u64, stack: &mut Stack) -> bool {
        let mut any = false;
        while let Some(received) = self.rx.pop(&self.memory, &mut self.frame).unwrap() {
            assert_eq!(received.len, received.whole);
            let offload = Offload::from_bytes(&received.offload);
            stack.receive(now, 0, &self.frame[..received.len], offload);
            any = true;
        }
        stack.expire(now);
        stack.transmit(now, 0, self);
        any |= self.tx.is_pending();
        let asks = self.rx.publish(&self.memory);
        if self.tx.publish(&self.memory) || asks {
            self.bell.iter().for_each(EventFd::signal);
        }
        any
    }
}

impl Transmit for Wire {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let pieces = std::iter::once(Span::of(headers)).chain(payload.iter().copied());
        self.tx.push_gathered(&self.memory, pieces, offload.to_bytes()).unwrap()
    }
}

/// A host, 10.0.0.1 or 10.0.0.2.
fn host(last: u8) -> Stack {
    let mut stack = Stack::new(Settings::default(), [7, last.into()]);
    stack.add_interface(InterfaceConfig {
        mac: [2, 0, 0, 0, 0, last].into(),
        mtu: 1500,
        addresses: vec![Cidr::new([10, 0, 0, last], 24)],
        offloads: Needs::ALL,
    });
    stack
}

/// The agent at 10.0.0.1, whose frames pass the image, and its peer at 10.0.0.2.
pub struct Lab {
    pub now: u64,
    pub agent: Stack,
    pub far: Stack,
    pub image: Arc<Image>,
    /// The settings of the image's stack.
    pub image_settings: Settings,
    pub files: Files,
    pub agent_wire: Wire,
    pub far_wire: Wire,
    notifiers: [OwnedFd; 5],
    _place: MutexGuard<'static, ()>,
}

impl Lab {
    pub fn new() -> Lab {
        Lab::with(|settings, _| settings)
    }

    /// As [`Lab::new`], with settings of the image that `change` makes of the agent's, and the image's memory.
    pub fn with(change: impl FnOnce(Settings, usize) -> Settings) -> Lab {
        let place = PLACE.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut agent, far) = (host(1), host(2));
        let (mut agent_wire, mut far_wire) = (Wire::new(true), Wire::new(false));
        let notifiers = [0; 5].map(|_| EventFd::new().unwrap().into_fd());
        for wire in [&mut agent_wire, &mut far_wire] {
            wire.bell = Some(notifiers[0].try_clone().unwrap().into());
        }
        let files = Files::create(MEMORY).unwrap();
        let image = Arc::new(Image::map(&files).unwrap());
        let (settings, image_settings) = (agent.settings().clone(), change(agent.settings().clone(), MEMORY));
        agent.set_settings(image_settings.clone());
        image.begin(&agent.configuration(), [1, 2]).unwrap();
        agent.set_settings(settings);
        image.map_ring(RingPeer::Port, &far_wire.file, far_wire.len).unwrap();
        image.map_ring(RingPeer::Agent, &agent_wire.file, agent_wire.len).unwrap();
        let mut locked = image.lock().unwrap();
        locked.attach_ring(RingPeer::Port, far_wire.len, false).unwrap();
        locked.attach_ring(RingPeer::Agent, agent_wire.len, true).unwrap();
        drop(locked);
        Lab {
            now: 1,
            agent,
            far,
            image,
            image_settings,
            files,
            agent_wire,
            far_wire,
            notifiers,
            _place: place,
        }
    }

    /// Passes frames until there are none, and goes on to the next deadline or by a millisecond at most.
    pub fn step(&mut self) {
        loop {
            let before = self.image.lock().unwrap().run(self.now);
            let any = self.agent_wire.pass(self.now, &mut self.agent);
            let any = self.far_wire.pass(self.now, &mut self.far) | any;
            if !any && before.deadline.is_none_or(|due| due > self.now) {
                break;
            }
        }
        self.now += MS;
    }

    /// Connections from the agent to its peer: the ends of each.
    pub fn connect(&mut self, count: usize) -> Vec<(SocketId, SocketId)> {
        let listener = self.far.listen(([0, 0, 0, 0], 80).into(), count).unwrap();
        let to = ([10, 0, 0, 2], 80).into();
        let near: Vec<SocketId> = (0..count).map(|_| self.agent.connect(self.now, to).unwrap()).collect();
        (0..10).for_each(|_| self.step());
        let mut far: Vec<_> = (0..count).map(|_| self.far.accept(listener).unwrap()).collect();
        let mut ends = Vec::new();
        for socket in near {
            let own = self.agent.addresses(socket).unwrap().0;
            let place = far.iter().position(|accepted| accepted.peer == own).unwrap();
            ends.push((socket, far.swap_remove(place).socket));
        }
        ends
    }

    /// Starts a process with the image that plays a role with a connection; see `direct_peer/main.rs`.
    pub fn spawn(&self, role: &str, socket: SocketId) -> Child {
        let (own, theirs) = UnixStream::pair().unwrap();
        let files = [&self.files.text, &self.files.data, &self.far_wire.file, &self.agent_wire.file];
        let files = files.iter().map(|file| file.as_fd());
        let all: Vec<_> = files.chain(self.notifiers.iter().map(AsFd::as_fd)).collect();
        send_with(&own, &[0], &all).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_direct-peer"));
        command.arg(role).arg(socket.to_bits().to_string());
        command.arg(self.far_wire.len.to_string()).arg(self.agent_wire.len.to_string());
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// The descriptors that notify, for one more process.
    pub fn notifiers(&self) -> Notifiers {
        self.notifiers.each_ref().map(|bell| bell.try_clone().unwrap()).into()
    }

    /// Moves a connection of the agent to the image.
    pub fn move_in(&mut self, socket: SocketId) -> SocketId {
        let bytes = self.agent.detach(self.now, socket).unwrap();
        self.image.lock().unwrap().attach(self.now, &bytes).0.unwrap()
    }
}

/// Byte `at` of a stream that has no short period.
pub fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sends a part of a stream of `len` bytes, of which `sent` were sent, by `send`; how many were sent then.
pub fn fill(sent: u64, len: u64, send: impl FnOnce(&[u8]) -> Option<usize>) -> u64 {
    let bytes: Vec<u8> = (sent..len.min(sent + 30_000)).map(byte).collect();
    if bytes.is_empty() { sent } else { sent + send(&bytes).unwrap_or(0) as u64 }
}

/// Reads a part of a stream and compares it; how many bytes were read then.
pub fn drain(read: u64, recv: impl FnOnce(&mut [u8]) -> Option<usize>) -> u64 {
    let mut bytes = vec![0; 40_000];
    let count = recv(&mut bytes).unwrap_or(0);
    for (at, got) in bytes[..count].iter().enumerate() {
        assert_eq!(*got, byte(read + at as u64), "byte {} of the stream", read + at as u64);
    }
    read + count as u64
}
