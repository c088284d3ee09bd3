//! The techniques of an emulated card, one after the other and together.

use super::SLICE;
use super::figures::{fastest, figure, rates, row};
use super::pair::{MODEL, Pair, Role, Way};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::plan::Plan;
use ringway_port::e1000::{self, Techniques};

/// Bytes of a short frame.
pub const SHORT: usize = 64;
/// The window of interrupt moderation, in nanoseconds.
const WINDOW: u64 = 100_000;
/// Slots of a ring: those of the cards' rings.
const SLOTS: u32 = 256;

/// A row: how the guests are connected, and the words of their command lines.
pub struct Row {
    pub name: &'static str,
    pub way: Way,
    pub words: &'static str,
}

/// What every row without a shared block has: it rings for each frame, and sleeps as soon as it has nothing to do.
pub const STOCK: &str = "batch=1 polls=0";

/// A card without any technique: an interrupt and a publication for each frame, no translation kept.
pub fn plain() -> Techniques {
    Techniques { timers: false, batch: false, cached: false, ..Techniques::default() }
}

/// All techniques that a shared block needs: it makes moderation and combining superfluous.
pub fn all() -> Techniques {
    Techniques { csb: true, timers: false, ..Techniques::default() }
}

/// The rows of the ladder of a model. The others are compared with the first; the last but one has all techniques that
/// the card has.
pub fn rows(model: &'static str) -> Vec<Row> {
    let plain = plain();
    let moderated = Techniques { moderate: WINDOW, ..plain };
    let shared = Techniques { csb: true, ..plain };
    let combined = "batch=1 polls=0 combine=true";
    let has_csb = e1000::Model::of(model).is_some_and(|model| model.has_csb);
    let (all, words) = match has_csb {
        true => (all(), ALL),
        false => (Techniques { combine: true, csb: false, ..all() }, COMBINED),
    };
    let row = |name, way, words| Row { name, way, words };
    let with_block = has_csb.then(|| row("+ CSB", Way::Bridge(model, shared), SHARED));
    let first = [
        row("plain", Way::Bridge(model, plain), STOCK),
        row("+ moderation", Way::Bridge(model, moderated), STOCK),
        row("+ combining", Way::Bridge(model, plain), combined),
        row("+ both", Way::Bridge(model, moderated), combined),
    ];
    let last = [
        row("+ back-end", Way::Switch(model, Techniques { batch: true, cached: true, ..plain }), STOCK),
        row("+ all", Way::Switch(model, all), words),
        row("+ rings", Way::Rings(SLOTS), RINGS),
    ];
    first.into_iter().chain(with_block).chain(last).collect()
}

/// With a shared block or a ring, a guest looks some times before it sleeps: both guests have one core.
const SHARED: &str = "batch=1 polls=20 csb=true";
pub const ALL: &str = SHARED;
const RINGS: &str = "batch=1 polls=20";
/// Without a block, all that is left is that one doorbell announces several frames.
const COMBINED: &str = "batch=1 polls=20 combine=true";

/// The ladder of a model.
pub fn measure(plan: &Plan, model: &'static str, role: Role) -> Result<Entry, Failure> {
    let rows = rows(model);
    let unit = if role == Role::Send { "Mpps" } else { "us" };
    let [.., all, _] = &rows[..] else { return Err("a ladder without rows".into()) };
    let (mut near, mut far) = (Pair::new(&all.way)?, Pair::new(&rows[0].way)?);
    let slices: Slices = plan.pairs(
        SLICE,
        |time| figure(&mut near, role, time, all.words),
        |time| figure(&mut far, role, time, rows[0].words),
    )?;
    drop((near, far));
    let entry = match role {
        Role::Send => slices.entry(unit, Better::More).ratio_at_least(20.0),
        Role::Ping => slices.entry(unit, Better::Less).ratio_at_most(0.2),
    };
    let mut entry = entry.note(format!("peer: a plain {model} with TAP and a Linux bridge"));
    let plan = plan.part(0.5 / rows.len() as f64);
    for Row { name, way, words } in &rows {
        let figures = Pair::new(way).and_then(|mut pair| row(&plan, &mut pair, role, words));
        entry = match figures {
            Ok(figures) => entry.step(*name, &figures),
            Err(error) => entry.note(format!("{name}: {error}")),
        };
    }
    Ok(entry)
}

/// Words of guests that use the rings of their cards in place, in bursts.
pub const CLIENT: &str = "batch=128 csb=true";

/// Millions of frames of `size` bytes a second between such guests with 1024 descriptors.
pub fn cards(plan: &Plan, size: usize) -> Result<Slices, Failure> {
    let mut pair = Pair::new(&Way::Switch(MODEL, all()))?;
    let words = format!("{CLIENT} slots=1024 size={size}");
    plan.alone(SLICE, |time| figure(&mut pair, Role::Send, time, &words))
}

/// Guests that use the rings of their cards in place, in bursts.
pub fn client(plan: &Plan, size: usize) -> Result<Entry, Failure> {
    let mut pair = Pair::new(&Way::Switch(MODEL, all()))?;
    let factor = if size == SHORT { 1.0 } else { size as f64 * 8e-3 };
    let words = |slots: u32| format!("{CLIENT} slots={slots} size={size}");
    let slots = fastest(|slots| figure(&mut pair, Role::Send, SLICE, &words(slots)))?;
    let (slices, stages) = rates(plan, &mut pair, &words(slots), factor)?;
    let entry = match size {
        SHORT => slices.entry("Mpps", Better::More).at_least(5.0),
        _ => slices.entry("Gb/s", Better::More).at_least(25.0),
    };
    let name = format!("both guests on one core, {slots} descriptors");
    Ok(entry.step(name, &stages).note("no frame is wrong, late or lost"))
}
