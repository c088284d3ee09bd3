//! Emulated lines with a sender and a receiver at their ends, on our stack or on the kernel's. All ports are of one
//! fabric, and the settings of a line are the same for both.

use super::flow::{Flow, Traffic};
use crate::Failure;
use crate::peer::net::Space;
use crate::rig::fabric::Rig;
use crate::rig::program::connected;
use crate::rig::{Pinned, WORKER};
use crate::tcp::ends::{HOLD, ring};
use ringway_frame::Reason;
use ringway_netstack::Settings;
use ringway_netstack::congestion::Algorithm;
use ringway_port::link;
use ringway_port::ring::open::Program;
use ringway_sockets::{Cidr, Config, Host, Network, RingDevice};
use ringway_spec::{Kind, Poll, Port, To};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Time between two looks at the lines.
const LOOK: Duration = Duration::from_millis(10);
/// How long connections may take: at 20% loss a SYN is lost three times in a row now and then.
const CONNECT: Duration = Duration::from_secs(20);

/// Whose stack has both ends of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    Kernel,
}

/// A line and its flows.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Mb/s.
    pub rate: u64,
    /// Round-trip time without a queue, half of it in each direction.
    pub rtt: Duration,
    /// Percent of the data's frames that are lost.
    pub loss: f64,
    /// The queue, as `limit` of a link: `1BDP`, `64KB`.
    pub limit: String,
    /// Largest size of the buffers of a socket.
    pub buffer: usize,
    /// A flow each.
    pub flows: Vec<Algorithm>,
}

impl Cell {
    /// A line with a queue of one bandwidth-delay product and one flow.
    pub fn new(rate: u64, rtt: Duration, flow: Algorithm) -> Cell {
        Cell { rate, rtt, loss: 0.0, limit: "1BDP".into(), buffer: 64 << 20, flows: vec![flow] }
    }

    /// Settings of the direction of the data, or of the acknowledgments: these have the delay only.
    fn link(&self, data: bool, seed: u64) -> link::Settings {
        let mut settings = BTreeMap::from([
            ("delay".to_string(), format!("{}us", self.rtt.as_micros() / 2)),
            ("memory".into(), "1GB".into()),
            ("seed".into(), seed.to_string()),
            ("limit".into(), if data { self.limit.clone() } else { "1GB".into() }),
        ]);
        if data {
            settings.insert("rate".into(), format!("{}Mbit", self.rate));
            settings.insert("loss".into(), format!("{}%", self.loss));
        }
        link::Settings(settings)
    }

    /// Settings of our stack.
    pub fn settings(&self) -> Settings {
        let base = Settings::default();
        Settings {
            tcp_rmem: [base.tcp_rmem[0], base.tcp_rmem[1].min(self.buffer), self.buffer],
            tcp_wmem: [base.tcp_wmem[0], base.tcp_wmem[1].min(self.buffer), self.buffer],
            ..base
        }
    }
}

/// When to measure.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Time from the first byte of every flow to the first measurement.
    pub warm: Duration,
    pub time: Duration,
}

/// The state of a line during a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Seconds from the begin of the measurement on.
    pub at: f64,
    /// Mb received since then.
    pub received: f64,
    /// Time that the queue takes to be sent, in ms.
    pub queue: f64,
    /// Frames between the queue and the receiver.
    pub in_flight: f64,
}

/// What was measured on a line.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Mb/s of each flow.
    pub rates: Vec<f64>,
    /// Percent of the data's frames for which the queue had no room.
    pub dropped: f64,
    pub looks: Vec<Look>,
}

impl Outcome {
    /// Mb/s of all flows.
    pub fn rate(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// A quantile of the queue's time, in ms.
    pub fn queue(&self, part: f64) -> f64 {
        let mut queues: Vec<f64> = self.looks.iter().map(|look| look.queue).collect();
        queues.sort_by(f64::total_cmp);
        queues.get((part * queues.len().saturating_sub(1) as f64) as usize).copied().unwrap_or(f64::NAN)
    }
}

/// The ends of all lines.
enum Ends {
    Ours { networks: Vec<[Network; 2]>, _programs: Vec<Program> },
    Kernel { spaces: Box<[Space; 2]> },
}

/// A fabric with the lines of one side.
pub struct Lab<'a> {
    cells: &'a [Cell],
    rig: Rig,
    ends: Ends,
}

/// Numbers of a line's ports: the sender's and the receiver's, the data's and the acknowledgments' link.
const PORTS: usize = 4;
const DATA: usize = 2;

fn name(kind: &str, cell: usize) -> String {
    format!("{kind}{cell}")
}

