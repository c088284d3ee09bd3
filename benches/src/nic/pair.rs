//! Two tiny guests and the ports between them. What a slice reports is judged: one wrong frame, one out of sequence, or
//! one lost where none may be lost, and it has no figure.

use crate::Failure;
use crate::harness::fabric::{Harness, SWITCH, listen};
use crate::harness::program::{OnPort, connected, pipe};
use crate::harness::{LOAD, WORKER};
use crate::keys::Folder;
use crate::peer::net::{bridge, ip};
use ringway_frame::{CountersPage, Reason};
use ringway_host::listener::Listener;
use ringway_port::e1000::{self, MEMORY, PAGES, Techniques};
use ringway_port::pipe::Pipe;
use ringway_ring_client::{Ring, RingOptions};
use ringway_spec::{Kind, MacAddress, Poll, Port, To};
use ringway_vmm::{Counts, End, TINY, Vm};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Memory of a guest: its image, and 4096 buffers for each direction.
const GUEST: usize = 24 << 20;
/// How long frames wait for a receiver that is full: longer than any slice, so that none is dropped.
const HOLD: u64 = 10_000_000_000;
/// How long a receiver that was not told the end goes on after the sender's time: where frames may be lost, and where
/// they may not.
const AFTER: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(4)];
/// Longest start of a guest, and longest answer of a port.
const BOUND: Duration = Duration::from_secs(10);

/// How two guests are connected.
pub enum Way {
    /// Cards of a model and of these techniques, each patched to a TAP interface; a Linux bridge connects both.
    Bridge(&'static str, Techniques),
    /// Cards of a model and of these techniques on a switch.
    Switch(&'static str, Techniques),
    /// Rings of so many slots on a switch.
    Rings(u32),
    /// The ends of a pipe with rings of so many slots.
    Pipe(u32),
}

impl Way {
    /// Whether every frame must arrive: a TAP interface and a bridge drop frames when their queues are full.
    fn is_lossless(&self) -> bool {
        !matches!(self, Way::Bridge(..))
    }
}

/// What two guests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One sends as fast as it can, the other receives.
    Send,
    /// One sends a frame at a time, the other returns it.
    Ping,
}

/// The guests' side of their connection.
enum Ends {
    Cards { listeners: [(&'static str, Listener); 2], folder: Folder },
    Rings([OnPort; 2]),
    Pipe { ends: [Ring; 2], _pipe: Pipe },
}

/// The ports of two guests.
pub struct Pair {
    harness: Harness,
    ends: Ends,
    is_lossless: bool,
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
    /// Nanoseconds of processor time that it took, its exits included.
    pub cpu: u64,
    /// Nanoseconds from its start to its end.
    pub elapsed: u64,
}

/// What both guests of a slice reported, and what the host did meanwhile.
pub struct Slice {
    /// The first guest, which sends, and the second.
    pub guests: [Outcome; 2],
    /// Nanoseconds of the worker's turns that moved frames.
    pub worker: u64,
    /// Nanoseconds of processor time of the thread that answers register accesses.
    pub session: u64,
    /// Writes to tail registers that reached the models.
    pub tails: u64,
}

impl Outcome {
    /// A figure of the report.
    pub fn figure(&self, name: &str) -> Result<f64, Failure> {
        let words = self.output.split_ascii_whitespace();
        let value = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')).next();
        Ok(value.ok_or_else(|| format!("a guest reported: {}", self.output))?.parse()?)
    }

    /// A count of the report, which must be zero.
    fn none(&self, name: &str) -> Result<(), Failure> {
        match self.figure(name)? {
            0.0 => Ok(()),
            count => Err(format!("{count} frames are {name}: {}", self.output).into()),
        }
    }

    /// Whether the guest's clock agrees with the host's.
    fn clock(&self, time: Duration) -> Result<(), Failure> {
        let (ns, elapsed) = (self.figure("ns")?, self.elapsed as f64);
        if ns > 1.02 * elapsed + 1e6 || ns < 0.9 * time.as_nanos() as f64 {
            return Err(format!("a guest's clock counted {ns} ns, the host's {elapsed}").into());
        }
        Ok(())
    }

    /// Exits for its work, without those for its report.
    pub fn exits(&self) -> f64 {
        (self.counts.exits - self.counts.console) as f64
    }
}

/// The model of most ways.
pub const MODEL: &str = "82540em";
const PORTS: [&str; 2] = ["card0", "card1"];

fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, 1 + number])
}

impl Pair {
    /// Makes the ports.
    pub fn new(way: &Way) -> Result<Pair, Failure> {
        let mut harness = Harness::start(&[WORKER], 4, Poll::Adaptive)?;
        let ends = match way {
            Way::Bridge(model, techniques) => cards(&mut harness, model, *techniques, true)?,
            Way::Switch(model, techniques) => cards(&mut harness, model, *techniques, false)?,
            Way::Rings(slots) => {
                Ends::Rings([ring(&mut harness, "ring0", *slots)?, ring(&mut harness, "ring1", *slots)?])
            }
            Way::Pipe(slots) => {
                let (one, two, pipe) = pipe(*slots)?;
                Ends::Pipe { ends: [one, two], _pipe: pipe }
            }
        };
        Ok(Pair { harness, ends, is_lossless: way.is_lossless() })
    }

