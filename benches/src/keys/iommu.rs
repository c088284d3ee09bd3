//! What a guest's IOMMU costs: the same guests on the same kind of port, behind one and not.

use crate::Failure;
use crate::entry::{Better, Entry, Step};
use crate::keys::vhost;
use crate::plan::Plan;
use crate::rig::front;
use crate::rig::guest::{Iommu, Shape};
use crate::rig::{LOAD, Pinned, two_cores};
use crate::run::Output;
use ringway_host::{map_region, memfd};
use ringway_mem::iotlb::{Access, Editor, Lookaside, Lookup};
use ringway_mem::{Memory, Translate};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);
const OFF: Shape = Shape { packed: false, ring: 1024, frame: 64, iommu: Iommu::Off };
/// Pages that are mapped and never used again, as many as DPDK keeps.
const STALE: u64 = 2048;

/// The keys: the guest's IOMMU, stale pages, what it is compared with, and the mark.
const KEYS: [(&str, Iommu, u64, Iommu, f64); 4] = [
    ("static.2m", Iommu::Pages(2 << 20), 0, Iommu::Off, 0.97),
    ("static.1g", Iommu::Pages(1 << 30), 0, Iommu::Off, 0.97),
    ("static.4k", Iommu::Fragments, 0, Iommu::Off, 0.85),
    ("stale", Iommu::Fragments, STALE, Iommu::Fragments, 0.95),
];

/// Runs the keys that are wanted.
pub fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    for (key, iommu, stale, other, mark) in KEYS {
        if output.wants(key) {
            output
                .put(key, measure(plan, Shape { iommu, ..OFF }, stale, Shape { iommu: other, ..OFF }, mark));
        }
    }
    if output.wants("micro.lookup") {
        output.put("micro.lookup", look_up(plan));
    }
    Ok(())
}

fn measure(plan: &Plan, shape: Shape, stale: u64, other: Shape, mark: f64) -> Result<Entry, Failure> {
    let (our_memories, their_memories) = (vhost::memories(&shape)?, vhost::memories(&other)?);
    let (mut near, mut far) = (vhost::pair(&our_memories, &shape)?, vhost::pair(&their_memories, &other)?);
    let (mut rig, mut ours) = vhost::ours(&our_memories, &near, &shape)?;
    let (beside, _theirs) = vhost::ours(&their_memories, &far, &other)?;
    if stale > 0 {
        rig.serve_while(|| ours.iter_mut().try_for_each(|front| front::leave_stale(front, stale)))?;
    }
    let pinned = Pinned::to(LOAD)?;
    vhost::learn(&mut near, &rig)?;
    vhost::learn(&mut far, &beside)?;
    let slices = plan.pairs(
        SLICE,
        |time| {
            let rate = near.rate(time);
            near.drain()?;
            rate
        },
        |time| {
            let rate = far.rate(time);
            far.drain()?;
            rate
        },
    )?;
    drop(pinned);
    let count = |which: fn(&ringway_frame::Counters) -> u64| rig.sum(which) as f64;
    let mut entry = slices.entry("Mpps", Better::More).ratio_at_least(mark);
    entry = entry.with("frames lost", near.lost as f64);
    entry = entry.with("hits", count(|counters| counters.iotlb_hits.load(Relaxed)));
    entry = entry.with("misses", count(|counters| counters.iotlb_misses.load(Relaxed)));
    if !our_memories[0].0.huge {
        entry = entry.note("the guests' memory is in 4 KB pages: no huge pages are free");
    }
    let beside = if stale > 0 { "the same without stale pages" } else { "the same port without an IOMMU" };
    Ok(entry.note(format!("peer: {beside}")))
}

/// Pages that are looked up in the order of chance.
const ENTRIES: [u64; 5] = [1, 16, 256, 4096, 65_536];
const PAGE: u64 = 4096;
const LOOKUPS: usize = 1 << 16;

/// Nanoseconds a look-up, by entries. No two pages touch, so that none merge.
fn look_up(plan: &Plan) -> Result<Entry, Failure> {
    let size = ENTRIES[ENTRIES.len() - 1] * PAGE;
    let file = memfd("lookup", size as usize)?;
    let memory = Arc::new(Memory::new(vec![map_region(&file, 0, size, 0, 0)?])?);
    let (mut steps, mut medians) = (Vec::new(), Vec::new());
    for entries in ENTRIES {
        let mut editor = Editor::new(memory.clone(), 1 << 17);
        for page in 0..entries {
            editor.update(page * 2 * PAGE, PAGE, page * PAGE, Access::BOTH)?;
        }
        ringway_host::reclaim_all(std::mem::take(editor.retired()));
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut page = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % entries * 2 * PAGE
        };
        let pages: Vec<u64> = (0..LOOKUPS).map(|_| page()).collect();
        let mut aside = Lookaside::default();
        let mut lookup = Lookup::of(&editor, &mut aside);
        let slices = plan.part(1.0 / ENTRIES.len() as f64).alone(SLICE, |time| {
            let (begin, mut rounds, mut found) = (Instant::now(), 0, 0);
            while begin.elapsed() < time {
                for iova in &pages {
                    found += lookup.read(*iova, 64).map_or(0, |span| span.len());
                }
                rounds += 1;
            }
            if found != 64 * LOOKUPS * rounds {
                return Err("a page that is mapped was not found".into());
            }
            Ok(begin.elapsed().as_secs_f64() * 1e9 / (LOOKUPS * rounds) as f64)
        })?;
        let entry = slices.entry("ns", Better::Less);
        let (median, best) = (entry.ours.unwrap_or(f64::NAN), entry.best.unwrap_or(f64::NAN));
        medians.push((entries, entry));
        let figures = BTreeMap::from([("ns".to_string(), median), ("best".to_string(), best)]);
        steps.push(Step { name: format!("{entries} entries"), figures });
    }
    let at =
        |wanted: u64| medians.iter().find(|(entries, _)| *entries == wanted).map(|(_, entry)| entry.clone());
    let (Some(many), Some(few)) = (at(256), at(16)) else { return Err("no figures".into()) };
    let ratio = many.ours.zip(few.ours).map(|(many, few)| many / few);
    let entry = Entry { peer: few.ours, ratio, steps, ..many };
    Ok(entry.ratio_at_most(1.5).note("ours: 256 entries in the order of chance; peer: 16 entries"))
}
