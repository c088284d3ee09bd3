//! CPUs, memory and port on one NUMA node.

use crate::fit;
use crate::model::Row;
use crate::object::Vm;
use crate::unit::{Context, MAX_WEIGHT, Weight, unit};

unit! {
    /// Prefers hosts with a NUMA node that has the function's CPUs, memory and port
    pub struct NumaLocality = "NumaLocality", reads "PortUtilization";
}

impl Weight for NumaLocality {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let wishes = |vm: &Vm| vm.numa_local || !vm.ports.is_empty();
        if !context.vms().any(wishes) {
            return;
        }
        for (row, raw) in rows.iter().zip(raw) {
            let nodes = fit::numa_free(context, *row);
            let need = context.need_on(*row);
            let (cpus, memory) = (i64::from(need.milli) / 1000, i64::from(need.whole));
            let near = nodes.iter().any(|node| {
                node.cpus >= cpus
                    && node.memory >= memory
                    && fit::ports(context, *row, Some(node.index)).is_ok()
            });
            *raw = if near { 1 } else { MAX_WEIGHT };
        }
    }
}
