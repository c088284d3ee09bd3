//! Helpers shared by the balancers for CPU load and memory (oVirt's `CpuAndMemoryBalancingPolicyUnit`).

use super::{Proposal, Scene};
use crate::fit;
use crate::model::{ClusterState, Row};
use crate::object::Vm;
use crate::ratio::Ratio;

/// Maximum load in percent that an additional virtual CPU adds.
const MARGIN: i64 = 10;

/// The load below which a host may receive VMs: well below `high`, so that it does not become overloaded
/// itself.
pub fn target(high: i64) -> i64 {
    (high * 4 / 5).min(high - MARGIN)
}

/// Whether an overload since `since` has lasted long enough.
fn lasts(scene: &Scene<'_>, since: u64) -> bool {
    let minutes = scene.whole("CpuOverCommitDurationMinutes", 2) as u64;
    scene.now >= since.saturating_add(minutes.saturating_mul(60_000))
}

/// Whether a host's CPUs have been overloaded for too long, or have too many virtual CPUs.
pub fn is_over(scene: &Scene<'_>, row: Row, high: i64) -> bool {
    let (columns, at) = (&scene.cluster.columns, row as usize);
    let lasting = lasts(scene, columns.over_since[at]) && columns.vms[at] > 0;
    let limit = scene.number("VCpuToPhysicalCpuRatio").filter(|limit| !limit.is_zero());
    let cpus = i64::from((columns.cpus[at] - columns.exclusive[at]).max(1));
    (lasting && scene.load(row).ceil() >= high.into())
        || limit.is_some_and(|limit| Ratio::of(columns.milli[at].into(), cpus * 1000) >= limit)
}

/// Whether a host's CPU load is below `low`, and it has at least `vms` VMs.
pub fn is_under(scene: &Scene<'_>, row: Row, low: i64, vms: i32) -> bool {
    let (columns, at) = (&scene.cluster.columns, row as usize);
    let calm = columns.over_since[at] == u64::MAX || lasts(scene, columns.over_since[at]);
    scene.load(row).ceil() < low.into() && calm && columns.vms[at] >= vms
}

/// Hosts by load, the most loaded first.
pub fn hottest(scene: &Scene<'_>, mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(|row| std::cmp::Reverse(scene.load(*row)));
    rows
}

/// Hosts of `scene` with less schedulable memory than `limit`, and several VMs.
pub fn short_of_memory(scene: &Scene<'_>, limit: i64) -> Vec<Row> {
    let columns = &scene.cluster.columns;
    let short = |row: &&Row| {
        i64::from(columns.schedulable[**row as usize]) < limit && columns.vms[**row as usize] > 1
    };
    scene.hosts.iter().filter(short).copied().collect()
}

/// Hosts of `scene` with more schedulable memory than `limit`, and at least `vms` VMs.
pub fn rich_in_memory(scene: &Scene<'_>, limit: i64, vms: i32) -> Vec<Row> {
    let columns = &scene.cluster.columns;
    let rich = |row: &&Row| {
        i64::from(columns.schedulable[**row as usize]) > limit && columns.vms[**row as usize] >= vms
    };
    scene.hosts.iter().filter(rich).copied().collect()
}

/// Number of the host's CPUs that are exclusive to VMs after adding `vm`; none if its pinning does not fit.
fn exclusive_with(cluster: &ClusterState, row: Row, vm: &Vm) -> Option<i32> {
    if !vm.pinning.is_exclusive() {
        return Some(cluster.columns.exclusive[row as usize]);
    }
    let cpus = fit::cpus(cluster.slot(row)?, std::iter::once(vm)).ok()?;
    Some(cpus.taken(cluster.cluster.threads_as_cores))
}

/// For each movable VM of `sources`, the `destinations` that would stay below `high` percent load and above
/// `memory` MB free.
pub fn moves(
    scene: &Scene<'_>,
    sources: &[Row],
    destinations: &[Row],
    high: i64,
    memory: i64,
    evens: bool,
    reason: &'static str,
) -> Vec<Proposal> {
    let columns = &scene.cluster.columns;
    let mut proposals = Vec::new();
    for from in sources {
        for vm in scene.movable(*from) {
            let Some(slot) = scene.model.vm_by(vm) else { continue };
            let need = slot.need;
            let bears = |row: &&Row| {
                let at = **row as usize;
                let Some(exclusive) = exclusive_with(scene.cluster, **row, &slot.vm) else { return false };
                let cpus = i64::from((columns.cpus[at] - exclusive).max(1));
                let load = i64::from(columns.load[at]) + i64::from(need.load);
                let left = i64::from(columns.schedulable[at]) - i64::from(need.committed);
                *row != from && load <= high.saturating_mul(cpus) && left > memory
            };
            let to: Vec<Row> = destinations.iter().filter(bears).copied().collect();
            if !to.is_empty() {
                let (from, reason) = (*from, reason.into());
                proposals.push(Proposal { vm, from, to, stay: true, evens, reason });
            }
        }
    }
    proposals
}
