//! Peers whose descriptors signal each other: clients of cards use a bounded part of the session thread's time, and
//! programs wake their worker no more often than their frames do.
#![allow(clippy::unwrap_used)]

mod front_end;

use front_end::{RINGS, SIZE, Stream, load, set_up_with, start, transmitter};
use ringway_fabric::Fabric;
use ringway_fabric::session_limit::{EACH, MOST, TICK};
use ringway_frame::Counters;
use ringway_host::{Clock, EventFd, Mapping, map_region, memfd, wait_readable};
use ringway_mem::Memory;
use ringway_port::{e1000, vhost_user};
use ringway_ring::{Consumer, Geometry, Producer, RX, RingMemory, TX};
use ringway_spec::{Kind, MacAddress, Port, To};
use ringway_vfio_user::{Client, IrqAction, IrqData, SetIrqs, pci};
use ringway_virtq::Buffer;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const ICS: u64 = 0xc8;
const IMS: u64 = 0xd0;

/// Serves the fabric once, and counts how often each port's session woke the thread.
fn serve(fabric: &mut Fabric, woken: &mut BTreeMap<u16, u64>) {
    let (ids, sockets): (Vec<_>, Vec<_>) = fabric.sessions().map(|(id, fd)| (id, fd.as_fd())).unzip();
    let ready = wait_readable(&sockets, Some(TICK)).unwrap();
    drop(sockets);
    for (id, _) in ids.into_iter().zip(ready).filter(|(_, ready)| *ready) {
        *woken.entry(id).or_default() += 1;
        assert!(fabric.serve(id).is_none_or(|event| format!("{event:?}").starts_with("Changed")));
    }
}

/// Runs `peer` on another thread, and serves the fabric until it ends.
fn served<R: Send>(fabric: &mut Fabric, peer: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let peer = scope.spawn(peer);
        while !peer.is_finished() {
            serve(fabric, &mut BTreeMap::new());
        }
        peer.join().unwrap()
    })
}

fn fabric(page: &Arc<Vec<Counters>>, names: &[&str]) -> Fabric {
    let cards = (0..).zip(names).map(|(number, &name)| {
        let mac = Some(MacAddress([2, 0, 0, 0, 0, number]));
        let (model, memory, techniques) = ("82540em".into(), e1000::MEMORY, e1000::Techniques::default());
        let card = e1000::Settings { model, mac, mtu: None, memory, carrier: true, techniques };
        (name, Kind::new("e1000", &card), "s")
    });
    start(page, &["s"], cards)
}

/// A card's client that has its pin signal `call`, and unmasks it by `unmask`.
fn client(fabric: &mut Fabric, port: &str, call: &EventFd, unmask: &EventFd) -> Client<Stream> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    fabric.attach(port, vec![theirs.into()]).unwrap();
    let eventfds = |action, event: &EventFd| {
        let data = IrqData::Eventfds(vec![event.as_fd().try_clone_to_owned().unwrap()]);
        SetIrqs { index: pci::INTX, start: 0, count: 1, action, data }
    };
    let irqs = [eventfds(IrqAction::Trigger, call), eventfds(IrqAction::Unmask, unmask)];
    served(fabric, move || {
        let mut client = Client::negotiate(Stream(ours)).unwrap();
        // Memory accesses, bus master.
        client.write(pci::CONFIG, 4, &[6, 0]).unwrap();
        irqs.into_iter().for_each(|irqs| client.set_irqs(irqs).unwrap());
        client.write(pci::BAR0, IMS, &[0xff, 0, 0, 0]).unwrap();
        client
    })
}

/// Lets the signals of `loops` clients go round until each of their sessions paused often. Another client is served
/// meanwhile, and no session causes more wake-ups than permitted.
fn are_bounded(fabric: &mut Fabric, page: &[Counters], loops: usize, other: &mut Client<Stream>) {
    let (clock, mut woken) = (Clock::new(), BTreeMap::new());
    let (began, limit) = (clock.now(), Instant::now() + Duration::from_secs(60));
    let pauses = |port: usize| page[port].session_pauses.load(Relaxed);
    while (0..loops).any(|port| pauses(port) < 20) {
        assert!(Instant::now() < limit, "{woken:?}: the signals do not go round");
        serve(fabric, &mut woken);
    }
    let most = u64::from(MOST) + u64::from(EACH) * ((clock.now() - began) / TICK + 2);
    assert!(woken.values().all(|count| *count <= most), "{woken:?} wake-ups, not {most}");
    let answered = served(fabric, || {
        let mut status = [0; 4];
        (0..50).all(|_| other.read(pci::BAR0, 8, &mut status).is_ok())
    });
    assert!(answered);
    assert_eq!(pauses(loops), 0, "a session with messages never pauses");
}

