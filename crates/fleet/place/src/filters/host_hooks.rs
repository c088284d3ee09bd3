//! Hooks.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts with the hooks that a VM needs
    pub struct HostHooks = "Host-hooks";
}

impl Filter for HostHooks {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for hook in context.vms().flat_map(|vm| &vm.hooks) {
            let with = context.cluster.with("hook", hook);
            kept.reject(|row| !with.is_some_and(|with| with.has(row)));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let has = |hook: &&String| context.cluster.with("hook", hook).is_some_and(|with| with.has(row));
        let missing: Vec<&str> =
            context.vms().flat_map(|vm| &vm.hooks).filter(|hook| !has(hook)).map(String::as_str).collect();
        format!("it has no hook {}", missing.join(", "))
    }
}
