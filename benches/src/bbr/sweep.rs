//! A row of cells that differ in one property. All cells of a row run at once, each on a line of its own, so that the
//! whole takes minutes; ours and the kernel's alternate.

use super::lab::{Cell, Outcome, Schedule, Side, run};
use super::scaled;
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::keys::Rows;
use crate::plan::Plan;
use ringway_netstack::congestion::Algorithm::{self, Bbr1, Bbr3, Cubic};
use std::time::Duration;

/// What is measured on each cell.
type Figure = fn(&Outcome) -> f64;

/// Names of cells, and the cells.
struct Row {
    names: Vec<String>,
    cells: Vec<Cell>,
    schedule: Schedule,
    rounds: u64,
}

/// The outcomes of each cell: ours and the kernel's of each round.
type Both = Vec<Vec<[Option<Outcome>; 2]>>;

impl Row {
    /// Runs the cells with other flows, and with the kernel if it has the controller.
    fn run(&self, flow: &[Algorithm], seed: u64, kernel: bool) -> Result<Vec<[Option<Outcome>; 2]>, Failure> {
        let cells: Vec<Cell> =
            self.cells.iter().map(|cell| Cell { flows: flow.to_vec(), ..cell.clone() }).collect();
        let ours = run(Side::Ours, &cells, seed, self.schedule)?;
        // With one seed for both, the line loses the same frames.
        let theirs = if kernel { run(Side::Kernel, &cells, seed, self.schedule)? } else { Vec::new() };
        let mut theirs = theirs.into_iter();
        Ok(ours.into_iter().map(|ours| [Some(ours), theirs.next()]).collect())
    }

    /// Runs each kind of flows in each round.
    fn rounds(&self, kinds: &[&[Algorithm]]) -> Result<Vec<Both>, Failure> {
        let mut all: Vec<Both> = vec![vec![Vec::new(); self.cells.len()]; kinds.len()];
        for round in 0..self.rounds {
            for (kind, outcomes) in kinds.iter().zip(&mut all) {
                let kernel = !kind.contains(&Bbr3);
                for (cell, outcome) in self.run(kind, round, kernel)?.into_iter().enumerate() {
                    outcomes[cell].push(outcome);
                }
            }
        }
        Ok(all)
    }

    fn entry(&self, unit: &str, better: Better, both: &Both, figure: Figure) -> (Entry, Vec<Slices>) {
        let slices: Vec<Slices> = both.iter().map(|rounds| slices(rounds, figure)).collect();
        let whole = Slices {
            ours: slices.iter().filter_map(|cell| median(&cell.ours)).collect(),
            peer: slices.iter().filter_map(|cell| median(&cell.peer)).collect(),
            lost: None,
        };
        // Cells are not repetitions of each other.
        let entry =
            Entry { ours_interval: None, ratio_interval: None, spread: 0.0, ..whole.entry(unit, better) };
        (entry, slices)
    }
}

fn slices(rounds: &[[Option<Outcome>; 2]], figure: Figure) -> Slices {
    let of = |side: usize| rounds.iter().filter_map(|round| round[side].as_ref().map(figure)).collect();
    Slices { ours: of(0), peer: of(1), lost: None }
}

/// Medians of figures of a cell: `ours NAME`, and `peer NAME` if there is one.
fn figures(rounds: &[[Option<Outcome>; 2]], named: &[(&str, Figure)]) -> Vec<(String, f64)> {
    let mut out = Vec::new();
    for (name, figure) in named {
        let slices = slices(rounds, *figure);
        for (side, values) in [("ours", &slices.ours), ("peer", &slices.peer)] {
            out.extend(median(values).map(|value| (format!("{side}{name}"), value)));
        }
    }
    out
}

fn with_steps(mut entry: Entry, row: &Row, both: &Both, named: &[(&str, Figure)]) -> Entry {
    for (name, rounds) in row.names.iter().zip(both) {
        let figures = figures(rounds, named);
        let figures: Vec<(&str, f64)> = figures.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        entry = entry.step(name, &figures);
    }
    entry
}

const RATE: (&str, Figure) = ("", Outcome::rate);
const DROPPED: (&str, Figure) = (" dropped, %", |outcome| outcome.dropped);

const LOSSES: [f64; 9] = [0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0];
const LOSSY: usize = 4;

