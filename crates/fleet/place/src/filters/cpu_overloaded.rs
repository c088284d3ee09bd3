//! CPU load.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts whose CPUs are not overloaded for long
    pub struct CpuOverloaded = "CPUOverloaded", reads "HighUtilization", "CpuOverCommitDurationMinutes";
}

impl Filter for CpuOverloaded {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let (high, lasting) = limits(context);
        // Hosts that were overloaded then, and still are.
        let Some(then) = context.now.checked_sub(lasting) else { return };
        let columns = &context.cluster.columns;
        let loads = columns.load.iter().zip(&columns.cpus).zip(&columns.exclusive);
        kept.reject_each(columns.over_since.iter().zip(loads).map(|(since, ((load, cpus), exclusive))| {
            (*since <= then) & (*load > high * (cpus - exclusive))
        }));
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let columns = &context.cluster.columns;
        let at = row as usize;
        let cpus = (columns.cpus[at] - columns.exclusive[at]).max(1);
        format!(
            "its CPUs are at {}% for too long; the limit is {}%",
            columns.load[at] / cpus,
            limits(context).0
        )
    }
}

/// The highest permitted load, and how long an overload must last, in milliseconds.
fn limits(context: &Context<'_>) -> (i32, u64) {
    let minutes = context.whole("CpuOverCommitDurationMinutes", 2) as u64;
    (context.whole("HighUtilization", 90) as i32, minutes.saturating_mul(60_000))
}
