//! Emulated machines.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts whose QEMU has the VM's emulated machine
    pub struct EmulatedMachine = "Emulated-Machine";
}

impl Filter for EmulatedMachine {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for machine in needed(context) {
            let with = context.cluster.with("machine", machine);
            kept.reject(|row| !with.is_some_and(|with| with.has(row)));
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let has = |machine: &&str| context.cluster.with("machine", machine).is_some_and(|with| with.has(row));
        let missing: Vec<&str> = needed(context).filter(|machine| !has(machine)).collect();
        format!("it has no emulated machine {}", missing.join(", "))
    }
}

fn needed<'m>(context: &Context<'m>) -> impl Iterator<Item = &'m str> {
    let common = context.cluster.cluster.machine.as_deref();
    context.vms().filter_map(move |vm| vm.machine.as_deref().or(common))
}
