//! Consolidates VMs on fewer hosts, and switches empty hosts off except for spares.

use super::cpu_and_memory::{hottest, is_over, is_under, moves, rich_in_memory, short_of_memory, target};
use super::{Balancer, Power, Proposal, Scene};
use crate::model::Row;
use crate::object::HostStatus;
use crate::ratio::Ratio;

/// The balancer's name, description and parameters.
pub const BALANCER: Balancer = Balancer {
    name: "OptimalForPowerSaving",
    describes: "Moves VMs to fewer hosts, and switches hosts off and on",
    parameters: &[
        "HighUtilization",
        "CpuOverCommitDurationMinutes",
        "MaxFreeMemoryForOverUtilized",
        "MinFreeMemoryForUnderUtilized",
        "VCpuToPhysicalCpuRatio",
        "LowUtilization",
        "EnableAutomaticHostPowerManagement",
        "HostsInReserve",
    ],
    propose: |scene| (propose(scene), power(scene)),
};

/// Proposed moves: off overloaded hosts first, then off underused ones.
fn propose(scene: &Scene<'_>) -> Vec<Proposal> {
    if scene.hosts.len() < 2 {
        return Vec::new();
    }
    let high = scene.whole("HighUtilization", 75);
    let low = scene.whole("LowUtilization", 20);
    let scarce = scene.whole("MaxFreeMemoryForOverUtilized", 0);
    let rows = || scene.hosts.iter().copied();
    let calm: Vec<Row> = rows().filter(|row| !is_over(scene, *row, high)).collect();
    let hot = hottest(scene, rows().filter(|row| is_over(scene, *row, target(high))).collect());
    let mut proposals = moves(scene, &hot, &calm, target(high), scarce, true, "CPU load");
    let mut cold = hottest(scene, rows().filter(|row| is_under(scene, *row, low, 1)).collect());
    // The emptiest host is emptied first, only into fuller ones, so that no two hosts empty each other.
    cold.reverse();
    for from in cold {
        let fuller: Vec<Row> =
            calm.iter().filter(|row| order(scene, **row) > order(scene, from)).copied().collect();
        proposals.extend(moves(scene, &[from], &fuller, target(high), scarce, false, "power"));
    }
    let short = short_of_memory(scene, scarce);
    let rich = rich_in_memory(scene, scarce, 0);
    proposals.extend(moves(scene, &short, &rich, high, scarce, false, "memory"));
    let mut idle = rich_in_memory(scene, scene.whole("MinFreeMemoryForUnderUtilized", i64::MAX), 1);
    idle.sort_by_key(|row| memory_order(scene, *row));
    for from in idle {
        let fuller = |row: &&Row| memory_order(scene, **row) > memory_order(scene, from);
        let fuller: Vec<Row> = rich.iter().filter(fuller).copied().collect();
        proposals.extend(moves(scene, &[from], &fuller, high, scarce, false, "power"));
    }
    proposals
}

/// Memory usage of a host, as a total order.
fn memory_order<'s>(scene: &'s Scene<'_>, row: Row) -> (bool, i32, &'s str) {
    let columns = &scene.cluster.columns;
    (columns.vms[row as usize] > 0, -columns.schedulable[row as usize], scene.cluster.name(row))
}

/// CPU usage of a host, as a total order.
fn order<'s>(scene: &'s Scene<'_>, row: Row) -> (bool, Ratio, &'s str) {
    let vms = scene.cluster.columns.vms[row as usize];
    (vms > 0, scene.load(row), scene.cluster.name(row))
}

/// At most one host to switch. Empty hosts beyond the reserve are put into maintenance, then shut down; one host
/// remains in maintenance in between. If the reserve is too small, hosts in maintenance are activated first. Hosts
/// that an operator took out of use are not switched.
fn power(scene: &Scene<'_>) -> Option<Power> {
    if scene.properties.get("EnableAutomaticHostPowerManagement").map(String::as_str) != Some("true") {
        return None;
    }
    let reserve = scene.whole("HostsInReserve", 0) as usize;
    let state = scene.cluster;
    let mut rows: Vec<Row> =
        (0..state.columns.len() as Row).filter(|row| state.slot(*row).is_some()).collect();
    rows.sort_by_key(|row| state.name(*row));
    let (mut empty, mut resting, mut down) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let Some(slot) = state.slot(row) else { continue };
        let ours = slot.host.power_managed && slot.host.policy_controlled;
        match slot.host.status {
            HostStatus::Up if slot.running.is_empty() && slot.pending.is_empty() => empty.push(row),
            HostStatus::Maintenance if ours => resting.push(row),
            HostStatus::Down if ours => down.push(row),
            _ => {}
        }
    }
    let switch = |row: Option<&Row>, to: HostStatus| row.map(|host| Power { host: *host, to });
    match reserve.cmp(&empty.len()) {
        std::cmp::Ordering::Less if resting.len() > 1 => switch(resting.first(), HostStatus::Down),
        std::cmp::Ordering::Less => {
            let may =
                |row: &&Row| state.slot(**row).is_some_and(|slot| slot.host.power_managed && !slot.host.spm);
            switch(empty.iter().find(may), HostStatus::Maintenance)
        }
        std::cmp::Ordering::Equal => switch(resting.first(), HostStatus::Down),
        std::cmp::Ordering::Greater => switch(resting.first().or(down.first()), HostStatus::Up),
    }
}
