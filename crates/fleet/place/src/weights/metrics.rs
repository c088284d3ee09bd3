//! External facts.

use crate::expression::{Expression, Number};
use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, unit};

unit! {
    /// Prefers hosts for which an expression over facts is greater (Nova's metrics weigher)
    pub struct Metrics = "Metrics", reads "MetricsWeightSetting";
}

impl Weight for Metrics {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let Some(Ok(expression)) = context.given("MetricsWeightSetting").map(Expression::read) else {
            return;
        };
        let values: Vec<Option<Number>> = rows.iter().map(|row| expression.value(context, *row)).collect();
        let known = || values.iter().flatten().copied();
        let (least, most) = (known().min_by(|a, b| a.order(*b)), known().max_by(|a, b| a.order(*b)));
        let (Some(least), Some(most)) = (least, most) else { return raw.fill(MAX_WEIGHT) };
        let alike = least.order(most).is_eq();
        for (value, raw) in values.iter().zip(raw) {
            let step = |value: Number| if alike { Some(0) } else { value.step(most, least, MAX_WEIGHT - 1) };
            // A host with unknown facts gets the worst score.
            *raw = value.and_then(step).map_or(MAX_WEIGHT, |step| 1 + step);
        }
    }
}
