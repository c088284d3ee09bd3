//! The start of hosts' CPU overloads.

use super::Object;
use crate::model::{Change, HostId, Model, Row};
use crate::object::Load;
use crate::unit::whole_number;
use std::collections::BTreeSet;

/// High utilization in percent if neither the cluster nor its policy sets it.
const HIGH: i64 = 75;

/// Hosts whose load some objects change.
pub(super) fn hosts(objects: &[Object]) -> BTreeSet<String> {
    let host = |object: &Object| match object {
        Object::Load(load) => Some(load.host.clone()),
        Object::Host(host) => Some(host.name.clone()),
        Object::Vm(vm) => vm.host.clone(),
        _ => None,
    };
    objects.iter().filter_map(host).collect()
}

/// The changes that record the start at `now`, or the end, of a host's overload.
pub(super) fn of_cluster(model: &Model, cluster: &str, now: u64) -> Vec<Change> {
    let Some((cluster, state)) = model.cluster(cluster) else { return Vec::new() };
    let rows = 0..state.columns.len() as Row;
    changes(model, rows.map(|row| HostId { cluster, row }), now)
}

/// The changes that record the start at `now`, or the end, of the overload of these hosts.
pub(super) fn changes(model: &Model, hosts: impl Iterator<Item = HostId>, now: u64) -> Vec<Change> {
    let change = |id: HostId| {
        let (state, at) = (model.state(id.cluster), id.row as usize);
        let slot = state.slot(id.row)?;
        let policy = || model.policy(&state.cluster.policy)?.properties.get("HighUtilization");
        let high = state.cluster.properties.get("HighUtilization").or_else(policy);
        let high = whole_number("HighUtilization", high.map(String::as_str), HIGH);
        let (is_over, was_over) =
            (state.load(id.row).ceil() >= high.into(), state.columns.over_since[at] < u64::MAX);
        let load = slot.load.as_deref().cloned().unwrap_or_default();
        let load = Load { host: slot.host.name.clone(), over_since: is_over.then_some(now), ..load };
        (is_over != was_over).then_some(Change::Load(load))
    };
    hosts.filter_map(change).collect()
}
