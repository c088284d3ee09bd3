//! High-performance VMs.

use crate::model::{CpuMap, Row};
use crate::object::Vm;
use crate::unit::{Context, MAX_WEIGHT, Weight, stretch, unit};

unit! {
    /// Prefers hosts with at least the sockets, cores and threads of a high-performance VM
    pub struct HighPerformanceCpu = "CPU for high performance VMs";
}

impl Weight for HighPerformanceCpu {
    fn is_neutral(&self, context: &Context<'_>) -> bool {
        !context.vms().any(applies)
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        for vm in context.vms().filter(|vm| applies(vm)) {
            for (row, raw) in rows.iter().zip(&mut *raw) {
                let Some(slot) = context.cluster.slot(*row) else { continue };
                let host = &slot.host;
                let (cores, threads) = (host.cores / host.sockets, host.threads / host.cores);
                let fits = vm.sockets <= host.sockets && vm.cores <= cores && vm.threads <= threads;
                *raw += if vm.pinning.is_exclusive() {
                    let guests = slot.guests().filter_map(|id| Some(&*context.model.vm_by(id)?.vm));
                    let others = guests.filter(|other| other.name != vm.name);
                    spread(vm, CpuMap::new(host, others))
                } else if fits {
                    1
                } else {
                    MAX_WEIGHT
                };
            }
        }
        stretch(raw);
    }
}

/// Whether the weight applies to a VM.
fn applies(vm: &Vm) -> bool {
    let pinned = !vm.pins.is_empty() || vm.numa.iter().any(|node| !node.host_nodes.is_empty());
    vm.high_performance || vm.cpu_passthrough || vm.pinning.is_exclusive() || pinned
}

/// Number of sockets, then cores, over which a VM with exclusive CPUs is spread.
fn spread(vm: &Vm, mut cpus: CpuMap) -> i32 {
    let (sockets, cores) = cpus.dedicate(vm).map_or((1000, 0), |own| cpus.spread(&own));
    (1000 * sockets + cores).min(1_000_000) as i32
}