#[test]
fn an_interrupt_that_unmasks_itself_is_bounded() {
    let page: Arc<Vec<Counters>> = Arc::new((0..2).map(|_| Counters::default()).collect());
    let mut fabric = fabric(&page, &["a", "other"]);
    let [event, quiet] = [(); 2].map(|()| EventFd::new().unwrap());
    let mut idle = client(&mut fabric, "a", &event, &event);
    let mut other = client(&mut fabric, "other", &quiet, &quiet);
    served(&mut fabric, || idle.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap());
    event.signal();
    are_bounded(&mut fabric, &page, 1, &mut other);
}

#[test]
fn interrupts_of_two_ports_that_unmask_each_other_are_bounded() {
    let page: Arc<Vec<Counters>> = Arc::new((0..3).map(|_| Counters::default()).collect());
    let mut fabric = fabric(&page, &["a", "b", "other"]);
    let [forth, back, quiet] = [(); 3].map(|()| EventFd::new().unwrap());
    let mut a = client(&mut fabric, "a", &forth, &back);
    let mut b = client(&mut fabric, "b", &back, &forth);
    let mut other = client(&mut fabric, "other", &quiet, &quiet);
    served(&mut fabric, || {
        a.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap();
        b.write(pci::BAR0, ICS, &[4, 0, 0, 0]).unwrap();
    });
    forth.signal();
    are_bounded(&mut fabric, &page, 2, &mut other);
}

/// Workers' queues: programs on `a` and `b` of one switch; on the other, a load that goes on.
fn rings(page: &Arc<Vec<Counters>>) -> Fabric {
    let ports = [
        ("a", Kind::new("ring", &()), "theirs"),
        ("b", Kind::new("ring", &()), "theirs"),
        ("load", Kind::new("source", &load(1)), "others"),
        ("sink", Kind::new("null", &()), "others"),
    ];
    start(page, &["theirs", "others"], ports)
}

/// A program that always asks for a signal: for each frame that its port takes, and for each that it gets.
struct Program {
    number: u8,
    memory: RingMemory,
    tx: Producer,
    rx: Consumer,
}

impl Program {
    fn new(fabric: &mut Fabric, port: &str, kick: &EventFd, call: &EventFd) -> Program {
        let geometry = Geometry { slots: [64, 64], slot_size: 256, ..Geometry::default() };
        let file = memfd("program", geometry.header().unwrap().bytes as usize).unwrap();
        let memory = RingMemory::create(Mapping::sealed(&file).unwrap().region(), &geometry).unwrap();
        let [kick, call] = [kick, call].map(|event| event.as_fd().try_clone_to_owned().unwrap());
        fabric.attach(port, vec![file, kick, call]).unwrap();
        let (tx, rx) = (Producer::new(&memory, TX), Consumer::new(&memory, RX));
        Program { number: port.as_bytes()[0], memory, tx, rx }
    }

    /// Sends a frame to everybody.
    fn send(&mut self) {
        let mut frame = [0xff; 64];
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, self.number]);
        assert!(self.tx.push(&self.memory, &frame, [0; 10]).unwrap());
        // As soon as the port takes it.
        let _ = self.tx.arm(&self.memory, 64);
        self.tx.publish(&self.memory);
        let _ = self.rx.arm(&self.memory, 1);
    }

    fn has_received(&mut self) -> bool {
        let received = self.rx.pop(&self.memory, &mut [0; 256]).unwrap().is_some();
        self.rx.publish(&self.memory);
        received
    }
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Programs send to each other. Their queues are woken no more often than by frames, and others are served.
fn frames_alone_wake([kick_a, call_a, kick_b, call_b]: [&EventFd; 4]) {
    const FRAMES: u64 = 100;
    let page: Arc<Vec<Counters>> = Arc::new((0..4).map(|_| Counters::default()).collect());
    let mut fabric = rings(&page);
    let of = [("a", kick_a, call_a), ("b", kick_b, call_b)];
    let mut programs = of.map(|(port, kick, call)| Program::new(&mut fabric, port, kick, call));
    let (others, count) = (|| page[3].rx_frames.load(Relaxed), |port: usize| &page[port]);
    for _ in 0..FRAMES / 2 {
        for (kick, from, to) in [(kick_a, 0, 1), (kick_b, 1, 0)] {
            let Program { memory, rx, .. } = &mut programs[to];
            let _ = rx.arm(memory, 1).unwrap();
            programs[from].send();
            kick.signal();
            wait("a frame", || programs[to].has_received());
        }
    }
    // A loop would go on now.
    let before = others();
    wait("frames of others", || others() > before + 2000);
    let sum = |of: fn(&Counters) -> u64| of(count(0)) + of(count(1));
    let kicks = sum(|counters| counters.kicks.load(Relaxed));
    let interrupts = sum(|counters| counters.interrupts.load(Relaxed));
    assert!(interrupts > FRAMES, "{interrupts}: each frame is announced");
    // A frame causes a kick, and two signals, each of which may be a kick of a queue or of both.
    assert!((FRAMES / 2..=6 * FRAMES + 16).contains(&kicks), "{kicks} kicks for {FRAMES} frames");
}

