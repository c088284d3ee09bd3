//! CPUs.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts with at least as many non-exclusive CPUs as the VM has cores
    pub struct Cpu = "CPU";
}

impl Filter for Cpu {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let columns = &context.cluster.columns;
        let figures = columns.cpus.iter().zip(context.exclusive()).zip(&columns.largest);
        kept.reject_need(context, figures, |((cpus, exclusive), largest), need| {
            cpus - exclusive < (*largest).max(need.largest)
        });
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let columns = &context.cluster.columns;
        let (at, need) = (row as usize, context.need_on(row));
        format!(
            "{} CPUs, {} of them for VMs alone, are too few for a VM of {} cores",
            columns.cpus[at],
            context.exclusive()[at],
            columns.largest[at].max(need.largest)
        )
    }
}
