//! Capacity of ports.

use crate::fit;
use crate::model::Row;
use crate::object::Vm;
use crate::unit::{Context, Filter, unit};

unit! {
    /// Only hosts whose ports have bandwidth and packets a second left
    pub struct PortBudget = "PortBudget", reads "PortUtilization";
}

impl Filter for PortBudget {
    fn concerns(&self, vm: &Vm) -> bool {
        !vm.ports.is_empty()
    }

    fn wrong(&self, context: &Context<'_>, row: Row) -> Option<String> {
        fit::ports(context, row, None).err()
    }
}
