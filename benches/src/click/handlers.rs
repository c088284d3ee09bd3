//! The longest delay of packets while a router's handlers are read and written from outside.

use super::configuration::CASES;
use super::frames::Length;
use super::source;
use crate::Failure;
use crate::entry::Entry;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::keys::Folder;
use crate::plan::Plan;
use ringway_click::{Class, Context, Element, Metadata, PACKETS, PacketBurst};
use ringway_click_driver::click::{Terminal, registry, run_with};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Repetitions of each operation; the longest delay counts.
const TIMES: usize = 5;
/// Target for a delay, in microseconds; the second one is for replacing a large configuration.
const MARK: f64 = 1000.0;
const REPLACED: f64 = 10_000.0;
/// Time limit of each operation.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Flows of the address translator.
const FLOWS: u64 = 1_000_000;
/// Routes added at once.
const ROUTES: u32 = 10_000;

/// The longest delay in ticks, the longest in nanoseconds of the thread's CPU time, and the duration.
type Done = (u64, u64, Duration);

/// Time of the last packets in ticks, and the longest interval without packets since it was read.
static LAST: AtomicU64 = AtomicU64::new(0);
static LONGEST: AtomicU64 = AtomicU64::new(0);
/// Time of the last packets and the longest interval, in nanoseconds of the thread's CPU time, which other programs on
/// the core do not lengthen.
static LAST_CPU: AtomicU64 = AtomicU64::new(0);
static LONGEST_CPU: AtomicU64 = AtomicU64::new(0);

/// The element's class.
pub static CLASS: Class =
    Class::new("BenchmarkPause", || Box::new(Pause)).ports("1/1").metadata(Metadata::Ignores);

/// Measures the time between packets.
struct Pause;

impl Element for Pause {
    fn push(&mut self, _: usize, _: &mut PacketBurst, _: &mut Context<'_>) {
        let now = ringway_host::ticks();
        let before = LAST.swap(now, Ordering::Relaxed);
        LONGEST.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let used = used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64;
        let before = LAST_CPU.swap(used, Ordering::Relaxed);
        LONGEST_CPU.fetch_max(used.saturating_sub(before), Ordering::Relaxed);
    }
}

/// A handler operation that is repeated.
struct Job {
    what: &'static str,
    /// The configuration's key.
    case: &'static str,
    act: fn(&mut Client, text: &str) -> Result<(), Failure>,
}

const JOBS: &[Job] = &[
    Job { what: "nothing", case: "router", act: |_, _| pass(Duration::from_millis(20)) },
    Job {
        what: "a table of 200,000 routes is read",
        case: "router",
        act: |client, _| client.read("rt.table"),
    },
    Job { what: "10,000 routes are added and removed", case: "router", act: |client, _| routes(client) },
    Job {
        what: "the default route is changed",
        case: "router",
        act: |client, _| {
            client.write("rt.remove", "0.0.0.0/0")?;
            client.write("rt.add", "0.0.0.0/0 10.1.1.2 1")
        },
    },
    Job {
        what: "a configuration of 200,000 routes replaces itself",
        case: "router",
        act: |client, text| client.write("hotconfig", text),
    },
    Job {
        what: "one of 10,000 rules replaces itself",
        case: "firewall.10000",
        act: |client, text| client.write("hotconfig", text),
    },
    Job {
        what: "10,000 rules are written to their filter's config",
        case: "firewall.10000",
        act: |client, text| {
            let rules = text.split_once("IPFilter(").and_then(|(_, rest)| rest.split_once(") ->"));
            client.write("filter.config", rules.ok_or("no rules")?.0)
        },
    },
    Job {
        what: "a table of 1,000,000 flows is read",
        case: "nat",
        act: |client, _| client.read("table.tcp_table"),
    },
    Job {
        what: "a configuration takes over 1,000,000 flows",
        case: "nat",
        act: |client, text| client.write("hotconfig", text),
    },
    Job {
        what: "1,000,000 flows are cleared",
        case: "nat",
        act: |client, _| client.write("table.clear", ""),
    },
    Job {
        what: "sessions of a concentrator are listed",
        case: "bras",
        act: |client, _| client.read("bras.table 10000"),
    },
];

/// The longest delay of any operation.
pub fn measure(_: &Plan) -> Result<Entry, Failure> {
    crate::harness::two_cores()?;
    let ticks = ringway_host::ticks_per_second() / 1e6;
    let (mut worst, mut steps) = (Vec::new(), Vec::new());
    for jobs in JOBS.chunk_by(|one, next| one.case == next.case) {
        for (job, done) in jobs.iter().zip(with_router(jobs)?) {
            let most = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
            let pauses: Vec<f64> = done.iter().map(|(pause, ..)| *pause as f64 / ticks).collect();
            let used: Vec<f64> = done.iter().map(|(_, used, _)| *used as f64 / 1e3).collect();
            let times: Vec<f64> = done.iter().map(|(.., took)| took.as_secs_f64() * 1e3).collect();
            worst.push(most(&pauses));
            let median = crate::entry::median(&pauses).unwrap_or(f64::NAN);
            steps.push((
                job.what,
                [
                    ("us", most(&pauses)),
                    ("median, us", median),
                    ("CPU, us", most(&used)),
                    ("takes, ms", most(&times)),
                ],
            ));
        }
    }
    let most = |replaces: bool| {
        let of = JOBS.iter().zip(&worst).filter(|(job, _)| job.what.contains("itself") == replaces);
        of.map(|(_, pause)| *pause).fold(0.0, f64::max)
    };
    let (handlers, replaced) = (most(false), most(true));
    let entry = Entry { ours: Some(handlers.max(replaced)), unit: "us".into(), runs: 1, ..Entry::default() };
    let entry = entry.mark(format!("all others <= {MARK} us"), handlers <= MARK);
    let entry = entry.mark(format!("replacing itself <= {REPLACED} us"), replaced <= REPLACED);
    let entry = steps.into_iter().fold(entry, |entry, (what, figures)| entry.step(what, &figures));
    Ok(entry
        .note("the longest time without packets while handlers are called over a ControlSocket; worst of 5"))
}

