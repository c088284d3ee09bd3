//! Past decisions and their explanations.

use super::{Engine, EngineError, Inner, build};
use crate::decide::{
    Answers, Choice, DecideError, HostTrace, Outside, PlacementRequest, Scratch, Trace, Verdict, WeightTrace,
    explain,
};
use crate::model::Change;
use crate::object::Vm;
use crate::store::{Op, Revision, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use utoipa::ToSchema;

/// Decisions that can be explained in full.
const FULL: usize = 1000;
/// Number of decisions whose choice is kept.
const KNOWN: usize = 10_000;
/// Failures that can be explained in full, however old.
const FAILURES: usize = 1000;
/// Attack: failures on thousands of hosts, each with reasons for every host. Largest total size of the
/// details in bytes.
const DETAILS: usize = 128 << 20;
/// Attack: requests that name thousands of hosts, or VMs with long labels. Largest total size of the decisions
/// in bytes.
const DECISIONS: usize = 128 << 20;
/// Number of decisions between two compactions of the store.
const COMPACT: usize = 500;
/// Attack: hosts that are measured continuously while nothing is decided. Number of revisions that the store
/// keeps; details of decisions that need older ones are written out.
pub const HISTORY: u64 = 20_000;
/// Number of decisions whose details are written at once.
const AT_ONCE: usize = 10;

/// A decision as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Its number.
    pub id: u64,
    /// The store's revision at the decision.
    pub revision: Revision,
    /// The request, with time and seed.
    pub ask: PlacementRequest,
    /// The choices.
    pub choices: Vec<Choice>,
    /// The VMs as described by the caller, for advice without a reservation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advised: Vec<Vm>,
    /// The answers of external units, stored separately and for a shorter time.
    #[serde(skip)]
    pub answers: Answers,
}

impl Decision {
    pub(super) fn new(
        id: u64,
        revision: Revision,
        ask: PlacementRequest,
        choices: Vec<Choice>,
        answers: Answers,
    ) -> Decision {
        Decision { id, revision, ask, choices, advised: Vec::new(), answers }
    }

    /// Whether all VMs have a host.
    pub fn placed(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.host.is_some())
    }
}

/// A decision, with all details still known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The decision.
    pub decision: Decision,
    /// Every host, for each group of VMs.
    pub traces: Vec<Trace>,
    /// Why details are missing, if they are.
    pub note: String,
}

/// Why a host would or would not run a VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhyNot {
    /// The VM.
    pub vm: String,
    /// The host.
    pub host: String,
    /// Whether the host would be chosen.
    pub chosen: bool,
    /// Filters that reject it.
    pub rejected: Vec<Verdict>,
    /// Its scores.
    pub weights: Vec<WeightTrace>,
    /// Its score.
    pub score: Option<f64>,
    /// Hosts that are better.
    pub better: u32,
    /// The host that would be chosen.
    pub best: Option<String>,
    /// Its score.
    pub best_score: Option<f64>,
    /// External units that failed and were left out.
    #[serde(default)]
    pub errors: Vec<String>,
    /// The required external unit that failed, and its error: no host would be chosen then.
    #[serde(default)]
    pub refused: String,
}

/// The decisions that the store keeps.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    full: VecDeque<(u64, Revision)>,
    /// Numbers and bytes of decisions.
    known: VecDeque<(u64, usize)>,
    /// Bytes of all of them.
    bytes: usize,
    failures: VecDeque<u64>,
    /// Decisions with answers of external units.
    answered: VecDeque<u64>,
    /// Sizes of the stored details in bytes, by decision.
    sizes: BTreeMap<u64, usize>,
    /// Successful decisions whose details are stored.
    detailed: BTreeSet<u64>,
    /// The revision before which everything was removed.
    tidied: Revision,
    /// Pending deletions.
    outdated: Vec<Op>,
    since: usize,
}

impl Recent {
    /// Records a decision of `size` bytes.
    pub(super) fn push(&mut self, id: u64, revision: Revision, placed: bool, size: usize) {
        if self.known.back().is_some_and(|(last, _)| *last >= id) {
            return;
        }
        self.full.push_back((id, revision));
        self.known.push_back((id, size));
        self.bytes += size;
        self.since += 1;
        if self.full.len() > FULL {
            self.shorten();
        }
        if !placed {
            self.failures.push_back(id);
        }
    }

    /// Keeps full details of one decision less.
    fn shorten(&mut self) {
        if let Some((old, _)) = self.full.pop_front()
            && self.detailed.remove(&old)
        {
            self.sizes.remove(&old);
            self.outdated.push(Op::Delete(format!("detail/{old:020}")));
        }
    }

