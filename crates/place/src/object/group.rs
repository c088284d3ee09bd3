//! Affinity groups, and Nova's server groups as such.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a group wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Nothing.
    #[default]
    Disabled,
    /// Together.
    Positive,
    /// Apart.
    Negative,
}

/// VMs that belong together or apart, and hosts that they belong to or not.
///
/// A Nova server group is one with a rule for VMs alone: `affinity` is positive and enforced, `anti-affinity`
/// negative
/// and enforced, their `soft-` forms not enforced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AffinityGroup {
    /// Its name.
    pub name: String,
    /// Its cluster.
    pub cluster: String,
    /// VMs in it.
    pub vms: Vec<String>,
    /// VMs with one of these labels are in it too.
    pub vm_labels: Vec<String>,
    /// Hosts in it.
    pub hosts: Vec<String>,
    /// Hosts with one of these labels are in it too.
    pub host_labels: Vec<String>,
    /// What holds between its VMs.
    pub vm_rule: Rule,
    /// Whether that must hold.
    pub vm_enforcing: bool,
    /// Most VMs of it on one host where they are to be apart (Nova's `max_server_per_host`); 0 stands for 1.
    pub max_per_host: u32,
    /// What holds between its VMs and its hosts.
    pub host_rule: Rule,
    /// Whether that must hold.
    pub host_enforcing: bool,
    /// Which group to break last.
    pub priority: i64,
}
