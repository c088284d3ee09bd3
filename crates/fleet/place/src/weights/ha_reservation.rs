//! Even distribution of highly available VMs.

use crate::model::Row;
use crate::unit::{Context, Weight, round, unit};

unit! {
    /// Prefers hosts with fewer highly available VMs, for highly available VMs
    pub struct HaReservation = "OptimalForHaReservation", reads "ScaleDown";
}

impl Weight for HaReservation {
    fn is_neutral(&self, context: &Context<'_>) -> bool {
        !context.cluster.cluster.ha_reservation || !context.vms().any(|vm| vm.ha)
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        if self.is_neutral(context) {
            return;
        }
        let ha = &context.cluster.columns.ha;
        let most = rows.iter().map(|row| ha[*row as usize]).max().unwrap_or(0);
        if most == 0 {
            return;
        }
        let scale = context.whole("ScaleDown", 1).max(1) as i32;
        for (row, raw) in rows.iter().zip(raw) {
            let part = round(f64::from(ha[*row as usize]) * 100.0 / f64::from(most));
            *raw = part / scale + i32::from(part % scale > 0);
        }
    }
}
