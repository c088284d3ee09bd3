//! Input of units: the request and its group.

use super::parameter::{number, whole_number};
use crate::fit;
use crate::model::{ClusterState, HostId, HostSlot, Model, Need, Row, VmId, VmSlot, dynamic_mb};
use crate::object::Vm;
use crate::ratio::Ratio;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// Additional conditions of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Allowed hosts; empty for all.
    pub only: BTreeSet<String>,
    /// Excluded hosts.
    pub without: BTreeSet<String>,
    /// Whether the host a VM runs on may be chosen.
    pub stay: bool,
}

/// A group of VMs that goes to one host, with everything needed to judge hosts.
pub struct Context<'m> {
    /// The whole model.
    pub model: &'m Model,
    /// The cluster.
    pub cluster: &'m ClusterState,
    /// The cluster's index.
    pub cluster_id: u32,
    /// The VMs.
    pub group: Vec<(VmId, &'m VmSlot)>,
    /// Their total needs on a host that has none of them.
    pub need: Need,
    /// The time, in milliseconds since 1970.
    pub now: u64,
    /// Custom properties: the policy's, then the cluster's, then the VMs'.
    pub properties: BTreeMap<&'m str, &'m str>,
    /// The request.
    pub request: &'m Request,
    /// See [`Context::exclusive`].
    pub(crate) exclusive: OnceCell<Vec<i32>>,
}

impl<'m> Context<'m> {
    /// The VMs.
    pub fn vms(&self) -> impl Iterator<Item = &'m Vm> + '_ {
        self.group.iter().map(|(_, slot)| &*slot.vm)
    }

    /// Whether a VM is in the group.
    pub fn has(&self, vm: VmId) -> bool {
        self.group.iter().any(|(id, _)| *id == vm)
    }

    /// Rows of hosts on which VMs of the group run.
    pub fn sources(&self) -> impl Iterator<Item = Row> + '_ {
        let at = self.group.iter().filter_map(|(_, slot)| slot.at);
        at.filter(|at| at.cluster == self.cluster_id).map(|at| at.row)
    }

    /// Whether `slot` runs on `row`.
    pub fn is_on(&self, slot: &VmSlot, row: Row) -> bool {
        slot.at == Some(HostId { cluster: self.cluster_id, row })
    }

    /// The VMs that would be new on a host.
    pub fn new_on(&self, row: Row) -> impl Iterator<Item = &'m VmSlot> + '_ {
        self.group.iter().map(|(_, slot)| *slot).filter(move |slot| !self.is_on(slot, row))
    }

    /// The group's needs on a host, without those of VMs that already run there.
    pub fn need_on(&self, row: Row) -> Need {
        self.new_on(row).fold(Need::default(), |sum, slot| sum.and(slot.need))
    }

    /// By row, the number of the host's CPUs that are exclusive to VMs after adding the group; more than the
    /// host has if the group's pinning does not fit.
    pub fn exclusive(&self) -> &[i32] {
        let columns = &self.cluster.columns;
        if !self.vms().any(|vm| vm.pinning.is_exclusive()) {
            return &columns.exclusive;
        }
        let threads = self.cluster.cluster.threads_as_cores;
        let taken = |(at, slot): (usize, &Option<HostSlot>)| {
            let new = || self.new_on(at as Row).map(|slot| &*slot.vm);
            if !new().any(|vm| vm.pinning.is_exclusive()) {
                return columns.exclusive[at];
            }
            let map = slot.as_ref().and_then(|slot| fit::cpus(slot, new()).ok());
            map.map_or(columns.cpus[at] + 1, |map| map.taken(threads))
        };
        self.exclusive.get_or_init(|| self.cluster.hosts.iter().enumerate().map(taken).collect())
    }

    /// Memory in huge pages that the group needs on a host beyond the free ones.
    pub fn dynamic_on(&self, row: Row) -> i32 {
        let Some(slot) = self.cluster.slot(row) else { return 0 };
        let guests = slot.guests().filter_map(|id| self.model.vm_by(id)).chain(self.new_on(row));
        let all = dynamic_mb(&slot.host, guests.map(|slot| &*slot.vm));
        all - slot.sums.dynamic - slot.sums.pending_dynamic
    }

    /// Running and pending VMs of a host, without VMs that the group adds.
    pub fn others_on(&self, row: Row) -> impl Iterator<Item = &'m VmSlot> + '_ {
        let slots = self.cluster.slot(row).into_iter().flat_map(|slot| slot.guests());
        let slots = slots.filter_map(|id| Some((id, self.model.vm_by(id)?)));
        slots.filter(move |(id, slot)| !self.has(*id) || self.is_on(slot, row)).map(|(_, slot)| slot)
    }

    /// A custom property, if set.
    pub fn given(&self, name: &str) -> Option<&'m str> {
        self.properties.get(name).copied()
    }

    /// A custom property as a number, or its default; none if it has none.
    pub(crate) fn number(&self, name: &str) -> Option<Ratio> {
        number(name, self.given(name))
    }

    /// A custom property as an integer, or its default, or `or` if it has none.
    pub fn whole(&self, name: &str, or: i64) -> i64 {
        whole_number(name, self.given(name), or)
    }

    /// Rows of hosts by name, in this cluster.
    pub fn rows_of<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> Vec<Row> {
        let ids = names.into_iter().filter_map(|name| self.model.host(name));
        ids.filter(|id| id.cluster == self.cluster_id).map(|id| id.row).collect()
    }
}
