//! Functions between two programs on ring ports, on a worker and in a process, alone and in chains; the examples'
//! files; starting and changing a function on a worker.

pub mod chain;
mod delay;
mod document;
mod examples;
pub mod fabric_function;
pub mod load;
mod multiply;
mod start;

use crate::Failure;
use crate::click::frames::Length;
use crate::click::{CASES, Case};
use crate::entry::{Better, Entry, Slices};
use crate::harness::{LOAD, Pinned};
use crate::keys::{Group, Key, QUIET, Row, Several, With, keys};
use crate::plan::Plan;
use crate::vms::boot;
use crate::vms::piped_function::Side;
pub use document::write as document;
use fabric_function::FabricFunction;
use load::Load;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);
/// Millions of frames a second that a function on a worker must pass at 64 bytes: ClickOS's on average.
const MARK: f64 = 5.0;
/// Share of a worker's rate that a process must reach where it has a core, as the worker and the load have.
const SHARE: f64 = 0.6;
const CORES: usize = 3;
/// Time before a slice in which what rests wakes up.
const WARM: Duration = Duration::from_millis(5);

/// The middleboxes, and the keys of their configurations and frames among those of the subject `click`.
pub const NAMES: [(&str, &str); 9] = [
    ("wire", "forward"),
    ("mirror", "mirror"),
    ("router", "router"),
    ("firewall", "firewall.10"),
    ("nat", "nat"),
    ("bras", "bras"),
    ("lb", "lb"),
    ("flowmon", "flowmon"),
    ("ids", "ids.5"),
];
pub const LENGTHS: [(&str, Length); 3] =
    [("64", Length::Fixed(64)), ("1500", Length::Fixed(1500)), ("imix", Length::Imix)];

/// Passes the names and descriptions of all middleboxes to a macro; `$wire` describes the first one.
macro_rules! each_middlebox {
    ($macro:ident, $wire:literal) => {
        $macro! {
            "wire": $wire;
            "mirror": "Ethernet addresses swapped";
            "router": "IP router, 200,000 prefixes";
            "firewall": "IPFilter with 10 rules that do not match";
            "nat": "IPRewriter, 1,000,000 known flows";
            "bras": "PPPoEConcentrator, 100,000 sessions, frames from subscribers";
            "lb": "IPLoadBalancer with 16 servers, 1,000,000 known connections";
            "flowmon": "FlowMonitor, 1,000,000 known flows";
            "ids": "IDSMatcher with 5 patterns";
        }
    };
}
pub(crate) use each_middlebox;

/// The keys of middleboxes.
macro_rules! middleboxes {
    ($($name:literal: $what:literal;)*) => {
        &[$(
            Key::new(concat!($name, ".worker.64"), concat!($what, ", on a worker, 64 B"), |plan| {
                worker(plan, $name, 0)
            }),
            Key::new(concat!($name, ".worker.1500"), "the same, 1500 B", |plan| worker(plan, $name, 1)),
            Key::new(concat!($name, ".worker.imix"), "the same, IMIX", |plan| worker(plan, $name, 2)),
            Key::new(
                concat!($name, ".process.64"),
                concat!($what, ", in a process, 64 B; on a worker"),
                |plan| process(plan, $name, 0),
            ),
            Key::new(concat!($name, ".process.1500"), "the same, 1500 B", |plan| process(plan, $name, 1)),
            Key::new(concat!($name, ".process.imix"), "the same, IMIX", |plan| process(plan, $name, 2)),
        )*]
    };
}

/// All groups.
pub const GROUPS: &[Group] = &[ELEMENTS, OTHERS, examples::GROUP];

const ELEMENTS: Group =
    Group { name: "functions", keys: each_middlebox!(middleboxes, "frames passed on"), setup: 60.0, ..QUIET };

