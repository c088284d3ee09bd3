//! Cost of a lookup by the number of mapped ranges.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::keys::iommu::SLICE;
use crate::plan::Plan;
use ringway_host::{map_region, memfd};
use ringway_mem::iotlb::{Access, Editor, Lookaside, Lookup};
use ringway_mem::{Memory, Translate};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers of pages, looked up in random order; the slices of the first two alternate.
const ENTRIES: [u64; 5] = [256, 16, 1, 4096, 65_536];
const PAGE: u64 = 4096;
const LOOKUPS: usize = 1 << 16;

/// Mapped pages that are not adjacent, so that none merge.
struct Pages {
    editor: Editor,
    aside: Lookaside,
    /// Addresses to look up, in random order.
    sought: Vec<u64>,
}

impl Pages {
    fn map(memory: &Arc<Memory>, entries: u64) -> Result<Pages, Failure> {
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
        let sought = (0..LOOKUPS).map(|_| page()).collect();
        Ok(Pages { editor, aside: Lookaside::default(), sought })
    }

    /// Nanoseconds per lookup.
    fn slice(&mut self, time: Duration) -> Result<f64, Failure> {
        let mut lookup = Lookup::of(&self.editor, &mut self.aside);
        let (begin, mut rounds, mut found) = (Instant::now(), 0, 0);
        while begin.elapsed() < time {
            for iova in &self.sought {
                found += lookup.read(*iova, 64).map_or(0, |span| span.len());
            }
            rounds += 1;
        }
        if found != 64 * LOOKUPS * rounds {
            return Err("a mapped page was not found".into());
        }
        Ok(begin.elapsed().as_secs_f64() * 1e9 / (LOOKUPS * rounds) as f64)
    }
}

/// Nanoseconds per lookup, by number of entries.
pub fn look_up(plan: &Plan) -> Result<Entry, Failure> {
    measure(plan, SLICE)
}

fn measure(plan: &Plan, slice: Duration) -> Result<Entry, Failure> {
    let size = ENTRIES.into_iter().max().unwrap_or(0) * PAGE;
    let file = memfd("lookup", size as usize)?;
    let memory = Arc::new(Memory::new(vec![map_region(&file, 0, size, 0, 0)?])?);
    let part = |tables: usize| plan.part(tables as f64 / ENTRIES.len() as f64);
    let [first, second, others @ ..] = ENTRIES;
    let (mut many, mut few) = (Pages::map(&memory, first)?, Pages::map(&memory, second)?);
    let pairs = part(2).pairs(slice, |time| many.slice(time), |time| few.slice(time))?;
    let mut all = vec![Slices::of(&pairs.ours, &[]), Slices::of(&pairs.peer, &[])];
    for entries in others {
        let mut pages = Pages::map(&memory, entries)?;
        all.push(part(1).alone(slice, |time| pages.slice(time))?);
    }
    let mut entry = pairs.entry("ns", Better::Less).ratio_at_most(1.5);
    for (entries, slices) in ENTRIES.into_iter().zip(all) {
        let row = slices.entry("ns", Better::Less);
        let figures = [("ns", row.ours), ("best", row.best)];
        let figures: Vec<_> = figures.iter().filter_map(|(name, figure)| Some((*name, (*figure)?))).collect();
        entry = entry.step(format!("{entries} entries"), &figures);
    }
    Ok(entry.note("ours: 256 entries in random order; peer: 16 entries"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_has_an_interval() {
        let entry = measure(&Plan::new(0.1), Duration::from_millis(1)).unwrap();
        assert!(entry.ratio_interval.is_some() && entry.ours_interval.is_some());
        let names: Vec<&str> = entry.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ENTRIES.map(|entries| format!("{entries} entries")));
        assert!(entry.steps.iter().all(|step| step.figures["ns"] > 0.0));
        assert_eq!(entry.marks.len(), 1);
    }
}
