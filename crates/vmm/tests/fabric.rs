//! Tiny guests on a fabric in this process: by the memory of a ring port, and by the registers of a card.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use common::{BOUND, MEMORY, machine};
use ringway_client::{Ring, RingOptions};
use ringway_fabric::Fabric;
use ringway_frame::Counters;
use ringway_host::listener::{Access, Listener};
use ringway_host::{memfd, wait_readable};
use ringway_port::e1000::{self, PAGES, Techniques};
use ringway_port::ring::open::{Newcomer, Program, RingListener};
use ringway_ring::Geometry;
use ringway_spec::{Kind, MacAddress, Poll, Port, Switch, To, Worker};
use ringway_switch::learning;
use ringway_vmm::{Counts, End, TINY, Vm};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// How a guest is attached: a ring, or a card's model and techniques. With the words of its command line.
type Device = (&'static str, Option<(&'static str, Techniques)>, &'static str);

fn devices() -> [Device; 6] {
    let usual = Techniques::default();
    let plain = Techniques { timers: false, batch: false, cached: false, ..usual };
    let combined = Techniques { moderate: 50_000, combine: true, ..usual };
    let all = Techniques { mapped: Some(true), in_place: true, csb: true, ..usual };
    [
        ("ring", None, ""),
        ("plain", Some(("82540em", plain)), "batch=1 polls=0"),
        ("combined", Some(("82540em", combined)), "combine=true polls=0"),
        ("csb", Some(("82540em", Techniques { csb: true, ..usual })), "csb=true"),
        ("mapped", Some(("82540em", Techniques { mapped: Some(true), ..usual })), "slots=1024 polls=10"),
        ("all", Some(("82574l", all)), "csb=true combine=true"),
    ]
}

/// Where guests connect to a port.
enum Door {
    Ring(RingListener, Option<Newcomer>, Option<Box<Program>>),
    Card(Listener),
}

/// A fabric with two ports on a switch, `left` and `right`.
struct Network {
    fabric: Fabric,
    doors: [(&'static str, Door); 2],
    folder: PathBuf,
}

fn mac(name: &str) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, if name == "left" { 1 } else { 2 }])
}

impl Network {
    fn new(left: Device, right: Device) -> Network {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ringway-vmm-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // No frame is dropped because a thread did not run for a while.
        let hold = 10_000_000_000;
        let worker = Worker { name: "one".into(), core: None, poll: Poll::Adaptive, spin: 50_000, hold };
        let page: Arc<Vec<Counters>> = Arc::new((0..2).map(|_| Counters::default()).collect());
        let mut fabric = Fabric::start(&[worker], page, 1, &[]).unwrap();
        let lookup = Kind::new("learning", &learning::Settings { ageing: 300, entries: 64 });
        fabric.add_switch(Switch { name: "main".into(), lookup }).unwrap();
        let mut first = 0;
        let doors = [("left", left), ("right", right)].map(|(name, (_, card, _))| {
            let (path, to) = (folder.join(name), Some(To::Switch("main".into())));
            let (kind, door) = match card {
                None => {
                    let listener = RingListener::bind(&path, Access::default()).unwrap();
                    (Kind::new("ring", &()), Door::Ring(listener, None, None))
                }
                Some((model, techniques)) => {
                    let (model, mac, memory) = (model.into(), Some(mac(name)), e1000::MEMORY);
                    let (mtu, carrier) = (None, true);
                    let settings = e1000::Settings { model, mac, mtu, memory, carrier, techniques };
                    let listener = Listener::bind(&path, Access::default()).unwrap();
                    (Kind::new(e1000::KIND.name, &settings), Door::Card(listener))
                }
            };
            fabric.add_port(Port { hold: Some(hold), ..Port::new(name, kind, to) }, first).unwrap();
            first += 1;
            (name, door)
        });
        Network { fabric, doors, folder }
    }

