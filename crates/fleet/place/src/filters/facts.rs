//! External facts.

use crate::expression::Expression;
use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts for which an expression over facts holds
    pub struct Facts = "Facts", reads "FactFilter";
}

impl Filter for Facts {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let Some(expression) = context.given("FactFilter") else { return };
        match Expression::read(expression) {
            Ok(expression) => kept.reject(|row| !expression.holds(context, row)),
            // Policies are checked when they are added; an invalid expression from elsewhere rejects every
            // host.
            Err(_) => kept.reject(|_| true),
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        match context.given("FactFilter").map(Expression::read) {
            Some(Ok(expression)) => expression.explain(context, row),
            Some(Err(error)) => error.to_string(),
            None => String::new(),
        }
    }
}
