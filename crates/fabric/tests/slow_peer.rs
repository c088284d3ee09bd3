//! A front-end that gives its memory back to the system while a worker is at it.
#![allow(clippy::unwrap_used)]

use ringway_fabric::Fabric;
use ringway_fabric::proto::Event;
use ringway_frame::Counters;
use ringway_host::{map_region, memfd, open_thread_files, receive_with, send_with, wait_readable};
use ringway_mem::Memory;
use ringway_port::{source, vhost_user};
use ringway_spec::{Kind, MacAddress, Poll, Port, Switch, To, Worker};
use ringway_switch::learning;
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Frontend, MemoryRegion, Packet, SharedRegion, Transport, Vring, VringAddr};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use rustix::fs::{FallocateFlags, fallocate};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SIZE: usize = 128 << 20;
/// What is never given back: the rings.
const RINGS: usize = 1 << 20;
const USER: u64 = 0x7f00_0000_0000;
const PAGE: usize = 4096;
const RING: u16 = 64;

struct Stream(UnixStream);

impl Transport for Stream {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        send_with(self.0.as_fd(), &packet.bytes, &fds).map(drop).map_err(io::Error::other)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        receive_with(self.0.as_fd(), bytes, 8).map_err(io::Error::other)
    }
}

/// The front-end: each frame of its guest's lies in a page of its own, some way into it.
fn send_from_pages(socket: UnixStream, file: &OwnedFd, stop: &AtomicBool) {
    let memory = Memory::new(vec![map_region(file, 0, SIZE as u64, 0, 0).unwrap()]).unwrap();
    let fd = file.try_clone().unwrap();
    let region = MemoryRegion { guest: 0, size: SIZE as u64, user: USER, offset: 0 };
    let mut front = Frontend::negotiate(Stream(socket), virtio::VERSION_1, protocol::REPLY_ACK).unwrap();
    front.set_memory(vec![SharedRegion { region, fd }]).unwrap();
    for index in [0, 1] {
        let at = USER + u64::from(index) * 0x1_0000;
        let addresses =
            VringAddr { index, flags: 0, descriptors: at, available: at + 0x4000, used: at + 0x8000, log: 0 };
        front.start(Vring { size: RING, addresses, base: 0, kick: None, call: None }).unwrap();
    }
    let layout = Layout { packed: false, size: RING, event_idx: false, indirect: false };
    let lengths = layout.lengths().unwrap();
    let span = |at, len| memory.user_span(at, len).unwrap();
    let areas = Areas {
        descriptors: span(0x1_0000, lengths.descriptors),
        driver: span(0x1_4000, lengths.driver),
        device: span(0x1_8000, lengths.device),
    };
    let mut tx = Driver::new(&layout, areas).unwrap();
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

/// Fills the pages and gives them back, again and again.
fn punch(file: &OwnedFd, stop: &AtomicBool) {
    let bytes = vec![1; 1 << 20];
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    while !stop.load(Relaxed) {
        for at in (RINGS..SIZE).step_by(bytes.len()) {
            rustix::io::pwrite(file, &bytes, at as u64).unwrap();
        }
        fallocate(file, flags, RINGS as u64, (SIZE - RINGS) as u64).unwrap();
    }
}

/// Serves the fabric once; what it says.
fn serve(fabric: &mut Fabric) -> Vec<Event> {
    let (ids, mut sockets): (Vec<_>, Vec<_>) = fabric.sessions().unzip();
    sockets.insert(0, fabric.bell().as_fd());
    let ready = wait_readable(&sockets, Some(1_000_000)).unwrap();
    drop(sockets);
    let ids = ids.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready);
    let mut events: Vec<Event> = ids.filter_map(|(id, _)| fabric.serve(id)).collect();
    events.extend(fabric.check());
    for event in &events {
        if let Event::Worker { worker, thread } = event {
            let files = open_thread_files(std::process::id(), *thread).unwrap();
            fabric.watch(worker, *thread, files).unwrap();
        }
    }
    events
}

fn fabric(page: &Arc<Vec<Counters>>) -> Fabric {
    let name = "w0".to_string();
    let worker = Worker { name, core: None, poll: Poll::Adaptive, spin: 20_000, hold: 100_000 };
    let mut fabric = Fabric::start(&[worker], page.clone(), 42, &[]).unwrap();
    let (to, from) = (MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1]));
    let load = source::Settings { size: 64, to, from, rate: Some(10_000) };
    let guest = vhost_user::Settings {
        server: true,
        mac: None,
        mtu: None,
        without: Vec::new(),
        memory: vhost_user::MEMORY,
    };
    let ports = [
        ("load", Kind::new("source", &load), "others"),
        ("sink", Kind::new("null", &()), "others"),
        ("slow", Kind::new("vhost-user", &guest), "its"),
        ("end", Kind::new("null", &()), "its"),
    ];
    for name in ["others", "its"] {
        let lookup = Kind::new("learning", &learning::Settings { ageing: 300, entries: 64 });
        fabric.add_switch(Switch { name: name.into(), lookup }).unwrap();
    }
    for (counters, (name, kind, switch)) in (0..).zip(ports) {
        fabric.add_port(Port::new(name, kind, Some(To::Switch(switch.into()))), counters).unwrap();
    }
    fabric
}

#[test]
fn a_front_end_whose_memory_is_taken_away_under_a_worker_loses_its_port_and_nobody_else() {
    let page: Arc<Vec<Counters>> = Arc::new((0..4).map(|_| Counters::default()).collect());
    let mut fabric = fabric(&page);
    let file = memfd("guest", SIZE).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    fabric.attach("slow", vec![ours.into()]).unwrap();
    let stop = AtomicBool::new(false);
    let end = std::thread::scope(|scope| {
        scope.spawn(|| send_from_pages(theirs, &file, &stop));
        scope.spawn(|| punch(&file, &stop));
        let begin = Instant::now();
        let mut end = None;
        while end.is_none() && begin.elapsed() < Duration::from_secs(120) {
            end = serve(&mut fabric).into_iter().find(|event| matches!(event, Event::Detached { .. }));
        }
        stop.store(true, Relaxed);
        end
    });
    let Some(Event::Detached { port, reason, fault, rest }) = end else {
        panic!("the port goes on holding its worker; {:?}", fabric.state())
    };
    assert_eq!((port.as_str(), fault), ("slow", true));
    assert!(reason.starts_with("its memory held a worker") && rest > 0, "{reason}, {rest}");
    assert_eq!(page[2].faults.load(Relaxed), 1);
    let frames = || page[1].rx_frames.load(Relaxed);
    let before = frames();
    let begin = Instant::now();
    while frames() < before + 100 {
        assert!(begin.elapsed() < Duration::from_secs(60), "others go on");
        assert!(!serve(&mut fabric).iter().any(|event| matches!(event, Event::Detached { .. })));
    }
}