    /// Runs two guests for a slice of `time`; `words` are added to both command lines.
    pub fn run(&mut self, role: Role, time: Duration, words: &str) -> Result<Slice, Failure> {
        let after = AFTER[usize::from(self.is_lossless)];
        let slice = self.start(lines(role, time, time + after, words))?;
        match self.judge(&slice, role, time) {
            Ok(()) => Ok(slice),
            Err(error) => Err(format!("{error}{}", self.drops()).into()),
        }
    }

    /// What the ports dropped, for an error message.
    fn drops(&self) -> String {
        let mut drops = String::new();
        for (index, port) in self.harness.page().counters().iter().enumerate() {
            for (way, counts) in [("sent", &port.tx_drops), ("received", &port.rx_drops)] {
                for (reason, count) in Reason::ALL.iter().zip(counts) {
                    match count.load(Ordering::Relaxed) {
                        0 => {}
                        count => {
                            drops += &format!("; port {index} dropped {count} {way} ({})", reason.name())
                        }
                    }
                }
            }
        }
        drops
    }

    /// Whether each frame arrived as it should, and whether times are plausible.
    fn judge(&self, slice: &Slice, role: Role, time: Duration) -> Result<(), Failure> {
        let [first, second] = &slice.guests;
        for guest in &slice.guests {
            guest.none("wrong")?;
            guest.none("late")?;
        }
        first.clock(time)?;
        match role {
            Role::Send => {
                if self.is_lossless {
                    second.none("lost")?;
                    if first.figure("sent")? != second.figure("received")? {
                        return Err(format!("not all frames came: {} {}", first.output, second.output).into());
                    }
                }
            }
            Role::Ping => {
                let [sent, received] = [first.figure("sent")?, first.figure("received")?];
                if sent > received || second.figure("sent")? < received {
                    return Err(
                        format!("not all frames came back: {} {}", first.output, second.output).into()
                    );
                }
                let [waited, rtt] = [first.figure("waited")?, first.figure("rtt")?];
                let all = time.as_nanos() as f64;
                if (waited - rtt * received).abs() > 2.0 * received + 2.0
                    || waited < 0.8 * all
                    || waited > first.figure("ns")?
                {
                    return Err(format!("round trips do not fill the slice: {}", first.output).into());
                }
            }
        }
        Ok(())
    }

    /// Runs two guests until both have ended. The first starts when the second can receive.
    fn start(&mut self, lines: [String; 2]) -> Result<Slice, Failure> {
        let Pair { harness, ends, is_lossless } = self;
        let cores = if matches!(ends, Ends::Pipe { .. }) { [WORKER, LOAD] } else { [LOAD; 2] };
        let ends = &*ends;
        let [first, second] = lines;
        let busy = harness.busy();
        let (guests, session) = std::thread::scope(|scope| {
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
            connect(harness, ends, 1, &receiver)?;
            if *is_lossless && !matches!(ends, Ends::Pipe { .. }) {
                learn(harness, &receiver)?;
            }
            let sender = start(0, first);
            connect(harness, ends, 0, &sender)?;
            let cpu = ringway_host::thread_cpu();
            let guests = harness.serve_while(|| {
                let [sender, receiver] = [sender, receiver].map(|guest| {
                    guest.join().map_err(|_| Failure::from("a guest's thread failed")).flatten()
                });
                Ok([sender?, receiver?])
            })?;
            Ok::<_, Failure>((guests, ringway_host::thread_cpu().saturating_sub(cpu)))
        })?;
        let tails = match ends {
            Ends::Cards { .. } => {
                PORTS.iter().map(|port| tails(harness, port)).sum::<Result<u64, Failure>>()?
            }
            _ => 0,
        };
        Ok(Slice { guests, worker: harness.busy().saturating_sub(busy), session, tails })
    }
}

/// The registers that announce descriptors.
const TAILS: [&str; 4] = ["TDT", "RDT", "TPPOLL", "CSBTXKICK"];

/// Writes to a card's tail registers since its client connected.
fn tails(harness: &Harness, port: &str) -> Result<u64, Failure> {
    let exits = harness.fabric.exits(port)?.ok_or("a port without registers")?;
    let tails = exits.registers.iter().filter(|register| TAILS.contains(&&*register.name));
    Ok(tails.map(|register| register.writes).sum())
}

/// A ring port whose frames are never dropped because it is full.
fn ring(harness: &mut Harness, name: &str, slots: u32) -> Result<OnPort, Failure> {
    let port = Port::new(name, Kind::new("ring", &()), Some(To::Switch(SWITCH.into())));
    let options = RingOptions { slots: [slots; 2], ..RingOptions::default() };
    connected(harness, Port { hold: Some(HOLD), ..port }, options)
}

/// Waits until the switch knows the second guest: frames to all do not wait for room.
fn learn<T>(harness: &mut Harness, guest: &ScopedJoinHandle<'_, T>) -> Result<(), Failure> {
    let end = Instant::now() + BOUND;
    while !guest.is_finished() {
        if harness.fabric.table(SWITCH)?.iter().any(|entry| entry.mac == mac(1)) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err("a guest does not announce itself".into());
        }
        harness.accept(&[])?;
        std::thread::yield_now();
    }
    Ok(())
}