/// Throughput against loss.
pub fn losses(plan: &Plan) -> Rows {
    let line = Cell::new(100, Duration::from_millis(100), Bbr1);
    let row = Row {
        names: LOSSES.iter().map(|loss| format!("{loss}%")).collect(),
        cells: LOSSES.iter().map(|&loss| Cell { loss, ..line.clone() }).collect(),
        schedule: Schedule { warm: scaled(plan, 3.0), time: scaled(plan, 6.0) },
        rounds: 3,
    };
    let [bbr1, cubic, bbr3] = row.rounds(&[&[Bbr1], &[Cubic], &[Bbr3]])?.try_into().map_err(|_| "rows")?;
    let mut rows = Vec::new();
    for (key, both) in [("loss", &bbr1), ("loss.cubic", &cubic), ("loss.bbr3", &bbr3)] {
        let (entry, slices) = row.entry("Mb/s", Better::More, both, Outcome::rate);
        let entry = with_steps(entry, &row, both, &[RATE]);
        let ratios = slices.iter().filter_map(|cell| cell.entry("", Better::More).ratio);
        let least = ratios.fold(f64::INFINITY, f64::min);
        let entry = entry.note("medians over all cells; a step is a cell");
        rows.push(match key {
            "loss" => entry.mark("each cell's ratio >= 0.9", least >= 0.9).with("least ratio", least),
            "loss.bbr3" => entry.note("the kernel has no BBRv3"),
            _ => entry,
        });
    }
    let cell = |both: &Both| slices(&both[LOSSY], Outcome::rate);
    let (bbr1, cubic) = (cell(&bbr1), cell(&cubic));
    let least = bbr1.ours.iter().copied().fold(f64::INFINITY, f64::min);
    let most = cubic.ours.iter().copied().fold(0.0, f64::max);
    rows.push(bbr1.entry("Mb/s", Better::More).mark(">= 90 Mb/s in each run", least >= 90.0));
    rows.push(cubic.entry("Mb/s", Better::Less).mark("< 5 Mb/s in each run", most < 5.0));
    Ok(rows)
}

/// Time in queues that hold several bandwidth-delay products.
pub fn bloat(plan: &Plan) -> Rows {
    let line = Cell::new(50, Duration::from_millis(30), Bbr1);
    let row = Row {
        names: ["1", "4", "16", "64"].map(|size| format!("{size} BDP")).into(),
        cells: ["1BDP", "4BDP", "16BDP", "64BDP"]
            .map(|limit| Cell { limit: limit.into(), ..line.clone() })
            .into(),
        schedule: Schedule { warm: scaled(plan, 3.0), time: scaled(plan, 5.0) },
        rounds: 2,
    };
    let queue: Figure = |outcome| outcome.queue(0.5);
    let named: [(&str, Figure); 3] =
        [(" ms", queue), (" p95, ms", |outcome| outcome.queue(0.95)), (" Mb/s", Outcome::rate)];
    let all = row.rounds(&[&[Bbr1, Bbr1], &[Cubic, Cubic]])?;
    let rows = all.iter().map(|both| {
        let (entry, _) = row.entry("ms", Better::Less, both, queue);
        let entry = with_steps(entry, &row, both, &named);
        entry.note("two flows; time in the queue, from the link's counters; medians over all cells")
    });
    Ok(rows.collect())
}

/// Queues that hold a small part of a bandwidth-delay product.
pub fn shallow(plan: &Plan) -> Rows {
    let line = Cell::new(100, Duration::from_millis(100), Bbr1);
    let row = Row {
        names: ["0.02", "0.1", "0.5"].map(|size| format!("{size} BDP")).into(),
        cells: ["0.02BDP", "0.1BDP", "0.5BDP"]
            .map(|limit| Cell { limit: limit.into(), ..line.clone() })
            .into(),
        schedule: Schedule { warm: scaled(plan, 3.0), time: scaled(plan, 5.0) },
        rounds: 2,
    };
    let all = row.rounds(&[&[Bbr1], &[Cubic], &[Bbr3]])?;
    let rows = all.iter().map(|both| {
        let (entry, _) = row.entry("Mb/s", Better::More, both, Outcome::rate);
        with_steps(entry, &row, both, &[RATE, DROPPED]).note("medians over all cells")
    });
    Ok(rows.collect())
}

/// BBR and CUBIC on one line.
pub fn share(plan: &Plan) -> Result<Entry, Failure> {
    let line = Cell::new(50, Duration::from_millis(30), Bbr1);
    let row = Row {
        names: ["0.1", "1", "4", "16"].map(|size| format!("{size} BDP")).into(),
        cells: ["0.1BDP", "1BDP", "4BDP", "16BDP"]
            .map(|limit| Cell { limit: limit.into(), ..line.clone() })
            .into(),
        schedule: Schedule { warm: scaled(plan, 3.0), time: scaled(plan, 10.0) },
        rounds: 2,
    };
    let all = row.rounds(&[&[Bbr1, Cubic]])?;
    let share: Figure = |outcome| 100.0 * outcome.rates[0] / outcome.rate();
    let (entry, _) = row.entry("%", Better::More, &all[0], share);
    let entry = with_steps(entry, &row, &all[0], &[(" bbr, %", share), (" Mb/s", Outcome::rate)]);
    Ok(entry.note("one flow each; medians over all cells"))
}
