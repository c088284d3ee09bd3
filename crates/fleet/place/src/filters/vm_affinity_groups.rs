//! Affinity between VMs that must hold.

use crate::model::Row;
use crate::object::Rule;
use crate::unit::{Context, Filter, Kept, unit};
use std::collections::{BTreeMap, BTreeSet};

unit! {
    /// Enforced affinity between the VMs of a group
    pub struct VmAffinityGroups = "VmAffinityGroups";
}

impl Filter for VmAffinityGroups {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let Some(rules) = Rules::of(context) else { return };
        if rules.conflict.is_some() {
            return kept.reject(|_| true);
        }
        if !rules.with.is_empty() {
            kept.reject(|row| !rules.with.contains_key(&row));
        }
        for (row, _) in rules.full() {
            kept.remove(row);
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let Some(rules) = Rules::of(context) else { return String::new() };
        if let Some(group) = rules.conflict {
            return format!("group {group} separates VMs that another group keeps together");
        }
        if let Some((_, group)) = rules.full().find(|(full, _)| *full == row) {
            return format!("VMs of group {group} are already on it, which keeps its VMs apart");
        }
        let groups: BTreeSet<&str> = rules.with.values().flatten().copied().collect();
        format!(
            "group {} is elsewhere, and is to be together",
            groups.into_iter().collect::<Vec<_>>().join(", ")
        )
    }
}

/// The locations of other VMs of the group's affinity groups.
struct Rules<'m> {
    /// Hosts with VMs that the group's VMs must join, and the responsible affinity groups.
    with: BTreeMap<Row, Vec<&'m str>>,
    /// Hosts with VMs that the group's VMs must avoid: their number, the limit, and the responsible affinity
    /// group.
    without: BTreeMap<(Row, &'m str), (u32, u32)>,
    /// A negative affinity group whose VMs are to be placed together.
    conflict: Option<&'m str>,
}

impl<'m> Rules<'m> {
    fn of(context: &Context<'m>) -> Option<Rules<'m>> {
        let mut groups: Vec<_> = context.vms().flat_map(|vm| context.model.groups_of(vm)).collect();
        groups.retain(|group| group.vm_enforcing && group.vm_rule != Rule::Disabled);
        if groups.is_empty() {
            return None;
        }
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups.dedup_by(|a, b| a.name == b.name);
        let mut rules = Rules { with: BTreeMap::new(), without: BTreeMap::new(), conflict: None };
        for group in groups {
            let members = context.model.members(group);
            let ours = members.iter().filter(|vm| context.has(**vm)).count() as u32;
            let most = group.max_per_host.max(1);
            if group.vm_rule == Rule::Negative && ours > most {
                rules.conflict = Some(&group.name);
            }
            let others = members.iter().filter(|vm| !context.has(**vm));
            let places = others.filter_map(|vm| context.model.vm_by(*vm)?.place());
            for place in places.filter(|place| place.cluster == context.cluster_id) {
                match group.vm_rule {
                    Rule::Positive => rules.with.entry(place.row).or_default().push(&group.name),
                    _ => {
                        let entry = rules.without.entry((place.row, group.name.as_str()));
                        entry.or_insert((ours, most)).0 += 1;
                    }
                }
            }
        }
        Some(rules)
    }

    /// Hosts where a group has reached its limit.
    fn full(&self) -> impl Iterator<Item = (Row, &'m str)> + '_ {
        self.without.iter().filter(|(_, (count, most))| count > most).map(|((row, group), _)| (*row, *group))
    }
}
