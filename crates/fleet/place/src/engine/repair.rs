//! Repairs of enforced affinity groups that are violated after changes of hosts, VMs or groups.

use crate::balancers::{Proposal, Scene};
use crate::filters::is_member;
use crate::model::{Row, VmId};
use crate::object::{AffinityGroup, Rule};
use crate::policy::Policy;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The reason of such moves.
const AFFINITY: &str = "affinity";

/// VMs to move so that enforced groups hold again, starting with the group of the highest priority. The
/// policy's filters determine the destinations, so a rule whose filter the policy lacks is not repaired.
pub(super) fn repairs(scene: &Scene<'_>, policy: &Policy) -> Vec<Proposal> {
    let uses = |name: &str| policy.filters.iter().any(|used| used.name == name);
    let (vms, hosts) = (uses("VmAffinityGroups"), uses("VmToHostsAffinityGroups"));
    let own = |group: &&AffinityGroup| group.cluster == scene.cluster.cluster.name;
    let mut groups: Vec<&AffinityGroup> =
        scene.model.groups().values().map(|group| &**group).filter(own).collect();
    groups.sort_by_key(|group| Reverse(group.priority));
    let mut proposals = Vec::new();
    for group in groups {
        if hosts && group.host_enforcing && group.host_rule != Rule::Disabled {
            to_hosts(scene, group, &mut proposals);
        }
        if vms && group.vm_enforcing {
            match group.vm_rule {
                Rule::Positive => together(scene, group, &mut proposals),
                Rule::Negative => apart(scene, group, &mut proposals),
                Rule::Disabled => {}
            }
        }
    }
    proposals
}

/// The members of a group by host, on hosts that are not part of a migration.
fn members(scene: &Scene<'_>, group: &AffinityGroup) -> BTreeMap<Row, Vec<VmId>> {
    let mut by_host: BTreeMap<Row, Vec<VmId>> = BTreeMap::new();
    let all = scene.model.members(group);
    for row in &scene.hosts {
        let slot = scene.cluster.slot(*row);
        let here: Vec<VmId> =
            slot.into_iter().flat_map(|slot| &slot.running).filter(|vm| all.contains(vm)).copied().collect();
        if !here.is_empty() {
            by_host.insert(*row, here);
        }
    }
    by_host
}

/// Proposes moves of the movable VMs among `vms`, least load first.
fn propose(scene: &Scene<'_>, from: Row, vms: &[VmId], to: &[Row], proposals: &mut Vec<Proposal>) {
    if to.is_empty() {
        return;
    }
    for vm in scene.movable(from).into_iter().filter(|vm| vms.contains(vm)) {
        let (to, reason) = (to.to_vec(), AFFINITY.into());
        proposals.push(Proposal { vm, from, to, stay: false, evens: false, reason });
    }
}

fn to_hosts(scene: &Scene<'_>, group: &AffinityGroup, proposals: &mut Vec<Proposal>) {
    let good = |row: &Row| {
        let slot = scene.cluster.slot(*row);
        slot.is_some_and(|slot| is_member(group, &slot.host) == (group.host_rule == Rule::Positive))
    };
    let to: Vec<Row> = scene.hosts.iter().copied().filter(good).collect();
    for (from, vms) in members(scene, group) {
        if !good(&from) {
            propose(scene, from, &vms, &to, proposals);
        }
    }
}

/// Moves VMs to the host that has most of them, from the hosts with the fewest.
fn together(scene: &Scene<'_>, group: &AffinityGroup, proposals: &mut Vec<Proposal>) {
    let mut hosts: Vec<(Row, Vec<VmId>)> = members(scene, group).into_iter().collect();
    hosts.sort_by_key(|(row, vms)| (vms.len(), scene.cluster.name(*row)));
    let Some((home, _)) = hosts.pop() else { return };
    for (from, vms) in hosts {
        propose(scene, from, &vms, &[home], proposals);
    }
}

fn apart(scene: &Scene<'_>, group: &AffinityGroup, proposals: &mut Vec<Proposal>) {
    for (from, vms) in members(scene, group) {
        if vms.len() > group.max_per_host.max(1) as usize {
            let to: Vec<Row> = scene.hosts.iter().copied().filter(|row| *row != from).collect();
            propose(scene, from, &vms, &to, proposals);
        }
    }
}
