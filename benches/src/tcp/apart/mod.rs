//! A program whose stack is in its process beside one whose stack is in a process of its own.
//!
//! The client and the server are the same code everywhere (`programs.rs`), as are the stacks' settings; only the way
//! between program and stack differs (`transport.rs`, `queues.rs`).

mod programs;
mod queues;
mod shared;
mod transport;
mod usage;

use super::ends::{SERVER, VETH, Veth, ring};
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::WORKER;
use crate::harness::fabric::{Harness, SWITCH};
use crate::harness::program::{join, welcome};
use crate::keys::Folder;
use crate::keys::Rows;
use crate::machine;
use crate::peer::net::Space;
use crate::plan::Plan;
use ringway_exec::{Direct, Linux, Mode, Options, prepare};
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{Program, RingListener};
use ringway_ring::Geometry;
use ringway_sockets::{Cidr, Config, Host, RingDevice, Settings};
use ringway_spec::{Kind, Poll, Port, To};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use transport::{InProcess, Kernel, Transport};
use usage::Usage;

/// Connections with requests, and that of the stream.
const ACTIVE: usize = 50;
const BULK: usize = ACTIVE;
const CONNECTIONS: usize = ACTIVE + 1;

const SLICE: Duration = Duration::from_millis(200);

/// Where a program's stack is.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Kernel,
    InProcess,
    /// In the process too, but in memory that other processes could share, with a lock.
    Shared,
    /// As `ringway exec` serves it.
    Agent,
    Queues,
}

/// Of the client and of the server.
const WAYS: [(&str, [Way; 2]); 7] = [
    ("in process", [Way::InProcess, Way::InProcess]),
    ("in shared memory", [Way::Shared, Way::Shared]),
    ("server's apart, queues", [Way::InProcess, Way::Queues]),
    ("server's apart, agent", [Way::InProcess, Way::Agent]),
    ("both apart, queues", [Way::Queues, Way::Queues]),
    ("both apart, agent", [Way::Agent, Way::Agent]),
    ("kernel", [Way::Kernel, Way::Kernel]),
];

/// The way that the first one is compared with.
const QUEUES: usize = 2;

/// What is measured: the command, and the unit.
const MEASURES: [(&str, &str); 3] =
    [("requests 50", "thousand/s"), ("requests 1", "thousand/s"), ("stream", "Gb/s")];

/// `apart.pipe.*` and `apart.switch.*`: requests over 50 connections, over one, and a stream.
pub fn measure(plan: &Plan, switch: bool) -> Rows {
    let mut network = Network::new(switch)?;
    let mut pairs = Vec::new();
    for (number, (_, ways)) in (0_u8..).zip(WAYS) {
        pairs.push(network.start(number, ways)?);
    }
    let mut figures: [Vec<Vec<[f64; 6]>>; 3] = Default::default();
    for list in &mut figures {
        list.resize(WAYS.len(), Vec::new());
    }
    for _ in 0..plan.slices(2 * SLICE) {
        machine::sample();
        for (pair, at) in pairs.iter_mut().zip(0..) {
            for ((command, unit), lists) in MEASURES.iter().zip(&mut figures) {
                lists[at].push(pair.slice(command, *unit == "Gb/s")?);
            }
        }
    }
    Ok(MEASURES.iter().zip(figures).map(|((_, unit), lists)| row(unit, &lists)).collect())
}

fn row(unit: &str, lists: &[Vec<[f64; 6]>]) -> Entry {
    let of = |way: usize, figure: usize| lists[way].iter().map(|slice| slice[figure]).collect::<Vec<f64>>();
    let slices = Slices { ours: of(0, 0), peer: of(QUEUES, 0), lost: None };
    let mut entry = slices.entry(unit, Better::More);
    for (way, (name, _)) in WAYS.iter().enumerate() {
        let names = [unit, "p50, us", "p99, us", "CPU of the server, us", "CPU of all, us", "switches"];
        let figures: Vec<(&str, f64)> =
            (0..6).filter_map(|figure| Some((names[figure], median(&of(way, figure))?))).collect();
        entry = entry.step(*name, &figures);
        let ratio = Slices { ours: of(0, 0), peer: of(way, 0), lost: None }.entry(unit, Better::More);
        if let Some([low, high]) = ratio.ratio_interval {
            let median = ratio.ratio.unwrap_or(f64::NAN);
            let figures = [("ratio", median), ("ratio from", low), ("ratio to", high)];
            entry = entry.step(format!("in process over {name}"), &figures);
        }
    }
    entry.note("CPU time and context switches for a request, or a megabit")
}

/// What the programs' frames pass.
struct Network {
    folder: Folder,
    switch: Option<Harness>,
    veth: Veth,
    pipes: Vec<Pipe>,
    programs: Vec<Program>,
}

