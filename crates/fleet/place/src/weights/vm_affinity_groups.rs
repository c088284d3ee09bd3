//! Affinity between VMs.

use crate::model::{Row, VmId};
use crate::object::{Migration, Rule};
use crate::unit::{Context, Weight, unit};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

unit! {
    /// Prefers hosts that violate only groups of low priority, and hosts with more VMs of the same group
    pub struct VmAffinityGroups = "VmAffinityGroups";
}

impl Weight for VmAffinityGroups {
    fn is_neutral(&self, context: &Context<'_>) -> bool {
        let mut groups = context.vms().flat_map(|vm| context.model.groups_of(vm));
        groups.all(|group| group.vm_rule == Rule::Disabled)
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let mut groups: Vec<_> = context.vms().flat_map(|vm| context.model.groups_of(vm)).collect();
        groups.retain(|group| group.vm_rule != Rule::Disabled);
        if groups.is_empty() {
            return;
        }
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups.dedup_by(|a, b| a.name == b.name);
        let mut hosts: Vec<Standing> = rows.iter().map(|_| Standing::default()).collect();
        let mut near: BTreeSet<VmId> = BTreeSet::new();
        for group in groups {
            let members: BTreeSet<VmId> =
                context.model.members(group).into_iter().filter(|vm| !context.has(*vm)).collect();
            let counts = counts(context, &members);
            let positive = group.vm_rule == Rule::Positive;
            for (row, standing) in rows.iter().zip(&mut hosts) {
                if counts.contains_key(row) != positive {
                    standing.broken.push(Reverse(group.priority));
                }
            }
            if positive {
                near.extend(members);
            }
        }
        let counts = counts(context, &near);
        for (row, standing) in rows.iter().zip(&mut hosts) {
            let (vms, fixed) = counts.get(row).copied().unwrap_or_default();
            (standing.fixed, standing.vms) = (Reverse(fixed), Reverse(vms));
        }
        hosts.iter_mut().for_each(|standing| standing.broken.sort_unstable());
        super::ranks(&hosts, raw);
    }
}

/// A host's standing; smaller is better.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// Priorities of the groups that it would violate, highest first.
    broken: Vec<Reverse<i64>>,
    /// VMs of positive groups there that can't move.
    fixed: Reverse<u32>,
    /// VMs of positive groups there.
    vms: Reverse<u32>,
}

impl Standing {
    fn key(&self) -> (Vec<i64>, Reverse<u32>, Reverse<u32>) {
        (self.broken.iter().map(|priority| priority.0).collect(), self.fixed, self.vms)
    }
}

impl PartialEq for Standing {
    fn eq(&self, other: &Standing) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Standing {}

impl PartialOrd for Standing {
    fn partial_cmp(&self, other: &Standing) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Standing {
    fn cmp(&self, other: &Standing) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Number of VMs by host, and how many of them can't move.
fn counts(context: &Context<'_>, vms: &BTreeSet<VmId>) -> HashMap<Row, (u32, u32)> {
    let mut counts: HashMap<Row, (u32, u32)> = HashMap::new();
    for slot in vms.iter().filter_map(|vm| context.model.vm_by(*vm)) {
        let Some(place) = slot.place().filter(|place| place.cluster == context.cluster_id) else { continue };
        let fixed = slot.vm.migration != Migration::Migratable || slot.vm.hosted_engine;
        let count = counts.entry(place.row).or_default();
        *count = (count.0 + 1, count.1 + u32::from(fixed));
    }
    counts
}
