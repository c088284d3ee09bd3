//! Even distribution of CPU load.

use crate::model::Row;
use crate::unit::{Context, Weight, stretch};

/// Prefers hosts whose CPUs are less loaded.
pub struct EvenDistributionCpu;

impl Weight for EvenDistributionCpu {
    fn name(&self) -> &'static str {
        "OptimalForCpuEvenDistribution"
    }

    fn describes(&self) -> &'static str {
        "Prefers hosts whose CPUs are less loaded"
    }

    fn parameters(&self) -> &'static [&'static str] {
        &["VCpuToPhysicalCpuRatio"]
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let ratio = context.number("VCpuToPhysicalCpuRatio", 0.0);
        let full = |at: usize| vcpu_ratio(context, at) >= ratio;
        if ratio > 0.0 {
            super::load_scores(context, rows, raw, |at| if full(at) { PENALTY } else { 1.0 });
        } else {
            super::load_scores(context, rows, raw, |_| 1.0);
        }
        stretch(raw);
    }
}

/// Penalty of a host that has no virtual CPUs left.
const PENALTY: f64 = 1000.0;

/// Virtual CPUs per CPU after adding the group.
fn vcpu_ratio(context: &Context<'_>, at: usize) -> f64 {
    let columns = &context.cluster.columns;
    let vcpus = columns.taken(at as Row) + f64::from(context.need_on(at as Row).milli) / 1000.0;
    vcpus / f64::from((columns.cpus[at] - context.exclusive()[at]).max(1))
}
