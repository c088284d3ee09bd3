//! VMs pinned to hosts.

use crate::model::Row;
use crate::object::Migration;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only the hosts that a VM is pinned to
    pub struct PinToHost = "PinToHost";
}

impl Filter for PinToHost {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for vm in context.vms().filter(|vm| vm.migration == Migration::PinnedToHost) {
            let rows = context.rows_of(&vm.hosts);
            // Without a list of hosts the VM may start anywhere, and then stays there.
            let stays = vm.host.is_some();
            kept.reject(|row| if vm.hosts.is_empty() { stays } else { !rows.contains(&row) });
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let pinned = context.vms().filter(|vm| vm.migration == Migration::PinnedToHost);
        let wrong = pinned.filter(|vm| !vm.hosts.iter().any(|host| host == context.cluster.name(row)));
        let names: Vec<&str> = wrong.map(|vm| vm.name.as_str()).collect();
        format!("{} is not pinned to it", names.join(", "))
    }
}
