//! A cluster in upgrade.

use crate::model::Row;
use crate::os::{self, Os};
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Not hosts with an older operating system than the VM's last host
    pub struct InClusterUpgrade = "InClusterUpgrade";
}

impl Filter for InClusterUpgrade {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        for os in context.vms().filter_map(|vm| os::last(context, vm)) {
            kept.reject(|row| wrong(context, &os, row).is_some());
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let last = context.vms().filter_map(|vm| os::last(context, vm));
        last.filter_map(|os| wrong(context, &os, row)).next().unwrap_or_default()
    }
}

fn wrong(context: &Context<'_>, last: &Os, row: Row) -> Option<String> {
    let slot = context.cluster.slot(row)?;
    match Os::read(&slot.host.os) {
        None => Some(format!("its operating system, \"{}\", can't be parsed", slot.host.os)),
        Some(os) if os.family != last.family => {
            Some(format!("it runs {}, the VM comes from {}", os.family, last.family))
        }
        Some(os) if os.is_older(last) => Some(format!("its operating system, {}, is older", slot.host.os)),
        Some(_) => None,
    }
}
