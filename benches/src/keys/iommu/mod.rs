//! Cost of a guest's IOMMU: the same guests on the same kind of port with and without an IOMMU, and on DPDK's.

mod dynamic;
mod lookup;
mod steady;
mod throughput;

use crate::Failure;
use crate::harness::bare::Work;
use crate::harness::guest::{Iommu, Shape};
use crate::harness::two_cores;
use crate::plan::Plan;
use crate::run::Output;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);
/// Minimum number of pairs of slices for a meaningful interval.
const SLICES: usize = 100;
const OFF: Shape = Shape { packed: false, ring: 1024, frame: 64, iommu: Iommu::Off };
/// Mapped pages that are never used, as many as DPDK caches.
const STALE: u64 = 2048;
const MB: u64 = 1 << 20;

/// The guest's IOMMU, stale pages, the baseline, and the target.
const STEADY: [(&str, Iommu, u64, Iommu, f64); 4] = [
    ("static.2m", Iommu::Pages(2 * MB), 0, Iommu::Off, 0.97),
    ("static.1g", Iommu::Pages(1024 * MB), 0, Iommu::Off, 0.97),
    ("static.4k", Iommu::Fragments, 0, Iommu::Off, 0.85),
    ("stale", Iommu::Fragments, STALE, Iommu::Fragments, 0.95),
];

/// A single guest on a port: the back-end's work, and the IOMMU's mapping.
const PASSING: [(&str, Work, Iommu); 5] = [
    ("pvp.2m", Work::Through, Iommu::Pages(2 * MB)),
    ("pvp.1g", Work::Through, Iommu::Pages(1024 * MB)),
    ("micro.in", Work::In, Iommu::Pages(2 * MB)),
    ("micro.out", Work::Out, Iommu::Pages(2 * MB)),
    ("micro.loop", Work::Loop, Iommu::Pages(2 * MB)),
];

/// Runs the keys that are wanted.
pub fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    for (key, iommu, stale, other, mark) in STEADY {
        if output.wants(key) {
            let (shape, other) = (Shape { iommu, ..OFF }, Shape { iommu: other, ..OFF });
            output.put(key, steady::measure(plan, shape, stale, other, mark));
        }
    }
    if output.wants("dynamic") {
        output.put("dynamic", dynamic::measure(plan));
    }
    for (key, work, iommu) in PASSING {
        if output.wants(key) {
            output.put(key, throughput::measure(plan, work, &Shape { iommu, ..OFF }));
        }
    }
    if output.wants("micro.lookup") {
        output.put("micro.lookup", lookup::look_up(plan));
    }
    Ok(())
}

/// At least as many slices as an interval needs.
fn enough(plan: &Plan) -> Plan {
    Plan { seconds: plan.seconds.max((2 * SLICES) as f64 * SLICE.as_secs_f64()) }
}