/// A client and a server, with the processes of their stacks.
struct Pair {
    client: Running,
    server: Running,
    /// Whether a worker is a part of it.
    switch: bool,
}

/// Where a program finds its ring and its queues, and the number of its pair.
struct Place {
    socket: String,
    queues: String,
    number: u8,
}

/// A program, and the process of its stack.
struct Running {
    children: Vec<Child>,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Network {
    fn new(switch: bool) -> Result<Network, Failure> {
        let queues = 2 * WAYS.len();
        let switch = if switch { Some(Harness::start(&[WORKER], queues, Poll::Adaptive)?) } else { None };
        let (folder, veth) = (Folder::new()?, Veth::new(true)?);
        Ok(Network { folder, switch, veth, pipes: Vec::new(), programs: Vec::new() })
    }

    fn start(&mut self, number: u8, ways: [Way; 2]) -> Result<Pair, Failure> {
        let path = |name: &str| self.folder.path().join(format!("{name}{number}"));
        let with_ring = ways[0] != Way::Kernel;
        let sockets = match &self.switch {
            _ if !with_ring => Vec::new(),
            Some(_) => vec![path("client"), path("server")],
            None => vec![path("pipe")],
        };
        let listeners = sockets.iter().map(|socket| RingListener::bind(socket, Default::default()));
        let listeners: Vec<RingListener> = listeners.collect::<Result<_, _>>()?;
        let mut running = Vec::new();
        for (side, way) in ways.into_iter().enumerate() {
            let socket = sockets.get(side).or(sockets.first()).map(|socket| socket.display().to_string());
            let queues = path(["queues-client", "queues-server"][side]);
            let space = (way == Way::Kernel).then(|| &self.veth.spaces[side]);
            let place =
                Place { socket: socket.unwrap_or_default(), queues: queues.display().to_string(), number };
            running.push(Running::start(side, way, &place, space)?);
        }
        if let Some(harness) = &mut self.switch {
            for (socket, side) in listeners.iter().zip(["client", "server"]) {
                let name = format!("{side}{number}");
                let port = Port::new(&name, Kind::new("ring", &()), Some(To::Switch(SWITCH.into())));
                harness.add_port(Port { hold: Some(super::ends::HOLD), ..port })?;
                let program = loop {
                    if let Some(program) = welcome(harness, &name, socket)? {
                        break program;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                };
                self.programs.push(program);
            }
        } else if let [socket] = &listeners[..] {
            let mut pipe = Pipe::new(Geometry::default());
            join(&mut pipe, socket)?;
            self.pipes.push(pipe);
        }
        let [mut client, mut server]: [Running; 2] = running.try_into().map_err(|_| "two sides")?;
        server.expect("ready")?;
        client.say("connect")?;
        client.expect("connected")?;
        Ok(Pair { client, server, switch: self.switch.is_some() && with_ring })
    }
}

impl Running {
    fn start(
        side: usize,
        way: Way,
        Place { socket, queues, number }: &Place,
        space: Option<&Space>,
    ) -> Result<Running, Failure> {
        let part = ["client", "server"][side];
        // All pairs are on one switch.
        let server = [10, 96, 0, 2 + number];
        let own = &format!("10.96.0.{}/24", if side == 0 { 100 + number } else { server[3] });
        let address = if way == Way::Kernel { VETH } else { (server, SERVER.1) };
        let address = SocketAddr::from(address).to_string();
        let program = match way {
            Way::Kernel => vec![part, "kernel", &address],
            Way::InProcess => vec![part, "in-process", socket, own, &address],
            Way::Shared => vec![part, "shared", socket, own, &address],
            Way::Agent => vec!["exec", socket, own, part, "kernel", &address],
            Way::Queues => vec![part, "queues", queues],
        };
        let own_path = std::env::current_exe()?;
        let command = |words: &[&str]| {
            let mut command = match space {
                Some(space) => space.command(&own_path.display().to_string()),
                None => Command::new(&own_path),
            };
            command.arg("--apart").args(words).stdin(Stdio::piped());
            command
        };
        let mut children = Vec::new();
        if way == Way::Queues {
            children.push(command(&["stack", part, socket, own, queues, &address]).spawn()?);
        }
        let mut child = command(&program).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
        children.push(child);
        Ok(Running { children, input, output: BufReader::new(output) })
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.input, "{line}")?)
    }

    fn hear(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.output.read_line(&mut line)? {
            0 => Err("a program has ended".into()),
            _ => Ok(line.trim().into()),
        }
    }

    fn expect(&mut self, word: &str) -> Result<(), Failure> {
        let line = self.hear()?;
        if line == word { Ok(()) } else { Err(format!("{line} in place of {word}").into()) }
    }

    fn usage(&self) -> Usage {
        let each = self.children.iter().map(|child| Usage::of(child.id(), true));
        each.fold(Usage::default(), std::ops::Add::add)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            // The process may have ended; `ringway exec` ends its program when it gets this signal.
            let process = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
    }
}

