//! Throughput against the size of the data that a program writes at once, and where the processor time goes.

use super::SLICE;
use super::figures::{STAGES, highest, medians};
use super::ladder::{STOCK, all, plain};
use super::pair::{MODEL, Pair, Role, Way};
use crate::Failure;
use crate::entry::Entry;
use crate::plan::Plan;

/// Bytes of a message.
const SIZES: [usize; 7] = [64, 256, 1024, 4096, 16_384, 32_768, 65_536];
/// Largest frame: a message is sent as frames of so many bytes, and announced as a whole.
const FRAME: usize = 1500;

/// All techniques, and none.
pub fn measure(plan: &Plan) -> Result<Entry, Failure> {
    let ways = [
        ("all", Way::Switch(MODEL, all()), "csb=true polls=20 slots=1024 batch=64"),
        ("plain", Way::Bridge(MODEL, plain()), STOCK),
    ];
    let plan = plan.part(0.5 / (2 * SIZES.len()) as f64);
    let mut entry = Entry { unit: "Gb/s".into(), ..Entry::default() };
    for (name, way, words) in ways {
        let mut pair = Pair::new(&way)?;
        for data in SIZES {
            let words = format!("{words} size={} data={data}", data.min(FRAME));
            let bits = data as f64 / data.div_ceil(FRAME) as f64 * 8e-3;
            let [one, two, three, four, five] = STAGES;
            let figures = medians(["Gb/s", one, two, three, four, five], plan.slices(SLICE), || {
                let slice = pair.run(Role::Send, SLICE, &words)?;
                let [one, two, three, four, five] = slice.stages(Role::Send)?;
                Ok([slice.figure(Role::Send)? * bits, one, two, three, four, five])
            });
            entry = match figures {
                Ok(figures) => {
                    if name == "all" {
                        entry.ours = highest(entry.ours, &figures);
                    }
                    entry.step(format!("{name}, {data} B"), &figures)
                }
                Err(error) => entry.note(format!("{name}, {data} B: {error}")),
            };
        }
    }
    Ok(entry.note(
        "data in frames of at most 1500 B; processor time for each frame by stage; both guests on one core",
    ))
}
