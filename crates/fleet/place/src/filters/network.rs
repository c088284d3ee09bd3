//! Networks and virtual functions.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};
use std::collections::BTreeMap;

unit! {
    /// Only hosts on the VM's networks, with SR-IOV virtual functions for those of its cards that need one
    pub struct Network = "Network";
}

impl Filter for Network {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().all(|vm| vm.nics.is_empty()) {
            return;
        }
        for nic in context.vms().flat_map(|vm| &vm.nics) {
            if !nic.network.is_empty() && !nic.passthrough {
                let with = context.cluster.with("network", &nic.network);
                kept.reject(|row| !with.is_some_and(|with| with.has(row)));
            }
        }
        if context.vms().flat_map(|vm| &vm.nics).any(|nic| nic.passthrough) {
            kept.reject(|row| functions(context, row).is_some());
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let plain =
            context.vms().flat_map(|vm| &vm.nics).filter(|nic| !nic.passthrough && !nic.network.is_empty());
        let has = |network: &str| context.cluster.with("network", network).is_some_and(|with| with.has(row));
        let missing: Vec<&str> =
            plain.map(|nic| nic.network.as_str()).filter(|network| !has(network)).collect();
        match missing.is_empty() {
            false => format!("it is not on network {}", missing.join(", ")),
            true => functions(context, row).unwrap_or_default(),
        }
    }
}

/// The missing virtual functions.
fn functions(context: &Context<'_>, row: Row) -> Option<String> {
    let mut free: BTreeMap<&str, i64> = BTreeMap::new();
    for port in &context.cluster.slot(row)?.host.ports {
        *free.entry(port.network.as_str()).or_default() += i64::from(port.vfs);
    }
    let taken = context.others_on(row).chain(context.new_on(row)).flat_map(|slot| &slot.vm.nics);
    for nic in taken.filter(|nic| nic.passthrough) {
        // A port without a network serves any network.
        let network = if free.contains_key(nic.network.as_str()) { nic.network.as_str() } else { "" };
        *free.entry(network).or_default() -= 1;
    }
    let (network, _) = free.into_iter().find(|(_, left)| *left < 0)?;
    Some(format!(
        "it has too few virtual functions for network {}",
        if network.is_empty() { "any" } else { network }
    ))
}
