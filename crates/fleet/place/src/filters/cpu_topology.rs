//! CPU topology that pinning needs.

use crate::model::Row;
use crate::object::{Pinning, Vm};
use crate::unit::{Context, Filter, unit};

unit! {
    /// Only hosts whose sockets, cores and threads suit the VM's pinning
    pub struct CpuTopology = "CPUTopology";
}

impl Filter for CpuTopology {
    fn concerns(&self, vm: &Vm) -> bool {
        !matches!(vm.pinning, Pinning::None | Pinning::Manual)
    }

    fn wrong(&self, context: &Context<'_>, row: Row) -> Option<String> {
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
}
