//! A fabric for tests, and a front-end whose guest sends.
#![allow(dead_code, reason = "no test uses all of it")]

use ringway_fabric::Fabric;
use ringway_frame::Counters;
use ringway_host::{map_region, receive_with, send_with};
use ringway_mem::Memory;
use ringway_port::source;
use ringway_spec::{Kind, MacAddress, Poll, Port, Switch, To, Worker};
use ringway_switch::learning;
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Frontend, MemoryRegion, SharedRegion, Vring, VringAddr};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Size of its memory in bytes.
pub const SIZE: usize = 128 << 20;
/// Size of the rings, which are never unmapped.
pub const RINGS: usize = 1 << 20;
const USER: u64 = 0x7f00_0000_0000;
const PAGE: usize = 4096;
const RING: u16 = 64;

/// A fabric with one worker, learning switches, and ports by name, kind and switch, whose counters are in that order.
pub fn start<'p>(
    page: &Arc<Vec<Counters>>,
    switches: &[&str],
    ports: impl IntoIterator<Item = (&'p str, Kind, &'p str)>,
) -> Fabric {
    let name = "w0".to_string();
    let worker = Worker { name, core: None, node: None, poll: Poll::Adaptive, spin: 20_000, hold: 100_000 };
    let mut fabric = Fabric::start(&[worker], page.clone(), 42, &[]).unwrap();
    for &name in switches {
        let lookup =
            Kind::new("learning", &learning::Settings { ageing: 300, entries: 64, refuse_moves: false });
        fabric
            .add_switch(Switch { name: name.into(), lookup, forward_reserved: false, snooping: None })
            .unwrap();
    }
    for (counters, (name, kind, switch)) in (0..).zip(ports) {
        fabric.add_port(Port::new(name, kind, Some(To::Switch(switch.into()))), counters).unwrap();
    }
    fabric
}

/// A source of 10,000 frames a second from the address that ends with `number` to the next one.
pub fn load(number: u8) -> source::Settings {
    let [from, to] = [number, number + 1].map(|last| MacAddress([2, 0, 0, 0, 0, last]));
    source::Settings { size: 64, to, from, rate: Some(10_000) }
}

/// A session's socket.
pub struct Stream(pub UnixStream);

macro_rules! transport {
    ($protocol:ident) => {
        impl $protocol::Transport for Stream {
            fn send(&mut self, packet: $protocol::Packet) -> io::Result<()> {
                let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
                send_with(self.0.as_fd(), &packet.bytes, &fds).map(drop).map_err(io::Error::other)
            }

            fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
                receive_with(self.0.as_fd(), bytes, 8).map_err(io::Error::other)
            }
        }
    };
}

transport!(ringway_vhost_user);
transport!(ringway_vfio_user);

/// Sets up a session whose rings run.
pub fn set_up(socket: UnixStream, file: &OwnedFd) -> Frontend<Stream> {
    set_up_with(socket, file, || (None, None))
}

/// As [`set_up`], with a kick and a call descriptor for each ring.
pub fn set_up_with(
    socket: UnixStream,
    file: &OwnedFd,
    descriptors: impl Fn() -> (Option<OwnedFd>, Option<OwnedFd>),
) -> Frontend<Stream> {
    let fd = file.try_clone().unwrap();
    let region = MemoryRegion { guest: 0, size: SIZE as u64, user: USER, offset: 0 };
    let mut front = Frontend::negotiate(Stream(socket), virtio::VERSION_1, protocol::REPLY_ACK).unwrap();
    front.set_memory(vec![SharedRegion { region, fd }]).unwrap();
    for index in [0, 1] {
        let at = USER + u64::from(index) * 0x1_0000;
        let addresses =
            VringAddr { index, flags: 0, descriptors: at, available: at + 0x4000, used: at + 0x8000, log: 0 };
        let (kick, call) = descriptors();
        front.start(Vring { size: RING, addresses, base: 0, kick, call }).unwrap();
    }
    front
}

/// The driver's side of the TX ring that [`set_up`] started.
pub fn transmitter(memory: &Memory) -> Driver<'_> {
    let layout = Layout { packed: false, size: RING, event_idx: false, indirect: false };
    let lengths = layout.lengths().unwrap();
    let span = |at, len| memory.user_span(at, len).unwrap();
    let areas = Areas {
        descriptors: span(0x1_0000, lengths.descriptors),
        driver: span(0x1_4000, lengths.driver),
        device: span(0x1_8000, lengths.device),
    };
    Driver::new(&layout, areas).unwrap()
}

/// The front-end: each frame of its guest is in a separate page, at an offset.
pub fn send_from_pages(socket: UnixStream, file: &OwnedFd, stop: &AtomicBool) {
    let _front = set_up(socket, file);
    let memory = Memory::new(vec![map_region(file, 0, SIZE as u64, 0, 0).unwrap()]).unwrap();
    let mut tx = transmitter(&memory);
    let mut page = RINGS / PAGE;
    while !stop.load(Relaxed) {
        while tx.take_used().is_ok_and(|used| used.is_some()) {}
        let address = (page * PAGE) as u64;
        if tx.add(&[Buffer { address, len: 1000, write: false }], None).is_some() {
            page = RINGS / PAGE + (page * 7919) % ((SIZE - RINGS) / PAGE);
        }
        tx.publish();
    }
}
