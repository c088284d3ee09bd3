//! External filters, weights and balancers: Python plugins, with one process per folder, and services in any
//! language. The protocol is described in `python/PROTOCOL.md`.
//!
//! A plugin can't make a placement fail: its answers are validated, every call has a time limit, and errors
//! are recorded in the decision under the unit's name. A plugin host that ends is restarted, with a growing
//! delay.
//!
//! Calls block until there is an answer, and must be made on a thread that may block.

mod entry;
mod inventory_copy;
mod link;
mod options;
mod process;
mod python;
mod service;
mod source;

pub use options::{Folder, Options, Service};
pub use python::{become_host, module as python};
pub use service::is_url;

use inventory_copy::InventoryCopy;
use link::Request;
use ringway_place::unit::{
    Delta, External, ExternalAction, ExternalError, ExternalKind, ExternalUnit, HostView, Outcome, Question,
    Rejected, Scores, VmView,
};
use ringway_spec::printable;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All external units.
pub struct Plugins {
    options: Options,
    sources: Vec<Source>,
    inventory_copy: InventoryCopy,
    /// The time in milliseconds since 1970, and the seed, if set.
    at: Option<(u64, u64)>,
}

/// An error of a source of units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The folder or the service.
    pub source: String,
    /// The error, with its position.
    pub what: String,
    /// Whether it makes all of the source's units unavailable.
    pub is_out: bool,
}

/// Result of discovering units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The available units.
    pub units: Vec<ExternalUnit>,
    /// Errors of their sources.
    pub problems: Vec<Problem>,
}

/// Discovers the available units, and ends the processes started for that.
pub fn find(options: &Options) -> Found {
    let mut plugins = Plugins::start(options.clone());
    let units = plugins.units();
    Found { units, problems: plugins.problems() }
}

/// Attack: endless reasons. Largest size in bytes per answer, and per reason.
const REASONS: usize = 1 << 16;
const REASON: usize = 200;

#[derive(Deserialize)]
struct Accepted {
    hosts: String,
    #[serde(default)]
    reasons: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Scored {
    scores: Vec<Option<f64>>,
}

#[derive(Deserialize)]
struct Actions {
    /// Several actions; the answer's own action is another one.
    #[serde(default)]
    actions: Vec<Action>,
    #[serde(flatten)]
    first: Action,
}

#[derive(Deserialize)]
struct Action {
    action: Option<String>,
    vm: Option<String>,
    host: Option<usize>,
    #[serde(default)]
    hosts: Vec<usize>,
    #[serde(default)]
    reason: String,
}

impl Plugins {
    /// Starts a plugin host for each folder. Hosts that fail to start are retried when needed.
    pub fn start(options: Options) -> Plugins {
        let folders = options.folders.iter().cloned().map(Source::folder);
        let sources = folders.chain(options.services.iter().cloned().map(Source::service)).collect();
        let mut plugins = Plugins { options, sources, inventory_copy: InventoryCopy::default(), at: None };
        plugins.units();
        plugins
    }

    /// Errors of the sources: files that fail to load, hosts that fail to start, duplicate names.
    pub fn problems(&mut self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut taken = BTreeSet::new();
        for source in &mut self.sources {
            // The source stores its error.
            let _ = source.refresh(&self.options);
            let name = source.name();
            let mut say =
                |what: String, is_out| problems.push(Problem { source: name.clone(), what, is_out });
            source.problems.iter().for_each(|what| say(what.clone(), false));
            if let Some(why) = source.out() {
                say(why.into(), true);
            }
            for unit in source.units.iter().filter(|unit| !taken.insert((unit.name.clone(), unit.kind))) {
                let what =
                    format!("{} is in another folder or service already; this one isn't used", unit.name);
                say(what, false);
            }
        }
        problems
    }

    /// The first source with this unit.
    fn source_of(&self, unit: &str, kind: ExternalKind) -> Option<usize> {
        let has = |source: &Source| source.units.iter().any(|known| known.name == unit && known.kind == kind);
        self.sources.iter().position(has)
    }

