//! External units: plugins in other processes. One call covers all hosts.

use crate::object::{Host, Vm};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kind of an external unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalKind {
    /// A filter.
    Filter,
    /// A weight.
    Score,
    /// A balancer.
    Balance,
}

/// A external unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalUnit {
    /// Its name, used in policies.
    pub name: String,
    /// Its kind.
    pub kind: ExternalKind,
    /// Its description for people.
    pub description: String,
    /// Custom properties that it permits, as `key=regex;key=regex`.
    pub properties: String,
}

/// A host as sent to external units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// The host's description.
    #[serde(flatten)]
    pub host: Host,
    /// Load of its CPUs in percent.
    pub cpu_load: f64,
    /// Load of pending VMs, in percent.
    pub pending_load: f64,
    /// Free memory in MB, less that of pending VMs.
    pub free_mb: i64,
    /// Memory in MB that can still be reserved.
    pub schedulable_mb: i64,
    /// Names of VMs that run on it.
    pub vms: Vec<String>,
    /// Names of VMs pending on it.
    pub pending_vms: Vec<String>,
    /// External facts that have not expired.
    pub facts: BTreeMap<String, f64>,
}

/// A VM as sent to external units.
pub type VmView = Vm;

/// A change since the last call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// A host was added or changed.
    Host(Box<HostView>),
    /// A host was deleted.
    NoHost(String),
    /// A VM was added or changed.
    Vm(Box<VmView>),
    /// A VM was deleted.
    NoVm(String),
}

/// Why an external unit gave no answer. It is skipped in the decision, unless its policy requires it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{unit}: {what}")]
pub struct ExternalError {
    /// The unit, or the process that runs it.
    pub unit: String,
    /// The error.
    pub what: String,
}

/// Action proposed by an external balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalAction {
    /// A VM is to move.
    Move {
        /// The VM.
        vm: String,
        /// Possible destinations, best first.
        to: Vec<String>,
        /// The reason; may be empty.
        reason: String,
    },
    /// Switch a host on or off.
    Power {
        /// The host.
        host: String,
        /// Whether to switch it on.
        on: bool,
        /// The reason; may be empty.
        reason: String,
    },
    /// A VM is to stop.
    Stop {
        /// The VM.
        vm: String,
        /// The reason; may be empty.
        reason: String,
    },
    /// Put a host into maintenance, or take it into use again.
    Maintenance {
        /// The host.
        host: String,
        /// Whether to put it into maintenance.
        on: bool,
        /// The reason; may be empty.
        reason: String,
    },
}

/// Answers of several units by name, or their errors.
pub type Outcome<T> = BTreeMap<String, Result<T, ExternalError>>;

/// A query about hosts.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// The hosts, in the order of their names.
    pub hosts: &'q [&'q str],
    /// The VM.
    pub vm: &'q VmView,
    /// Custom properties.
    pub properties: &'q BTreeMap<String, String>,
}

/// A filter's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Indices, in the queried list, of rejected hosts, each with its reason, which may be empty.
    pub hosts: BTreeMap<u32, String>,
}

/// A weight's score for each queried host; lower is better, none for no score.
pub type Scores = Vec<Option<i64>>;

/// Runs external units. It keeps its own copy of all hosts and VMs, from a snapshot and updates. The
/// implementation limits the time of every call.
pub trait External: Send {
    /// The available units. Cheap, since it is called before every use.
    fn units(&mut self) -> Vec<ExternalUnit>;

    /// Errors of the units' sources, one line each.
    fn problems(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Sets the time, in milliseconds since 1970, and the random seed of the following calls. Before the
    /// first call, the implementation chooses both.
    fn at(&mut self, now: u64, seed: u64) {
        let _ = (now, seed);
    }

    /// Replaces the whole copy.
    fn snapshot(&mut self, hosts: Vec<HostView>, vms: Vec<VmView>) -> Result<(), ExternalError>;

    /// Updates the copy.
    fn deltas(&mut self, deltas: Vec<Delta>) -> Result<(), ExternalError>;

    /// Hosts that each filter rejects.
    fn filter(&mut self, units: &[String], question: &Question<'_>) -> Outcome<Rejected>;

    /// The scores of each weight: one per host.
    fn score(&mut self, units: &[(String, u32)], question: &Question<'_>) -> Outcome<Scores>;

    /// A balancer's action; none to change nothing.
    fn balance(
        &mut self,
        unit: &str,
        hosts: &[String],
        properties: &BTreeMap<String, String>,
    ) -> Result<Vec<ExternalAction>, ExternalError>;
}
