//! Clusters: hosts among which VMs move.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its policy.
    pub policy: String,
    /// Custom properties over its policy's.
    pub properties: BTreeMap<String, String>,
    /// Whether a thread counts as a core.
    pub threads_as_cores: bool,
    /// Part of a host's memory that guests may reserve, in percent; above 100 to overcommit.
    pub memory_overcommit: u32,
    /// Whether hosts are kept so that every highly available VM could restart elsewhere.
    pub ha_reservation: bool,
    /// CPU flags that VMs without their own need.
    pub cpu_flags: Vec<String>,
    /// Emulated machine of VMs without their own.
    pub machine: Option<String>,
    /// Seconds after a migration during which the balancer does not move the VM again.
    pub cool_down: u64,
    /// Minimum reduction of the cluster's spread of load by a migration, in percent of the spread.
    pub minimum_gain: u32,
    /// Migrations that a balancing round may start.
    pub migrations: u32,
    /// Seconds between two rounds of balancing; 0 for rounds on request only.
    pub interval: u64,
    /// How migrations are carried out.
    pub executor: Executor,
}

/// How migrations are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// Ringway changes its inventory only: for hosts that are not real.
    #[default]
    Inventory,
    /// By an external program, which moves VMs with a reservation, and confirms or releases it.
    Outside,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            name: "default".into(),
            policy: "none".into(),
            properties: BTreeMap::new(),
            threads_as_cores: false,
            memory_overcommit: 100,
            ha_reservation: false,
            cpu_flags: Vec::new(),
            machine: None,
            cool_down: 600,
            minimum_gain: 5,
            migrations: 1,
            interval: 60,
            executor: Executor::Inventory,
        }
    }
}
