//! Affinity of VMs to hosts that must hold.

use crate::model::Row;
use crate::object::{AffinityGroup, Rule};
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Enforced affinity of a group's VMs to its hosts
    pub struct VmToHostsAffinityGroups = "VmToHostsAffinityGroups";
}

impl Filter for VmToHostsAffinityGroups {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for group in groups(context) {
            kept.reject(|row| super::in_group(context, group, row) != (group.host_rule == Rule::Positive));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let broken = groups(context)
            .find(|group| super::in_group(context, group, row) != (group.host_rule == Rule::Positive));
        match broken {
            Some(group) if group.host_rule == Rule::Positive => {
                format!("it is not a host of group {}", group.name)
            }
            Some(group) => format!("it is a host of group {}, which its VMs avoid", group.name),
            None => String::new(),
        }
    }
}

fn groups<'m>(context: &Context<'m>) -> impl Iterator<Item = &'m AffinityGroup> {
    let model = context.model;
    let all: Vec<_> = context.vms().flat_map(|vm| model.groups_of(vm)).collect();
    let hard = all.into_iter().filter(|group| group.host_enforcing && group.host_rule != Rule::Disabled);
    hard.map(|group| &**group)
}
