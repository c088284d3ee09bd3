//! CPU flags.

use crate::unit::{Context, Words, unit};
use std::collections::BTreeSet;

unit! {
    /// Only hosts whose CPU has the flags that the VM needs
    pub struct CpuLevel = "CPU-Level";
}

impl Words for CpuLevel {
    const KIND: &'static str = "flag";
    const LACKS: &'static str = "its CPU lacks";

    /// The flags required by the VMs, or by the cluster for VMs without flags of their own. A VM with CPU passthrough
    /// that does not run yet accepts any CPU.
    fn needed<'m>(context: &Context<'m>) -> impl Iterator<Item = &'m str> {
        let mut flags = BTreeSet::new();
        for vm in context.vms() {
            let own = &vm.cpu_flags;
            match (vm.cpu_passthrough, vm.host.is_some(), own.is_empty()) {
                (true, false, _) => {}
                (true, true, _) | (false, _, false) => flags.extend(own.iter().map(String::as_str)),
                (false, _, true) => {
                    flags.extend(context.cluster.cluster.cpu_flags.iter().map(String::as_str))
                }
            }
        }
        flags.into_iter()
    }
}
