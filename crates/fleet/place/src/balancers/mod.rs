//! Balancers, one per file: each proposes VMs to move, with possible destinations.

mod cpu_and_memory;
mod even_distribution;
mod even_guest_distribution;
mod ha_reservation;
mod power_saving;

pub use ha_reservation::unsafe_hosts;

use crate::model::{ClusterState, Model, Row, VmId};
use crate::object::{HostStatus, Migration, VmStatus};
use crate::ratio::Ratio;
use crate::unit::{number, whole_number};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What a balancer proposes: moves, best first, and a host to switch.
pub type Proposed = (Vec<Proposal>, Option<Power>);

/// A balancer; each has a row in [`ALL`].
pub struct Balancer {
    /// Its name, used in policies.
    pub name: &'static str,
    /// Its description for people.
    pub describes: &'static str,
    /// Names of the custom properties that it reads.
    pub parameters: &'static [&'static str],
    /// Proposes moves.
    pub propose: fn(&Scene<'_>) -> Proposed,
}

/// Balancers that policies choose from.
pub const ALL: &[Balancer] = &[
    Balancer { name: "None", describes: "No moves", parameters: &[], propose: |_| (Vec::new(), None) },
    even_distribution::BALANCER,
    even_guest_distribution::BALANCER,
    power_saving::BALANCER,
    ha_reservation::BALANCER,
];

/// A balancer that policies may name.
pub fn find(name: &str) -> Option<&'static Balancer> {
    ALL.iter().find(|balancer| balancer.name == name)
}

/// A VM that should move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The VM.
    pub vm: VmId,
    /// Its current host.
    pub from: Row,
    /// Possible destinations.
    pub to: Vec<Row>,
    /// Whether staying is permitted if it is best.
    pub stay: bool,
    /// Whether the move must reduce the load of the fuller of both hosts.
    pub evens: bool,
    /// The reason.
    pub reason: Cow<'static, str>,
}

/// A host to switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Power {
    /// The host.
    pub host: Row,
    /// The new status.
    pub to: HostStatus,
}

/// A balancer's view of a cluster.
pub struct Scene<'m> {
    /// The whole model.
    pub model: &'m Model,
    /// The cluster.
    pub cluster: &'m ClusterState,
    /// Hosts that are up and not part of a migration.
    pub hosts: Vec<Row>,
    /// The time, in milliseconds since 1970.
    pub now: u64,
    /// Custom properties: the policy's, then the cluster's.
    pub properties: BTreeMap<String, String>,
}

impl<'m> Scene<'m> {
    /// A cluster at a moment.
    pub fn new(
        model: &'m Model,
        cluster: &'m ClusterState,
        now: u64,
        properties: BTreeMap<String, String>,
    ) -> Scene<'m> {
        let columns = &cluster.columns;
        let quiet = |row: &Row| {
            let at = *row as usize;
            let moving = |vm: &VmId| {
                let leaves = |slot: &crate::model::VmSlot| {
                    slot.pending.is_some() || slot.vm.status == VmStatus::Migrating
                };
                model.vm_by(*vm).is_some_and(leaves)
            };
            let slot = cluster.slot(*row);
            let usable = columns.up[at] && columns.pending[at] == 0 && now >= columns.barred[at];
            usable && slot.is_some_and(|slot| !slot.running.iter().any(moving))
        };
        let mut hosts: Vec<Row> = (0..columns.len() as Row).filter(quiet).collect();
        // The order must be the same on every machine.
        hosts.sort_by_key(|row| cluster.name(*row));
        Scene { model, cluster, hosts, now, properties }
    }

    /// A custom property as a number, or its default; none if it has none.
    pub(crate) fn number(&self, name: &str) -> Option<Ratio> {
        number(name, self.properties.get(name).map(String::as_str))
    }

    /// A custom property as an integer, or its default, or `or` if it has none.
    pub fn whole(&self, name: &str, or: i64) -> i64 {
        whole_number(name, self.properties.get(name).map(String::as_str), or)
    }

    /// VMs on a host that may be moved, least load first.
    pub fn movable(&self, row: Row) -> Vec<VmId> {
        let Some(slot) = self.cluster.slot(row) else { return Vec::new() };
        let movable = |id: &VmId| {
            let slot = self.model.vm_by(*id)?;
            let moves = slot.vm.migration == Migration::Migratable && slot.vm.status == VmStatus::Up;
            moves.then(|| (slot.need.load, slot.vm.name.clone(), *id))
        };
        let mut vms: Vec<_> = slot.running.iter().filter_map(movable).collect();
        vms.sort();
        vms.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Load of a host's shared CPUs, in percent.
    pub(crate) fn load(&self, row: Row) -> Ratio {
        self.cluster.load(row)
    }
}

/// The proposals of balancer `name`, none if it is empty; `None` if there is no such built-in balancer.
pub fn propose(name: &str, scene: &Scene<'_>) -> Option<Proposed> {
    let name = if name.is_empty() { "None" } else { name };
    find(name).map(|balancer| (balancer.propose)(scene))
}
