//! CPU load, evened out.

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
        super::load_scores(context, rows, raw);
        let ratio = context.number("VCpuToPhysicalCpuRatio", 0.0);
        if ratio > 0.0 {
            for (row, raw) in rows.iter().zip(&mut *raw) {
                if vcpu_ratio(context, *row) >= ratio {
                    *raw = raw.saturating_mul(PENALTY);
                }
            }
        }
        stretch(raw);
    }
}

/// What a host that is full of virtual CPUs is made worse by.
const PENALTY: i32 = 1000;

/// Virtual CPUs a CPU, once the group is there.
fn vcpu_ratio(context: &Context<'_>, row: Row) -> f64 {
    let (columns, at) = (&context.cluster.columns, row as usize);
    let need = context.need_on(row);
    let cpus = columns.cpus[at] - columns.exclusive[at] - need.exclusive;
    (columns.taken(row) + f64::from(need.milli) / 1000.0) / f64::from(cpus.max(1))
}
