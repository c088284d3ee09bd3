//! Hooks.

use crate::unit::{Context, Words, unit};

unit! {
    /// Only hosts with the hooks that a VM needs
    pub struct HostHooks = "Host-hooks";
}

impl Words for HostHooks {
    const KIND: &'static str = "hook";
    const LACKS: &'static str = "it has no hook";

    fn needed<'m>(context: &Context<'m>) -> impl Iterator<Item = &'m str> {
        context.vms().flat_map(|vm| &vm.hooks).map(String::as_str)
    }
}
