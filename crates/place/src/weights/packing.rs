//! Fills hosts one after the other.

use crate::model::Row;
use crate::unit::{Context, Weight, round};

/// Prefers hosts with the least CPUs and memory left, in proportion.
pub struct Packing;

impl Weight for Packing {
    fn name(&self) -> &'static str {
        "Packing"
    }

    fn describes(&self) -> &'static str {
        "Prefers hosts with the least CPUs and memory left, in proportion"
    }

    fn parameters(&self) -> &'static [&'static str] {
        &["VCpuAllocationRatio"]
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let ratio = context.number("VCpuAllocationRatio", 1.0);
        let (columns, exclusive) = (&context.cluster.columns, context.exclusive());
        for (row, raw) in rows.iter().zip(raw) {
            let (at, need) = (*row as usize, context.need_on(*row));
            let cpus = (f64::from(columns.cpus[at]) - f64::from(columns.kept[at]) / 1000.0) * ratio;
            let taken = columns.promised[at] + need.cpus(&context.cluster.cluster);
            let cpu = 1.0 - (f64::from(taken) / 1000.0 + f64::from(exclusive[at]) * ratio) / cpus.max(0.001);
            let memory =
                f64::from(columns.schedulable[at] - need.committed) / f64::from(columns.physical[at].max(1));
            *raw = round(left(cpu.max(0.0), memory.max(0.0)) * 100_000.0);
        }
    }
}

/// Score for the remaining fractions of CPUs and memory: a remainder of only one of them is wasted.
fn left(cpu: f64, memory: f64) -> f64 {
    cpu + memory + (cpu - memory).abs()
}
