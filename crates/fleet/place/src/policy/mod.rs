//! Policies: the filters, weights and balancer of a cluster, and how their results are combined.

mod builtin;
mod check;
mod file;

pub use builtin::built_in;
pub use check::{check, check_properties};
pub use file::{LARGEST, read, read_table};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// When a filter runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// Before all others; at most one filter.
    First,
    /// In the order of the list.
    #[default]
    Middle,
    /// After all others; at most one filter.
    Last,
}

/// How weights become a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// Each weight ranks the hosts; the highest sum of ranks times factors wins (oVirt's `RankSelector`).
    #[default]
    Rank,
    /// Each weight is scaled to the range 0 to 1, 1 for the best host; the highest sum of scaled weights times
    /// factors wins (Nova).
    ScaledSum,
    /// The lowest sum of weights times factors wins (oVirt's `BasicWeighting`).
    LowestSum,
}

/// What a policy trades for speed under many requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Optimise {
    /// Nothing.
    #[default]
    None,
    /// Weighing: when more than ten requests wait, any host that passes is chosen.
    Speed,
    /// The guarantee against overbooking: a request that finds ten waiting releases them and itself, and each
    /// is decided without the reservations made since.
    Overbooking,
}

/// What happens if an external filter fails: it raises, hangs, or is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// No host is chosen, since the filter may forbid every one.
    #[default]
    Refuse,
    /// The decision is made without the filter.
    Skip,
}

/// A filter in a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterUse {
    /// Its name.
    pub name: String,
    /// When it runs.
    #[serde(default)]
    pub position: Position,
    /// What happens if this external unit fails.
    #[serde(default)]
    pub on_error: OnError,
    /// Whether a placement fails if this external unit fails, whatever `on_error` is.
    #[serde(default)]
    pub required: bool,
}

impl FilterUse {
    /// Whether a placement fails if this external unit fails.
    pub fn refuses(&self) -> bool {
        self.required || self.on_error == OnError::Refuse
    }
}

/// A weight in a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightUse {
    /// Its name.
    pub name: String,
    /// Its factor.
    pub factor: u32,
    /// Whether a placement fails if this external unit fails.
    #[serde(default)]
    pub required: bool,
}

/// A policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Its filters.
    pub filters: Vec<FilterUse>,
    /// Its weights.
    pub weights: Vec<WeightUse>,
    /// Its balancer.
    pub balancer: String,
    /// How weights become a choice.
    pub selector: Selector,
    /// What the policy trades for speed under many requests.
    pub optimise: Optimise,
    /// Custom properties.
    pub properties: BTreeMap<String, String>,
}

impl Policy {
    /// Its filters in their order.
    pub fn ordered(&self) -> Vec<&FilterUse> {
        let mut filters: Vec<&FilterUse> = self.filters.iter().collect();
        filters.sort_by_key(|filter| filter.position);
        filters
    }
}
