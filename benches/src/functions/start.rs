//! Starting processes: one, the 400th, and many at once.

use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::machine;
use crate::plan::Plan;
use crate::vms::piped_function::Side;
use crate::vms::{boot, many};
use std::time::{Duration, Instant};

/// Milliseconds until the first frame.
pub fn alone(plan: &Plan) -> Result<Entry, Failure> {
    let mut times = Vec::new();
    let end = Instant::now() + Duration::from_secs_f64(plan.seconds);
    while times.len() < 20 || Instant::now() < end {
        machine::sample();
        times.push(boot::once(Side::Process)?.1);
    }
    let last: Vec<f64> = times.iter().map(|times| times[3]).collect();
    let row = Slices::of(&last, &[]).entry("ms", Better::Less);
    let row = row.best_at_most(5.0).note("confined, as the fabric starts it; without control");
    let names = ["process exists", "configuration runs", "rings are there", "first frame"];
    Ok(names.iter().enumerate().fold(row, |row, (at, name)| {
        let middle = median(&times.iter().map(|times| times[at]).collect::<Vec<_>>());
        row.step(format!("until: {name}"), &[("median, ms", middle.unwrap_or(f64::NAN))])
    }))
}

/// Milliseconds beside 399 others.
pub fn four_hundredth(plan: &Plan) -> Result<Entry, Failure> {
    let times = many::four_hundredth(Side::Process, plan.seconds)?;
    let row = Slices::of(&times, &[]).entry("ms", Better::Less);
    Ok(row.best_at_most(10.0).note("399 others sleep"))
}

/// Seconds until each has returned a frame.
pub fn thousand(_: &Plan) -> Result<Entry, Failure> {
    let (memory, time) = many::thousand(Side::Process)?;
    let [proportional, own] = memory.map(|kb| kb / 1024.0);
    let row = Slices::of(&[time], &[]).entry("s", Better::Less);
    let row = row.with("PSS of each, MB", proportional).with("private, MB", own);
    let row = row.mark("<= 2 MB each", proportional <= 2.0);
    Ok(row.note("all are asked for before the first is awaited"))
}
