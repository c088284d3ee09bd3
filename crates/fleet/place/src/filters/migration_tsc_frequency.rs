//! Time stamp counters.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// VMs that rely on it move only between hosts with the same frequency of the time stamp counter
    pub struct MigrationTscFrequency = "Migration-Tsc-Frequency";
}

impl Filter for MigrationTscFrequency {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for source in sources(context) {
            kept.reject(|row| !alike(context, source, row));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let source = sources(context).find(|source| !alike(context, *source, row)).unwrap_or(0);
        format!("its time stamp counter does not run at {source} Hz")
    }
}

/// Maximum difference of frequencies in parts per million.
const TOLERANCE: u64 = 250;

/// Frequencies of the hosts that the VMs run on.
fn sources(context: &Context<'_>) -> impl Iterator<Item = u64> {
    let moving = context.group.iter().filter(|(_, slot)| slot.vm.use_tsc);
    moving.filter_map(|(_, slot)| context.model.slot(slot.at?)?.host.tsc_hz)
}

fn alike(context: &Context<'_>, source: u64, row: Row) -> bool {
    context.cluster.slot(row).is_some_and(|slot| {
        let near = slot
            .host
            .tsc_hz
            .is_some_and(|hz| hz.abs_diff(source) <= source.saturating_mul(TOLERANCE) / 1_000_000);
        slot.host.tsc_scaling || near
    })
}
