//! External units in a decision: queried, or replayed.

use crate::unit::{Context, External, ExternalError, Outcome, Question, Rejected, Scores};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Answers of external units in a decision, by group, so that it can be explained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Hosts that filters rejected.
    pub filters: Vec<Outcome<Rejected>>,
    /// Scores of the weights.
    pub weights: Vec<Outcome<Scores>>,
}

impl Answers {
    /// Whether there are no answers.
    pub fn is_empty(&self) -> bool {
        let none = |outcomes: usize| outcomes == 0;
        none(self.filters.iter().map(BTreeMap::len).sum())
            && none(self.weights.iter().map(BTreeMap::len).sum())
    }
}

/// Source of the answers.
pub enum Outside<'e> {
    /// There are no external units; policies that require one fail.
    None,
    /// Units are queried, and their answers recorded.
    Query(&'e mut dyn External, &'e mut Answers),
    /// Recorded answers are replayed in order.
    Remember(&'e Answers, usize, usize),
}

impl Outside<'_> {
    /// Sets the time and the seed of a decision.
    pub(super) fn at(&mut self, now: u64, seed: u64) {
        if let Outside::Query(external, _) = self {
            external.at(now, seed);
        }
    }

    /// Queries filters about `hosts`, ordered by name, for each VM of the group.
    pub(super) fn filter(
        &mut self,
        units: &[String],
        hosts: &[&str],
        context: &Context<'_>,
    ) -> Outcome<Rejected> {
        match self {
            _ if units.is_empty() => BTreeMap::new(),
            Outside::None => missing(units),
            Outside::Remember(answers, next, _) => {
                *next += 1;
                answers.filters.get(*next - 1).cloned().unwrap_or_default()
            }
            Outside::Query(external, answers) => {
                let mut all: Outcome<Rejected> = BTreeMap::new();
                let properties = owned(context);
                for vm in context.vms() {
                    let question = Question { hosts, vm, properties: &properties };
                    for (unit, outcome) in external.filter(units, &question) {
                        let both = match (all.remove(&unit), outcome) {
                            (None, outcome) => outcome,
                            (Some(Err(error)), _) | (Some(Ok(_)), Err(error)) => Err(error),
                            (Some(Ok(mut before)), Ok(mut more)) => {
                                more.hosts.append(&mut before.hosts);
                                Ok(more)
                            }
                        };
                        all.insert(unit, both);
                    }
                }
                complete(&mut all, units);
                answers.filters.push(all.clone());
                all
            }
        }
    }

    /// Queries weights about `hosts`, ordered by name.
    pub(super) fn score(
        &mut self,
        units: &[(String, u32)],
        hosts: &[&str],
        context: &Context<'_>,
    ) -> Outcome<Scores> {
        let names: Vec<String> = units.iter().map(|(name, _)| name.clone()).collect();
        match self {
            _ if units.is_empty() => BTreeMap::new(),
            Outside::None => missing(&names),
            Outside::Remember(answers, _, next) => {
                *next += 1;
                answers.weights.get(*next - 1).cloned().unwrap_or_default()
            }
            Outside::Query(external, answers) => {
                let properties = owned(context);
                let mut scores: Outcome<Scores> = BTreeMap::new();
                for vm in context.vms().take(1) {
                    scores = external.score(units, &Question { hosts, vm, properties: &properties });
                }
                complete(&mut scores, &names);
                for (unit, outcome) in &mut scores {
                    let wrong = outcome.as_ref().ok().map(Vec::len).filter(|count| *count != hosts.len());
                    if let Some(count) = wrong {
                        *outcome = Err(error(unit, &format!("{count} scores for {} hosts", hosts.len())));
                    }
                }
                answers.weights.push(scores.clone());
                scores
            }
        }
    }
}

fn owned(context: &Context<'_>) -> BTreeMap<String, String> {
    context.properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn error(unit: &str, what: &str) -> ExternalError {
    ExternalError { unit: unit.into(), what: what.into() }
}

fn missing<T>(units: &[String]) -> Outcome<T> {
    units.iter().map(|unit| (unit.clone(), Err(error(unit, "there is no such unit now")))).collect()
}

/// A queried unit without an answer counts as failed.
fn complete<T>(outcome: &mut Outcome<T>, units: &[String]) {
    outcome.retain(|unit, _| units.contains(unit));
    for unit in units {
        outcome.entry(unit.clone()).or_insert_with(|| Err(error(unit, "it gave no answer")));
    }
}
