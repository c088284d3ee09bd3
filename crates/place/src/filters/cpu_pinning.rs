//! CPUs that a VM is bound to.

use crate::model::Row;
use crate::object::Pinning;
use crate::unit::{Context, Filter, Kept};

/// Only hosts that have the CPUs a VM is pinned to, and enough for VMs with CPUs of their own
pub struct CpuPinning;

impl Filter for CpuPinning {
    fn name(&self) -> &'static str {
        "CpuPinning"
    }

    fn describes(&self) -> &'static str {
        "Only hosts that have the CPUs a VM is pinned to, and enough for VMs with CPUs of their own"
    }

    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().all(|vm| vm.pinning == Pinning::None) {
            return;
        }
        kept.reject(|row| wrong(context, row).is_some());
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        wrong(context, row).unwrap_or_default()
    }
}

fn wrong(context: &Context<'_>, row: Row) -> Option<String> {
    let host = &context.cluster.slot(row)?.host;
    let columns = &context.cluster.columns;
    let taken = columns.exclusive[row as usize];
    let need = context.need_on(row);
    let free = columns.cpus[row as usize] - taken;
    if need.exclusive > free {
        return Some(format!("{} CPUs are nobody's own, {} are needed", free.max(0), need.exclusive));
    }
    let resizes = context.new_on(row).any(|slot| slot.vm.pinning == Pinning::ResizeAndPinNuma);
    if resizes && (taken > 0 || need.exclusive > 0) {
        return Some("a VM that takes the whole host can't be beside VMs with CPUs of their own".into());
    }
    let missing = context.new_on(row).flat_map(|slot| &slot.vm.pins).find(|cpu| **cpu >= host.threads);
    missing.map(|cpu| format!("it has no CPU {cpu}"))
}
