//! CPU flags.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};
use std::collections::BTreeSet;

unit! {
    /// Only hosts whose CPU has the flags that the VM needs
    pub struct CpuLevel = "CPU-Level";
}

impl Filter for CpuLevel {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for flag in needed(context) {
            let with = context.cluster.with("flag", flag);
            kept.reject(|row| !with.is_some_and(|with| with.has(row)));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let has = |flag: &&str| context.cluster.with("flag", flag).is_some_and(|with| with.has(row));
        let missing: Vec<&str> = needed(context).into_iter().filter(|flag| !has(flag)).collect();
        format!("its CPU lacks {}", missing.join(", "))
    }
}

/// The flags required by the VMs, or by the cluster for VMs without flags of their own. A VM with CPU
/// passthrough that does not run yet accepts any CPU.
fn needed<'m>(context: &Context<'m>) -> BTreeSet<&'m str> {
    let mut flags = BTreeSet::new();
    for vm in context.vms() {
        let own = &vm.cpu_flags;
        match (vm.cpu_passthrough, vm.host.is_some(), own.is_empty()) {
            (true, false, _) => {}
            (true, true, _) | (false, _, false) => flags.extend(own.iter().map(String::as_str)),
            (false, _, true) => flags.extend(context.cluster.cluster.cpu_flags.iter().map(String::as_str)),
        }
    }
    flags
}
