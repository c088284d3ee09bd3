//! Rings inside guests: through the switch, and through a pipe between guests that trust each other.

use super::SLICE;
use super::pair::{Pair, Way, stream};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::plan::Plan;

/// The largest rings: guests on one core alternate when a ring is full or empty.
const SLOTS: u32 = 4096;
const WORDS: &str = "batch=128";

/// Frames of `size` bytes.
pub fn measure(plan: &Plan, size: usize) -> Result<Entry, Failure> {
    let switched = rates(plan, &Way::Rings(SLOTS), size)?;
    let piped = rates(&plan.part(0.5), &Way::Pipe(SLOTS), size)?;
    let through = piped.entry("", Better::More);
    let entry = match size {
        64 => switched.entry("Mpps", Better::More).at_least(19.0),
        _ => switched.entry("Gb/s", Better::More).at_least(25.0),
    };
    let entry = match (size, through.ours_interval) {
        (64, Some([low, _])) => entry.mark("pipe >= 46 Mpps", low >= 46.0),
        _ => entry,
    };
    Ok(entry
        .step_of("pipe, a core for each guest", &piped)
        .note("both guests on one core; the receiver reads each frame whole; wrong ones do not end the run"))
}

fn rates(plan: &Plan, way: &Way, size: usize) -> Result<Slices, Failure> {
    let mut pair = Pair::new(way)?;
    plan.alone(SLICE, |time| {
        let [_, receiver] = pair.run(stream(size, time, WORDS))?;
        let rate = receiver.figure("received")? / receiver.figure("active")? * 1e3;
        Ok(if size == 64 { rate } else { rate * size as f64 * 8e-3 })
    })
}