#[test]
fn an_interrupt_of_a_program_that_is_also_its_kick_wakes_the_worker_no_more_than_frames_do() {
    let [a, b] = [(); 2].map(|()| EventFd::new().unwrap());
    frames_alone_wake([&a, &a, &b, &b]);
}

#[test]
fn programs_whose_interrupts_are_each_others_kicks_wake_the_worker_no_more_than_frames_do() {
    let [forth, back] = [(); 2].map(|()| EventFd::new().unwrap());
    frames_alone_wake([&forth, &back, &back, &forth]);
    let all = EventFd::new().unwrap();
    frames_alone_wake([&all; 4]);
}

/// Two guests whose interrupts are each other's kicks, or their own, send. Their queues are woken no more often than by
/// frames, and others are served.
fn guests_are_bounded([kick_a, call_a, kick_b, call_b]: [&EventFd; 4]) {
    const FRAMES: u64 = 32;
    let page: Arc<Vec<Counters>> = Arc::new((0..6).map(|_| Counters::default()).collect());
    let mut fabric = rings(&page);
    let guest = vhost_user::Settings::default();
    let mut fronts = Vec::new();
    let of = [("c", kick_a, call_a, 4), ("d", kick_b, call_b, 5)];
    let files = [(); 2].map(|()| memfd("guest", SIZE).unwrap());
    for (file, (name, kick, call, counters)) in files.iter().zip(of) {
        let port = Port::new(name, Kind::new("vhost-user", &guest), Some(To::Switch("theirs".into())));
        fabric.add_port(port, counters).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        fabric.attach(name, vec![theirs.into()]).unwrap();
        let copy = |event: &EventFd| event.as_fd().try_clone_to_owned().ok();
        fronts.push(served(&mut fabric, || set_up_with(ours, file, || (copy(kick), copy(call)))));
    }
    let memories = files
        .each_ref()
        .map(|file| Memory::new(vec![map_region(file, 0, SIZE as u64, 0, 0).unwrap()]).unwrap());
    let mut drivers = memories.each_ref().map(transmitter);
    let (others, count) = (|| page[3].rx_frames.load(Relaxed), |port: usize| &page[port]);
    for number in 0..FRAMES {
        let at = number as usize % 2;
        let buffer = Buffer { address: RINGS as u64, len: 100, write: false };
        assert!(drivers[at].add(&[buffer], None).is_some());
        drivers[at].publish();
        [kick_a, kick_b][at].signal();
        wait("a frame is taken", || drivers[at].take_used().unwrap().is_some());
    }
    // A loop would go on now.
    let before = others();
    wait("frames of others", || others() > before + 2000);
    let kicks = count(4).kicks.load(Relaxed) + count(5).kicks.load(Relaxed);
    let interrupts = count(4).interrupts.load(Relaxed) + count(5).interrupts.load(Relaxed);
    assert!(interrupts > 0, "frames are announced");
    assert!((1..=6 * FRAMES + 16).contains(&kicks), "{kicks} kicks for {FRAMES} frames");
    drop(fronts);
}

#[test]
fn guests_whose_interrupts_are_kicks_wake_the_worker_no_more_than_frames_do() {
    let [a, b] = [(); 2].map(|()| EventFd::new().unwrap());
    guests_are_bounded([&a, &a, &b, &b]);
    let [forth, back] = [(); 2].map(|()| EventFd::new().unwrap());
    guests_are_bounded([&forth, &back, &back, &forth]);
}
