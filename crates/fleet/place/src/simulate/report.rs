//! Results of a run.

use crate::engine::Decision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A cluster at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time in milliseconds.
    pub at: u64,
    /// Fraction of CPUs that are reserved.
    pub cpu: f64,
    /// Fraction of memory that is reserved.
    pub memory: f64,
    /// Fraction of free CPUs that are on hosts without room for a VM of 4 CPUs and 8 GB.
    pub fragmentation: f64,
    /// VMs that run.
    pub vms: u64,
    /// Hosts that run any.
    pub used: u64,
    /// VMs placed so far.
    pub placed: u64,
    /// VMs rejected so far.
    pub rejected: u64,
    /// Migrations so far.
    pub migrations: u64,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The policy.
    pub policy: String,
    /// Hosts.
    pub hosts: usize,
    /// Number of VMs requested.
    pub requested: u64,
    /// VMs that found a host.
    pub placed: u64,
    /// VMs that found none.
    pub rejected: u64,
    /// VMs placed before the first rejection; none if there was no rejection.
    pub before_rejection: Option<u64>,
    /// By filter, how often it removed the last host.
    pub reasons: BTreeMap<String, u64>,
    /// Migrations.
    pub migrations: u64,
    /// The cluster over time.
    pub samples: Vec<Sample>,
}

impl Report {
    pub(super) fn new(policy: &str, hosts: usize) -> Report {
        Report { policy: policy.into(), hosts, ..Report::default() }
    }

    pub(super) fn reject(&mut self, decision: &Decision) {
        self.rejected += 1;
        self.before_rejection.get_or_insert(self.placed);
        let last = decision.choices.last().and_then(|choice| choice.removed.last());
        if let Some(last) = last {
            *self.reasons.entry(last.filter.clone()).or_default() += 1;
        }
    }

    /// The mean of a figure over time.
    pub fn mean(&self, figure: impl Fn(&Sample) -> f64) -> f64 {
        self.samples.iter().map(figure).sum::<f64>() / self.samples.len().max(1) as f64
    }
}

/// All samples of all runs as CSV.
pub fn csv(reports: &[Report]) -> String {
    let mut out =
        String::from("policy,at_ms,cpu,memory,fragmentation,vms,used_hosts,placed,rejected,migrations\n");
    for report in reports {
        for s in &report.samples {
            let _ = writeln!(
                out,
                "{},{},{:.4},{:.4},{:.4},{},{},{},{},{}",
                report.policy,
                s.at,
                s.cpu,
                s.memory,
                s.fragmentation,
                s.vms,
                s.used,
                s.placed,
                s.rejected,
                s.migrations
            );
        }
    }
    out
}
