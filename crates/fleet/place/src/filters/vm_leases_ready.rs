//! Storage leases.

use crate::unit::{Context, Words, unit};

unit! {
    /// Only hosts that can take the VM's lease
    pub struct VmLeasesReady = "VM leases ready";
}

impl Words for VmLeasesReady {
    const KIND: &'static str = "lease";
    const LACKS: &'static str = "it can't take a lease on";

    fn needed<'m>(context: &Context<'m>) -> impl Iterator<Item = &'m str> {
        context.vms().filter_map(|vm| vm.lease.as_deref())
    }
}
