//! NUMA nodes.

use crate::fit;
use crate::model::Row;
use crate::object::{NumaMode, Pinning, Vm};
use crate::unit::{Context, Filter, unit};

unit! {
    /// Only hosts whose NUMA nodes can hold those that a VM pins
    pub struct Numa = "NUMA";
}

impl Filter for Numa {
    fn concerns(&self, vm: &Vm) -> bool {
        let pins = vm.numa.iter().any(|node| !node.host_nodes.is_empty());
        pins || vm.pinning == Pinning::ResizeAndPinNuma
    }

    fn wrong(&self, context: &Context<'_>, row: Row) -> Option<String> {
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
}