const OTHERS: Group = Group {
    name: "functions.others",
    keys: keys! {
        "chain.worker.1": Row(|plan| chain::chain(plan, 1, false)), "a chain of one wire on a worker, 64 B";
        "chain.worker.2": Row(|plan| chain::chain(plan, 2, false)),
            "of 2 wires on a worker: ticks a frame that each further one adds to one";
        "chain.worker.3": Row(|plan| chain::chain(plan, 3, false)),
            "of 3 wires on a worker: ticks a frame that each further one adds to one";
        "chain.worker.4": Row(|plan| chain::chain(plan, 4, false)),
            "of 4 wires on a worker: ticks a frame that each further one adds to one";
        "chain.worker.5": Row(|plan| chain::chain(plan, 5, false)),
            "of 5 wires on a worker: ticks a frame that each further one adds to one";
        "chain.worker.6": Row(|plan| chain::chain(plan, 6, false)),
            "of 6 wires on a worker: ticks a frame that each further one adds to one";
        "chain.worker.7": Row(|plan| chain::chain(plan, 7, false)),
            "of 7 wires on a worker: ticks a frame that each further one adds to one";
        "chain.worker.8": Row(|plan| chain::chain(plan, 8, false)),
            "of 8 wires on a worker: ticks a frame that each further one adds to one";
        "chain.worker.9": Row(|plan| chain::chain(plan, 9, false)),
            "of 9 wires on a worker: ticks a frame that each further one adds to one";
        "chain.process.1": Row(|plan| chain::chain(plan, 1, true)), "a chain of one wire in processes, 64 B";
        "chain.process.2": Row(|plan| chain::chain(plan, 2, true)),
            "of 2 wires in processes: us a frame that each further one adds to one";
        "chain.process.3": Row(|plan| chain::chain(plan, 3, true)),
            "of 3 wires in processes: us a frame that each further one adds to one";
        "chain.process.4": Row(|plan| chain::chain(plan, 4, true)),
            "of 4 wires in processes: us a frame that each further one adds to one";
        "chain.process.5": Row(|plan| chain::chain(plan, 5, true)),
            "of 5 wires in processes: us a frame that each further one adds to one";
        "chain.process.6": Row(|plan| chain::chain(plan, 6, true)),
            "of 6 wires in processes: us a frame that each further one adds to one";
        "chain.process.7": Row(|plan| chain::chain(plan, 7, true)),
            "of 7 wires in processes: us a frame that each further one adds to one";
        "chain.process.8": Row(|plan| chain::chain(plan, 8, true)),
            "of 8 wires in processes: us a frame that each further one adds to one";
        "chain.process.9": Row(|plan| chain::chain(plan, 9, true)),
            "of 9 wires in processes: us a frame that each further one adds to one";
        "start.worker": Row(start), "from the request for a wire on a worker to its first frame, us";
        "start.process": Row(start::alone), "from the start of a wire's process to its first frame";
        "start.process.400th": Row(start::four_hundredth), "the same with 399 others alive";
        "start.process.1000": Row(start::thousand),
            "1,000 processes at once, until each has returned a frame";
        "delay.process": Several(|plan| delay::polling(plan, true)),
            "what a wire in a process that polls adds to a frame's way, p50";
        "delay.process.p99": With("delay.process"), "the same, p99";
        "delay.process.asleep": Row(|plan| delay::asleep(plan, true)),
            "the same, p50; the process sleeps before each frame";
        "delay.worker": Several(|plan| delay::polling(plan, false)),
            "from a program's ring through a wire on a worker that polls to another's, p50";
        "delay.worker.p99": With("delay.worker"), "the same, p99";
        "delay.worker.asleep": Row(|plan| delay::asleep(plan, false)),
            "the same, p50; the worker sleeps before each frame";
        "multiply.process": Row(|plan| multiply::multiply(plan, "process")),
            "from a load's first frame to the first one that a second instance sends";
        "multiply.worker": Row(|plan| multiply::multiply(plan, "worker")), "the same on workers";
        "update.worker": Row(update), "frames lost by changes of a wire on a worker while frames pass";
        "update.process": Row(|plan| boot::update(plan, Side::Process)), "the same of a wire in a process";
    },
    ..ELEMENTS
};

/// The configuration and frames of a middlebox of [`NAMES`].
pub fn case(name: &str) -> Result<&'static Case, Failure> {
    let key = NAMES.iter().find(|(own, _)| *own == name).map(|(_, key)| *key);
    Ok(CASES.iter().find(|case| Some(case.key) == key).ok_or("no such configuration")?)
}

/// A function with a configuration on its worker.
fn on_worker(case: &Case) -> Result<FabricFunction, Failure> {
    let mut function = FabricFunction::new()?;
    function.start((case.text)("FromPort(in)", "ToPort(out)"))?;
    Ok(function)
}

