//! The techniques of an emulated card, one after the other and together.

use super::SLICE;
use super::figures::{fastest, figure, rates, row};
use super::pair::{Pair, Role, Way};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::plan::Plan;
use ringway_port::e1000::Techniques;

/// Bytes of a short frame.
pub const SHORT: usize = 64;
/// The window of interrupt moderation, in nanoseconds.
const WINDOW: u64 = 100_000;
/// Slots of a ring: those of the cards' rings.
const SLOTS: u32 = 256;

/// A row: how the guests are connected, and the words of their command lines.
struct Row {
    name: &'static str,
    way: Way,
    words: &'static str,
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

/// The rows of the ladder. The others are compared with the first; the last but one has all techniques of a card.
fn rows() -> [Row; 8] {
    let plain = plain();
    let moderated = Techniques { moderate: WINDOW, ..plain };
    let shared = Techniques { csb: true, ..plain };
    let combined = "batch=1 polls=0 combine=true";
    let row = |name, way, words| Row { name, way, words };
    [
        row("plain", Way::Bridge(plain), STOCK),
        row("+ moderation", Way::Bridge(moderated), STOCK),
        row("+ combining", Way::Bridge(plain), combined),
        row("+ both", Way::Bridge(moderated), combined),
        row("+ CSB", Way::Bridge(shared), SHARED),
        row("+ back-end", Way::Switch(Techniques { batch: true, cached: true, ..plain }), STOCK),
        row("+ all", Way::Switch(all()), ALL),
        row("+ rings", Way::Rings(SLOTS), RINGS),
    ]
}

/// With a shared block or a ring, a guest looks some times before it sleeps: both guests have one core.
const SHARED: &str = "batch=1 polls=20 csb=true";
pub const ALL: &str = SHARED;
const RINGS: &str = "batch=1 polls=20";

/// The ladder.
pub fn measure(plan: &Plan, role: Role) -> Result<Entry, Failure> {
    let rows = rows();
    let unit = if role == Role::Send { "Mpps" } else { "us" };
    let [.., all, _] = &rows;
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
    let mut entry = entry.note("peer: plain e1000 with TAP and a Linux bridge");
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
    let (mut pair, words) = (Pair::new(&Way::Switch(all()))?, format!("{CLIENT} slots=1024 size={size}"));
    plan.alone(SLICE, |time| figure(&mut pair, Role::Send, time, &words))
}

/// Guests that use the rings of their cards in place, in bursts.
pub fn client(plan: &Plan, size: usize) -> Result<Entry, Failure> {
    let mut pair = Pair::new(&Way::Switch(all()))?;
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
