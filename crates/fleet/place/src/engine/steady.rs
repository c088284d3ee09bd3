//! Until when a round of balancing has the same result.

use super::{Engine, EngineError};
use crate::unit::whole_number;
use std::collections::{BTreeMap, BTreeSet};

impl Engine {
    /// The next time at which a round of balancing may differ from one at `now`, if nothing changes before.
    /// That is `now` if external units are attached, since these may depend on the clock.
    pub fn steady_until(&self, cluster: &str, now: u64) -> Result<u64, EngineError> {
        const MINUTES: &str = "CpuOverCommitDurationMinutes";
        let inner = self.current()?;
        let model = &inner.model;
        let Some((_, state)) = model.cluster(cluster) else { return Ok(u64::MAX) };
        if inner.external.is_some() {
            return Ok(now);
        }
        let vms = || model.vm_slots().map(|slot| &*slot.vm);
        let cool_down = state.cluster.cool_down * 1000;
        let moved = vms().filter_map(|vm| vm.moved_at).chain(inner.balance.moved.values().copied());
        let moved = moved.flat_map(|at| [at, at.saturating_add(cool_down)]);
        let minutes = |properties: &BTreeMap<String, String>| {
            whole_number(MINUTES, properties.get(MINUTES).map(String::as_str), 2)
        };
        let policies = model.policies().values().map(|policy| &policy.properties);
        let properties = policies.chain([&state.cluster.properties]).chain(vms().map(|vm| &vm.properties));
        let minutes: BTreeSet<u64> = properties.map(|given| minutes(given) as u64).collect();
        let since = state.columns.over_since.iter();
        let over = since
            .flat_map(|at| minutes.iter().map(|minutes| at.saturating_add(minutes.saturating_mul(60_000))));
        let facts = state.facts.values().flat_map(|column| &column.until);
        let times = moved.chain(over).chain(facts.chain(&state.columns.barred).copied());
        Ok(times.filter(|at| *at > now).min().unwrap_or(u64::MAX))
    }
}
