//! A limit to virtual CPUs.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept};

/// Only hosts whose CPUs are not promised more often than allowed
pub struct VCpuCapacity;

impl Filter for VCpuCapacity {
    fn name(&self) -> &'static str {
        "VCpuCapacity"
    }

    fn describes(&self) -> &'static str {
        "Only hosts whose CPUs are not promised more often than allowed"
    }

    fn parameters(&self) -> &'static [&'static str] {
        &["VCpuAllocationRatio"]
    }

    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let ratio = context.number("VCpuAllocationRatio", 1.0);
        let columns = &context.cluster.columns;
        let rows = kept.len();
        let (cpus, exclusive) = (&columns.cpus[..rows], &columns.exclusive[..rows]);
        let (milli, pending) = (&columns.milli[..rows], &columns.pending_milli[..rows]);
        let own = &columns.kept[..rows];
        kept.reject_need(context, |row, need| {
            let free = i64::from(cpus[row] - exclusive[row] - need.exclusive) * 1000 - i64::from(own[row]);
            let taken = i64::from(milli[row]) + i64::from(pending[row]) + i64::from(need.milli);
            taken as f64 > free as f64 * ratio
        });
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let columns = &context.cluster.columns;
        let (at, need) = (row as usize, context.need_on(row));
        let taken = columns.taken(row);
        let own = f64::from(columns.kept[at]) / 1000.0;
        let cpus = f64::from(columns.cpus[at] - columns.exclusive[at] - need.exclusive) - own;
        let more = f64::from(need.milli) / 1000.0;
        format!("{taken} virtual CPUs are on its {cpus} CPUs; {more} more are too many")
    }
}
