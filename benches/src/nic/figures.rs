//! The figures of a slice, and of several.

use super::SLICE;
use super::pair::{Pair, Role, Slice};
use crate::Failure;
use crate::entry::{Slices, median};
use crate::plan::Plan;
use std::time::Duration;

/// What a frame costs.
pub const COSTS: [&str; 3] = ["exits/frame", "doorbells/frame", "interrupts/frame"];
/// Where the processor time of a frame goes, in nanoseconds.
pub const STAGES: [&str; 5] = ["sender, ns", "receiver, ns", "monitors, ns", "worker, ns", "registers, ns"];

impl Slice {
    /// Frames that arrived.
    pub fn frames(&self, role: Role) -> Result<f64, Failure> {
        let [first, second] = &self.guests;
        let frames = match role {
            Role::Send => second.figure("received")?,
            Role::Ping => 2.0 * first.figure("received")?,
        };
        if frames < 2.0 { Err("no frame came".into()) } else { Ok(frames) }
    }

    /// Millions of frames a second, or the mean round trip in microseconds.
    pub fn figure(&self, role: Role) -> Result<f64, Failure> {
        let [first, second] = &self.guests;
        match role {
            Role::Ping => Ok(first.figure("rtt")? * 1e-3),
            Role::Send => {
                // The time runs from the first look that found frames.
                let frames = second.figure("received")? - second.figure("opening")?;
                match frames {
                    1.0.. => Ok(frames / second.figure("active")? * 1e3),
                    _ => Err("all frames came at once".into()),
                }
            }
        }
    }

    /// Exits, doorbells and interrupts of both guests for each frame.
    pub fn costs(&self, role: Role) -> Result<[f64; 3], Failure> {
        let frames = self.frames(role)?;
        let mut costs = [0.0; 3];
        for guest in &self.guests {
            costs[0] += guest.exits() / frames;
            costs[1] += guest.figure("kicks")? / frames;
            costs[2] += guest.counts.interrupts as f64 / frames;
        }
        Ok(costs)
    }

    /// Nanoseconds from the start of the second guest, which starts first, to its end.
    pub fn elapsed(&self) -> f64 {
        self.guests[1].elapsed as f64
    }

    /// Nanoseconds of each stage for each frame: both guests by themselves, their monitors, the worker, and the thread
    /// that answers register accesses.
    pub fn stages(&self, role: Role) -> Result<[f64; 5], Failure> {
        let [first, second] = &self.guests;
        let alone = |cpu: u64, handled: u64| cpu.saturating_sub(handled);
        let monitors = first.counts.handled + second.counts.handled;
        let stages = [
            alone(first.cpu, first.counts.handled),
            alone(second.cpu, second.counts.handled),
            monitors,
            self.worker,
            self.session,
        ];
        let frames = self.frames(role)?;
        Ok(stages.map(|time| time as f64 / frames))
    }
}

/// Figures by name, as a step has them.
pub type Figures = Vec<(&'static str, f64)>;

/// The highest of the first figures of steps.
pub fn highest(before: Option<f64>, figures: &Figures) -> Option<f64> {
    let rates = figures.first().map(|(_, rate)| *rate).into_iter();
    rates.chain(before).max_by(f64::total_cmp)
}

/// The medians of slices: what `each` returns for one, by name.
pub fn medians<const N: usize>(
    names: [&'static str; N],
    slices: usize,
    mut each: impl FnMut() -> Result<[f64; N], Failure>,
) -> Result<Figures, Failure> {
    let mut all = [const { Vec::new() }; N];
    for _ in 0..slices {
        crate::machine::sample();
        let figures = each()?;
        all.iter_mut().zip(figures).for_each(|(all, figure)| all.push(figure));
    }
    Ok(names.into_iter().zip(all.iter().filter_map(|all| median(all))).collect())
}

/// Sizes of rings: guests on one core alternate when a ring is full or empty, and small rings fit into a core's cache.
const SLOTS: [u32; 4] = [512, 1024, 2048, 4096];
/// Slices of each size before the measurement.
const TRIALS: usize = 3;

/// The size of rings that is the fastest in a few slices; `each` runs one with rings of that size.
pub fn fastest(mut each: impl FnMut(u32) -> Result<f64, Failure>) -> Result<u32, Failure> {
    let mut best = (0.0, SLOTS[0]);
    for slots in SLOTS {
        let figures = medians([""], TRIALS, || Ok([each(slots)?]))?;
        let rate = figures.first().map_or(0.0, |(_, rate)| *rate);
        best = if rate > best.0 { (rate, slots) } else { best };
    }
    Ok(best.1)
}

/// Slices of one pair, their rate times `factor`, and the median time of each stage of a frame.
pub fn rates(plan: &Plan, pair: &mut Pair, words: &str, factor: f64) -> Result<(Slices, Figures), Failure> {
    let mut stages: [Vec<f64>; 5] = Default::default();
    let slices = plan.alone(SLICE, |time| {
        let slice = pair.run(Role::Send, time, words)?;
        stages.iter_mut().zip(slice.stages(Role::Send)?).for_each(|(all, time)| all.push(time));
        Ok(slice.figure(Role::Send)? * factor)
    })?;
    Ok((slices, STAGES.into_iter().zip(stages.iter().filter_map(|all| median(all))).collect()))
}

/// The medians of a row of a ladder: the figure, then what a frame costs.
pub fn row(plan: &Plan, pair: &mut Pair, role: Role, words: &str) -> Result<Figures, Failure> {
    let name = if role == Role::Send { "Mpps" } else { "us" };
    medians([name, COSTS[0], COSTS[1], COSTS[2]], plan.slices(SLICE), || {
        let slice = pair.run(role, SLICE, words)?;
        let [exits, doorbells, interrupts] = slice.costs(role)?;
        Ok([slice.figure(role)?, exits, doorbells, interrupts])
    })
}

/// The figure of one slice.
pub fn figure(pair: &mut Pair, role: Role, time: Duration, words: &str) -> Result<f64, Failure> {
    pair.run(role, time, words)?.figure(role)
}
