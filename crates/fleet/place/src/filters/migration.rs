//! The host a VM is on.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Not the host that the VM runs on
    pub struct Migration = "Migration";
}

impl Filter for Migration {
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
