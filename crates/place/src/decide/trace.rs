//! Everything about a decision, host by host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A filter that a host does not pass, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// The filter.
    pub filter: String,
    /// Why it rejects the host.
    pub reason: String,
}

/// What a weight makes of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WeightTrace {
    /// The weight.
    pub weight: String,
    /// What it counts for.
    pub factor: u32,
    /// What it gave; lower is better.
    pub raw: i64,
    /// What the selector made of that, before the factor: the rank, or the scaled value.
    pub points: f64,
}

/// What is known about a host in a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostTrace {
    /// The host.
    pub host: String,
    /// The filter that removed it; none if it passed.
    pub removed_by: Option<String>,
    /// Every filter that it does not pass, also those that had no turn.
    pub rejected: Vec<Verdict>,
    /// What weights make of it, if it passed and hosts were weighed.
    pub weights: Vec<WeightTrace>,
    /// Its score, if it passed.
    pub score: Option<f64>,
}

/// Everything about the choice for VMs that go together. Hosts are in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    /// The VMs.
    pub vms: Vec<String>,
    /// Filters in their order.
    pub filters: Vec<String>,
    /// Every host.
    pub hosts: Vec<HostTrace>,
}
