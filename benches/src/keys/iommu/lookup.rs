//! Cost of a lookup by the number of mapped ranges.

use crate::Failure;
use crate::entry::{Better, Entry, Step};
use crate::keys::iommu::SLICE;
use crate::plan::Plan;
use ringway_host::{map_region, memfd};
use ringway_mem::iotlb::{Access, Editor, Lookaside, Lookup};
use ringway_mem::{Memory, Translate};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Numbers of pages, looked up in random order.
const ENTRIES: [u64; 5] = [1, 16, 256, 4096, 65_536];
const PAGE: u64 = 4096;
const LOOKUPS: usize = 1 << 16;

/// Nanoseconds per lookup, by number of entries. Pages are not adjacent, so that none merge.
pub fn look_up(plan: &Plan) -> Result<Entry, Failure> {
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
                return Err("a mapped page was not found".into());
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
    Ok(entry.ratio_at_most(1.5).note("ours: 256 entries in random order; peer: 16 entries"))
}
