//! Moderation against rate and round-trip time, and doorbells that are mapped.

use super::SLICE;
use super::figures::{COSTS, highest, medians};
use super::ladder::{ALL, STOCK, all};
use super::pair::{MODEL, Pair, Role, Way};
use crate::Failure;
use crate::entry::{Better, Entry};
use crate::plan::Plan;
use ringway_port::e1000::Techniques;

/// Windows in microseconds.
const WINDOWS: [u64; 7] = [0, 20, 50, 100, 200, 500, 1000];
const RATE: &str = "Mpps";
const TRIP: &str = "round trip, us";

/// Windows of 0 to 1 ms for a driver without a shared block, then one with it.
pub fn windows(plan: &Plan) -> Result<Entry, Failure> {
    let plan = plan.part(0.5 / (2 * WINDOWS.len() + 2) as f64);
    let mut entry = Entry { unit: RATE.into(), ..Entry::default() };
    let moderated =
        |window: u64| Techniques { moderate: window * 1000, timers: false, ..Techniques::default() };
    let rows = WINDOWS.map(|window| (format!("{window} us"), moderated(window), STOCK));
    for (name, techniques, words) in rows.into_iter().chain([("CSB".into(), all(), ALL)]) {
        let mut pair = Pair::new(&Way::Switch(MODEL, techniques))?;
        let slices = plan.slices(SLICE);
        let mut rates = medians([RATE, COSTS[2]], slices, || {
            let slice = pair.run(Role::Send, SLICE, words)?;
            Ok([slice.figure(Role::Send)?, slice.costs(Role::Send)?[2]])
        })?;
        let trips =
            medians([TRIP], slices, || Ok([pair.run(Role::Ping, SLICE, words)?.figure(Role::Ping)?]))?;
        entry.ours = highest(entry.ours, &rates);
        rates.extend(trips);
        entry = entry.step(name, &rates);
    }
    Ok(entry.note("tiny guests on the switch, trapped doorbells; both guests on one core"))
}

/// Messages for doorbells of cards whose tail registers are mapped.
pub fn doorbells(plan: &Plan) -> Result<Entry, Failure> {
    let techniques = Techniques { mapped: Some(true), ..Techniques::default() };
    let mut pair = Pair::new(&Way::Switch("82574l", techniques))?;
    let mut rates = Vec::new();
    let slices = plan.alone(SLICE, |time| {
        let slice = pair.run(Role::Send, time, "batch=1 polls=20")?;
        rates.push(slice.figure(Role::Send)?);
        Ok(slice.tails as f64 / slice.frames(Role::Send)?)
    })?;
    let rate = crate::entry::median(&rates).unwrap_or_default();
    Ok(slices.entry("messages", Better::Less).at_most(0.001).with("Mpps", rate))
}
