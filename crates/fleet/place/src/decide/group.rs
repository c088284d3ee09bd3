//! VMs that must be placed together.

use super::DecideError;
use crate::model::{Model, VmId};
use crate::object::Rule;

/// Groups of VMs, ordered by their first VM: VMs of the same positive affinity group are placed together.
pub fn groups(model: &Model, vms: &[String]) -> Result<Vec<Vec<VmId>>, DecideError> {
    let mut ids: Vec<VmId> = Vec::new();
    for name in vms {
        let id = model.vm_id(name).ok_or_else(|| model.no_vm(name))?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    if ids.len() == 1 {
        return Ok(vec![ids]);
    }
    let mut groups: Vec<Vec<VmId>> = ids.iter().map(|id| vec![*id]).collect();
    for group in model.groups().values().filter(|group| group.vm_enforcing && group.vm_rule == Rule::Positive)
    {
        let members = model.members(group);
        let bound = |ids: &Vec<VmId>| ids.iter().any(|id| members.contains(id));
        let Some(first) = groups.iter().position(bound) else { continue };
        let mut merged = Vec::new();
        let mut at = first + 1;
        while at < groups.len() {
            if bound(&groups[at]) {
                merged.extend(groups.remove(at));
            } else {
                at += 1;
            }
        }
        groups[first].extend(merged);
    }
    Ok(groups)
}
