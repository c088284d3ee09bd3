//! CPUs that a VM is bound to.

use crate::fit;
use crate::model::Row;
use crate::object::{Pinning, Vm};
use crate::unit::{Context, Filter, unit};

unit! {
    /// Only hosts with the CPUs that a VM is pinned to, and enough CPUs for VMs with exclusive CPUs
    pub struct CpuPinning = "CpuPinning";
}

impl Filter for CpuPinning {
    fn concerns(&self, vm: &Vm) -> bool {
        vm.pinning != Pinning::None
    }

    fn wrong(&self, context: &Context<'_>, row: Row) -> Option<String> {
        let mut new = context.new_on(row).map(|slot| &*slot.vm).peekable();
        new.peek()?;
        fit::cpus(context.cluster.slot(row)?, new).err()
    }
}
