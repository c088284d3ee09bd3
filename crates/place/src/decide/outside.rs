//! Units from outside in a decision: asked, or remembered.

use crate::unit::{Context, External, ExternalError, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What units from outside answered in a decision, group by group, so that it can be explained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Hosts that filters kept.
    pub filters: Vec<Outcome<Vec<String>>>,
    /// What weights gave.
    pub weights: Vec<Outcome<Vec<(String, i64)>>>,
}

impl Answers {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        let none = |outcomes: usize| outcomes == 0;
        none(self.filters.iter().map(BTreeMap::len).sum())
            && none(self.weights.iter().map(BTreeMap::len).sum())
    }
}

/// Where answers come from.
pub enum Outside<'e> {
    /// There are no units from outside; whoever needs one fails.
    None,
    /// They are asked, and what they answer is noted.
    Ask(&'e mut dyn External, &'e mut Answers),
    /// They were asked; the answers are taken in turn.
    Remember(&'e Answers, usize, usize),
}

impl Outside<'_> {
    /// Tells units the time of a decision, and the seed.
    pub(super) fn at(&mut self, now: u64, seed: u64) {
        if let Outside::Ask(external, _) = self {
            external.at(now, seed);
        }
    }

    pub(super) fn filter(
        &mut self,
        units: &[String],
        hosts: &[String],
        context: &Context<'_>,
    ) -> Outcome<Vec<String>> {
        match self {
            _ if units.is_empty() => BTreeMap::new(),
            Outside::None => missing(units),
            Outside::Remember(answers, next, _) => {
                *next += 1;
                answers.filters.get(*next - 1).cloned().unwrap_or_default()
            }
            Outside::Ask(external, answers) => {
                let mut kept: Outcome<Vec<String>> = BTreeMap::new();
                let properties = owned(context);
                for vm in context.vms() {
                    for (unit, outcome) in external.filter(units, hosts, vm, &properties) {
                        let both = match (kept.remove(&unit), outcome) {
                            (None, outcome) => outcome,
                            (Some(Err(error)), _) | (Some(Ok(_)), Err(error)) => Err(error),
                            (Some(Ok(mut all)), Ok(more)) => {
                                all.retain(|host| more.contains(host));
                                Ok(all)
                            }
                        };
                        kept.insert(unit, both);
                    }
                }
                complete(&mut kept, units);
                answers.filters.push(kept.clone());
                kept
            }
        }
    }

    pub(super) fn score(
        &mut self,
        units: &[(String, u32)],
        hosts: &[String],
        context: &Context<'_>,
    ) -> Outcome<Vec<(String, i64)>> {
        let names: Vec<String> = units.iter().map(|(name, _)| name.clone()).collect();
        match self {
            _ if units.is_empty() => BTreeMap::new(),
            Outside::None => missing(&names),
            Outside::Remember(answers, _, next) => {
                *next += 1;
                answers.weights.get(*next - 1).cloned().unwrap_or_default()
            }
            Outside::Ask(external, answers) => {
                let properties = owned(context);
                let mut scores: Outcome<Vec<(String, i64)>> = BTreeMap::new();
                for vm in context.vms().take(1) {
                    scores = external.score(units, hosts, vm, &properties);
                }
                complete(&mut scores, &names);
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

/// A unit that gave no answer failed; one that was not asked does not count.
fn complete<T>(outcome: &mut Outcome<T>, units: &[String]) {
    outcome.retain(|unit, _| units.contains(unit));
    for unit in units {
        outcome.entry(unit.clone()).or_insert_with(|| Err(error(unit, "it gave no answer")));
    }
}