    /// Records that a decision's details are stored.
    pub(super) fn detailed(&mut self, id: u64, size: usize) {
        self.sizes.insert(id, size);
        if self.failures.binary_search(&id).is_err() {
            self.detailed.insert(id);
        }
    }

    /// Records that a decision's answers of external units are stored.
    pub(super) fn answered(&mut self, id: u64) {
        if self.answered.back().is_none_or(|last| *last < id) {
            self.answered.push_back(id);
        }
    }

    /// Deletions of outdated entries; the same ones until [`Recent::removed`] is called.
    pub(super) fn outdated(&mut self) -> Vec<Op> {
        while self.known.len() > KNOWN || (self.bytes > DECISIONS && self.known.len() > 1) {
            let Some((id, size)) = self.known.pop_front() else { break };
            self.bytes -= size;
            self.outdated.push(Op::Delete(format!("decision/{id:020}")));
            if self.full.front().is_some_and(|(oldest, _)| *oldest <= id) {
                self.shorten();
            }
        }
        let oldest = self.full.front().map_or(0, |(id, _)| *id);
        while let Some(id) = self.answered.pop_front_if(|id| *id < oldest) {
            self.outdated.push(Op::Delete(format!("answers/{id:020}")));
        }
        let mut total: usize = self.sizes.values().sum();
        while self.failures.len() > FAILURES || (total > DETAILS && self.failures.len() > 1) {
            if let Some(id) = self.failures.pop_front() {
                total -= self.sizes.remove(&id).unwrap_or(0).min(total);
                self.outdated.push(Op::Delete(format!("detail/{id:020}")));
            }
        }
        self.outdated.clone()
    }

    /// Confirms that outdated entries were deleted.
    pub(super) fn removed(&mut self) {
        self.outdated.clear();
    }

    /// The revision before which the store may compact, if it is time to.
    pub(super) fn compact(&mut self) -> Option<Revision> {
        if self.since < COMPACT || (self.full.len() < FULL && self.bytes < DECISIONS / 2) {
            return None;
        }
        self.since = 0;
        self.full.front().map(|(_, revision)| *revision)
    }
}

/// Attack: repeated failures in a cluster of a hundred thousand hosts. Largest number of hosts whose reasons
/// are kept for a failure.
const REASONS: usize = 10_000;

/// The part of a trace that is kept.
pub(super) fn bounded(mut traces: Vec<Trace>) -> Vec<Trace> {
    traces.iter_mut().for_each(|trace| trace.hosts.truncate(REASONS));
    traces
}

impl Inner {
    /// The full trace of a failed decision.
    pub(super) fn detail(&mut self, decision: &Decision) -> Option<Vec<Trace>> {
        let Inner { model, scratch, .. } = self;
        let mut outside = Outside::Remember(&decision.answers, 0, 0);
        let (_, traces) = explain(model, &decision.ask, &mut outside, scratch).ok()?;
        Some(bounded(traces))
    }
}

impl Engine {
    /// The newest decisions, newest first.
    pub fn decisions(&self, count: usize) -> Result<Vec<Decision>, EngineError> {
        let newest: Vec<u64> = {
            let inner = self.current()?;
            inner.recent.known.iter().rev().take(count).map(|(id, _)| *id).collect()
        };
        Ok(newest.into_iter().filter_map(|id| self.decision(id).ok()).collect())
    }

    /// A decision.
    pub fn decision(&self, id: u64) -> Result<Decision, EngineError> {
        let (_, entries) = self.store.range(&format!("decision/{id:020}"), None)?;
        let entry = entries.first().ok_or(EngineError::NoDecision(id))?;
        serde_json::from_slice(&entry.value).map_err(|_| EngineError::NoDecision(id))
    }

    /// The answers of external units in a decision, while they are kept.
    fn answers(&self, id: u64) -> Result<Answers, EngineError> {
        let (_, entries) = self.store.range(&format!("answers/{id:020}"), None)?;
        let kept = entries.first().and_then(|entry| serde_json::from_slice(&entry.value).ok());
        Ok(kept.unwrap_or_default())
    }

