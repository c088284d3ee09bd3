//! Remaining bandwidth of ports.

use crate::fit;
use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, round};

/// Prefers hosts whose ports have more bandwidth left.
pub struct PortLoad;

impl Weight for PortLoad {
    fn name(&self) -> &'static str {
        "PortLoad"
    }

    fn describes(&self) -> &'static str {
        "Prefers hosts whose ports have more bandwidth left"
    }

    fn parameters(&self) -> &'static [&'static str] {
        &["PortUtilization"]
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        if context.vms().all(|vm| vm.ports.is_empty()) {
            return;
        }
        for (row, raw) in rows.iter().zip(raw) {
            let (mut left, mut all) = (0.0, 1.0);
            for free in fit::ports(context, *row, None).unwrap_or_default() {
                left += free.mbps.max(0) as f64;
                all += free.port.mbps as f64;
            }
            *raw = 1 + round((1.0 - left / all) * f64::from(MAX_WEIGHT - 1));
        }
    }
}
