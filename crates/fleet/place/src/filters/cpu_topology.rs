//! CPU topology that pinning needs.

use crate::model::Row;
use crate::object::Pinning;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts whose sockets, cores and threads suit the VM's pinning
    pub struct CpuTopology = "CPUTopology";
}

impl Filter for CpuTopology {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().all(|vm| matches!(vm.pinning, Pinning::None | Pinning::Manual)) {
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
    context.vms().find_map(|vm| match vm.pinning {
        Pinning::ResizeAndPinNuma if host.cores / host.sockets <= 1 => {
            Some("it has one core a socket; to resize and pin takes more".into())
        }
        Pinning::ResizeAndPinNuma if host.sockets as usize != host.numa.len() => Some(format!(
            "it has {} sockets and {} NUMA nodes; to resize and pin takes as many",
            host.sockets,
            host.numa.len()
        )),
        Pinning::Dedicated if host.threads / host.cores < vm.threads => Some(format!(
            "it has {} threads a core, {} needs {}",
            host.threads / host.cores,
            vm.name,
            vm.threads
        )),
        _ => None,
    })
}
