//! Two tiny guests and the ports between them.

use crate::Failure;
use crate::keys::Folder;
use crate::peer::net::{bridge, ip};
use crate::rig::fabric::{Rig, SWITCH, listen};
use crate::rig::program::{OnPort, on_port, pipe};
use crate::rig::{LOAD, WORKER};
use ringway_client::Ring;
use ringway_host::listener::Listener;
use ringway_port::e1000::{self, MEMORY, MODELS, PAGES, Techniques};
use ringway_port::pipe::Pipe;
use ringway_spec::{Kind, MacAddress, Poll, Port, To};
use ringway_vmm::{Counts, End, TINY, Vm};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Memory of a guest: its image, and 1024 buffers for each direction.
const GUEST: usize = 8 << 20;
/// Longest start of a guest, and longest answer of a port.
const BOUND: Duration = Duration::from_secs(10);

/// How two guests are connected.
pub enum Way {
    /// Cards of these techniques, each patched to a TAP interface; a Linux bridge connects both.
    Bridge(Techniques),
    /// Cards of these techniques on a switch.
    Switch(Techniques),
    /// Rings of so many slots on a switch.
    Rings(u32),
    /// The ends of a pipe with rings of so many slots.
    Pipe(u32),
}

/// The guests' side of their connection.
enum Ends {
    Cards { listeners: [(&'static str, Listener); 2], folder: Folder },
    Rings([OnPort; 2]),
    Pipe { ends: [Ring; 2], _pipe: Pipe },
}

/// The ports of two guests.
pub struct Pair {
    rig: Rig,
    ends: Ends,
}

/// What one guest needs.
enum Device<'a> {
    Card(PathBuf),
    Ring(&'a Ring),
}

/// What a guest reported, and its exits.
pub struct Outcome {
    output: String,
    /// Its exits.
    pub counts: Counts,
}

impl Outcome {
    /// A figure of the report.
    pub fn figure(&self, name: &str) -> Result<f64, Failure> {
        let words = self.output.split_ascii_whitespace();
        let value = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')).next();
        Ok(value.ok_or_else(|| format!("a guest reported: {}", self.output))?.parse()?)
    }

    /// Exits for its work, without those for its report.
    pub fn exits(&self) -> f64 {
        (self.counts.exits - self.counts.console) as f64
    }
}

const PORTS: [&str; 2] = ["card0", "card1"];

fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, 1 + number])
}

impl Pair {
    /// Makes the ports.
    pub fn new(way: &Way) -> Result<Pair, Failure> {
        let mut rig = Rig::start(&[WORKER], 4, Poll::Adaptive)?;
        let ends = match way {
            Way::Bridge(techniques) => cards(&mut rig, *techniques, true)?,
            Way::Switch(techniques) => cards(&mut rig, *techniques, false)?,
            Way::Rings(slots) => {
                Ends::Rings([on_port(&mut rig, "ring0", *slots)?, on_port(&mut rig, "ring1", *slots)?])
            }
            Way::Pipe(slots) => {
                let (one, two, pipe) = pipe(*slots)?;
                Ends::Pipe { ends: [one, two], _pipe: pipe }
            }
        };
        Ok(Pair { rig, ends })
    }

    /// Runs two guests: the second, which receives, until both command lines have ended. The first starts when the
    /// second can receive.
    pub fn run(&mut self, lines: [String; 2]) -> Result<[Outcome; 2], Failure> {
        let Pair { rig, ends } = self;
        let cores = if matches!(ends, Ends::Pipe { .. }) { [WORKER, LOAD] } else { [LOAD; 2] };
        let ends = &*ends;
        let [first, second] = lines;
        std::thread::scope(|scope| {
            let start = |index: usize, line: String| {
                let device = match ends {
                    Ends::Cards { folder, .. } => Device::Card(folder.path().join(PORTS[index])),
                    Ends::Rings(ends) => Device::Ring(&ends[index].ring),
                    Ends::Pipe { ends, .. } => Device::Ring(&ends[index]),
                };
                let core = cores[index];
                scope.spawn(move || guest(&device, index as u8, &line, core))
            };
            let receiver = start(1, second);
            connect(rig, ends, 1, &receiver)?;
            let sender = start(0, first);
            connect(rig, ends, 0, &sender)?;
            rig.serve_while(|| {
                let [sender, receiver] = [sender, receiver].map(|guest| {
                    guest.join().map_err(|_| Failure::from("a guest's thread failed")).flatten()
                });
                Ok([sender?, receiver?])
            })
        })
    }
}

