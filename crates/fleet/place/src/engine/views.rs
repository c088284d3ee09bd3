//! Hosts as shown to people.

use super::{Engine, EngineError};
use crate::object::HostStatus;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A host with its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostRow {
    /// Its name.
    pub name: String,
    /// Its cluster.
    pub cluster: String,
    /// Whether it is in use.
    pub status: HostStatus,
    /// CPUs.
    pub cpus: i32,
    /// Load of its CPUs in percent, including that of pending VMs.
    pub load: f64,
    /// Virtual CPUs, or the VMs' configured shares, including pending VMs.
    pub vcpus: f64,
    /// Memory in MB.
    pub memory_mb: i32,
    /// Memory in MB that can still be reserved.
    pub schedulable_mb: i32,
    /// VMs that run.
    pub vms: i32,
    /// Pending VMs.
    pub pending: i32,
    /// External facts that have not expired.
    pub facts: BTreeMap<String, f64>,
    /// Why it is blacklisted; empty if it is not.
    pub blacklisted: String,
}

impl Engine {
    /// All hosts, by name.
    pub fn hosts(&self, now: u64) -> Result<Vec<HostRow>, EngineError> {
        self.view(|model| {
            let mut all = Vec::new();
            for state in model.clusters() {
                let columns = &state.columns;
                for (at, slot) in state.hosts.iter().enumerate() {
                    let Some(slot) = slot else { continue };
                    let row = at as u32;
                    let cpus = f64::from((columns.cpus[at] - columns.exclusive[at]).max(1));
                    let facts = state
                        .facts
                        .keys()
                        .filter_map(|name| Some((name.clone(), state.fact(name, row, now)?)));
                    let barred = (now < columns.barred[at]).then(|| state.barred.get(&row).cloned());
                    all.push(HostRow {
                        name: slot.host.name.clone(),
                        cluster: slot.host.cluster.clone(),
                        status: slot.host.status,
                        cpus: columns.cpus[at],
                        load: f64::from(columns.load[at] + columns.pending_load[at]) / cpus,
                        vcpus: columns.taken(row),
                        memory_mb: columns.physical[at],
                        schedulable_mb: columns.schedulable[at],
                        vms: columns.vms[at],
                        pending: columns.pending[at],
                        facts: facts.collect(),
                        blacklisted: barred.flatten().unwrap_or_default(),
                    });
                }
            }
            all.sort_by(|a, b| a.name.cmp(&b.name));
            all
        })
    }
}
