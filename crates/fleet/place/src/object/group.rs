//! Affinity groups, and Nova's server groups as such.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A rule of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// No rule.
    #[default]
    Disabled,
    /// Together.
    Positive,
    /// Apart.
    Negative,
}

/// An affinity group: VMs that run together or apart, and hosts on which they run or do not run.
///
/// A Nova server group is a group with only a rule for VMs: `affinity` is positive and enforced,
/// `anti-affinity` negative and enforced, the `soft-` forms are not enforced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AffinityGroup {
    /// Its name.
    pub name: String,
    /// Its cluster.
    pub cluster: String,
    /// Its VMs.
    pub vms: Vec<String>,
    /// VMs with one of these labels belong to it too.
    pub vm_labels: Vec<String>,
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Hosts with one of these labels belong to it too.
    pub host_labels: Vec<String>,
    /// Rule between its VMs.
    pub vm_rule: Rule,
    /// Whether the rule is enforced.
    pub vm_enforcing: bool,
    /// Negative rule: largest number of its VMs on one host (Nova's `max_server_per_host`); 0 stands for 1.
    pub max_per_host: u32,
    /// Rule between its VMs and its hosts.
    pub host_rule: Rule,
    /// Whether the rule is enforced.
    pub host_enforcing: bool,
    /// Groups with the lowest priority are violated first.
    pub priority: i64,
}
