//! Even distribution of CPU load.

use crate::model::Row;
use crate::ratio::Ratio;
use crate::unit::{Context, Weight, stretch, unit};

unit! {
    /// Prefers hosts whose CPUs are less loaded
    pub struct EvenDistributionCpu = "OptimalForCpuEvenDistribution", reads "VCpuToPhysicalCpuRatio";
}

impl Weight for EvenDistributionCpu {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        match context.number("VCpuToPhysicalCpuRatio").filter(|ratio| !ratio.is_zero()) {
            Some(limit) => {
                let full = |at: usize| vcpu_ratio(context, at) >= limit;
                super::load_scores(context, rows, raw, |at| if full(at) { PENALTY } else { 1 });
            }
            None => super::load_scores(context, rows, raw, |_| 1),
        }
        stretch(raw);
    }
}

/// Penalty of a host that has no virtual CPUs left.
const PENALTY: i32 = 1000;

/// Virtual CPUs per CPU after adding the group.
fn vcpu_ratio(context: &Context<'_>, at: usize) -> Ratio {
    let columns = &context.cluster.columns;
    let milli = columns.taken_milli(at as Row) + i64::from(context.need_on(at as Row).milli);
    let cpus = i64::from((columns.cpus[at] - context.exclusive()[at]).max(1));
    Ratio::of(milli, cpus * 1000)
}
