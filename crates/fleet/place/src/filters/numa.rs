//! NUMA nodes.

use crate::fit;
use crate::model::Row;
use crate::object::{NumaMode, Pinning, Vm};
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts whose NUMA nodes can hold those that a VM pins
    pub struct Numa = "NUMA";
}

impl Filter for Numa {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let pins = |vm: &Vm| vm.numa.iter().any(|node| !node.host_nodes.is_empty());
        if !context.vms().any(|vm| pins(vm) || vm.pinning == Pinning::ResizeAndPinNuma) {
            return;
        }
        kept.reject(|row| wrong(context, row).is_some());
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        wrong(context, row).unwrap_or_default()
    }
}

fn wrong(context: &Context<'_>, row: Row) -> Option<String> {
    let host = &context.cluster.slot(row)?.host;
    let new = context.new_on(row).map(|slot| &*slot.vm);
    let new: Vec<&Vm> =
        new.filter(|vm| !vm.numa.is_empty() || vm.pinning == Pinning::ResizeAndPinNuma).collect();
    if new.is_empty() {
        return None;
    }
    if host.numa.is_empty() {
        return Some("it has no NUMA nodes".into());
    }
    let strict = new.into_iter().filter(|vm| vm.numa.iter().all(|node| node.mode != NumaMode::Preferred));
    match fit::assign(&fit::numa_free(context, row), &fit::pinned_nodes(strict), None) {
        Some(_) => None,
        None => Some("its NUMA nodes lack memory for the VM's pinned nodes".into()),
    }
}
