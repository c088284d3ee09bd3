//! A cluster in upgrade.

use crate::model::Row;
use crate::os::{self, Os};
use crate::unit::{Context, Weight, unit};

unit! {
    /// Prefers hosts with a newer operating system
    pub struct InClusterUpgrade = "InClusterUpgrade";
}

impl Weight for InClusterUpgrade {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let last = context.vms().find_map(|vm| os::last(context, vm));
        let starting = last.is_none();
        let systems: Vec<Option<Os>> = rows
            .iter()
            .map(|row| context.cluster.slot(*row).and_then(|slot| Os::read(&slot.host.os)))
            .collect();
        let Some(reference) = last.or_else(|| newest(&systems)) else { return };
        for (os, raw) in systems.iter().zip(raw) {
            *raw = match os {
                Some(os) if os.family == reference.family && !os.is_older(&reference) => {
                    if os.is_same(&reference) && !starting { BETTER } else { 0 }
                }
                _ => BAD,
            };
        }
    }
}

const BAD: i32 = 1_000_000;
const BETTER: i32 = 100_000;

/// The newest system, if all are of one family.
fn newest(systems: &[Option<Os>]) -> Option<Os> {
    let mut known = systems.iter().flatten();
    let first = known.next()?;
    let same = systems.iter().flatten().all(|os| os.family == first.family);
    let newest = systems.iter().flatten().max_by_key(|os| os.version.first().copied());
    newest.filter(|_| same).cloned()
}
