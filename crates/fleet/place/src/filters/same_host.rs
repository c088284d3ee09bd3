//! Nova's hint `same_host`.

use crate::model::{HostId, Row, VmSlot};
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only the hosts of the VMs that the hint names
    pub struct SameHost = "SameHost";
}

impl Filter for SameHost {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for vm in context.vms().filter(|vm| !vm.same_host.is_empty()) {
            let slots = vm.same_host.iter().filter_map(|name| context.model.vm(name));
            let rows: Vec<Row> = slots.filter_map(|slot| home(context, slot)).collect();
            kept.reject(|row| !rows.contains(&row));
        }
    }

    fn reason(&self, context: &Context<'_>, _: Row) -> String {
        let named: Vec<&str> = context.vms().flat_map(|vm| &vm.same_host).map(String::as_str).collect();
        format!("{} is not there", named.join(", "))
    }
}

/// The host that a VM runs on or is assigned to; its last host if it is stopped, since Nova's stopped
/// instances stay on their hosts.
fn home(context: &Context<'_>, slot: &VmSlot) -> Option<Row> {
    let last = || slot.vm.host.as_ref().or(slot.vm.last_host.as_ref());
    let place: HostId = slot.place().or_else(|| context.model.host(last()?))?;
    (place.cluster == context.cluster_id).then_some(place.row)
}