/// The settings of the TCP of a namespace.
fn set_buffers(space: &Space, most: usize) -> Result<(), Failure> {
    space.within(|| {
        for (name, value) in [
            ("tcp_rmem", format!("4096 131072 {most}")),
            ("tcp_wmem", format!("4096 16384 {most}")),
            // What one flow learns is not for the next.
            ("tcp_no_metrics_save", "1".into()),
        ] {
            let path = format!("/proc/sys/net/ipv4/{name}");
            std::fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok(())
    })
}

fn add_links(rig: &mut Rig, cell: &Cell, number: usize, seed: u64) -> Result<(), Failure> {
    for (kind, to, data) in [("data", "two", true), ("acks", "one", false)] {
        let settings = cell.link(data, 1000 * seed + 2 * number as u64 + u64::from(data));
        let to = Some(To::Patch(name(to, number)));
        // Losses are the line's alone.
        let port = Port::new(&name(kind, number), Kind::new(link::KIND.name, &settings), to);
        rig.add_port(Port { hold: Some(HOLD), ..port })?;
    }
    Ok(())
}

/// An end of a line for our stack: 1 the sender's, 2 the receiver's.
fn device(rig: &mut Rig, cell: usize, last: u8) -> Result<(RingDevice, Program), Failure> {
    let (kind, to) = if last == 1 { ("one", "data") } else { ("two", "acks") };
    let to = Some(To::Patch(name(to, cell)));
    let port = connected(rig, Port::new(&name(kind, cell), Kind::new("ring", &()), to), ring())?;
    Ok((port.ring.into(), port.program))
}

fn config(cell: &Cell, number: usize, last: u8) -> Config {
    let mut config = Config::new(Cidr::new(address(number, last), 24));
    config.settings = cell.settings();
    config
}

/// A line whose sender is a program of the benchmark.
pub struct Bench {
    /// The sender's device, once.
    pub device: Option<RingDevice>,
    /// The receiver.
    pub network: Network,
    _programs: [Program; 2],
    _rig: Rig,
}

impl Bench {
    /// Where the sender is, and where it connects to.
    pub const FROM: [u8; 4] = [10, 100, 0, 1];
    pub const TO: ([u8; 4], u16) = ([10, 100, 0, 2], 5000);

    /// Builds the line.
    pub fn new(cell: &Cell, seed: u64) -> Result<Bench, Failure> {
        let mut rig = Rig::start(&[WORKER], PORTS, Poll::Adaptive)?;
        let ((sender, one), (receiver, two)) = (device(&mut rig, 0, 1)?, device(&mut rig, 0, 2)?);
        add_links(&mut rig, cell, 0, seed)?;
        // The threads of the receiver are where the worker is.
        let pinned = Pinned::to(WORKER)?;
        let network = Network::start(Host::new(receiver, config(cell, 0, 2))?)?;
        drop(pinned);
        Ok(Bench { device: Some(sender), network, _programs: [one, two], _rig: rig })
    }
}

impl Lab<'_> {
    /// Builds the lines; `seed` decides about losses.
    pub fn new(side: Side, cells: &[Cell], seed: u64) -> Result<Lab<'_>, Failure> {
        let mut rig = Rig::start(&[WORKER], PORTS * cells.len(), Poll::Adaptive)?;
        let ends = match side {
            Side::Ours => Lab::ours(&mut rig, cells, seed)?,
            Side::Kernel => Lab::kernel(&mut rig, cells, seed)?,
        };
        Ok(Lab { cells, rig, ends })
    }

    fn ours(rig: &mut Rig, cells: &[Cell], seed: u64) -> Result<Ends, Failure> {
        let (mut networks, mut programs) = (Vec::new(), Vec::new());
        for (number, cell) in cells.iter().enumerate() {
            let mut ends = Vec::new();
            for last in [1, 2] {
                let (device, program) = device(rig, number, last)?;
                ends.push(Network::start(Host::new(device, config(cell, number, last))?)?);
                programs.push(program);
            }
            networks.push(ends.try_into().map_err(|_| "a line has two ends")?);
            add_links(rig, cell, number, seed)?;
        }
        Ok(Ends::Ours { networks, _programs: programs })
    }

    fn kernel(rig: &mut Rig, cells: &[Cell], seed: u64) -> Result<Ends, Failure> {
        let spaces = Box::new([Space::new()?, Space::new()?]);
        let most = cells.iter().map(|cell| cell.buffer).max().unwrap_or(0);
        for space in &*spaces {
            set_buffers(space, most)?;
        }
        for (number, cell) in cells.iter().enumerate() {
            for ((last, space), (kind, to)) in (1..).zip(&*spaces).zip([("one", "data"), ("two", "acks")]) {
                let interface = name(kind, number);
                rig.add_tap(&interface, To::Patch(name(to, number)))?;
                space.take_with_cubic(&interface, address(number, last))?;
            }
            add_links(rig, cell, number, seed)?;
        }
        Ok(Ends::Kernel { spaces })
    }

    /// A flow of a cell. Its begin may block.
    fn flow(&self, cell: usize, number: usize) -> Flow<'_> {
        let algorithm = self.cells[cell].flows[number];
        let server = (address(cell, 2), 5000 + number as u16).into();
        match &self.ends {
            Ends::Ours { networks, .. } => Flow::Ours { networks: &networks[cell], server, algorithm },
            Ends::Kernel { spaces } => Flow::Kernel { spaces, server, algorithm },
        }
    }

    /// Looks at a line: bytes and frames in its queue, frames under way.
    fn look(&self, states: &BTreeMap<String, BTreeMap<String, u64>>, cell: usize) -> [f64; 2] {
        let gauges = states.get(&name("data", cell));
        let gauge = |name: &str| gauges.and_then(|gauges| gauges.get(name)).copied().unwrap_or(0) as f64;
        [gauge("queued-bytes") * 8e-3 / self.cells[cell].rate as f64, gauge("in-flight")]
    }

    /// Frames of a line that its queue had no room for, and all.
    fn frames(&self, cell: usize) -> [u64; 2] {
        let counters = &self.rig.page()[PORTS * cell + DATA];
        let drops = counters.tx_drops.iter().map(|drops| drops.load(Relaxed)).sum::<u64>();
        [counters.tx_drops[Reason::Full as usize].load(Relaxed), counters.tx_frames.load(Relaxed) + drops]
    }

    /// Runs all flows at once, and measures; `each` is called at each look.
    pub fn run(&self, schedule: Schedule) -> Result<Vec<Outcome>, Failure> {
        let stop = AtomicBool::new(false);
        let cells = || {
            (0..self.cells.len())
                .flat_map(|cell| (0..self.cells[cell].flows.len()).map(move |flow| (cell, flow)))
        };
        let traffic: Vec<(usize, Traffic)> = cells().map(|(cell, _)| (cell, Traffic::default())).collect();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for ((cell, number), (_, traffic)) in cells().zip(&traffic) {
                let flow = self.flow(cell, number);
                let stop = &stop;
                let (sender, receiver) = flow.open()?;
                threads.push(scope.spawn(move || receiver(traffic, stop)));
                threads.push(scope.spawn(move || sender(traffic, stop)));
            }
            let outcome = self.measure(&traffic, schedule);
            stop.store(true, Relaxed);
            for thread in threads {
                thread.join().map_err(|_| "a thread of a flow failed")??;
            }
            outcome
        })
    }

    fn measure(&self, traffic: &[(usize, Traffic)], schedule: Schedule) -> Result<Vec<Outcome>, Failure> {
        let begin = Instant::now();
        while traffic.iter().any(|(_, traffic)| traffic.received() == 0) {
            if begin.elapsed() > CONNECT {
                return Err("a flow did not begin".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(schedule.warm);
        let bytes = || traffic.iter().map(|(_, traffic)| traffic.received()).collect::<Vec<u64>>();
        let frames = || (0..self.cells.len()).map(|cell| self.frames(cell)).collect::<Vec<_>>();
        let (begin, bytes_before, frames_before) = (Instant::now(), bytes(), frames());
        let mut outcomes = vec![Outcome::default(); self.cells.len()];
        while begin.elapsed() < schedule.time {
            std::thread::sleep(LOOK.min(schedule.time.saturating_sub(begin.elapsed())));
            let at = begin.elapsed().as_secs_f64();
            let ports = self.rig.fabric.state().ports;
            let states = ports.into_iter().map(|port| (port.name, port.gauges)).collect();
            for (cell, outcome) in outcomes.iter_mut().enumerate() {
                let of_cell = traffic.iter().zip(&bytes_before).filter(|((number, _), _)| *number == cell);
                let bits = of_cell.map(|((_, traffic), before)| 8e-6 * (traffic.received() - before) as f64);
                let [queue, in_flight] = self.look(&states, cell);
                outcome.looks.push(Look { at, received: bits.sum(), queue, in_flight });
            }
        }
        let (seconds, bytes_after, frames_after) = (begin.elapsed().as_secs_f64(), bytes(), frames());
        for (((cell, _), before), after) in traffic.iter().zip(bytes_before).zip(bytes_after) {
            outcomes[*cell].rates.push((after - before) as f64 * 8e-6 / seconds);
        }
        for ((outcome, before), after) in outcomes.iter_mut().zip(frames_before).zip(frames_after) {
            outcome.dropped = 100.0 * (after[0] - before[0]) as f64 / (after[1] - before[1]).max(1) as f64;
        }
        Ok(outcomes)
    }
}

fn address(cell: usize, last: u8) -> [u8; 4] {
    [10, 100, cell as u8, last]
}

/// Builds the lines, runs their flows, and measures.
pub fn run(side: Side, cells: &[Cell], seed: u64, schedule: Schedule) -> Result<Vec<Outcome>, Failure> {
    crate::machine::note();
    Lab::new(side, cells, seed)?.run(schedule)
}
