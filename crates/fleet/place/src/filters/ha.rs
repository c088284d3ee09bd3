//! Hosts that can run the self-hosted engine.

use crate::model::HostSlot;
use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// The self-hosted engine only on hosts with a positive score
    pub struct Ha = "HA";
}

impl Filter for Ha {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if let Some(least) = least(context) {
            kept.reject(|row| context.cluster.slot(row).is_none_or(|slot| !good(slot, least)));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let score =
            context.cluster.slot(row).and_then(|slot| slot.host.ha_agent.as_ref()).map(|agent| agent.score);
        match score {
            None => "the self-hosted engine is not deployed on it".into(),
            Some(score) => {
                format!("its score is {score}; more than {} is needed", least(context).unwrap_or(0))
            }
        }
    }
}

/// Maximum amount by which a host's score may be below that of the engine's current host.
const THRESHOLD: u32 = 800;

/// The score that a host must exceed, if the engine is among the VMs.
fn least(context: &Context<'_>) -> Option<u32> {
    let (_, engine) = context.group.iter().find(|(_, slot)| slot.vm.hosted_engine)?;
    let now = engine.at.and_then(|at| context.model.slot(at)).and_then(|slot| slot.host.ha_agent.as_ref());
    let now = now.filter(|agent| !agent.global_maintenance);
    Some(now.map_or(0, |agent| agent.score.saturating_sub(THRESHOLD)))
}

fn good(slot: &HostSlot, least: u32) -> bool {
    slot.host.ha_agent.as_ref().is_some_and(|agent| agent.score > least)
}
