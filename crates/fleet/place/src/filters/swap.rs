//! Swapping hosts.

use crate::model::Row;
use crate::object::VmStatus;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts that don't swap
    pub struct Swap = "Swap", reads "MaximumAllowedSwapUsage";
}

impl Filter for Swap {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().all(|vm| vm.status == VmStatus::Paused) {
            return;
        }
        let allowed = context.whole("MaximumAllowedSwapUsage", 0) as i32;
        let swapping = &context.cluster.columns.swapping;
        kept.reject_each(swapping.iter().map(|swapping| *swapping > allowed));
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        format!("{}% of its memory is swapped out", context.cluster.columns.swapping[row as usize])
    }
}
