//! Chains of wires: what each further one costs.

use super::cores;
use super::fabric_function::{FabricFunction, RunsIn};
use super::load::Load;
use crate::Failure;
use crate::click::CASES;
use crate::click::frames::{Frames, Length};
use crate::entry::{Better, Entry, Slices};
use crate::harness::{LOAD, Pinned};
use crate::plan::Plan;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);
/// Ticks that a further function on a worker may cost.
const TICKS: f64 = 40.0;
/// Microseconds that a further process may cost, where it has a core.
const MICROSECONDS: f64 = 1.0;

/// Frames of 64 bytes.
pub fn frames() -> Result<Frames, Failure> {
    frames_of(Length::Fixed(64))
}

fn frames_of(length: Length) -> Result<Frames, Failure> {
    let case = CASES.iter().find(|case| case.key == "forward").ok_or("no such configuration")?;
    Ok((case.frames)(length))
}

/// Millions of frames a second through one wire on a worker.
pub fn wire(plan: &Plan, length: Length) -> Result<Slices, Failure> {
    let mut function = FabricFunction::chain(1, RunsIn::Worker)?;
    let _pinned = Pinned::to(LOAD)?;
    let mut load = Load::new(&mut function, frames_of(length)?);
    load.send_each_once()?;
    plan.alone(SLICE, |time| Ok(load.rate(time)? / 1e6))
}

/// One function: millions of frames a second. More: what each of the others adds to the time of a frame, against a
/// chain of one in alternating slices.
pub fn chain(plan: &Plan, count: usize, process: bool) -> Result<Entry, Failure> {
    let place = if process { RunsIn::Process } else { RunsIn::Worker };
    let mut one = FabricFunction::chain(1, place)?;
    let mut all = if count > 1 { Some(FabricFunction::chain(count, place)?) } else { None };
    let cores = cores();
    let _pinned = Pinned::to(LOAD)?;
    let mut first = Load::new(&mut one, frames()?);
    first.send_each_once()?;
    let Some(all) = &mut all else {
        let slices = plan.alone(SLICE, |time| Ok(first.rate(time)? / 1e6))?;
        return Ok(slices.entry("Mpps", Better::More));
    };
    let mut whole = Load::new(all, frames()?);
    whole.send_each_once()?;
    let unit = if process { 1e6 } else { ringway_host::ticks_per_second() };
    let [slices, rates] = plan.figures(2 * SLICE, |time| {
        let (short, long) = (first.rate(time / 2)?, whole.rate(time / 2)?);
        let added = (long.recip() - short.recip()) / (count - 1) as f64;
        Ok([added * unit, long / 1e6])
    })?;
    let rate = rates.entry("Mpps", Better::More);
    let entry = slices.entry(if process { "us" } else { "ticks" }, Better::Less);
    let entry = entry.with("Mpps of the whole chain", rate.ours.unwrap_or(f64::NAN));
    Ok(match (process, cores >= count + 2) {
        (false, _) => entry.at_most(TICKS),
        (true, true) => entry.at_most(MICROSECONDS),
        (true, false) => {
            entry.note("more processes than cores: they share them with the load and the worker")
        }
    })
}
