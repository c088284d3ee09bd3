//! The host a VM is on.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept};

/// Not the host that the VM runs on
pub struct Migration;

impl Filter for Migration {
    fn name(&self) -> &'static str {
        "Migration"
    }

    fn describes(&self) -> &'static str {
        "Not the host that the VM runs on"
    }

    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if !context.request.stay {
            let sources: Vec<Row> = context.sources().collect();
            sources.into_iter().for_each(|row| kept.remove(row));
        }
    }

    fn reason(&self, _: &Context<'_>, _: Row) -> String {
        "the VM runs on it already".into()
    }
}
