//! The techniques of an emulated card, one after the other and together.

use super::SLICE;
use super::pair::{Outcome, Pair, Way, ping, stream};
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::plan::Plan;
use ringway_port::e1000::Techniques;
use std::time::Duration;

/// Bytes of a short frame.
const SHORT: usize = 64;
/// The window of interrupt moderation, in nanoseconds.
const WINDOW: u64 = 100_000;
/// Slots of a ring: those of the cards' rings.
const SLOTS: u32 = 256;

/// What two guests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One sends as fast as it can, the other receives.
    Send,
    /// One sends a frame at a time, the other returns it.
    Ping,
}

/// A row: how the guests are connected, and the words of their command lines.
struct Row {
    name: &'static str,
    way: Way,
    words: &'static str,
}

/// What every row without a shared block has: it rings for each frame, and sleeps as soon as it has nothing to do.
const STOCK: &str = "batch=1 polls=0";

/// The rows of the ladder. The others are compared with the first; the last but one has all techniques of a card.
fn rows() -> [Row; 8] {
    // An interrupt and a publication for each frame, no translation kept.
    let plain = Techniques { timers: false, batch: false, cached: false, ..Techniques::default() };
    let moderated = Techniques { moderate: WINDOW, ..plain };
    let shared = Techniques { csb: true, ..plain };
    let combined = "batch=1 polls=0 combine=true";
    let row = |name, way, words| Row { name, way, words };
    [
        row("plain", Way::Bridge(plain), STOCK),
        row("+ moderation", Way::Bridge(moderated), STOCK),
        row("+ combining", Way::Bridge(plain), combined),
        row("+ both", Way::Bridge(moderated), combined),
        row("+ CSB", Way::Bridge(shared), "batch=1 csb=true"),
        row("+ back-end", Way::Switch(Techniques { batch: true, cached: true, ..plain }), STOCK),
        row("+ all", Way::Switch(all()), "batch=1 csb=true"),
        row("+ rings", Way::Rings(SLOTS), "batch=1"),
    ]
}

/// All techniques that a shared block needs: it makes moderation and combining superfluous.
fn all() -> Techniques {
    Techniques { csb: true, timers: false, ..Techniques::default() }
}

/// What a slice gave: the figure, and exits, doorbells and interrupts of both guests for each frame.
struct Slice {
    figure: f64,
    costs: [f64; 3],
}

const COSTS: [&str; 3] = ["exits/frame", "doorbells/frame", "interrupts/frame"];

fn slice(pair: &mut Pair, role: Role, size: usize, words: &str, time: Duration) -> Result<Slice, Failure> {
    let outcomes = pair.run(match role {
        Role::Send => stream(size, time, words),
        Role::Ping => ping(time, words),
    })?;
    let [first, second] = &outcomes;
    let frames = match role {
        Role::Send => second.figure("received")?,
        Role::Ping => 2.0 * first.figure("received")?,
    };
    if frames < 2.0 {
        return Err("no frame came".into());
    }
    let figure = match role {
        Role::Send => frames / second.figure("active")? * 1e3,
        Role::Ping => first.figure("rtt")? * 1e-3,
    };
    let both = |count: &dyn Fn(&Outcome) -> Result<f64, Failure>| -> Result<f64, Failure> {
        Ok((count(first)? + count(second)?) / frames)
    };
    let costs = [
        both(&|guest| Ok(guest.exits()))?,
        both(&|guest| guest.figure("kicks"))?,
        both(&|guest| Ok(guest.counts.interrupts as f64))?,
    ];
    Ok(Slice { figure, costs })
}

/// The ladder.
pub fn measure(plan: &Plan, role: Role) -> Result<Entry, Failure> {
    let rows = rows();
    let unit = if role == Role::Send { "Mpps" } else { "us" };
    let all = &rows[rows.len() - 2];
    let (mut near, mut far) = (Pair::new(&all.way)?, Pair::new(&rows[0].way)?);
    let slices: Slices = plan.pairs(
        SLICE,
        |time| Ok(slice(&mut near, role, SHORT, all.words, time)?.figure),
        |time| Ok(slice(&mut far, role, SHORT, rows[0].words, time)?.figure),
    )?;
    drop((near, far));
    let entry = match role {
        Role::Send => slices.entry(unit, Better::More).ratio_at_least(20.0),
        Role::Ping => slices.entry(unit, Better::Less).ratio_at_most(0.2),
    };
    let mut entry = entry.note("peer: plain e1000 with TAP and a Linux bridge");
    let plan = plan.part(0.5 / rows.len() as f64);
    for Row { name, way, words } in &rows {
        entry = match step(&plan, role, way, words) {
            Ok(figures) => entry.step(*name, &figures),
            Err(error) => entry.note(format!("{name}: {error}")),
        };
    }
    Ok(entry)
}

/// The medians of a row.
fn step(plan: &Plan, role: Role, way: &Way, words: &str) -> Result<Vec<(&'static str, f64)>, Failure> {
    let mut pair = Pair::new(way)?;
    let (mut slices, mut costs) = (Vec::new(), [const { Vec::new() }; 3]);
    for _ in 0..plan.slices(SLICE) {
        let slice = slice(&mut pair, role, SHORT, words, SLICE)?;
        slices.push(slice.figure);
        costs.iter_mut().zip(slice.costs).for_each(|(all, cost)| all.push(cost));
    }
    let name = if role == Role::Send { "Mpps" } else { "us" };
    let costs = COSTS.into_iter().zip(costs.iter().filter_map(|all| median(all)));
    Ok(median(&slices).map(|figure| (name, figure)).into_iter().chain(costs).collect())
}

/// Guests that use the rings of their cards in place, in bursts.
pub fn client(plan: &Plan, size: usize) -> Result<Entry, Failure> {
    const WORDS: &str = "batch=128 csb=true slots=1024";
    let mut pair = Pair::new(&Way::Switch(all()))?;
    let mut exits = Vec::new();
    let slices = plan.alone(SLICE, |time| {
        let slice = slice(&mut pair, Role::Send, size, WORDS, time)?;
        exits.push(slice.costs[0]);
        Ok(slice.figure * if size == SHORT { 1.0 } else { size as f64 * 8e-3 })
    })?;
    let entry = match size {
        SHORT => slices.entry("Mpps", Better::More).at_least(5.0),
        _ => slices.entry("Gb/s", Better::More).at_least(25.0),
    };
    Ok(entry.with(COSTS[0], median(&exits).unwrap_or(0.0)).note("both guests on one core"))
}
