//! Consolidation by memory.

use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight};

/// Prefers hosts with less schedulable memory, but not too little.
pub struct PowerSavingMemory;

impl Weight for PowerSavingMemory {
    fn name(&self) -> &'static str {
        "OptimalForMemoryPowerSaving"
    }

    fn describes(&self) -> &'static str {
        "Prefers hosts with less schedulable memory, but not too little"
    }

    fn parameters(&self) -> &'static [&'static str] {
        &["MaxFreeMemoryForOverUtilized", "MinFreeMemoryForUnderUtilized"]
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let low = context.number("MaxFreeMemoryForOverUtilized", 0.0);
        let high = context.number("MinFreeMemoryForUnderUtilized", f64::MAX);
        let schedulable = &context.cluster.columns.schedulable;
        let most = rows.iter().map(|row| schedulable[*row as usize]).max().unwrap_or(1).max(1);
        // Hosts with too little memory get a worse score than the host with the most.
        let most = f64::from(most) * 1.1;
        for (row, raw) in rows.iter().zip(raw) {
            let mut left = f64::from(schedulable[*row as usize].saturating_sub(context.need_on(*row).whole));
            if left < low {
                left = most.min(high + (low - left));
            }
            *raw = (left / most * f64::from(MAX_WEIGHT - 1)) as i32 + 1;
        }
    }
}