    /// Queries units, those of one source together.
    fn ask<T: DeserializeOwned>(&mut self, question: &UnitQuery<'_>, units: &[&str]) -> Outcome<T> {
        let mut outcome: Outcome<T> = BTreeMap::new();
        let mut by_source: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for unit in units {
            match self.source_of(unit, question.kind) {
                Some(source) => by_source.entry(source).or_default().push(unit),
                None => drop(outcome.insert(unit.to_string(), Err(error(unit, "there is no such unit now")))),
            }
        }
        for (place, units) in by_source {
            for (unit, answer) in units.iter().zip(self.ask_source(place, question, &units)) {
                outcome.insert(unit.to_string(), answer.map_err(|what| error(unit, &what)));
            }
        }
        outcome
    }

    /// Queries units of one source; returns one answer each. If the source is lost, the remaining units have
    /// none.
    fn ask_source<T: DeserializeOwned>(
        &mut self,
        place: usize,
        question: &UnitQuery<'_>,
        units: &[&str],
    ) -> Vec<Result<T, String>> {
        let source = &mut self.sources[place];
        if let Err(what) = source.refresh(&self.options).and_then(|()| source.sync(&self.inventory_copy)) {
            return units.iter().map(|_| Err(what.clone())).collect();
        }
        let limit = source.limit();
        let stateless = source.is_stateless.then(|| self.inventory_copy.hosts(&question.mask));
        let requests = units
            .iter()
            .map(|unit| question.request(unit, &self.inventory_copy, limit, stateless.as_deref()));
        let mut answers = source.ask(requests.collect());
        answers.resize_with(units.len(), || Err("not asked: its plugin host was lost before".into()));
        answers
    }
}

/// The common fields of a query to several units.
struct UnitQuery<'q> {
    kind: ExternalKind,
    at: Option<(u64, u64)>,
    /// The hosts' slots, in their order.
    slots: Vec<usize>,
    mask: Vec<u8>,
    vm: Option<&'q VmView>,
    properties: &'q BTreeMap<String, String>,
}

impl UnitQuery<'_> {
    fn request(
        &self,
        unit: &str,
        inventory_copy: &InventoryCopy,
        limit: Duration,
        hosts: Option<&[Value]>,
    ) -> Request {
        let op = match self.kind {
            ExternalKind::Filter => "filter",
            ExternalKind::Score => "score",
            ExternalKind::Balance => "balance",
        };
        let mut body = Map::from_iter([
            ("unit".to_string(), json!(unit)),
            ("hosts".to_string(), json!(String::from_utf8_lossy(&self.mask))),
            ("properties".to_string(), json!(self.properties)),
            ("limit_ms".to_string(), json!(limit.as_millis() as u64)),
        ]);
        if let Some(vm) = self.vm {
            body.insert("vm".into(), inventory_copy.vm(vm));
        }
        if self.kind == ExternalKind::Filter {
            body.insert("explain".into(), json!(true));
        }
        if let Some((now, seed)) = self.at {
            body.insert("now".into(), json!(now as f64 / 1000.0));
            body.insert("seed".into(), json!(seed));
        }
        match hosts {
            Some(hosts) => body.insert("inventory".into(), json!(hosts)),
            None => body.insert("revision".into(), json!(inventory_copy.revision)),
        };
        Request { op, body: Value::Object(body).to_string().into_bytes(), within: limit }
    }
}