/// Cards on a switch, or on a bridge.
fn cards(rig: &mut Rig, techniques: Techniques, bridged: bool) -> Result<Ends, Failure> {
    static BRIDGES: AtomicU32 = AtomicU32::new(0);
    let number = BRIDGES.fetch_add(1, Ordering::Relaxed);
    let folder = Folder::new()?;
    let listeners = [listen(&folder.path().join(PORTS[0]))?, listen(&folder.path().join(PORTS[1]))?];
    if bridged {
        bridge(&format!("nic{number}"))?;
    }
    for (index, name) in (0..).zip(PORTS) {
        let (model, mac) = (MODELS[0].name.into(), Some(mac(index)));
        let settings = e1000::Settings { model, mac, mtu: None, memory: MEMORY, carrier: true, techniques };
        let kind = Kind::new(e1000::KIND.name, &settings);
        if !bridged {
            rig.add_port(Port::new(name, kind, Some(To::Switch(SWITCH.into()))))?;
            continue;
        }
        let tap = format!("tap{number}-{index}");
        rig.add_port(Port::new(name, kind, Some(To::Patch(tap.clone()))))?;
        rig.add_tap(&tap, To::Patch(name.into()))?;
        ip(&format!("link set {tap} addrgenmode none master nic{number} up"))?;
    }
    let [one, two] = listeners;
    Ok(Ends::Cards { listeners: [(PORTS[0], one), (PORTS[1], two)], folder })
}

/// Attaches a guest's card when its monitor connects, and waits until the guest has started it.
fn connect<T>(
    rig: &mut Rig,
    ends: &Ends,
    index: usize,
    guest: &ScopedJoinHandle<'_, T>,
) -> Result<(), Failure> {
    let Ends::Cards { listeners, .. } = ends else { return Ok(()) };
    let (name, listener) = &listeners[index];
    let end = Instant::now() + BOUND;
    let socket = loop {
        if let Some(socket) = listener.accept()? {
            break socket;
        }
        if Instant::now() > end || guest.is_finished() {
            return Err("a guest does not connect".into());
        }
        std::thread::yield_now();
    };
    rig.attach(name, vec![socket, ringway_host::memfd("registers", PAGES)?])?;
    let is_up =
        |rig: &Rig| rig.fabric.state().ports.iter().any(|port| port.name == *name && port.state == "up");
    while !is_up(rig) && !guest.is_finished() {
        if Instant::now() > end {
            return Err("a guest does not start its card".into());
        }
        // Serves the sessions; those of former guests end.
        rig.accept(&[])?;
        std::thread::yield_now();
    }
    Ok(())
}

/// Boots a guest and runs it until it ends itself.
fn guest(device: &Device<'_>, number: u8, line: &str, core: usize) -> Result<Outcome, Failure> {
    ringway_host::pin(core)?;
    let mut vm = Vm::new(GUEST)?;
    let words = match device {
        Device::Card(path) => attach(&mut vm, path)?,
        Device::Ring(ring) => vm.attach_ring(ring)?,
    };
    vm.load(TINY, &format!("{words} mac={} {line}", mac(number)))?;
    let mut output = Vec::new();
    let end = vm.run(4 * BOUND, &mut |bytes| output.extend_from_slice(bytes))?;
    let output = String::from_utf8_lossy(&output).trim().to_owned();
    match end {
        End::Exit(0) => Ok(Outcome { output, counts: vm.counts() }),
        end => Err(format!("{end}; {output}").into()),
    }
}

fn attach(vm: &mut Vm, path: &Path) -> Result<String, Failure> {
    Ok(vm.attach_card(path, BOUND)?)
}

/// The words of two guests' command lines: one sends frames of `size` bytes to the other for `time`.
pub fn stream(size: usize, time: Duration, words: &str) -> [String; 2] {
    let (to, time) = (mac(1), time.as_millis() as u64);
    // The receiver starts first; it must not end first.
    let longer = time + 30;
    [
        format!("role=send to={to} size={size} time={time} {words}"),
        format!("role=receive time={longer} {words}"),
    ]
}

/// The same for one frame at a time, which the other returns.
pub fn ping(time: Duration, words: &str) -> [String; 2] {
    let (to, time) = (mac(1), time.as_millis() as u64);
    let longer = time + 30;
    [format!("role=ping to={to} time={time} {words}"), format!("role=echo time={longer} {words}")]
}
