//! Even distribution of VMs.

use crate::model::Row;
use crate::unit::{Context, Weight, unit};

unit! {
    /// Prefers hosts with fewer VMs
    pub struct EvenGuestDistribution = "OptimalForEvenGuestDistribution", reads "SpmVmGrace";
}

impl Weight for EvenGuestDistribution {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let grace = i32::try_from(context.whole("SpmVmGrace", 5)).unwrap_or(i32::MAX);
        let columns = &context.cluster.columns;
        for (row, raw) in rows.iter().zip(raw) {
            let at = *row as usize;
            let manager = context.cluster.slot(*row).is_some_and(|slot| slot.host.spm);
            *raw = columns.vms[at] + columns.pending[at] + if manager { grace } else { 0 };
        }
    }
}