/// Cards on a switch, or on a bridge.
fn cards(harness: &mut Harness, model: &str, techniques: Techniques, bridged: bool) -> Result<Ends, Failure> {
    static BRIDGES: AtomicU32 = AtomicU32::new(0);
    let number = BRIDGES.fetch_add(1, Ordering::Relaxed);
    let folder = Folder::new()?;
    let listeners = [listen(&folder.path().join(PORTS[0]))?, listen(&folder.path().join(PORTS[1]))?];
    if bridged {
        bridge(&format!("nic{number}"))?;
    }
    for (index, name) in (0..).zip(PORTS) {
        let (model, mac) = (model.into(), Some(mac(index)));
        let settings = e1000::Settings { model, mac, mtu: None, memory: MEMORY, carrier: true, techniques };
        let kind = Kind::new(e1000::KIND.name, &settings);
        if !bridged {
            let port = Port::new(name, kind, Some(To::Switch(SWITCH.into())));
            harness.add_port(Port { hold: Some(HOLD), ..port })?;
            continue;
        }
        let tap = format!("tap{number}-{index}");
        harness.add_port(Port::new(name, kind, Some(To::Patch(tap.clone()))))?;
        harness.add_tap(&tap, To::Patch(name.into()))?;
        ip(&format!("link set {tap} addrgenmode none master nic{number} up"))?;
    }
    let [one, two] = listeners;
    Ok(Ends::Cards { listeners: [(PORTS[0], one), (PORTS[1], two)], folder })
}

/// Attaches a guest's card when its monitor connects, and waits until the guest has started it.
fn connect<T>(
    harness: &mut Harness,
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
    harness.attach(name, vec![socket, ringway_host::memfd("registers", PAGES)?])?;
    let is_up = |harness: &Harness| {
        harness.fabric.state().ports.iter().any(|port| port.name == *name && port.state == "up")
    };
    while !is_up(harness) && !guest.is_finished() {
        if Instant::now() > end {
            return Err("a guest does not start its card".into());
        }
        // Serves the sessions; those of former guests end.
        harness.accept(&[])?;
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
    let (begin, cpu) = (Instant::now(), ringway_host::thread_cpu());
    let end = vm.run(4 * BOUND, &mut |bytes| output.extend_from_slice(bytes))?;
    let (elapsed, cpu) = (begin.elapsed().as_nanos() as u64, ringway_host::thread_cpu() - cpu);
    let output = String::from_utf8_lossy(&output).trim().to_owned();
    match end {
        End::Exit(0) => Ok(Outcome { output, counts: vm.counts(), cpu, elapsed }),
        end => Err(format!("{end}; {output}").into()),
    }
}

fn attach(vm: &mut Vm, path: &Path) -> Result<String, Failure> {
    Ok(vm.attach_card(path, BOUND)?)
}

/// The command lines of a slice.
fn lines(role: Role, time: Duration, longer: Duration, words: &str) -> [String; 2] {
    static RUNS: AtomicU16 = AtomicU16::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let (to, longer) = (mac(1), longer.as_millis());
    let [first, second] = match role {
        Role::Send => ["send", "receive"],
        Role::Ping => ["ping", "echo"],
    };
    let time = time.as_millis();
    [
        format!("role={first} to={to} time={time} run={run} {words}"),
        format!("role={second} time={longer} run={run} {words}"),
    ]
}