impl Pair {
    /// The rate, p50, p99, CPU time of the server and of all, context switches.
    fn slice(&mut self, command: &str, is_stream: bool) -> Result<[f64; 6], Failure> {
        let usage = |pair: &Pair| {
            let worker = if pair.switch { Usage::of(std::process::id(), false) } else { Usage::default() };
            [pair.server.usage(), pair.server.usage() + pair.client.usage() + worker]
        };
        let before = usage(self);
        self.client.say(&format!("{command} {}", SLICE.as_millis()))?;
        let line = self.client.hear()?;
        let after = usage(self);
        let figures: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [count, elapsed, p50, p99] = figures[..] else { return Err(line.into()) };
        let (units, rate) = match is_stream {
            true => (count * 8.0 / 1e6, count * 8.0 / elapsed),
            false => (count, count * 1e6 / elapsed),
        };
        let [server, all] = [0, 1].map(|at| after[at] - before[at]);
        Ok([
            rate,
            p50 / 1e3,
            p99 / 1e3,
            server.cpu / 1e3 / units,
            all.cpu / 1e3 / units,
            all.switches / units,
        ])
    }
}

fn host(socket: &str, own: &str) -> Result<Host, Failure> {
    let device = RingDevice::connect_with(socket.as_ref(), ring())?;
    Ok(Host::new(device, Config::new(own.parse()?))?)
}

fn print(word: &str) {
    println!("{word}");
    // Who started this process has ended otherwise.
    let _ = std::io::stdout().flush();
}

fn connect_when_told() -> Result<(), Failure> {
    // Only this line: what follows is read later.
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.last() != Some(&b'\n') {
        rustix::io::read(rustix::stdio::stdin(), &mut byte)?;
        line.push(byte[0]);
    }
    Ok(())
}

/// A process of a measurement.
pub fn process(words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["exec", socket, own, ref program @ ..] => exec(socket, own, program),
        ["stack", part, socket, own, path, address] => {
            queues::Stack::run(host(socket, own)?, path.as_ref(), address.parse()?, part == "server")
        }
        ["server", "queues", path] => {
            let queues = queues::Queues::open(path.as_ref(), false)?;
            print("ready");
            programs::serve(Box::new(queues))
        }
        ["server", "kernel", address] => {
            programs::serve(Box::new(Kernel::accept(address.parse()?, || print("ready"))?))
        }
        ["server", "in-process", socket, own, address] => {
            let host = host(socket, own)?;
            programs::serve(Box::new(InProcess::accept(host, address.parse()?, || print("ready"))?))
        }
        ["server", "shared", socket, own, address] => {
            let ready = || print("ready");
            programs::serve(Box::new(shared::Shared::accept(socket, own, address.parse()?, ready)?))
        }
        ["client", ref way @ ..] => client(way),
        _ => Err("no such process".into()),
    }
}

fn client(way: &[&str]) -> Result<(), Failure> {
    let transport: Box<dyn Transport> = match way {
        ["kernel", address] => {
            connect_when_told()?;
            Box::new(Kernel::connect(address.parse()?)?)
        }
        ["in-process", socket, own, address] => {
            let host = host(socket, own)?;
            connect_when_told()?;
            Box::new(InProcess::connect(host, address.parse()?)?)
        }
        ["shared", socket, own, address] => {
            // The server waits for the other end of its pipe before it is ready.
            let shared = shared::Shared::connect(socket, own, address.parse()?, connect_when_told)?;
            Box::new(shared)
        }
        ["queues", path] => {
            connect_when_told()?;
            Box::new(queues::Queues::open(path.as_ref(), true)?)
        }
        _ => return Err("no such client".into()),
    };
    print("connected");
    programs::ask(transport)
}

/// As `ringway exec`.
fn exec(socket: &str, own: &str, program: &[&str]) -> Result<(), Failure> {
    let own_path = std::env::current_exe()?.into_os_string();
    let words = ["--apart"].iter().chain(program).map(std::ffi::OsString::from);
    let prepared = prepare(Options {
        program: std::iter::once(own_path).chain(words).collect(),
        mode: Mode::Native,
        addresses: vec![own.parse::<Cidr>()?],
        gateways: Vec::new(),
        dns: Vec::new(),
        mtu: 1500,
        offloads: true,
        map_root: false,
        settings: Settings::default(),
        sequence_secret: None,
        explain: false,
        sysctls: Vec::new(),
        query: Vec::new(),
        limits: Vec::new(),
        kill_after: None,
        attachment: None,
        direct: Direct::Off,
        linux: Linux::default(),
    })?;
    prepared.run(RingDevice::connect_with(socket.as_ref(), ring())?)?;
    Ok(())
}
