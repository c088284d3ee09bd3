//! Preferred hosts.

use crate::model::Row;
use crate::unit::{Context, Weight, unit};

unit! {
    /// Prefers the hosts that a VM names, when it starts
    pub struct PreferredHosts = "PreferredHosts";
}

impl Weight for PreferredHosts {
    fn is_neutral(&self, context: &Context<'_>) -> bool {
        !context.vms().any(|vm| !vm.runs() && !vm.hosts.is_empty())
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let starting = context.vms().filter(|vm| !vm.runs() && !vm.hosts.is_empty());
        for vm in starting {
            let preferred = context.rows_of(&vm.hosts);
            for (row, raw) in rows.iter().zip(&mut *raw) {
                *raw += if preferred.contains(row) { 0 } else { PENALTY };
            }
        }
    }
}

/// Penalty of other hosts.
const PENALTY: i32 = 10_000;
