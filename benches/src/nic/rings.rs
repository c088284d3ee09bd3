//! Rings inside guests: through the switch, and through a pipe between guests that trust each other.

use super::SLICE;
use super::figures::{Figures, fastest, figure, rates};
use super::ladder::SHORT;
use super::pair::{Pair, Role, Way};
use crate::Failure;
use crate::entry::{Better, Entry};
use crate::plan::Plan;

const WORDS: &str = "batch=128 polls=200";

/// Frames of `size` bytes.
pub fn measure(plan: &Plan, size: usize) -> Result<Entry, Failure> {
    let words = format!("{WORDS} size={size}");
    let factor = if size == SHORT { 1.0 } else { size as f64 * 8e-3 };
    let way = |way: fn(u32) -> Way, plan: &Plan| {
        let slots = fastest(|slots| figure(&mut Pair::new(&way(slots))?, Role::Send, SLICE, &words))?;
        let (slices, stages) = rates(plan, &mut Pair::new(&way(slots))?, &words, factor)?;
        Ok::<_, Failure>((slots, slices, stages))
    };
    let (slots, switched, stages) = way(Way::Rings, plan)?;
    let (pipe_slots, piped, pipe_stages) = way(Way::Pipe, &plan.part(0.5))?;
    let through = piped.entry("", Better::More);
    let entry = match size {
        SHORT => switched.entry("Mpps", Better::More).at_least(19.0),
        _ => switched.entry("Gb/s", Better::More).at_least(25.0),
    };
    let entry = match (size, through.ours_interval) {
        (SHORT, Some([low, _])) => entry.mark("pipe >= 46 Mpps", low >= 46.0),
        _ => entry,
    };
    let name = entry.unit.clone();
    let with = |rate: Option<f64>, stages: &Figures| {
        let rate = rate.map(|rate| (name.as_str(), rate));
        rate.into_iter().chain(stages.iter().copied()).collect::<Vec<_>>()
    };
    let rows = [
        (format!("switch, both guests on one core, {slots} slots"), with(entry.ours, &stages)),
        (format!("pipe, a core for each guest, {pipe_slots} slots"), with(through.ours, &pipe_stages)),
    ];
    let entry = rows.into_iter().fold(entry, |entry, (name, figures)| entry.step(name, &figures));
    Ok(entry.note("the receiver reads each frame whole; no frame is wrong, late or lost"))
}
