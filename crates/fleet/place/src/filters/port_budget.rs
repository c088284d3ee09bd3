//! Capacity of ports.

use crate::fit;
use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts whose ports have bandwidth and packets a second left
    pub struct PortBudget = "PortBudget", reads "PortUtilization";
}

impl Filter for PortBudget {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().all(|vm| vm.ports.is_empty()) {
            return;
        }
        kept.reject(|row| fit::ports(context, row, None).is_err());
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        fit::ports(context, row, None).err().unwrap_or_default()
    }
}
