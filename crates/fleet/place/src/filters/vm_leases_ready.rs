//! Storage leases.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts that can take the VM's lease
    pub struct VmLeasesReady = "VM leases ready";
}

impl Filter for VmLeasesReady {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for domain in context.vms().filter_map(|vm| vm.lease.as_deref()) {
            let with = context.cluster.with("lease", domain);
            kept.reject(|row| !with.is_some_and(|with| with.has(row)));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let has = |domain: &&str| context.cluster.with("lease", domain).is_some_and(|with| with.has(row));
        let missing: Vec<&str> =
            context.vms().filter_map(|vm| vm.lease.as_deref()).filter(|domain| !has(domain)).collect();
        format!("it can't take a lease on {}", missing.join(", "))
    }
}
