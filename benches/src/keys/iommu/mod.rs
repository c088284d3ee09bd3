//! Cost of a guest's IOMMU: the same guests on the same kind of port with and without an IOMMU, and on DPDK's.

mod dynamic;
mod lookup;
mod steady;
mod throughput;

use crate::Failure;
use crate::entry::Entry;
use crate::harness::bare::Work;
use crate::harness::guest::{Iommu, Shape};
use crate::plan::Plan;
pub use dynamic::measure as dynamic;
pub use lookup::look_up;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);
/// Minimum number of pairs of slices for a meaningful interval.
const SLICES: usize = 100;
const OFF: Shape = Shape { packed: false, ring: 1024, frame: 64, iommu: Iommu::Off };
/// Mapped pages that are never used, as many as DPDK caches.
const STALE: u64 = 2048;
const MB: u64 = 1 << 20;

/// The guest's IOMMU, stale pages, the baseline, and the target.
const STEADY: [(Iommu, u64, Iommu, f64); 4] = [
    (Iommu::Pages(2 * MB), 0, Iommu::Off, 0.97),
    (Iommu::Pages(1024 * MB), 0, Iommu::Off, 0.97),
    (Iommu::Fragments, 0, Iommu::Off, 0.85),
    (Iommu::Fragments, STALE, Iommu::Fragments, 0.95),
];

/// A single guest on a port: the back-end's work, and the IOMMU's mapping.
const PASSING: [(Work, Iommu); 5] = [
    (Work::Through, Iommu::Pages(2 * MB)),
    (Work::Through, Iommu::Pages(1024 * MB)),
    (Work::In, Iommu::Pages(2 * MB)),
    (Work::Out, Iommu::Pages(2 * MB)),
    (Work::Loop, Iommu::Pages(2 * MB)),
];

/// One of [`STEADY`].
pub fn steady(plan: &Plan, row: usize) -> Result<Entry, Failure> {
    let (iommu, stale, other, mark) = STEADY[row];
    steady::measure(plan, Shape { iommu, ..OFF }, stale, Shape { iommu: other, ..OFF }, mark)
}

/// One of [`PASSING`].
pub fn passing(plan: &Plan, row: usize) -> Result<Entry, Failure> {
    let (work, iommu) = PASSING[row];
    throughput::measure(plan, work, &Shape { iommu, ..OFF })
}

/// At least as many slices as an interval needs.
fn enough(plan: &Plan) -> Plan {
    Plan { seconds: plan.seconds.max((2 * SLICES) as f64 * SLICE.as_secs_f64()) }
}
