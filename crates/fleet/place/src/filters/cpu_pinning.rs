//! CPUs that a VM is bound to.

use crate::fit;
use crate::model::Row;
use crate::object::Pinning;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts with the CPUs that a VM is pinned to, and enough CPUs for VMs with exclusive CPUs
    pub struct CpuPinning = "CpuPinning";
}

impl Filter for CpuPinning {
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
    let mut new = context.new_on(row).map(|slot| &*slot.vm).peekable();
    new.peek()?;
    fit::cpus(context.cluster.slot(row)?, new).err()
}
