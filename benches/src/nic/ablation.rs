//! What single parts of the back-end are worth: each off, beside all.

use super::SLICE;
use super::ladder::{CLIENT, all};
use super::pair::{MODEL, Pair, Role, Slice, Way};
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::plan::Plan;
use ringway_port::e1000::Techniques;

/// A frame whose copy is one block of 64 bytes, and one that is just too short for it.
const BLOCK: usize = 64;
const SHORTER: usize = 63;

/// Nanoseconds a frame with all, and how many more it takes without each.
pub fn measure(plan: &Plan) -> Result<Entry, Failure> {
    let without = [
        ("without cached translation", Techniques { cached: false, ..all() }, BLOCK),
        ("without copies of 64 B (63 B)", all(), SHORTER),
        ("without batches", Techniques { batch: false, ..all() }, BLOCK),
    ];
    let mut entry = Entry { unit: "ns".into(), ..Entry::default() };
    let plan = plan.part(1.0 / without.len() as f64);
    for (name, techniques, size) in without {
        let (slices, worker) = pairs(&plan, techniques, size)?;
        let row = slices.entry("ns", Better::Less);
        entry.ours = row.ours.or(entry.ours);
        let more: Vec<f64> = slices.peer.iter().zip(&slices.ours).map(|(off, on)| off - on).collect();
        let [on, off] = worker.map(|times| median(&times).unwrap_or_default());
        let figures = [
            ("ns/frame, all", row.ours.unwrap_or_default()),
            ("ns/frame, off", row.peer.unwrap_or_default()),
            ("ns more", median(&more).unwrap_or_default()),
            ("worker ns/frame, all", on),
            ("worker ns/frame, off", off),
        ];
        entry = entry.step(name, &figures);
    }
    Ok(entry.note("time between frames, and the worker's time for each; both guests on one core"))
}

/// Nanoseconds a frame in alternating slices, and the worker's.
fn pairs(plan: &Plan, techniques: Techniques, size: usize) -> Result<(Slices, [Vec<f64>; 2]), Failure> {
    let worker = |slice: &Slice| Ok::<f64, Failure>(slice.stages(Role::Send)?[3]);
    let on_switch = |techniques| Pair::new(&Way::Switch(MODEL, techniques));
    let (mut near, mut far) = (on_switch(all())?, on_switch(techniques)?);
    let mut busy = [Vec::new(), Vec::new()];
    let [on, off] = &mut busy;
    let slices = plan.pairs(
        SLICE,
        |time| {
            let slice = near.run(Role::Send, time, &format!("{CLIENT} slots=4096 size={BLOCK}"))?;
            on.push(worker(&slice)?);
            Ok(1e3 / slice.figure(Role::Send)?)
        },
        |time| {
            let slice = far.run(Role::Send, time, &format!("{CLIENT} slots=4096 size={size}"))?;
            off.push(worker(&slice)?);
            Ok(1e3 / slice.figure(Role::Send)?)
        },
    )?;
    Ok((slices, busy))
}
