//! Even distribution of memory.

use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, round, unit};

unit! {
    /// Prefers hosts with more schedulable memory
    pub struct EvenDistributionMemory = "OptimalForMemoryEvenDistribution";
}

impl Weight for EvenDistributionMemory {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let schedulable = &context.cluster.columns.schedulable;
        let most = rows.iter().map(|row| schedulable[*row as usize]).max().unwrap_or(2).max(2);
        super::score_each(context, rows, raw, [schedulable], |_, [schedulable], need| {
            let left = schedulable.saturating_sub(need.whole);
            MAX_WEIGHT - round(f64::from(left - 1) * f64::from(MAX_WEIGHT - 1) / f64::from(most - 1))
        });
    }
}
