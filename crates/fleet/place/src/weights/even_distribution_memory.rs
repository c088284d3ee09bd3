//! Even distribution of memory.

use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, round};

/// Prefers hosts with more schedulable memory.
pub struct EvenDistributionMemory;

impl Weight for EvenDistributionMemory {
    fn name(&self) -> &'static str {
        "OptimalForMemoryEvenDistribution"
    }

    fn describes(&self) -> &'static str {
        "Prefers hosts with more schedulable memory"
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let schedulable = &context.cluster.columns.schedulable;
        let most = rows.iter().map(|row| schedulable[*row as usize]).max().unwrap_or(2).max(2);
        super::score_each(context, rows, raw, [schedulable], |_, [schedulable], need| {
            let left = schedulable.saturating_sub(need.whole);
            MAX_WEIGHT - round(f64::from(left - 1) * f64::from(MAX_WEIGHT - 1) / f64::from(most - 1))
        });
    }
}
