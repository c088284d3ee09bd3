//! Everything a decision depends on, in memory: the store's objects in columns, changed one object at a time.

mod apply;
mod bits;
mod cluster;
mod columns;
mod cpus;
mod need;
mod touched;

pub use apply::Change;
pub use bits::Bits;
pub(crate) use cluster::dynamic_mb;
pub use cluster::{ClusterState, FactColumn, HostSlot};
pub use columns::{Columns, GUEST_OVERHEAD, Sums};
pub use cpus::CpuMap;
pub(crate) use cpus::order;
pub use need::{Need, VCPU_LOAD};
pub use touched::Touched;

use crate::object::{AffinityGroup, Blacklist, Fact, Load, Pending, Vm};
use crate::policy::Policy;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Index of a host in its cluster's columns.
pub type Row = u32;

/// Index of a VM.
pub type VmId = u32;

/// Identifies a host by cluster and row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId {
    /// Its cluster.
    pub cluster: u32,
    /// Its row there.
    pub row: Row,
}

/// A VM and its location.
#[derive(Clone, Debug)]
pub struct VmSlot {
    /// The VM.
    pub vm: Arc<Vm>,
    /// Its resource needs.
    pub need: Need,
    /// The host that it runs on.
    pub at: Option<HostId>,
    /// The host that is reserved for it.
    pub pending: Option<HostId>,
}

impl VmSlot {
    /// The host on which it counts for other VMs: the reserved host, or else the current one.
    pub fn place(&self) -> Option<HostId> {
        self.pending.or(self.at)
    }
}

/// Everything a decision depends on.
#[derive(Clone, Debug, Default)]
pub struct Model {
    clusters: Vec<ClusterState>,
    cluster_ids: HashMap<String, u32>,
    hosts: HashMap<String, HostId>,
    vms: HashMap<String, VmId>,
    slots: Vec<Option<VmSlot>>,
    free: Vec<VmId>,
    /// VMs on unknown hosts.
    homeless: HashMap<String, BTreeSet<VmId>>,
    labelled: HashMap<String, BTreeSet<VmId>>,
    chains: HashMap<String, BTreeSet<VmId>>,
    /// VMs that run a self-hosted engine.
    engines: BTreeSet<VmId>,
    groups: BTreeMap<String, Arc<AffinityGroup>>,
    /// Groups by `vm/NAME` and `label/LABEL`.
    grouped: HashMap<String, BTreeSet<String>>,
    policies: BTreeMap<String, Arc<Policy>>,
    /// Measurements by host name, also of unknown hosts.
    loads: HashMap<String, Load>,
    facts: HashMap<String, BTreeMap<String, Fact>>,
    barred: HashMap<String, Blacklist>,
    pendings: BTreeMap<String, Pending>,
    /// Changes since the last call of `touched`, if recorded.
    touched: Option<Touched>,
}

impl Model {
    /// All clusters.
    pub fn clusters(&self) -> &[ClusterState] {
        &self.clusters
    }

    /// A cluster by name.
    pub fn cluster(&self, name: &str) -> Option<(u32, &ClusterState)> {
        let id = *self.cluster_ids.get(name)?;
        Some((id, &self.clusters[id as usize]))
    }

    /// The cluster with this index.
    pub fn state(&self, id: u32) -> &ClusterState {
        &self.clusters[id as usize]
    }

    /// A host by name.
    pub fn host(&self, name: &str) -> Option<HostId> {
        self.hosts.get(name).copied()
    }

    /// The host with this id.
    pub fn slot(&self, id: HostId) -> Option<&HostSlot> {
        self.clusters.get(id.cluster as usize)?.slot(id.row)
    }

    /// Names of all hosts, in no order.
    pub fn host_names(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(String::as_str)
    }

    /// A VM by name.
    pub fn vm(&self, name: &str) -> Option<&VmSlot> {
        self.vm_by(self.vm_id(name)?)
    }

    /// A VM's index.
    pub fn vm_id(&self, name: &str) -> Option<VmId> {
        self.vms.get(name).copied()
    }

    /// The VM with this index.
    pub fn vm_by(&self, id: VmId) -> Option<&VmSlot> {
        self.slots.get(id as usize)?.as_ref()
    }

    /// Number of VM indices, free ones included.
    pub fn vm_places(&self) -> usize {
        self.slots.len()
    }

    /// All VMs, in no order that means anything.
    pub fn vm_slots(&self) -> impl Iterator<Item = &VmSlot> {
        self.slots.iter().flatten()
    }

    /// VMs that run a self-hosted engine.
    pub fn hosted_engines(&self) -> impl Iterator<Item = &VmSlot> {
        self.engines.iter().filter_map(|id| self.vm_by(*id))
    }

    /// Reservations, by VM.
    pub fn pendings(&self) -> &BTreeMap<String, Pending> {
        &self.pendings
    }

    /// A policy by name.
    pub fn policy(&self, name: &str) -> Option<&Arc<Policy>> {
        self.policies.get(name)
    }

    /// All policies, by name.
    pub fn policies(&self) -> &BTreeMap<String, Arc<Policy>> {
        &self.policies
    }

    /// A host's last measurements, also of an unknown host.
    pub fn load(&self, host: &str) -> Option<&Load> {
        self.loads.get(host)
    }

    /// External facts about a host, also of an unknown host, and including expired ones.
    pub fn facts(&self, host: &str) -> impl Iterator<Item = &Fact> {
        self.facts.get(host).into_iter().flat_map(BTreeMap::values)
    }

    /// A host's blacklist entry, also of an unknown host, and even if it has ended.
    pub fn blacklist(&self, host: &str) -> Option<&Blacklist> {
        self.barred.get(host)
    }

    /// All affinity groups, by name.
    pub fn groups(&self) -> &BTreeMap<String, Arc<AffinityGroup>> {
        &self.groups
    }

    /// The groups that a VM is in, by name or by label, in the order of their names.
    pub fn groups_of(&self, vm: &Vm) -> Vec<&Arc<AffinityGroup>> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        let labels = vm.labels.iter().map(|label| format!("label/{label}"));
        let keys = std::iter::once(format!("vm/{}", vm.name)).chain(labels);
        let names: BTreeSet<&String> = keys.filter_map(|key| self.grouped.get(&key)).flatten().collect();
        let groups = names.into_iter().filter_map(|name| self.groups.get(name));
        groups.filter(|group| group.cluster == vm.cluster).collect()
    }

    /// The VMs of a group.
    pub fn members(&self, group: &AffinityGroup) -> BTreeSet<VmId> {
        let named = group.vms.iter().filter_map(|name| self.vms.get(name)).copied();
        let labelled = group.vm_labels.iter().filter_map(|label| self.labelled.get(label)).flatten();
        named.chain(labelled.copied()).collect()
    }

    /// The functions of a chain.
    pub fn chain(&self, name: &str) -> impl Iterator<Item = &VmSlot> {
        self.chains.get(name).into_iter().flatten().filter_map(|id| self.vm_by(*id))
    }
}