impl UnitQuery<'_> {
    /// Indices, in the query's list, of the hosts that a filter rejects.
    fn rejected(&self, unit: &str, accepted: Accepted) -> Result<Rejected, ExternalError> {
        let hosts = accepted.hosts.into_bytes();
        let strange = |(slot, bit): (usize, &u8)| match bit {
            b'0' => false,
            b'1' => self.mask.get(slot) != Some(&b'1'),
            _ => true,
        };
        if hosts.iter().enumerate().any(strange) {
            return Err(error(unit, "result: it names hosts that are not candidates"));
        }
        let mut rejected = Rejected::default();
        let mut left = REASONS;
        for (place, slot) in
            self.slots.iter().enumerate().filter(|(_, slot)| hosts.get(**slot) != Some(&b'1'))
        {
            let mut why = String::new();
            if left > 0 && !accepted.reasons.is_empty() {
                let reason = accepted.reasons.get(&slot.to_string());
                why = reason.map(|why| one_line(why, REASON)).unwrap_or_default();
                left = left.saturating_sub(why.len());
            }
            rejected.hosts.insert(place as u32, why);
        }
        Ok(rejected)
    }

    /// A weight's scores in the query's order; it answers in the order of slots.
    fn scored(&self, unit: &str, scored: &Scored) -> Result<Scores, ExternalError> {
        let asked = self.mask.iter().filter(|bit| **bit == b'1').count();
        let scores = &scored.scores;
        if scores.len() != asked {
            return Err(error(unit, &format!("result: {} numbers for {asked} hosts", scores.len())));
        }
        let whole = whole(scores);
        if self.slots.is_sorted() && self.slots.len() == asked {
            return Ok(whole);
        }
        let mut by_slot = vec![None; self.mask.len()];
        let slots = self.mask.iter().enumerate().filter(|(_, bit)| **bit == b'1');
        for ((slot, _), score) in slots.zip(whole) {
            by_slot[slot] = score;
        }
        Ok(self.slots.iter().map(|slot| by_slot.get(*slot).copied().flatten()).collect())
    }
}

impl External for Plugins {
    fn units(&mut self) -> Vec<ExternalUnit> {
        let mut taken = BTreeSet::new();
        let mut units = Vec::new();
        for source in &mut self.sources {
            // A source that is unreachable keeps its units: they fail, and policies with them stay valid.
            let _ = source.refresh(&self.options);
            let fresh = source.units.iter().filter(|unit| taken.insert((unit.name.clone(), unit.kind)));
            units.extend(fresh.cloned());
        }
        units
    }

    fn problems(&mut self) -> Vec<String> {
        let problems = Plugins::problems(self).into_iter();
        problems.map(|problem| format!("{}: {}", problem.source, problem.what)).collect()
    }

    fn at(&mut self, now: u64, seed: u64) {
        self.at = Some((now, seed));
    }

    fn snapshot(&mut self, hosts: Vec<HostView>, vms: Vec<VmView>) -> Result<(), ExternalError> {
        self.inventory_copy.replace(hosts, vms);
        for source in &mut self.sources {
            // A source that is unreachable now is updated when it is queried.
            let _ = source.refresh(&self.options).and_then(|()| source.sync(&self.inventory_copy));
        }
        Ok(())
    }

    fn deltas(&mut self, deltas: Vec<Delta>) -> Result<(), ExternalError> {
        let from = self.inventory_copy.revision;
        let body = self.inventory_copy.change(deltas);
        for source in &mut self.sources {
            source.send_changes(from, self.inventory_copy.revision, &body);
        }
        Ok(())
    }

    fn filter(&mut self, units: &[String], question: &Question<'_>) -> Outcome<Rejected> {
        let (slots, mask) = self.inventory_copy.slots(question.hosts);
        let (vm, properties) = (Some(question.vm), question.properties);
        let asked = UnitQuery { kind: ExternalKind::Filter, at: self.at, slots, mask, vm, properties };
        let names: Vec<&str> = units.iter().map(String::as_str).collect();
        let answers = self.ask::<Accepted>(&asked, &names);
        let answers = answers.into_iter();
        answers.map(|(unit, it)| (unit.clone(), it.and_then(|it| asked.rejected(&unit, it)))).collect()
    }

    fn score(&mut self, units: &[(String, u32)], question: &Question<'_>) -> Outcome<Scores> {
        let (slots, mask) = self.inventory_copy.slots(question.hosts);
        let (vm, properties) = (Some(question.vm), question.properties);
        let asked = UnitQuery { kind: ExternalKind::Score, at: self.at, slots, mask, vm, properties };
        let names: Vec<&str> = units.iter().map(|(unit, _)| unit.as_str()).collect();
        let answers = self.ask::<Scored>(&asked, &names);
        let answers = answers.into_iter();
        answers.map(|(unit, it)| (unit.clone(), it.and_then(|it| asked.scored(&unit, &it)))).collect()
    }

