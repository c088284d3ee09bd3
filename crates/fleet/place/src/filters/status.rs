//! Hosts that are up.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept};

/// Only hosts that are up
pub struct Status;

impl Filter for Status {
    fn name(&self) -> &'static str {
        "Status"
    }

    fn describes(&self) -> &'static str {
        "Only hosts that are up"
    }

    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let up = &context.cluster.columns.up;
        kept.reject_each(up.iter().map(|up| !up));
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let status = context.cluster.slot(row).map(|slot| slot.host.status);
        format!("its status is {}", status.map_or("unknown".into(), |status| format!("{status:?}")))
    }
}