    /// Repeats a decision at its revision and returns all details.
    pub fn explain(&self, id: u64) -> Result<Explained, EngineError> {
        let mut decision = self.decision(id)?;
        decision.answers = self.answers(id)?;
        match self.store.range("", Some(decision.revision)) {
            Ok((_, entries)) => {
                let mut model = build(&entries);
                decision.advised.iter().for_each(|vm| model.apply(Change::Vm(vm.clone())));
                let mut outside = Outside::Remember(&decision.answers, 0, 0);
                let (choices, traces) =
                    explain(&mut model, &decision.ask, &mut outside, &mut Scratch::default())?;
                let same = choices == decision.choices;
                let note = if same { "" } else { "made again, it differs: the program was changed since" };
                Ok(Explained { decision, traces, note: note.into() })
            }
            Err(StoreError::Compacted { .. }) => {
                let (_, entries) = self.store.range(&format!("detail/{id:020}"), None)?;
                let kept = entries.first().and_then(|entry| serde_json::from_slice(&entry.value).ok());
                let note = match kept {
                    Some(_) => String::new(),
                    None => {
                        format!("only the choice is still known; the last {FULL} decisions are kept in full")
                    }
                };
                Ok(Explained { decision, traces: kept.unwrap_or_default(), note })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Compacts the store's history, after storing the details of decisions that need it. Call it regularly.
    pub fn tidy(&self) -> Result<(), EngineError> {
        let (target, due) = {
            let inner = self.current()?;
            if inner.seen < inner.recent.tidied + HISTORY {
                return Ok(());
            }
            let target = inner.seen - HISTORY / 2;
            let recent = &inner.recent;
            let old = recent.full.iter().filter(|(id, revision)| {
                *revision < target
                    && !recent.detailed.contains(id)
                    && recent.failures.binary_search(id).is_err()
            });
            (target, old.map(|(id, _)| *id).take(AT_ONCE).collect::<Vec<u64>>())
        };
        if due.is_empty() {
            self.store.compact(target)?;
            self.lock().recent.tidied = target;
        }
        for id in due {
            let traces = bounded(self.explain(id)?.traces);
            let mut inner = self.current()?;
            // Later decisions may have made it too old.
            if inner.recent.full.iter().any(|(known, _)| *known == id) {
                let op = super::put(&format!("detail/{id:020}"), &traces, None);
                let size = super::size(&op);
                self.store.transact(&[], vec![op])?;
                inner.recent.detailed(id, size);
            }
        }
        Ok(())
    }

    /// Why a host would or would not be chosen for a VM, now.
    pub fn why_not(&self, host: &str, ask: &PlacementRequest) -> Result<WhyNot, EngineError> {
        let mut inner = self.current()?;
        inner.follow(ask.now);
        if inner.model.host(host).is_none() {
            return Err(inner.model.no_host(host).into());
        }
        let Inner { model, scratch, external, .. } = &mut *inner;
        let mut answers = Answers::default();
        let mut outside = super::external::external_answers(external, &mut answers);
        let (choices, traces) = explain(model, ask, &mut outside, scratch)?;
        let choice = choices.last().ok_or(DecideError::Nothing)?;
        let trace = traces.last().ok_or(DecideError::Nothing)?;
        let found = trace.hosts.iter().find(|row| row.host == host);
        let elsewhere = || HostTrace {
            host: host.into(),
            removed_by: None,
            rejected: vec![Verdict { filter: "Cluster".into(), reason: "it is in another cluster".into() }],
            weights: Vec::new(),
            score: None,
        };
        let row = found.cloned().unwrap_or_else(elsewhere);
        let better =
            |other: &&HostTrace| row.score.is_none_or(|score| other.score.is_some_and(|s| s > score));
        let passed = trace.hosts.iter().filter(|other| other.score.is_some());
        Ok(WhyNot {
            vm: choice.vms.join(", "),
            host: host.into(),
            chosen: choice.host.as_deref() == Some(host),
            better: passed.filter(better).count() as u32,
            rejected: row.rejected,
            weights: row.weights,
            score: row.score,
            best: choice.host.clone(),
            best_score: choice.top.first().map(|best| best.score),
            errors: choices.iter().flat_map(|choice| choice.errors.iter().cloned()).collect(),
            refused: choice.refused.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decision_history_is_limited_in_bytes() {
        let mut recent = Recent::default();
        let mut deleted = Vec::new();
        for id in 1..=200 {
            recent.push(id, id, true, DECISIONS / 100);
            recent.detailed(id, 1);
            deleted.extend(recent.outdated());
            recent.removed();
        }
        let of = |kind: &str, id: u64| Op::Delete(format!("{kind}/{id:020}"));
        assert_eq!(deleted.len(), 200, "decisions and what is written down about them");
        assert!(deleted.contains(&of("decision", 100)) && deleted.contains(&of("detail", 100)));
        assert_eq!((recent.known.len(), recent.full.len(), recent.sizes.len()), (100, 100, 100));
        assert_eq!(recent.bytes, DECISIONS / 100 * 100);
        // A decision larger than the limit of all is kept until the next one.
        recent.push(201, 201, true, DECISIONS * 2);
        recent.outdated();
        assert_eq!((recent.known.len(), recent.full.len()), (1, 1));
    }
}
