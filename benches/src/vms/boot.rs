//! Starting and changing a function.

use super::piped_function::{MEMORY, PipedFunction, Plan as Order, Side, answered};
use super::{WIRE, stages};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::functions::load::lost_between;
use crate::machine;
use crate::plan::Plan;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);

/// Times of a start in milliseconds: the process exists, its configuration runs, its rings are there, its first frame
/// came.
pub type Times = [f64; 4];

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Starts a wire as the fabric does, a VM in the spare process, and waits for its first frame.
pub fn once(side: Side) -> Result<(PipedFunction, Times), Failure> {
    start(side, side == Side::Vm, None)
}

fn start(
    side: Side,
    spare: bool,
    snapshot: Option<&(String, OwnedFd)>,
) -> Result<(PipedFunction, Times), Failure> {
    let order =
        Order { side, text: &WIRE, memory: MEMORY, core: None, slots: 256, single: false, snapshot, spare };
    let mut function = PipedFunction::start(&order)?;
    let first = match function.first() {
        Ok(first) => first,
        Err(error) => return Err(format!("{error}; {}", function.why()).into()),
    };
    let times = [function.spawned, function.up, function.attached, first].map(ms);
    Ok((function, times))
}

/// Starts without others; a process in the same run.
pub fn alone(plan: &Plan) -> Result<Entry, Failure> {
    let mut slices = Slices::default();
    let (mut ours, mut containers, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    let end = Instant::now() + Duration::from_secs_f64(plan.seconds);
    while slices.ours.len() < 20 || Instant::now() < end {
        machine::sample();
        let times = once(Side::Vm)?.1;
        ours.push(times);
        slices.ours.push(times[3]);
        slices.peer.push(once(Side::Process)?.1[3]);
        if containers.len() < 20 {
            cold.push(start(Side::Vm, false, None)?.1[3]);
            containers.push(once(Side::Container)?.1[3]);
        }
    }
    let row = slices.entry("ms", Better::Less).best_at_most(5.0).note("peer: a process; ClickOS: 30 ms");
    let row = stages::steps(until(row, &ours))?.step_of_times("without a spare process", &cold);
    let row = row.step_of_times("a container by unshare", &containers);
    Ok(match stages::microvm() {
        Ok(times) => row.step_of_times("QEMU microvm, to its first output", &times),
        Err(error) => row.note(format!("no QEMU microvm: {error}")),
    })
}

/// Adds the times of starts as steps.
fn until(row: Entry, starts: &[Times]) -> Entry {
    let names = ["process exists", "configuration runs", "rings are there", "first frame"];
    names.iter().enumerate().fold(row, |row, (at, name)| {
        let times: Vec<f64> = starts.iter().map(|times| times[at]).collect();
        row.step_of_times(format!("until: {name}"), &times)
    })
}

/// Clones of a wire's snapshot, until the first frame.
pub fn clone(plan: &Plan) -> Result<Entry, Failure> {
    let mut original = once(Side::Vm)?.0;
    let begin = Instant::now();
    let snapshot = original.snapshot()?;
    let taken = ms(begin.elapsed());
    let (mut slices, mut clones) = (Slices::default(), Vec::new());
    let end = Instant::now() + Duration::from_secs_f64(plan.seconds);
    while slices.ours.len() < 20 || Instant::now() < end {
        machine::sample();
        let times = start(Side::Vm, true, Some(&snapshot))?.1;
        clones.push(times);
        slices.ours.push(times[3]);
        slices.peer.push(once(Side::Vm)?.1[3]);
    }
    let row = slices.entry("ms", Better::Less).best_at_most(2.0);
    let row = until(row.with("snapshot taken, ms", taken), &clones);
    Ok(row.note("from the order to the spare process to the clone's first frame; peer: a VM that boots"))
}

/// The time until a running function has taken another configuration.
pub fn install(plan: &Plan) -> Result<Entry, Failure> {
    let [mut vm, mut process] = [Side::Vm, Side::Process].map(once);
    let (mut slices, mut number) = (Slices::default(), 0);
    let end = Instant::now() + Duration::from_secs_f64(plan.seconds);
    while slices.ours.len() < 20 || Instant::now() < end {
        machine::sample();
        for (function, times) in [(&mut vm, &mut slices.ours), (&mut process, &mut slices.peer)] {
            let function = &mut function.as_mut().map_err(|error| error.to_string())?.0;
            number += 1;
            let text = WIRE("in", "out")
                .replace("-> ToPort(out)", &format!("-> c{number} :: Counter -> ToPort(out)"));
            let begin = Instant::now();
            answered(function.change(&text)?)?;
            times.push(ms(begin.elapsed()));
        }
    }
    let row = slices.entry("ms", Better::Less).at_most(5.0);
    Ok(row.note("from the connection to the answer, by `hotconfig`; ClickOS: 5 to 20 ms"))
}

/// Frames that did not arrive, in each slice with a change.
pub fn update(plan: &Plan, side: Side) -> Result<Entry, Failure> {
    let mut function = once(side)?.0;
    let mut number = 0;
    let slices = plan.alone(SLICE, |time| {
        number += 1;
        let text =
            WIRE("in", "out").replace("-> ToPort(out)", &format!("-> c{number} :: Counter -> ToPort(out)"));
        let change = function.change(&text)?;
        let (from, to) = function.ends()?;
        Ok(lost_between(from, to, time, change)? as f64)
    })?;
    Ok(slices.entry("frames", Better::Less).at_most(0.0))
}
