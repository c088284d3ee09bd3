//! A cluster in maintenance.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only highly available VMs start
    pub struct ClusterInMaintenance = "ClusterInMaintenance";
}

impl Filter for ClusterInMaintenance {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().any(|vm| !vm.ha && vm.host.is_none()) {
            kept.reject(|_| true);
        }
    }

    fn reason(&self, _: &Context<'_>, _: Row) -> String {
        "the cluster is in maintenance; only highly available VMs start".into()
    }
}
