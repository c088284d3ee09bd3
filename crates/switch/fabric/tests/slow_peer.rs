//! A front-end that returns its memory to the system while a worker accesses it.
#![allow(clippy::unwrap_used)]

mod front_end;

use front_end::{RINGS, SIZE, load, send_from_pages, start};
use ringway_fabric::Fabric;
use ringway_fabric::proto::Event;
use ringway_frame::Counters;
use ringway_host::{memfd, open_thread_files, wait_readable};
use ringway_port::{ring, vhost_user};
use ringway_spec::{Configuration, Function, Isolation, Kind, Port, To};
use rustix::fs::{FallocateFlags, fallocate};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Repeatedly fills the pages and returns them.
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

/// The longest time without frames until `stop`.
fn longest_pause(frames: impl Fn() -> u64, stop: &AtomicBool) -> Duration {
    let (mut count, mut since, mut longest) = (frames(), Instant::now(), Duration::ZERO);
    while !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
        if frames() != count {
            longest = longest.max(since.elapsed());
            (count, since) = (frames(), Instant::now());
        }
    }
    longest.max(since.elapsed())
}

/// Serves the fabric once; returns its events.
fn serve(fabric: &mut Fabric) -> Vec<Event> {
    let (ids, mut sockets): (Vec<_>, Vec<_>) = fabric.sessions().map(|(id, fd)| (id, fd.as_fd())).unzip();
    sockets.insert(0, fabric.wakeup().as_fd());
    let ready = wait_readable(&sockets, Some(1_000_000)).unwrap();
    drop(sockets);
    let ids = ids.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready);
    let mut events: Vec<Event> = ids.filter_map(|(id, _)| fabric.serve(id)).collect();
    events.extend(fabric.check());
    for event in &events {
        if let Event::Worker { worker, thread } = event {
            // Another thread may have taken over already.
            let files = open_thread_files(std::process::id(), *thread);
            let _ = files.map(|files| fabric.watch(worker, *thread, files));
        }
    }
    events
}

fn fabric(page: &Arc<Vec<Counters>>) -> Fabric {
    let load = load(1);
    let guest = vhost_user::Settings::default();
    let ports = [
        ("load", Kind::new("source", &load), "others"),
        ("sink", Kind::new("null", &()), "others"),
        ("slow", Kind::new("vhost-user", &guest), "its"),
        ("end", Kind::new("null", &()), "its"),
    ];
    start(page, &["others", "its"], ports)
}

/// Adds a function to the worker, which passes frames from port `sender` to port `receiver`. Returns the socket by
/// which its handlers are called.
fn add_function(fabric: &mut Fabric) -> UnixStream {
    let load = load(3);
    let end = || Kind::new("ring", &ring::Settings { slots: 256, slot_size: 2048 });
    let ports = [
        ("in", end(), "sender"),
        ("out", end(), "receiver"),
        ("sender", Kind::new("source", &load), "in"),
        ("receiver", Kind::new("null", &()), "out"),
    ];
    for (counters, (name, kind, to)) in (4..).zip(ports) {
        fabric.add_port(Port::new(name, kind, Some(To::Patch(to.into()))), counters).unwrap();
    }
    let text = "FromPort(in) -> ToPort(out); Idle -> ToPort(in); FromPort(out) -> Discard;";
    let function = Function {
        name: "f".into(),
        configuration: Configuration { text: text.into(), ..Configuration::default() },
        isolation: Isolation::Worker,
        ports: vec!["in".into(), "out".into()],
        memory: 32 << 20,
        ..Function::default()
    };
    let (ours, theirs) = UnixStream::pair().unwrap();
    fabric.add_function(1, function, ("handlers".into(), theirs.into())).unwrap();
    ours
}

/// Lets a front-end take its memory away under traffic until its port is closed; returns that event.
fn attack(fabric: &mut Fabric, frames: impl Fn() -> u64 + Sync) -> Option<Event> {
    let file = memfd("guest", SIZE).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    fabric.attach("slow", vec![ours.into()]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| println!("longest pause of the others' frames: {:?}", longest_pause(&frames, &stop)));
        scope.spawn(|| send_from_pages(theirs, &file, &stop));
        scope.spawn(|| punch(&file, &stop));
        let begin = Instant::now();
        let mut end = None;
        while end.is_none() && begin.elapsed() < Duration::from_secs(120) {
            end = serve(fabric).into_iter().find(|event| matches!(event, Event::Detached { .. }));
        }
        stop.store(true, Relaxed);
        end
    })
}

#[test]
fn removing_memory_under_a_worker_closes_only_that_port() {
    let page: Arc<Vec<Counters>> = Arc::new((0..4).map(|_| Counters::default()).collect());
    let mut fabric = fabric(&page);
    let frames = || page[1].rx_frames.load(Relaxed);
    let worker_of = |fabric: &Fabric, port: &str| {
        let state = fabric.state();
        state.ports.into_iter().find(|found| found.name == port).unwrap().worker
    };
    // The second time the port is in quarantine.
    for attacks in 1..=2 {
        let Some(Event::Detached { port, reason, fault, rest }) = attack(&mut fabric, frames) else {
            panic!("the port goes on holding its worker; {:?}", fabric.state())
        };
        assert_eq!((port.as_str(), fault), ("slow", true));
        assert!(reason.starts_with("its memory held a worker") && rest > 0, "{reason}, {rest}");
        assert_eq!(page[2].faults.load(Relaxed), attacks);
        let before = frames();
        let begin = Instant::now();
        while frames() < before + 100 {
            assert!(begin.elapsed() < Duration::from_secs(60), "others go on");
            assert!(!serve(&mut fabric).iter().any(|event| matches!(event, Event::Detached { .. })));
        }
        assert_eq!((&*worker_of(&fabric, "slow"), &*worker_of(&fabric, "sink")), ("(quarantine)", "w0"));
    }
}

#[test]
fn a_worker_with_functions_is_held_no_longer() {
    let page: Arc<Vec<Counters>> = Arc::new((0..8).map(|_| Counters::default()).collect());
    let mut fabric = fabric(&page);
    let _callers = add_function(&mut fabric);
    let (others, passed) = (|| page[1].rx_frames.load(Relaxed), || page[7].rx_frames.load(Relaxed));
    let wait = |fabric: &mut Fabric, frames: &dyn Fn() -> u64| {
        let (before, begin) = (frames(), Instant::now());
        while frames() < before + 100 {
            assert!(begin.elapsed() < Duration::from_secs(60), "frames pass: {:?}", fabric.state());
            serve(fabric);
        }
    };
    wait(&mut fabric, &passed);
    let Some(Event::Detached { port, reason, .. }) = attack(&mut fabric, others) else {
        panic!("the port goes on holding its worker; {:?}", fabric.state())
    };
    assert!(port == "slow" && reason.starts_with("its memory held a worker"), "{port}, {reason}");
    wait(&mut fabric, &others);
    wait(&mut fabric, &passed);
}