/// Millions of frames a second from a program through a function on a worker to another.
fn worker(plan: &Plan, name: &str, length: usize) -> Result<Entry, Failure> {
    let (case, (size, length)) = (case(name)?, LENGTHS[length]);
    let mut function = on_worker(case)?;
    let _pinned = Pinned::to(LOAD)?;
    let mut load = Load::new(&mut function, (case.frames)(length));
    load.send_each_once()?;
    let slices = plan.alone(SLICE, |time| Ok(load.rate(time)? / 1e6))?;
    Ok(marked(row(&slices, length, load.lost()), name, size))
}

/// With the target of frames of 64 bytes, if the middlebox has one.
fn marked(row: Entry, name: &str, size: &str) -> Entry {
    if size == "64" && name != "ids" { row.at_least(MARK) } else { row }
}

/// Millions of frames a second through a function in a process, in alternation with a worker.
fn process(plan: &Plan, name: &str, length: usize) -> Result<Entry, Failure> {
    let (case, (_, length)) = (case(name)?, LENGTHS[length]);
    let (mut own, mut peer) = (FabricFunction::new()?, on_worker(case)?);
    own.start_process("in", "out", case.text)?;
    let cores = cores();
    let _pinned = Pinned::to(LOAD)?;
    let mut own = Load::new(&mut own, (case.frames)(length));
    own.send_each_once()?;
    let mut peer = Load::new(&mut peer, (case.frames)(length));
    peer.send_each_once()?;
    beside(plan, [&mut own, &mut peer], length, cores)
}

/// The rate of the load of a process, and its ratio to a worker's in alternating slices.
fn beside(
    plan: &Plan,
    [own, peer]: [&mut Load<'_>; 2],
    length: Length,
    cores: usize,
) -> Result<Entry, Failure> {
    let rate = |load: &mut Load<'_>, time| {
        load.rate(WARM)?;
        Ok(load.rate(time)? / 1e6)
    };
    let slices = plan.pairs(SLICE, |time| rate(own, time), |time| rate(peer, time))?;
    let entry = figures(&slices, length, own.lost());
    Ok(if cores >= CORES {
        entry
            .ratio_at_least(SHARE)
            .note("peer: the same on a worker; the function's process may use any core")
    } else {
        entry.note("peer: the same on a worker; the function's process shares two cores with it and the load")
    })
}

/// The row of a function on a worker.
fn row(slices: &Slices, length: Length, lost: f64) -> Entry {
    figures(slices, length, lost).note("the worker and the function on one core, both programs on the other")
}

fn figures(slices: &Slices, length: Length, lost: f64) -> Entry {
    let entry = slices.entry("Mpps", Better::More);
    let ticks = ringway_host::ticks_per_second() / 1e6 / entry.best.unwrap_or(f64::NAN);
    let entry = entry.with("best, ticks a frame", ticks).with("lost, %", lost);
    entry.with("10 Gb/s line, Mpps", length.line())
}

/// Cores that this thread may use; fewer while it is pinned.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

const WIRE: &str = "FromPort(in) -> ToPort(out); FromPort(out) -> ToPort(in);";

/// Microseconds from the request to the first frame.
fn start(plan: &Plan) -> Result<Entry, Failure> {
    let mut function = FabricFunction::new()?;
    let mut slices = Slices::default();
    let end = Instant::now() + Duration::from_secs_f64(plan.seconds);
    while slices.ours.len() < 6 || Instant::now() < end {
        let begin = Instant::now();
        function.start(WIRE.into())?;
        load::first(&mut function)?;
        slices.ours.push(begin.elapsed().as_secs_f64() * 1e6);
        function.stop()?;
    }
    Ok(slices
        .entry("us", Better::Less)
        .at_most(5000.0)
        .note("without control: parse, build, ports, one frame"))
}

/// Numbered frames that did not arrive, in each slice with a change.
fn update(plan: &Plan) -> Result<Entry, Failure> {
    let mut function = FabricFunction::new()?;
    function.start(WIRE.into())?;
    let mut number = 0;
    let slices = plan.alone(SLICE, |time| {
        number += 1;
        let text = WIRE.replace("-> ToPort(out)", &format!("-> c{number} :: Counter -> ToPort(out)"));
        let change = function.change(&text)?;
        Ok(load::lost(&mut function, time, change)? as f64)
    })?;
    Ok(slices.entry("frames", Better::Less).at_most(0.0))
}
