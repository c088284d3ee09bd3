//! Guests on the ports of a fabric in this process.
use super::{BOUND, MEMORY};
use ringway_fabric::Fabric;
use ringway_frame::Counters;
use ringway_host::listener::{Access, Listener};
use ringway_host::{memfd, wait_readable};
use ringway_port::e1000::{self, PAGES, Techniques};
use ringway_port::ring::open::{Newcomer, Program, RingListener};
use ringway_port::ring_pci;
use ringway_ring::Geometry;
use ringway_ring_client::{Ring, RingOptions};
use ringway_spec::{Kind, MacAddress, Poll, Port, Switch, To, Worker};
use ringway_switch::learning;
use ringway_vmm::{Counts, End, TINY, Vm};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a guest is attached: a ring, or a card's model and techniques, of which [`RING`] has `mapped` only. With the
/// words of its command line.
pub type Device = (&'static str, Option<(&'static str, Techniques)>, &'static str);

/// A ring in a PCI device, in place of a model.
pub const RING: &str = ring_pci::KIND.name;

/// Where guests connect to a port.
pub enum Door {
    Device(Listener, ring_pci::Settings),
    Ring(RingListener, Option<Newcomer>, Option<Box<Program>>),
    Card(Listener),
}

/// A fabric with ports on a switch.
pub struct Network {
    pub fabric: Fabric,
    doors: Vec<(&'static str, Door)>,
    pub folder: PathBuf,
}

/// The address of a port's guest.
pub fn mac(name: &str) -> MacAddress {
    let number = ["left", "right"].iter().position(|known| *known == name);
    MacAddress([2, 0, 0, 0, 0, number.map_or(9, |number| number as u8 + 1)])
}

impl Network {
    /// A network with two ports, `left` and `right`.
    pub fn new(left: Device, right: Device) -> Network {
        Network::of(&[("left", left), ("right", right)])
    }

    /// Ports on a switch.
    pub fn of(ports: &[(&'static str, Device)]) -> Network {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ringway-vmm-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // No frame is dropped because a thread did not run for a while.
        let hold = 10_000_000_000;
        let worker =
            Worker { name: "one".into(), core: None, node: None, poll: Poll::Adaptive, spin: 50_000, hold };
        let page: Arc<Vec<Counters>> = Arc::new(ports.iter().map(|_| Counters::default()).collect());
        let mut fabric = Fabric::start(&[worker], page, 1, &[]).unwrap();
        let lookup =
            Kind::new("learning", &learning::Settings { ageing: 300, entries: 64, refuse_moves: false });
        fabric
            .add_switch(Switch { name: "main".into(), lookup, forward_reserved: false, snooping: None })
            .unwrap();
        let mut first = 0;
        let doors = ports.iter().map(|&(name, (_, card, _))| {
            let (path, to) = (folder.join(name), Some(To::Switch("main".into())));
            let (kind, door) = match card {
                None => {
                    let listener = RingListener::bind(&path, Access::default()).unwrap();
                    (Kind::new("ring", &()), Door::Ring(listener, None, None))
                }
                Some((RING, techniques)) => {
                    let mapped = techniques.mapped == Some(true);
                    let settings =
                        ring_pci::Settings { slots: 512, slot_size: 2048, mapped, poll: ring_pci::POLL };
                    let listener = Listener::bind(&path, Access::default()).unwrap();
                    (Kind::new(RING, &settings), Door::Device(listener, settings))
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
        let doors = doors.collect();
        Network { fabric, doors, folder }
    }

    /// Connects guests that wait, and serves sessions.
    pub fn serve(&mut self) {
        for (name, door) in &mut self.doors {
            match door {
                Door::Ring(listener, newcomer, program) => {
                    *newcomer = newcomer.take().or_else(|| listener.accept().unwrap());
                    let Some(hello) = newcomer.as_mut().and_then(|new| new.hello().unwrap()) else {
                        continue;
                    };
                    let Some(new) = newcomer.take() else { continue };
                    let new = new.welcome(&hello, &Geometry::default()).unwrap();
                    let fds = new.descriptors().into_iter().map(|fd| fd.try_clone_to_owned().unwrap());
                    // A port that is closed for a while takes no program.
                    let _ = self.fabric.attach(name, fds.into_iter().collect());
                    *program = Some(Box::new(new));
                }
                Door::Device(listener, settings) => {
                    if let Some(socket) = listener.accept().unwrap() {
                        let _ = self.fabric.attach(name, vec![socket, settings.memory().unwrap()]);
                    }
                }
                Door::Card(listener) => {
                    if let Some(socket) = listener.accept().unwrap() {
                        let pages = memfd("registers", PAGES).unwrap();
                        let _ = self.fabric.attach(name, vec![socket, pages]);
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

    pub fn serve_until(&mut self, is: impl Fn(&Network) -> bool) {
        let end = Instant::now() + BOUND;
        while !is(self) {
            assert!(Instant::now() < end, "{:?}", self.fabric.state().ports);
            self.serve();
        }
    }

    /// Runs a guest on each port; that of `right` starts first, and can receive before the other begins.
    pub fn run(&mut self, lines: [String; 2], devices: [Device; 2]) -> [Outcome; 2] {
        let [left, right] = lines;
        let second = guest(&self.folder.join("right"), devices[1], &format!("mac={} {right}", mac("right")));
        // The guest has announced itself, so that no frame is flooded: flooded ones do not wait for room.
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
pub struct Outcome {
    pub end: End,
    pub output: String,
    pub counts: Counts,
}

impl Outcome {
    /// A figure of its report.
    pub fn figure(&self, name: &str) -> u64 {
        let mut words = self.output.split([' ', '\n']);
        let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{}: {}", self.end, self.output))
    }
}

/// Boots a guest on a port.
pub fn guest(path: &Path, (_, card, words): Device, line: &str) -> JoinHandle<Outcome> {
    boot(path, card, TINY.to_vec(), format!("{words} {line}"), BOUND)
}

/// Boots an image on a port, by a ring or a card, for a time.
pub fn boot(
    path: &Path,
    card: Option<(&'static str, Techniques)>,
    image: Vec<u8>,
    line: String,
    time: Duration,
) -> JoinHandle<Outcome> {
    let path = path.to_path_buf();
    std::thread::spawn(move || {
        let mut vm = Vm::new(MEMORY).unwrap();
        let ring =
            card.is_none().then(|| Ring::connect_with(&path, RingOptions::default(), Some(BOUND)).unwrap());
        let mut connection = None;
        let device = match (&ring, card) {
            (Some(ring), _) => vm.attach_ring(ring).unwrap(),
            (None, Some((RING, _))) => {
                let (device, words) = vm.attach_ring_device(&path, BOUND).unwrap();
                connection = Some(device);
                words
            }
            (None, _) => vm.attach_card(&path, BOUND).unwrap(),
        };
        vm.load(&image, &format!("{device} {line}")).unwrap();
        let mut output = Vec::new();
        let end = vm.run(time, &mut |bytes| output.extend_from_slice(bytes)).unwrap();
        drop(connection);
        Outcome { end, output: String::from_utf8_lossy(&output).into_owned(), counts: vm.counts() }
    })
}
