//! Nova's host aggregates.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts of the aggregates that a VM requires
    pub struct Aggregates = "Aggregates";
}

impl Filter for Aggregates {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for aggregate in context.vms().flat_map(|vm| &vm.aggregates) {
            let with = context.cluster.with("aggregate", aggregate);
            kept.reject(|row| !with.is_some_and(|with| with.has(row)));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let has = |name: &&String| context.cluster.with("aggregate", name).is_some_and(|with| with.has(row));
        let missing: Vec<&str> = context
            .vms()
            .flat_map(|vm| &vm.aggregates)
            .filter(|name| !has(name))
            .map(String::as_str)
            .collect();
        format!("it does not belong to {}", missing.join(", "))
    }
}
