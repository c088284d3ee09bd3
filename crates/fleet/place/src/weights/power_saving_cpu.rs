//! Consolidation by CPU load.

use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, round, unit};

unit! {
    /// Prefers hosts whose CPUs are more loaded, but not overloaded
    pub struct PowerSavingCpu = "OptimalForCpuPowerSaving", reads "HighUtilization";
}

impl Weight for PowerSavingCpu {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        super::load_scores(context, rows, raw, |_| 1);
        let high = context.whole("HighUtilization", i32::MAX.into());
        let columns = &context.cluster.columns;
        let over = |row: Row| {
            let at = row as usize;
            let cpus = (columns.cpus[at] - columns.exclusive[at]).max(1);
            i64::from(columns.load[at] + columns.pending_load[at]) > high * i64::from(cpus)
        };
        let good = rows.iter().zip(&*raw).filter(|(row, _)| !over(**row)).map(|(_, raw)| *raw);
        let (least, most) =
            good.fold((i32::MAX, i32::MIN), |(least, most), raw| (least.min(raw), most.max(raw)));
        let width = (f64::from(most) - f64::from(least)).max(1.0);
        for (row, raw) in rows.iter().zip(&mut *raw) {
            *raw = match over(*row) {
                true => MAX_WEIGHT,
                false => 1 + round((f64::from(most) - f64::from(*raw)) * f64::from(MAX_WEIGHT - 1) / width),
            };
        }
    }
}
