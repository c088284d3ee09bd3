//! Hosts for the self-hosted engine.

use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, round, unit};

unit! {
    /// Prefers hosts with a higher score for the self-hosted engine
    pub struct Ha = "HA";
}

impl Weight for Ha {
    fn is_neutral(&self, context: &Context<'_>) -> bool {
        !context.vms().any(|vm| vm.hosted_engine)
    }

    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        if self.is_neutral(context) {
            return;
        }
        for (row, raw) in rows.iter().zip(raw) {
            let agent = context.cluster.slot(*row).and_then(|slot| slot.host.ha_agent.as_ref());
            let score = agent.map_or(0, |agent| agent.score.min(HIGHEST));
            *raw = MAX_WEIGHT - round(f64::from(score) * f64::from(MAX_WEIGHT) / f64::from(HIGHEST));
        }
    }
}

/// The highest score of a host (oVirt's `HostedEngineMaximumHighAvailabilityScore`).
const HIGHEST: u32 = 3400;