    /// Connects guests that wait, and serves sessions.
    fn serve(&mut self) {
        for (name, door) in &mut self.doors {
            match door {
                Door::Ring(listener, newcomer, program) => {
                    *newcomer = newcomer.take().or_else(|| listener.accept().unwrap());
                    let Some(hello) = newcomer.as_mut().and_then(|new| new.hello().unwrap()) else {
                        continue;
                    };
                    let Some(new) = newcomer.take() else { continue };
                    let new = new.welcome(&hello, &Geometry::default()).unwrap();
                    let fds = new.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
                    self.fabric.attach(name, fds.into_iter().collect()).unwrap();
                    *program = Some(Box::new(new));
                }
                Door::Card(listener) => {
                    if let Some(socket) = listener.accept().unwrap() {
                        let pages = memfd("registers", PAGES).unwrap();
                        self.fabric.attach(name, vec![socket, pages]).unwrap();
                    }
                }
            }
        }
        let sessions: (Vec<_>, Vec<Arc<OwnedFd>>) =
            self.fabric.sessions().map(|(id, fd)| (id, fd.clone())).unzip();
        let fds: Vec<_> = sessions.1.iter().map(|fd| fd.as_fd()).collect();
        if fds.is_empty() {
            return std::thread::yield_now();
        }
        let ready = wait_readable(&fds, Some(1_000_000)).unwrap();
        for (id, _) in sessions.0.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            // Detached guests are expected.
            let _ = self.fabric.serve(id);
        }
    }

    fn serve_until(&mut self, is: impl Fn(&Network) -> bool) {
        let end = Instant::now() + BOUND;
        while !is(self) {
            assert!(Instant::now() < end, "{:?}", self.fabric.state().ports);
            self.serve();
        }
    }

    /// Runs a guest on each port; that of `right` starts first, and can receive before the other begins.
    fn run(&mut self, lines: [String; 2], devices: [Device; 2]) -> [Outcome; 2] {
        let [left, right] = lines;
        let second = guest(&self.folder.join("right"), devices[1], &format!("mac={} {right}", mac("right")));
        // It has announced itself, so that no frame is flooded: flooded ones do not wait for room.
        let is_known = |network: &Network| {
            let table = network.fabric.table("main").unwrap();
            second.is_finished() || table.iter().any(|entry| entry.mac == mac("right"))
        };
        self.serve_until(is_known);
        let first = guest(&self.folder.join("left"), devices[0], &format!("mac={} {left}", mac("left")));
        self.serve_until(|_| first.is_finished() && second.is_finished());
        ["left", "right"].iter().for_each(|port| self.fabric.detach(port).unwrap());
        [first, second].map(|guest| guest.join().unwrap())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Leftovers are harmless.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A guest's end, output and exits.
struct Outcome {
    end: End,
    output: String,
    counts: Counts,
}

impl Outcome {
    /// A figure of its report.
    fn figure(&self, name: &str) -> u64 {
        let mut words = self.output.split([' ', '\n']);
        let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{}: {}", self.end, self.output))
    }
}

fn guest(path: &Path, (_, card, words): Device, line: &str) -> JoinHandle<Outcome> {
    let (path, line) = (path.to_path_buf(), line.to_owned());
    std::thread::spawn(move || {
        let mut vm = Vm::new(MEMORY).unwrap();
        let ring =
            card.is_none().then(|| Ring::connect_with(&path, RingOptions::default(), Some(BOUND)).unwrap());
        let device = match &ring {
            Some(ring) => vm.attach_ring(ring).unwrap(),
            None => vm.attach_card(&path, BOUND).unwrap(),
        };
        vm.load(TINY, &format!("{device} {words} {line}")).unwrap();
        let mut output = Vec::new();
        let end = vm.run(BOUND, &mut |bytes| output.extend_from_slice(bytes)).unwrap();
        Outcome { end, output: String::from_utf8_lossy(&output).into_owned(), counts: vm.counts() }
    })
}

#[test]
fn guests_send_numbered_frames_to_each_other() {
    const COUNT: u64 = 1000;
    let Some(_) = machine() else { return };
    let [ring, ..] = devices();
    let pairs = devices().into_iter().flat_map(|device| [(device, ring), (ring, device)]);
    for (number, (left, right)) in (0..).zip(pairs) {
        let size = 60 + 37 * number;
        let lines = [
            format!("role=send to={} size={size} count={COUNT}", mac("right")),
            format!("role=receive count={COUNT}"),
        ];
        let [sender, receiver] = Network::new(left, right).run(lines, [left, right]);
        let name = format!("{} to {}: {}{}", left.0, right.0, sender.output, receiver.output);
        eprintln!("{name}{:?}\n{:?}", sender.counts, receiver.counts);
        assert_eq!((&sender.end, &receiver.end), (&End::Exit(0), &End::Exit(0)), "{name}");
        assert_eq!((sender.figure("sent"), receiver.figure("received")), (COUNT, COUNT), "{name}");
        assert_eq!(receiver.figure("wrong"), 0, "{name}");
        let Counts { exits, console, parks, registers, interrupts, .. } = sender.counts;
        match left.0 {
            // Frames need no exits; each byte of the report is one.
            "ring" => assert!(exits - console - parks < 50, "{name}"),
            "plain" => assert!(registers > COUNT, "{name}"),
            // Besides those at the start, only ICR is read, once for each interrupt.
            "mapped" | "all" => assert!(registers <= interrupts + 50, "{name}"),
            _ => {}
        }
    }
}

#[test]
fn guests_ping_each_other() {
    const COUNT: u64 = 30;
    let Some(_) = machine() else { return };
    for (left, right) in devices().into_iter().zip(devices().into_iter().rev()) {
        let lines = [
            format!("role=ping to={} size=1500 count={COUNT}", mac("right")),
            format!("role=echo count={COUNT}"),
        ];
        let [ping, echo] = Network::new(left, right).run(lines, [left, right]);
        let name = format!("{} to {}: {}{}", left.0, right.0, ping.output, echo.output);
        eprintln!("{name}");
        assert_eq!((&ping.end, &echo.end), (&End::Exit(0), &End::Exit(0)), "{name}");
        assert_eq!((ping.figure("received"), echo.figure("sent")), (COUNT, COUNT), "{name}");
        assert!(ping.figure("best") > 0 && ping.figure("rtt") >= ping.figure("best"), "{name}");
    }
}

#[test]
fn a_port_serves_one_guest_after_the_other_and_survives_those_that_end_early() {
    let Some(_) = machine() else { return };
    for device in devices() {
        let mut network = Network::new(device, device);
        for round in 0..3 {
            // The sender's time ends while frames are in its ring.
            let lines = [format!("role=send to={} time=5", mac("right")), "role=receive time=20".into()];
            let [sender, receiver] = network.run(lines, [device; 2]);
            let name = format!("{}, round {round}: {}{}", device.0, sender.output, receiver.output);
            assert_eq!((&sender.end, &receiver.end), (&End::Exit(0), &End::Exit(0)), "{name}");
            assert!(sender.figure("sent") > 0, "{name}");
        }
    }
}
