//! Remaining bandwidth of ports.

use crate::fit;
use crate::model::Row;
use crate::ratio::Ratio;
use crate::unit::{Context, MAX_WEIGHT, Weight, unit};

unit! {
    /// Prefers hosts whose ports have more bandwidth left
    pub struct PortLoad = "PortLoad", reads "PortUtilization";
}

impl Weight for PortLoad {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        if context.vms().all(|vm| vm.ports.is_empty()) {
            return;
        }
        for (row, raw) in rows.iter().zip(raw) {
            let (mut left, mut all) = (0i64, 1i64);
            for free in fit::ports(context, *row, None).unwrap_or_default() {
                left = left.saturating_add(free.mbps.max(0));
                all = all.saturating_add(free.port.mbps as i64);
            }
            let part = Ratio::of(all.saturating_sub(left), all).times(Ratio::whole((MAX_WEIGHT - 1).into()));
            *raw = 1 + part.map_or(0, Ratio::round) as i32;
        }
    }
}
