//! Spreads highly available VMs, and finds hosts whose failure would leave some without a host.

use super::{Balancer, Proposal, Scene};
use crate::model::{ClusterState, Model, Row, VmSlot};

/// The balancer's name, description and parameters.
pub const BALANCER: Balancer = Balancer {
    name: "OptimalForHaReservation",
    describes: "Spreads highly available VMs",
    parameters: &["OverUtilization"],
    propose: |scene| (propose(scene), None),
};

fn ha_vms<'m>(model: &'m Model, state: &ClusterState, row: Row) -> Vec<&'m VmSlot> {
    let Some(slot) = state.slot(row) else { return Vec::new() };
    let mut vms: Vec<_> =
        slot.running.iter().filter_map(|id| model.vm_by(*id)).filter(|slot| slot.vm.ha).collect();
    vms.sort_by(|a, b| a.vm.name.cmp(&b.vm.name));
    vms
}

/// Proposed moves: highly available VMs off hosts with far more than an even share.
fn propose(scene: &Scene<'_>) -> Vec<Proposal> {
    if scene.hosts.len() < 2 || !scene.cluster.cluster.ha_reservation {
        return Vec::new();
    }
    let count = |row: Row| ha_vms(scene.model, scene.cluster, row).len();
    let all: usize = scene.hosts.iter().map(|row| count(*row)).sum();
    let share = all.div_ceil(scene.hosts.len());
    let most = share.saturating_mul(scene.whole("OverUtilization", 200) as usize).div_ceil(100);
    let mut proposals = Vec::new();
    for from in scene.hosts.iter().copied().filter(|row| count(*row) > 0 && count(*row) >= most.max(1)) {
        let to: Vec<Row> = scene.hosts.iter().copied().filter(|row| count(*row) + 1 < count(from)).collect();
        let movable = scene.movable(from).into_iter();
        let ha = movable.filter(|vm| scene.model.vm_by(*vm).is_some_and(|slot| slot.vm.ha));
        for vm in ha.filter(|_| !to.is_empty()) {
            let (to, reason) = (to.clone(), "highly available VMs".into());
            proposals.push(Proposal { vm, from, to, stay: true, evens: false, reason });
        }
    }
    proposals
}

/// Hosts whose highly available VMs would not all fit on the other hosts if the host failed. In a cluster of
/// fewer than two hosts, every host is unsafe.
pub fn unsafe_hosts(model: &Model, state: &ClusterState) -> Vec<String> {
    let columns = &state.columns;
    let mut up: Vec<Row> = (0..columns.len() as Row).filter(|row| columns.up[*row as usize]).collect();
    up.sort_by_key(|row| state.name(*row));
    let wanting = up.iter().filter(|row| !ha_vms(model, state, **row).is_empty());
    let fails = wanting.filter(|failed| {
        let mut left: Vec<(i64, i64)> = up
            .iter()
            .filter(|row| row != failed)
            .map(|row| {
                let at = *row as usize;
                let cpu = i64::from(columns.cpus[at]) * 100
                    - i64::from(columns.load[at] + columns.pending_load[at]);
                (i64::from(columns.schedulable[at]), cpu)
            })
            .collect();
        ha_vms(model, state, **failed).into_iter().any(|slot| {
            let (memory, cpu) = (i64::from(slot.need.committed), i64::from(slot.need.load));
            match left.iter_mut().find(|(free, load)| *free >= memory && *load >= cpu) {
                Some(room) => {
                    *room = (room.0 - memory, room.1 - cpu);
                    false
                }
                None => true,
            }
        })
    });
    fails.map(|row| state.name(*row).to_string()).collect()
}
