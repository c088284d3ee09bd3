//! Affinity between VMs.

use crate::model::Row;
use crate::object::{AffinityGroup, Migration, Rule};
use crate::unit::{Context, Weight};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Prefers hosts that break groups of lower priority only, and with more VMs of the same group.
pub struct VmAffinityGroups;

impl Weight for VmAffinityGroups {
    fn name(&self) -> &'static str {
        "VmAffinityGroups"
    }

    fn describes(&self) -> &'static str {
        "Prefers hosts that break groups of lower priority only, and with more VMs of the same group"
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
        for group in groups {
            let counts = counts(context, group);
            for (row, standing) in rows.iter().zip(&mut hosts) {
                let (vms, fixed) = counts.get(row).copied().unwrap_or_default();
                let positive = group.vm_rule == Rule::Positive;
                if (vms > 0) != positive {
                    standing.broken.push(Reverse(group.priority));
                }
                if positive {
                    standing.fixed = Reverse(standing.fixed.0 + fixed);
                    standing.vms = Reverse(standing.vms.0 + vms);
                }
            }
        }
        hosts.iter_mut().for_each(|standing| standing.broken.sort_unstable());
        super::ranks(&hosts, raw);
    }
}

/// How a host stands. The lesser the better.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// Priorities of groups that it would break, highest first.
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

/// VMs of a group by host, and how many of them can't move.
fn counts(context: &Context<'_>, group: &AffinityGroup) -> HashMap<Row, (u32, u32)> {
    let mut counts: HashMap<Row, (u32, u32)> = HashMap::new();
    let others = context.model.members(group).into_iter().filter(|vm| !context.has(*vm));
    for slot in others.filter_map(|vm| context.model.vm_by(vm)) {
        let Some(place) = slot.place().filter(|place| place.cluster == context.cluster_id) else { continue };
        let fixed = slot.vm.migration != Migration::Migratable || slot.vm.hosted_engine;
        let count = counts.entry(place.row).or_default();
        *count = (count.0 + 1, count.1 + u32::from(fixed));
    }
    counts
}
