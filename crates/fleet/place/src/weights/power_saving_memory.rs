//! Consolidation by memory.

use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, unit};

unit! {
    /// Prefers hosts with less schedulable memory, but not too little
    pub struct PowerSavingMemory = "OptimalForMemoryPowerSaving",
        reads "MaxFreeMemoryForOverUtilized", "MinFreeMemoryForUnderUtilized";
}

impl Weight for PowerSavingMemory {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let low = context.whole("MaxFreeMemoryForOverUtilized", 0);
        let high = context.whole("MinFreeMemoryForUnderUtilized", i64::MAX);
        let schedulable = &context.cluster.columns.schedulable;
        let most = rows.iter().map(|row| schedulable[*row as usize]).max().unwrap_or(1).max(1);
        // Hosts with too little memory get a worse score than the host with the most. In tenths of MB.
        let most = i64::from(most) * 11;
        for (row, raw) in rows.iter().zip(raw) {
            let left = i64::from(schedulable[*row as usize].saturating_sub(context.need_on(*row).whole));
            let tenths = match left < low {
                true => most.min(high.saturating_add(low.saturating_sub(left)).saturating_mul(10)),
                false => left * 10,
            };
            *raw = (tenths * i64::from(MAX_WEIGHT - 1) / most) as i32 + 1;
        }
    }
}
