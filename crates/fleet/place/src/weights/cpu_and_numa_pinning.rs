//! CPU and NUMA pinning.

use crate::fit;
use crate::model::Row;
use crate::object::{NumaMode, Vm};
use crate::unit::{Context, MAX_WEIGHT, Weight, unit};

unit! {
    /// Prefers hosts where CPU pinning and NUMA pinning agree
    pub struct CpuAndNumaPinning = "CPU and NUMA pinning compatibility";
}

impl Weight for CpuAndNumaPinning {
    fn is_neutral(&self, context: &Context<'_>) -> bool {
        !context.vms().any(|vm| is_strict(vm) && vm.numa.iter().any(|node| !node.host_nodes.is_empty()))
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        if self.is_neutral(context) {
            return;
        }
        for (row, raw) in rows.iter().zip(raw) {
            let Some(slot) = context.cluster.slot(*row) else { continue };
            let new = context.new_on(*row).map(|slot| &*slot.vm).filter(|vm| is_strict(vm));
            let nodes = fit::pinned_nodes(new);
            let fits = fit::assign(&fit::numa_free(context, *row), &nodes, Some(&slot.host)).is_some();
            *raw = if fits && !slot.host.numa.is_empty() { 1 } else { MAX_WEIGHT };
        }
    }
}

fn is_strict(vm: &Vm) -> bool {
    vm.numa.iter().all(|node| node.mode != NumaMode::Preferred)
}
