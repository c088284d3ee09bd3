//! The full trace of a decision, host by host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A filter that a host does not pass, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// The filter.
    pub filter: String,
    /// Why the host is rejected.
    pub reason: String,
}

/// The score of a host by one weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WeightTrace {
    /// The weight.
    pub weight: String,
    /// The weight's factor.
    pub factor: u32,
    /// The raw score; lower is better.
    pub raw: i64,
    /// The selector's value before the factor: the rank, or the scaled score.
    pub points: f64,
}

/// A host's trace in a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostTrace {
    /// The host.
    pub host: String,
    /// The filter that removed it; none if it passed.
    pub removed_by: Option<String>,
    /// All filters that reject it, including those that ran later or not at all.
    pub rejected: Vec<Verdict>,
    /// Its scores, if it passed and hosts were weighed.
    pub weights: Vec<WeightTrace>,
    /// Its total score, if it passed.
    pub score: Option<f64>,
}

/// The full trace of the choice for VMs that are placed together. Hosts are sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    /// The VMs.
    pub vms: Vec<String>,
    /// Filters in their order.
    pub filters: Vec<String>,
    /// Every host.
    pub hosts: Vec<HostTrace>,
}
