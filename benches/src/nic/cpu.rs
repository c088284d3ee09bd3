//! Where the processor time of two tiny guests goes, by technique: what they do, what they wait for, and the host.

use super::SLICE;
use super::figures::{Figures, STAGES};
use super::ladder::{self, Row};
use super::pair::{MODEL, Pair, Role};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::plan::Plan;
use std::time::Duration;

/// Shares of the time of both cores: the guests' own, their monitors' by exits, the thread that answers accesses to
/// registers, the worker while frames move, the host's interrupts, and the rest, in which guests sleep or nobody runs.
pub const SHARES: [&str; 6] =
    ["guests, %", "exits, %", "registers, %", "worker, %", "host interrupts, %", "idle, %"];
/// Cores: one of the worker, and one of both guests and the thread that answers accesses.
const CORES: f64 = 2.0;
/// What a frame costs in all.
pub const COST: &str = "ns/frame";

/// Ticks of the first two cores in interrupts, and in all.
fn interrupt_ticks() -> Result<[f64; 2], Failure> {
    interrupt_ticks_of(&std::fs::read_to_string("/proc/stat")?)
}

/// As [`interrupt_ticks`], of the text of `/proc/stat` (proc_stat(5)).
fn interrupt_ticks_of(text: &str) -> Result<[f64; 2], Failure> {
    let mut sums = [0.0; 2];
    for core in ["cpu0 ", "cpu1 "] {
        let line = text.lines().find_map(|line| line.strip_prefix(core)).ok_or("fewer than two cores")?;
        let ticks: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        // user, nice, system, idle, iowait, irq, softirq, steal; those of guests are in the first two.
        let [.., irq, softirq, _steal] = ticks.get(..8).ok_or("a line of /proc/stat is short")? else {
            return Err("a line of /proc/stat is short".into());
        };
        sums[0] += irq + softirq;
        sums[1] += ticks[..8].iter().sum::<f64>();
    }
    Ok(sums)
}

/// Shares of processor time, and what a frame costs.
fn shares(plan: &Plan, pair: &mut Pair, words: &str) -> Result<Figures, Failure> {
    let (mut sums, mut wall, mut frames) = ([0.0; STAGES.len()], 0.0, 0.0);
    let before = interrupt_ticks()?;
    for _ in 0..plan.slices(SLICE) {
        crate::machine::sample();
        let slice = pair.run(Role::Send, SLICE, words)?;
        let count = slice.frames(Role::Send)?;
        let stages = slice.stages(Role::Send)?;
        sums.iter_mut().zip(stages).for_each(|(sum, stage)| *sum += stage * count);
        (wall, frames) = (wall + slice.elapsed(), frames + count);
    }
    let after = interrupt_ticks()?;
    let [interrupts, all] = [0, 1].map(|at| after[at] - before[at]);
    let share = |time: f64| 100.0 * time / (CORES * wall);
    let [sender, receiver, monitors, worker, registers] = sums;
    let busy = [sender + receiver, monitors, registers, worker].map(share);
    let interrupts = 100.0 * interrupts / all.max(1.0);
    let idle = (100.0 - busy.iter().sum::<f64>() - interrupts).max(0.0);
    let figures = busy.into_iter().chain([interrupts, idle]);
    let cost = sums.iter().sum::<f64>() / frames;
    Ok(SHARES.into_iter().zip(figures).chain([(COST, cost)]).collect())
}

/// Processor time of a frame in all, in nanoseconds.
fn cost(pair: &mut Pair, time: Duration, words: &str) -> Result<f64, Failure> {
    Ok(pair.run(Role::Send, time, words)?.stages(Role::Send)?.iter().sum())
}

/// Each row of the ladder.
pub fn measure(plan: &Plan) -> Result<Entry, Failure> {
    let rows = ladder::rows(MODEL);
    let [.., all, _] = &rows[..] else { return Err("a ladder without rows".into()) };
    let (mut near, mut far) = (Pair::new(&all.way)?, Pair::new(&rows[0].way)?);
    let slices: Slices = plan.pairs(
        SLICE,
        |time| cost(&mut near, time, all.words),
        |time| cost(&mut far, time, rows[0].words),
    )?;
    drop((near, far));
    let mut entry = slices.entry("ns", Better::Less).note("processor time of a frame; peer: plain");
    let plan = plan.part(0.5 / rows.len() as f64);
    for Row { name, way, words } in &rows {
        let figures = Pair::new(way).and_then(|mut pair| shares(&plan, &mut pair, words));
        entry = match figures {
            Ok(figures) => entry.step(*name, &figures),
            Err(error) => entry.note(format!("{name}: {error}")),
        };
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_interrupts_are_those_of_two_cores() {
        let text = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 0 2 3 0 4 5 6 0 0\ncpu1 10 0 0 0 0 1 0 0 7 0\n";
        assert_eq!(interrupt_ticks_of(text).unwrap(), [10.0, 32.0]);
        assert!(interrupt_ticks_of("cpu0 1 2\ncpu1 1 2").is_err());
        let [interrupts, all] = interrupt_ticks().unwrap();
        assert!(all > interrupts);
    }
}
