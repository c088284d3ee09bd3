//! Affinity of VMs to hosts.

use crate::filters::in_group;
use crate::model::Row;
use crate::object::Rule;
use crate::unit::{Context, Weight, unit};

unit! {
    /// Prefers hosts that violate only groups of low priority
    pub struct VmToHostsAffinityGroups = "VmToHostsAffinityGroups";
}

impl Weight for VmToHostsAffinityGroups {
    fn is_neutral(&self, context: &Context<'_>) -> bool {
        let mut groups = context.vms().flat_map(|vm| context.model.groups_of(vm));
        groups.all(|group| group.host_rule == Rule::Disabled || group.host_enforcing)
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let mut groups: Vec<_> = context.vms().flat_map(|vm| context.model.groups_of(vm)).collect();
        groups.retain(|group| group.host_rule != Rule::Disabled && !group.host_enforcing);
        if groups.is_empty() {
            return;
        }
        groups.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name)));
        groups.dedup_by(|a, b| a.name == b.name);
        let broken = |row: &Row| -> Vec<i64> {
            let breaks = groups
                .iter()
                .filter(|group| in_group(context, group, *row) != (group.host_rule == Rule::Positive));
            breaks.map(|group| group.priority).collect()
        };
        let standings: Vec<Vec<i64>> = rows.iter().map(broken).collect();
        super::ranks(&standings, raw);
    }
}
