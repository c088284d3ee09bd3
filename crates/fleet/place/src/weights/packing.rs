//! Fills hosts one after the other.

use crate::model::Row;
use crate::ratio::Ratio;
use crate::unit::{Context, Weight, unit};

unit! {
    /// Prefers hosts with the least CPUs and memory left, in proportion
    pub struct Packing = "Packing", reads "VCpuAllocationRatio";
}

impl Weight for Packing {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let ratio = context.number("VCpuAllocationRatio").unwrap_or(Ratio::whole(1)).reduced();
        let (columns, exclusive) = (&context.cluster.columns, context.exclusive());
        for (row, raw) in rows.iter().zip(raw) {
            let (at, need) = (*row as usize, context.need_on(*row));
            let milli = i64::from(columns.cpus[at]) * 1000 - i64::from(columns.kept[at]);
            let taken = i64::from(columns.promised[at]) + i64::from(need.cpus(&context.cluster.cluster));
            let cpu = free_part(milli, taken, i64::from(exclusive[at]) * 1000, ratio).unwrap_or(NOTHING);
            let memory = i64::from(columns.schedulable[at]) - i64::from(need.committed);
            let memory = Ratio::of(memory, columns.physical[at].into());
            // Both parts and their difference, which is what the scarcer of both makes unusable.
            let left = cpu.max(memory).max(NOTHING);
            *raw = left.times(Ratio::whole(200_000)).map_or(i32::MAX, |left| left.round() as i32);
        }
    }
}

const NOTHING: Ratio = Ratio::whole(0);

/// The part of virtual CPUs that is left, of `milli` thousandths of a CPU that hold `ratio` virtual ones each:
/// `taken` thousandths of virtual ones are taken, and those of `exclusive` thousandths of a CPU.
fn free_part(milli: i64, taken: i64, exclusive: i64, ratio: Ratio) -> Option<Ratio> {
    let (top, bottom) = ratio.terms();
    let all = top.checked_mul(milli.into())?;
    let used = bottom.checked_mul(taken.into())?.checked_add(top.checked_mul(exclusive.into())?)?;
    Some(Ratio::new(all.checked_sub(used)?, all.max(bottom)))
}
