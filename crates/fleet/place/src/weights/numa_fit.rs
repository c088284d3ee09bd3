//! VMs that fit a NUMA node.

use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, unit};

unit! {
    /// Prefers hosts where a VM without virtual NUMA nodes fits one NUMA node
    pub struct NumaFit = "Fit VM to single host NUMA node";
}

impl Weight for NumaFit {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        for vm in context.vms().filter(|vm| vm.numa.is_empty()) {
            for (row, raw) in rows.iter().zip(&mut *raw) {
                let Some(slot) = context.cluster.slot(*row) else { continue };
                let nodes = &slot.host.numa;
                let fits = nodes.iter().any(|node| vm.memory_mb <= node.memory_mb && vm.vcpus() <= node.cpus);
                *raw += if nodes.is_empty() || fits { 1 } else { MAX_WEIGHT };
            }
        }
    }
}
