//! Frames a second through a function on one core; the load has the other.

use super::WIRE;
use super::piped_function::{LARGE, MEMORY, PipedFunction, Plan as Order, Side};
use crate::Failure;
use crate::click::frames::{Flow, Frames, LEAST, Length};
use crate::entry::{Better, Entry, Slices, median};
use crate::functions::load::Load;
use crate::functions::{LENGTHS, case};
use crate::harness::{LOAD, Pinned, WORKER};
use crate::plan::Plan;
use std::net::Ipv4Addr;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);
/// Time before a slice in which the side's function wakes up.
const WARM: Duration = Duration::from_millis(5);
const SLOTS: u32 = 512;

/// A load between the ends of a function.
type Measure = fn(&mut Load<'_>, Duration) -> Result<f64, Failure>;

fn order<'a>(side: Side, text: &'a dyn Fn(&str, &str) -> String, slots: u32) -> Order<'a> {
    Order {
        side,
        text,
        memory: MEMORY,
        core: Some(WORKER),
        slots,
        single: false,
        snapshot: None,
        spare: false,
    }
}

/// A side that is measured.
struct Lane {
    function: PipedFunction,
    frames: Option<Frames>,
}

impl Lane {
    fn new(order: &Order<'_>, frames: Frames) -> Result<Lane, Failure> {
        let mut function = PipedFunction::start(order)?;
        if let Err(error) = function.settle() {
            return Err(format!("{error}; {}", function.why()).into());
        }
        Ok(Lane { function, frames: Some(frames) })
    }

    fn with<T>(&mut self, use_it: impl FnOnce(&mut Load<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        let frames = self.frames.take().ok_or("the load failed before")?;
        let (from, to) = self.function.ends()?;
        let mut load = Load::between(from, to, frames);
        let result = use_it(&mut load);
        self.frames = Some(load.into_frames());
        result
    }

    /// Millions a second.
    fn rate(&mut self, time: Duration, measure: Measure) -> Result<f64, Failure> {
        self.with(|load| {
            measure(load, WARM)?;
            Ok(measure(load, time)? / 1e6)
        })
    }
}

/// Slices of a VM and of a process; frames that are in the rings of the one that rests wait there.
fn pairs(plan: &Plan, mut sides: [Lane; 2], measure: Measure) -> Result<Slices, Failure> {
    // Not before the functions were started: their processes would inherit it.
    let _pinned = Pinned::to(LOAD)?;
    let [vm, process] = &mut sides;
    plan.pairs(SLICE, |time| vm.rate(time, measure), |time| process.rate(time, measure))
}

fn entry(slices: &Slices) -> Entry {
    let entry = slices.entry("Mpps", Better::More);
    let ticks = ringway_host::ticks_per_second() / 1e6 / entry.best.unwrap_or(f64::NAN);
    entry.with("best, ticks a frame", ticks)
}

const NOTE: &str =
    "the function on one core, between two pipes; their other ends in one thread on the other core";

/// A middlebox in a VM, and in a process.
pub fn middlebox(plan: &Plan, name: &str, length: usize) -> Result<Entry, Failure> {
    let (case, (_, length)) = (case(name)?, LENGTHS[length]);
    let text =
        |first: &str, last: &str| (case.text)(&format!("FromPort({first})"), &format!("ToPort({last})"));
    let lane = |side| {
        let order = Order { memory: LARGE, ..order(side, &text, SLOTS) };
        let mut lane = Lane::new(&order, (case.frames)(length))?;
        lane.with(|load| load.send_each_once())?;
        Ok::<_, Failure>(lane)
    };
    let slices = pairs(plan, [lane(Side::Vm)?, lane(Side::Process)?], |load, time| load.rate(time))?;
    let entry = entry(&slices).ratio_at_least(0.9).note(NOTE);
    Ok(match (name, length) {
        ("wire", Length::Fixed(64)) => entry.at_least(14.0).note("ClickOS: 14 Mpps"),
        ("ids", _) | (_, Length::Fixed(1500) | Length::Imix) => entry,
        _ => entry.at_least(5.0),
    })
}

fn frames() -> Frames {
    let flow = |number: usize| Flow {
        addresses: [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 1)],
        ports: [number as u16, 80],
        opens: false,
    };
    Frames::new(Length::Fixed(64), LEAST, flow)
}

fn both(plan: &Plan, text: fn(&str, &str) -> String, measure: Measure) -> Result<Slices, Failure> {
    let lane = |side| Lane::new(&order(side, &text, SLOTS), frames());
    pairs(plan, [lane(Side::Vm)?, lane(Side::Process)?], measure)
}

/// Frames that a VM takes.
pub fn receive(plan: &Plan) -> Result<Entry, Failure> {
    let text = |first: &str, last: &str| format!("FromPort({first}) -> Discard; Idle -> ToPort({last});");
    Ok(entry(&both(plan, text, |load, time| load.sent(time))?).at_least(9.0).ratio_at_least(0.9).note(NOTE))
}

/// Frames that a VM sends.
pub fn send(plan: &Plan) -> Result<Entry, Failure> {
    let text = |first: &str, last: &str| {
        format!("FromPort({first}) -> Discard; InfiniteSource(LENGTH 60, BURST 64) -> ToPort({last});")
    };
    Ok(entry(&both(plan, text, |load, time| load.received(time))?)
        .at_least(14.0)
        .ratio_at_least(0.9)
        .note(NOTE))
}

/// A wire, by the number of slots.
pub fn slots(plan: &Plan) -> Result<Entry, Failure> {
    let mut best: Option<Entry> = None;
    let mut steps = Vec::new();
    for slots in [64, 128, 256, 512, 1024, 2048] {
        let lane = |side| Lane::new(&order(side, &WIRE, slots), frames());
        let sides = [lane(Side::Vm)?, lane(Side::Process)?];
        let slices = pairs(&plan.part(0.3), sides, |load, time| load.rate(time))?;
        let median = |figures: &[f64]| median(figures).unwrap_or(f64::NAN);
        steps.push((format!("{slots} slots"), [median(&slices.ours), median(&slices.peer)]));
        let row = entry(&slices);
        if best.as_ref().is_none_or(|best| best.ours < row.ours) {
            best = Some(row);
        }
    }
    let best = best.ok_or("no figures")?.note(NOTE);
    Ok(steps.into_iter().fold(best, |entry, (name, [vm, process])| {
        entry.step(name, &[("VM, Mpps", vm), ("process, Mpps", process)])
    }))
}
