//! Hosts that are up.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts that are up
    pub struct Status = "Status";
}

impl Filter for Status {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let up = &context.cluster.columns.up;
        kept.reject_each(up.iter().map(|up| !up));
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let status = context.cluster.slot(row).map(|slot| slot.host.status);
        format!("its status is {}", status.map_or("unknown".into(), |status| format!("{status:?}")))
    }
}
