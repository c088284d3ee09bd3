//! Compatibility versions.

use crate::unit::{Context, Words, unit};

unit! {
    /// Only hosts that support the VM's compatibility version
    pub struct CompatibilityVersion = "Compatibility-Version";
}

impl Words for CompatibilityVersion {
    const KIND: &'static str = "version";
    const LACKS: &'static str = "it does not support compatibility version";

    fn needed<'m>(context: &Context<'m>) -> impl Iterator<Item = &'m str> {
        context.vms().filter_map(|vm| vm.version.as_deref())
    }
}