    fn balance(
        &mut self,
        unit: &str,
        hosts: &[String],
        properties: &BTreeMap<String, String>,
    ) -> Result<Vec<ExternalAction>, ExternalError> {
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let (slots, mask) = self.inventory_copy.slots(&hosts);
        let asked = UnitQuery { kind: ExternalKind::Balance, at: self.at, slots, mask, vm: None, properties };
        let answer = self.ask::<Actions>(&asked, &[unit]).remove(unit);
        let Actions { actions, first } = answer.unwrap_or_else(|| Err(error(unit, "it gave no answer")))?;
        let mut found = Vec::new();
        for action in std::iter::once(first).chain(actions).take(MOST_ACTIONS) {
            found.extend(self.action(unit, &asked.mask, action)?);
        }
        Ok(found)
    }
}

/// Attack: a plugin that returns a million actions. Largest number that is used.
const MOST_ACTIONS: usize = 10_000;

impl Plugins {
    /// An action of a balancer; none if it does nothing.
    fn action(
        &self,
        unit: &str,
        mask: &[u8],
        action: Action,
    ) -> Result<Option<ExternalAction>, ExternalError> {
        let wrong = |what: &str| error(unit, &format!("result: {what}"));
        let named = |host: Option<usize>, what: &str| {
            let name = host.and_then(|slot| self.inventory_copy.name(slot).cloned());
            name.ok_or_else(|| wrong(&format!("it {what} an unknown host")))
        };
        let on = action.action.as_deref() == Some("wake");
        let reason = one_line(&action.reason, REASON);
        match (action.action.as_deref(), action.vm) {
            (None, _) => Ok(None),
            (Some("migrate"), Some(vm)) if self.inventory_copy.has_vm(&vm) => {
                let known = |slot: &usize| {
                    let name = self.inventory_copy.name(*slot).filter(|_| mask.get(*slot) == Some(&b'1'));
                    name.cloned().ok_or_else(|| wrong("it names hosts that are not candidates"))
                };
                let to = action.hosts.iter().map(known).collect::<Result<_, _>>()?;
                Ok(Some(ExternalAction::Move { vm, to, reason }))
            }
            (Some("sleep" | "wake"), _) => {
                Ok(Some(ExternalAction::Power { host: named(action.host, "switches")?, on, reason }))
            }
            (Some("stop"), Some(vm)) if self.inventory_copy.has_vm(&vm) => {
                Ok(Some(ExternalAction::Stop { vm, reason }))
            }
            (Some("stop"), _) => Err(wrong("it stops an unknown VM")),
            (Some(word @ ("deactivate" | "activate")), _) => {
                let (host, on) = (named(action.host, "takes out of use")?, word == "deactivate");
                Ok(Some(ExternalAction::Maintenance { host, on, reason }))
            }
            (Some("migrate"), _) => Err(wrong("it moves an unknown VM")),
            (Some(other), _) => Err(wrong(&format!("there is no action {other}"))),
        }
    }
}

/// Attack: text of a plugin with terminal control sequences, or of excessive length.
fn one_line(text: &str, most: usize) -> String {
    let text: String = text.chars().take(most).collect();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    printable(&words).chars().take(most).collect()
}

/// Converts scores to integers in the same order: three decimal places are kept.
fn whole(scores: &[Option<f64>]) -> Vec<Option<i64>> {
    let has_fractions = scores.iter().flatten().any(|score| score.fract() != 0.0);
    let scale = if has_fractions { 1000.0 } else { 1.0 };
    // The conversion saturates.
    scores.iter().map(|score| score.map(|score| (score * scale).round() as i64)).collect()
}

fn error(unit: &str, what: &str) -> ExternalError {
    ExternalError { unit: unit.into(), what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_become_integers_in_the_same_order() {
        assert_eq!(whole(&[Some(3.0), None, Some(-1.0)]), [Some(3), None, Some(-1)]);
        assert_eq!(whole(&[Some(0.25), Some(3.0)]), [Some(250), Some(3000)]);
        assert_eq!(whole(&[Some(1e300), Some(f64::NAN)]), [Some(i64::MAX), Some(0)]);
    }
}
