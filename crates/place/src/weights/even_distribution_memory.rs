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
        let scale = f64::from(MAX_WEIGHT - 1) / f64::from(most - 1);
        let score = |row: Row, whole: i32| {
            let left = schedulable[row as usize].saturating_sub(whole);
            MAX_WEIGHT - round(f64::from(left - 1) * scale)
        };
        let whole = context.need.whole;
        for (row, raw) in rows.iter().zip(&mut *raw) {
            *raw = score(*row, whole);
        }
        for row in context.sources() {
            if let Ok(at) = rows.binary_search(&row) {
                raw[at] = score(row, context.need_on(row).whole);
            }
        }
    }
}
