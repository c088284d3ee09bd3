//! A limit to virtual CPUs.

use crate::model::Row;
use crate::ratio::Ratio;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts within the limit of virtual CPUs per CPU
    pub struct VCpuCapacity = "VCpuCapacity", reads "VCpuAllocationRatio";
}

impl Filter for VCpuCapacity {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let ratio = context.number("VCpuAllocationRatio").unwrap_or(Ratio::whole(1));
        let columns = &context.cluster.columns;
        let cpus = columns.cpus.iter().zip(context.exclusive());
        let figures = cpus.zip(columns.promised.iter().zip(&columns.kept));
        let cluster = &context.cluster.cluster;
        kept.reject_need(context, figures, |((cpus, exclusive), (promised, own)), need| {
            let free = i64::from(cpus - exclusive) * 1000 - i64::from(*own);
            let taken = i64::from(*promised) + i64::from(need.cpus(cluster));
            ratio.is_exceeded(taken, free)
        });
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let columns = &context.cluster.columns;
        let (at, need) = (row as usize, context.need_on(row));
        let own = f64::from(columns.kept[at]) / 1000.0;
        let cpus = f64::from(columns.cpus[at] - context.exclusive()[at]) - own;
        let taken = f64::from(columns.promised[at]) / 1000.0;
        let more = f64::from(need.cpus(&context.cluster.cluster)) / 1000.0;
        format!("{taken} virtual CPUs are on its {cpus} CPUs; {more} more exceed the limit")
    }
}