/// A router with the jobs' configuration on a separate core; returns each job's delays in ticks.
fn with_router(jobs: &[Job]) -> Result<Vec<Vec<Done>>, Failure> {
    let found = jobs.first().and_then(|job| CASES.iter().find(|case| case.key == job.case));
    let case = found.ok_or("no such configuration")?;
    let folder = Folder::new()?;
    let socket = folder.path().join("handlers");
    let text = (case.text)(&format!("{} -> BenchmarkPause", super::SOURCE), "Discard");
    let arguments = ["-R", "--burst", &PACKETS.to_string(), "-u", &socket.display().to_string(), "-e", &text];
    let arguments = arguments.map(String::from);
    std::thread::scope(|scope| {
        let running = scope.spawn(move || {
            let _pinned = Pinned::to(WORKER)?;
            source::set(Rc::new((case.frames)(Length::Fixed(64))));
            let mut registry = registry();
            registry.add(&[&source::CLASS, &CLASS]);
            match run_with(registry, &arguments, Terminal) {
                0 => Ok(()),
                code => Err::<(), Failure>(format!("the router ended with {code}").into()),
            }
        });
        let pauses = Pinned::to(LOAD).and_then(|_pinned| call(&socket, jobs, &text));
        match running.join() {
            Ok(ended) => ended.and(pauses),
            Err(_) => Err("the router's thread broke".into()),
        }
    })
}

fn call(socket: &Path, jobs: &[Job], text: &str) -> Result<Vec<Vec<Done>>, Failure> {
    let mut client = Client::connect(socket)?;
    let pauses = calls(&mut client, jobs, text);
    client.write("stop", "")?;
    pauses
}

fn calls(client: &mut Client, jobs: &[Job], text: &str) -> Result<Vec<Vec<Done>>, Failure> {
    let mut pauses = Vec::new();
    for job in jobs {
        let mut own = Vec::new();
        for _ in 0..TIMES {
            if job.case == "nat" {
                client.wait_for("table.size", FLOWS)?;
            }
            pass(Duration::from_millis(20))?;
            LONGEST.store(0, Ordering::Relaxed);
            LONGEST_CPU.store(0, Ordering::Relaxed);
            let began = Instant::now();
            (job.act)(client, text)?;
            let took = began.elapsed();
            pass(Duration::from_millis(2))?;
            own.push((LONGEST.load(Ordering::Relaxed), LONGEST_CPU.load(Ordering::Relaxed), took));
        }
        pauses.push(own);
    }
    Ok(pauses)
}

fn pass(time: Duration) -> Result<(), Failure> {
    std::thread::sleep(time);
    Ok(())
}

fn routes(client: &mut Client) -> Result<(), Failure> {
    for command in ["add", "remove"] {
        let mut text = String::new();
        for number in 0..ROUTES {
            let port = if command == "add" { " 1" } else { "" };
            let _ =
                writeln!(text, "{command} {}/32{port}", std::net::Ipv4Addr::from(0xe000_0000 + number * 256));
        }
        client.write("rt.ctrl", &text)?;
    }
    Ok(())
}

/// A connection to a ControlSocket.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &Path) -> Result<Client, Failure> {
        let end = Instant::now() + OPERATION_TIMEOUT;
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > end => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        stream.set_read_timeout(Some(OPERATION_TIMEOUT))?;
        let mut client = Client(BufReader::new(stream));
        client.line()?;
        Ok(client)
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line)
    }

    fn ask(&mut self, command: &[u8]) -> Result<(), Failure> {
        self.0.get_mut().write_all(command)?;
        let mut response = self.line()?;
        while response.lines().last().is_some_and(|line| line.as_bytes().get(3) == Some(&b'-')) {
            response += &self.line()?;
        }
        if response.starts_with("200 ") { Ok(()) } else { Err(response.into()) }
    }

    fn value(&mut self, call: &str) -> Result<Vec<u8>, Failure> {
        self.ask(format!("READ {call}\r\n").as_bytes())?;
        let line = self.line()?;
        let length = line.trim().strip_prefix("DATA ").and_then(|length| length.parse().ok());
        let mut value = vec![0; length.ok_or(line)?];
        self.0.read_exact(&mut value)?;
        Ok(value)
    }

    fn read(&mut self, call: &str) -> Result<(), Failure> {
        self.value(call).map(drop)
    }

    fn write(&mut self, handler: &str, value: &str) -> Result<(), Failure> {
        self.ask(format!("WRITEDATA {handler} {}\r\n{value}", value.len()).as_bytes())
    }

    fn wait_for(&mut self, call: &str, number: u64) -> Result<(), Failure> {
        let end = Instant::now() + OPERATION_TIMEOUT;
        loop {
            let value = String::from_utf8_lossy(&self.value(call)?).trim().parse::<u64>()?;
            if value >= number {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{call} stays at {value}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
