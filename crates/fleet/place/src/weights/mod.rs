//! Weights, one per file. Lower is better.

mod chain_colocation;
mod cpu_and_numa_pinning;
mod even_distribution_cpu;
mod even_distribution_memory;
mod even_guest_distribution;
mod fault_domains;
mod ha;
mod ha_reservation;
mod high_performance_cpu;
mod in_cluster_upgrade;
mod metrics;
mod numa_fit;
mod numa_locality;
mod packing;
mod port_load;
mod power_saving_cpu;
mod power_saving_memory;
mod preferred_hosts;
mod vm_affinity_groups;
mod vm_to_hosts_affinity_groups;

use crate::model::{Need, Row};
use crate::unit::{Context, Weight, round};

/// Weights that policies choose from.
pub const ALL: &[&dyn Weight] = &[
    &even_distribution_cpu::EvenDistributionCpu,
    &even_distribution_memory::EvenDistributionMemory,
    &even_guest_distribution::EvenGuestDistribution,
    &power_saving_cpu::PowerSavingCpu,
    &power_saving_memory::PowerSavingMemory,
    &preferred_hosts::PreferredHosts,
    &ha::Ha,
    &ha_reservation::HaReservation,
    &vm_affinity_groups::VmAffinityGroups,
    &vm_to_hosts_affinity_groups::VmToHostsAffinityGroups,
    &high_performance_cpu::HighPerformanceCpu,
    &cpu_and_numa_pinning::CpuAndNumaPinning,
    &numa_fit::NumaFit,
    &in_cluster_upgrade::InClusterUpgrade,
    &metrics::Metrics,
    &packing::Packing,
    &chain_colocation::ChainColocation,
    &fault_domains::FaultDomains,
    &numa_locality::NumaLocality,
    &port_load::PortLoad,
];

/// A weight that policies may name.
pub fn find(name: &str) -> Option<&'static dyn Weight> {
    ALL.iter().copied().find(|weight| weight.name() == name)
}

/// Load of each host's shared CPUs in percent after adding the group, multiplied by the host's `penalty`.
fn load_scores(context: &Context<'_>, rows: &[Row], raw: &mut [i32], penalty: impl Fn(usize) -> i32) {
    let columns = &context.cluster.columns;
    let figures = [&columns.load[..], &columns.pending_load, &columns.cpus, context.exclusive()];
    score_each(context, rows, raw, figures, |at, [load, pending, cpus, exclusive], need| {
        let load = load + pending + need.load;
        round(f64::from(penalty(at)) * f64::from(load) / f64::from((cpus - exclusive).max(1)))
    });
}

/// Scores hosts by some of their columns and the group's needs there. Consecutive rows are scored together, so that
/// loops over columns check no bounds.
fn score_each<const N: usize>(
    context: &Context<'_>,
    rows: &[Row],
    raw: &mut [i32],
    columns: [&[i32]; N],
    score: impl Fn(usize, [i32; N], &Need) -> i32,
) {
    let mut scored = 0;
    for run in rows.chunk_by(|row, next| row + 1 == *next) {
        let first = run[0] as usize;
        let own = columns.map(|column| &column[first..first + run.len()]);
        for (at, raw) in raw[scored..scored + run.len()].iter_mut().enumerate() {
            *raw = score(first + at, own.map(|column| column[at]), &context.need);
        }
        scored += run.len();
    }
    for row in context.sources() {
        if let Ok(at) = rows.binary_search(&row) {
            let own = columns.map(|column| column[row as usize]);
            raw[at] = score(row as usize, own, &context.need_on(row));
        }
    }
}

/// For each host, 1 plus the number of better hosts.
fn ranks<T: Ord>(standings: &[T], raw: &mut [i32]) {
    let mut order: Vec<usize> = (0..standings.len()).collect();
    order.sort_by(|a, b| standings[*a].cmp(&standings[*b]));
    let mut rank = 0;
    for (place, at) in order.iter().enumerate() {
        if place == 0 || standings[order[place - 1]] != standings[*at] {
            rank = place;
        }
        raw[*at] = 1 + rank as i32;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn equals_share_a_rank() {
        let mut raw = [0; 5];
        super::ranks(&[3, 1, 3, 1, 9], &mut raw);
        assert_eq!(raw, [3, 1, 3, 1, 5]);
    }
}
