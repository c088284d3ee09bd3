//! Emulated machines.

use crate::unit::{Context, Words, unit};

unit! {
    /// Only hosts whose QEMU has the VM's emulated machine
    pub struct EmulatedMachine = "Emulated-Machine";
}

impl Words for EmulatedMachine {
    const KIND: &'static str = "machine";
    const LACKS: &'static str = "it has no emulated machine";

    fn needed<'m>(context: &Context<'m>) -> impl Iterator<Item = &'m str> {
        let common = context.cluster.cluster.machine.as_deref();
        context.vms().filter_map(move |vm| vm.machine.as_deref().or(common))
    }
}
