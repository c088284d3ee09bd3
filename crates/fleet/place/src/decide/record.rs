//! The stored record of a decision.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A filter and the number of hosts that it removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Removed {
    /// The filter.
    pub filter: String,
    /// Number of remaining hosts that it removed.
    pub hosts: u32,
}

/// A host and its score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Scored {
    /// The host.
    pub host: String,
    /// Its score; the highest wins.
    pub score: f64,
}

/// The choice for VMs that are placed together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Choice {
    /// The VMs.
    pub vms: Vec<String>,
    /// Their policy.
    pub policy: String,
    /// The host; none if no host fits.
    pub host: Option<String>,
    /// Total number of hosts.
    pub hosts: u32,
    /// Hosts that passed every filter.
    pub passed: u32,
    /// Filters that removed hosts.
    pub removed: Vec<Removed>,
    /// The best hosts, best first, twenty at most.
    pub top: Vec<Scored>,
    /// Whether hosts were weighed: not if only one was left, or if weighing was skipped for speed.
    pub weighed: bool,
    /// Whether memory was insufficient only because of pending VMs, so that waiting may help.
    pub may_wait: bool,
    /// External units that failed and were left out.
    pub errors: Vec<String>,
    /// The required external unit that failed, and its error: no host is chosen then.
    #[serde(default)]
    pub refused: String,
}

impl Choice {
    /// The policy and the error of its required unit, if that is why there is no host.
    pub fn refusal(&self) -> Option<String> {
        let reason = || format!("policy {} requires a unit that failed: {}", self.policy, self.refused);
        (!self.refused.is_empty()).then(reason)
    }

    /// Why there is no host, as a sentence.
    pub fn why(&self) -> String {
        if let Some(refusal) = self.refusal() {
            return format!("no host for {}: {refusal}", self.vms.join(", "));
        }
        if self.hosts == 0 {
            return "the cluster has no hosts".into();
        }
        let reasons: Vec<String> = self
            .removed
            .iter()
            .map(|removed| format!("{} removed {}", removed.filter, removed.hosts))
            .collect();
        format!("no host of {} can take {}: {}", self.hosts, self.vms.join(", "), reasons.join(", "))
    }
}
