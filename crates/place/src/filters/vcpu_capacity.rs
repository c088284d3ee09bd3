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
        let (vcpus, pending) = (&columns.vcpus[..rows], &columns.pending_vcpus[..rows]);
        kept.reject_need(context, |row, need| {
            let all = f64::from(cpus[row] - exclusive[row] - need.exclusive) * ratio;
            f64::from(vcpus[row] + pending[row] + need.vcpus) > all
        });
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let columns = &context.cluster.columns;
        let (at, need) = (row as usize, context.need_on(row));
        let taken = columns.vcpus[at] + columns.pending_vcpus[at];
        let cpus = columns.cpus[at] - columns.exclusive[at] - need.exclusive;
        format!("{taken} virtual CPUs are on its {cpus} CPUs; {} more are too many", need.vcpus)
    }
}
