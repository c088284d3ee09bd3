//! Units from outside: plugins in other processes. One call covers all hosts.

use crate::object::{Host, Vm};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a unit from outside does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalKind {
    /// It filters.
    Filter,
    /// It weighs.
    Score,
    /// It balances.
    Balance,
}

/// A unit from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalUnit {
    /// Its name, as policies use it.
    pub name: String,
    /// What it does.
    pub kind: ExternalKind,
    /// What it does, for people.
    pub description: String,
    /// Custom properties it allows, as `key=regex;key=regex`.
    pub properties: String,
}

/// A host as units from outside see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// The host as it is described.
    #[serde(flatten)]
    pub host: Host,
    /// Load of its CPUs in percent.
    pub cpu_load: f64,
    /// Load on its way, in percent.
    pub pending_load: f64,
    /// Free memory in MB, less what is on its way.
    pub free_mb: i64,
    /// Memory in MB that may still be promised.
    pub schedulable_mb: i64,
    /// Names of VMs that run on it.
    pub vms: Vec<String>,
    /// Names of VMs on their way to it.
    pub pending_vms: Vec<String>,
    /// Figures from outside that are not stale.
    pub facts: BTreeMap<String, f64>,
}

/// A VM as units from outside see it.
pub type VmView = Vm;

/// A change since the last call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// A host is so.
    Host(Box<HostView>),
    /// A host is gone.
    NoHost(String),
    /// A VM is so.
    Vm(Box<VmView>),
    /// A VM is gone.
    NoVm(String),
}

/// Why a unit from outside gave no answer. It is left out of the decision, unless its policy requires it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{unit}: {what}")]
pub struct ExternalError {
    /// The unit, or what runs it.
    pub unit: String,
    /// What went wrong.
    pub what: String,
}

/// What a balancer from outside wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalAction {
    /// A VM is to move.
    Move {
        /// The VM.
        vm: String,
        /// Where it may go, best first.
        to: Vec<String>,
        /// Why; empty if nobody says.
        reason: String,
    },
    /// A host is to be switched on or off.
    Power {
        /// The host.
        host: String,
        /// Whether it is to be on.
        on: bool,
        /// Why; empty if nobody says.
        reason: String,
    },
}

/// Answers of several units: each by name, or why there is none.
pub type Outcome<T> = BTreeMap<String, Result<T, ExternalError>>;

/// What is asked about hosts.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// The hosts, in the order of their names.
    pub hosts: &'q [&'q str],
    /// The VM.
    pub vm: &'q VmView,
    /// Custom properties.
    pub properties: &'q BTreeMap<String, String>,
}

/// What a filter says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Places, in the list that was asked about, of hosts that it rejects, each with its reason or with nothing.
    pub hosts: BTreeMap<u32, String>,
}

/// What a weight gives to each host that was asked about; lower is better, none is no opinion.
pub type Scores = Vec<Option<i64>>;

/// Runs units from outside. It keeps its own picture of all hosts and VMs: first a snapshot, then what changes. Every
/// call is bounded in time by the implementation.
pub trait External: Send {
    /// The units there are now. It is cheap: asked before every use.
    fn units(&mut self) -> Vec<ExternalUnit>;

    /// What is wrong with where they come from, a line each.
    fn problems(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The time of the calls that follow, in milliseconds since 1970, and the seed of what they leave to chance. Before
    /// it was told, both are its own.
    fn at(&mut self, now: u64, seed: u64) {
        let _ = (now, seed);
    }

    /// Everything there is, instead of all that was said before.
    fn snapshot(&mut self, hosts: Vec<HostView>, vms: Vec<VmView>) -> Result<(), ExternalError>;

    /// What changed since.
    fn deltas(&mut self, deltas: Vec<Delta>) -> Result<(), ExternalError>;

    /// Hosts that each filter rejects.
    fn filter(&mut self, units: &[String], question: &Question<'_>) -> Outcome<Rejected>;

    /// What each weight gives to hosts: as many figures as there are hosts.
    fn score(&mut self, units: &[(String, u32)], question: &Question<'_>) -> Outcome<Scores>;

    /// What a balancer wants done; none to leave everything.
    fn balance(
        &mut self,
        unit: &str,
        hosts: &[String],
        properties: &BTreeMap<String, String>,
    ) -> Result<Option<ExternalAction>, ExternalError>;
}
