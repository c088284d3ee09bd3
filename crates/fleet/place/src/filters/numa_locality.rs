//! CPUs, memory and port on one NUMA node.

use crate::fit;
use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts with a NUMA node that has the VM's CPUs, memory and port
    pub struct NumaLocality = "NumaLocality", reads "PortUtilization";
}

impl Filter for NumaLocality {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().all(|vm| !vm.numa_local) {
            return;
        }
        kept.reject(|row| fit::locality(context, row).is_err());
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        fit::locality(context, row).err().unwrap_or_default()
    }
}
