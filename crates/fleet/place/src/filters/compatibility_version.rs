//! Compatibility versions.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts that support the VM's compatibility version
    pub struct CompatibilityVersion = "Compatibility-Version";
}

impl Filter for CompatibilityVersion {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for version in context.vms().filter_map(|vm| vm.version.as_deref()) {
            let with = context.cluster.with("version", version);
            kept.reject(|row| !with.is_some_and(|with| with.has(row)));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let has = |version: &&str| context.cluster.with("version", version).is_some_and(|with| with.has(row));
        let missing: Vec<&str> =
            context.vms().filter_map(|vm| vm.version.as_deref()).filter(|version| !has(version)).collect();
        format!("it does not support compatibility version {}", missing.join(", "))
    }
}
