//! External facts.

use crate::expression::Expression;
use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, round};

/// Prefers hosts for which an expression over facts is greater (Nova's metrics weigher).
pub struct Metrics;

impl Weight for Metrics {
    fn name(&self) -> &'static str {
        "Metrics"
    }

    fn describes(&self) -> &'static str {
        "Prefers hosts for which an expression over facts is greater (Nova's metrics weigher)"
    }

    fn parameters(&self) -> &'static [&'static str] {
        &["MetricsWeightSetting"]
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let Some(Ok(expression)) = context.given("MetricsWeightSetting").map(Expression::read) else {
            return;
        };
        let values: Vec<Option<f64>> = rows.iter().map(|row| expression.value(context, *row)).collect();
        let known = || values.iter().flatten().copied();
        let (least, most) = (known().fold(f64::MAX, f64::min), known().fold(f64::MIN, f64::max));
        for (value, raw) in values.iter().zip(raw) {
            *raw = match value {
                // A host with unknown facts gets the worst score.
                None => MAX_WEIGHT,
                Some(_) if most <= least => 1,
                Some(value) => 1 + round((most - value) / (most - least) * f64::from(MAX_WEIGHT - 1)),
            };
        }
    }
}
