//! Nova's host aggregates.

use crate::unit::{Context, Words, unit};

unit! {
    /// Only hosts of the aggregates that a VM requires
    pub struct Aggregates = "Aggregates";
}

impl Words for Aggregates {
    const KIND: &'static str = "aggregate";
    const LACKS: &'static str = "it does not belong to";

    fn needed<'m>(context: &Context<'m>) -> impl Iterator<Item = &'m str> {
        context.vms().flat_map(|vm| &vm.aggregates).map(String::as_str)
    }
}
