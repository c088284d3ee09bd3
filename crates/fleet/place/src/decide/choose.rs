//! Filters, then weights, then the choice.

use super::external_units::Outside;
use super::record::{Choice, Removed, Scored};
use super::select::{Counts, add, top};
use super::totals::Totals;
use super::trace::{HostTrace, Trace, Verdict, WeightTrace};
use crate::filters::{self, MANDATORY};
use crate::model::Row;
use crate::policy::{Policy, Selector};
use crate::unit::{Context, Filter, Kept, ends};
use crate::weights;
use std::collections::HashMap;

/// Buffers reused by later decisions.
#[derive(Default)]
pub struct Scratch {
    kept: Kept,
    rows: Vec<Row>,
    raw: Vec<i32>,
    totals: Totals,
    /// Part of the score that all hosts share.
    base: f64,
    counts: Counts,
}

/// A choice, with its trace if requested.
pub struct Judged {
    /// The choice.
    pub choice: Choice,
    /// The host's row.
    pub row: Option<Row>,
    /// The full trace.
    pub trace: Option<Trace>,
}

/// A weight's scores for the remaining hosts, for the trace.
struct Weighed {
    weight: String,
    factor: u32,
    raw: Vec<i64>,
    points: Vec<f64>,
}

/// Judges the hosts of a cluster.
pub fn judge(
    context: &Context<'_>,
    policy: &Policy,
    seed: u64,
    weigh: bool,
    outside: &mut Outside<'_>,
    scratch: &mut Scratch,
    tracing: bool,
) -> Judged {
    let mut choice = Choice {
        vms: context.vms().map(|vm| vm.name.clone()).collect(),
        policy: policy.name.clone(),
        ..Choice::default()
    };
    let stages = stages(policy);
    let reasons = filter(context, &stages, outside, &mut scratch.kept, &mut choice);
    let mut weighed = Vec::new();
    let mut row = None;
    scratch.kept.rows(&mut scratch.rows);
    choice.passed = scratch.rows.len() as u32;
    if !scratch.rows.is_empty() && choice.refused.is_empty() {
        scratch.totals.clear(scratch.rows.len());
        scratch.base = 0.0;
        // A single host needs no weighing.
        if weigh && scratch.rows.len() > 1 {
            choice.weighed = true;
            weights_inside(context, policy, scratch, tracing.then_some(&mut weighed));
            weighed.append(&mut weights_outside(context, policy, outside, scratch, &mut choice, tracing));
        }
    }
    if !choice.refused.is_empty() {
        scratch.rows.clear();
    }
    if !scratch.rows.is_empty() {
        let best = top(&scratch.rows, &scratch.totals, &context.cluster.columns.dice, seed);
        row = best.first().map(|(at, _)| scratch.rows[*at]);
        choice.host = row.map(|row| context.cluster.name(row).to_string());
        let scored = best.iter().map(|(at, score)| Scored {
            host: context.cluster.name(scratch.rows[*at]).to_string(),
            score: *score + scratch.base,
        });
        choice.top = scored.collect();
    }
    let trace = tracing.then(|| trace(context, &stages, &reasons, weighed, scratch, &choice));
    Judged { choice, row, trace }
}

/// A built-in or external filter.
enum Stage<'p> {
    Inside(&'static dyn Filter),
    Outside(&'p str, bool),
}

impl Stage<'_> {
    fn name(&self) -> &str {
        match self {
            Stage::Inside(filter) => filter.name(),
            Stage::Outside(name, _) => name,
        }
    }
}

/// All filters in order: mandatory ones, the policy's own, external ones.
fn stages(policy: &Policy) -> Vec<Stage<'_>> {
    let mut stages: Vec<Stage<'_>> = MANDATORY.iter().map(|filter| Stage::Inside(*filter)).collect();
    let mut outside = Vec::new();
    for used in policy.ordered() {
        match filters::find(&used.name) {
            Some(filter) => stages.push(Stage::Inside(filter)),
            None => outside.push(Stage::Outside(&used.name, used.refuses())),
        }
    }
    stages.append(&mut outside);
    stages
}

/// Hosts that external filters rejected, by filter, with their reasons.
type UnitReasons = HashMap<String, HashMap<Row, String>>;

fn filter(
    context: &Context<'_>,
    stages: &[Stage<'_>],
    outside: &mut Outside<'_>,
    kept: &mut Kept,
    choice: &mut Choice,
) -> UnitReasons {
    kept.all(&context.cluster.columns.present);
    choice.hosts = kept.left();
    for (index, stage) in stages.iter().enumerate() {
        let Stage::Inside(filter) = stage else { break };
        let before = kept.left();
        if before == 0 {
            break;
        }
        kept.begin(index);
        filter.filter(context, kept);
        let removed = before - kept.left();
        if removed > 0 {
            choice.removed.push(Removed { filter: filter.name().into(), hosts: removed });
            let columns = &context.cluster.columns;
            if kept.left() == 0 && filter.may_pass_later() {
                let waiting =
                    |row: &Row| kept.removed_by(*row) == Some(index) && columns.pending[*row as usize] > 0;
                choice.may_wait = (0..kept.len() as Row).any(|row| waiting(&row));
            }
        }
    }
    filter_outside(context, stages, outside, kept, choice)
}

/// The remaining rows, by host name.
fn by_name(context: &Context<'_>, kept: &Kept) -> Vec<Row> {
    context.cluster.by_name().iter().copied().filter(|row| kept.has(*row)).collect()
}

fn filter_outside(
    context: &Context<'_>,
    stages: &[Stage<'_>],
    outside: &mut Outside<'_>,
    kept: &mut Kept,
    choice: &mut Choice,
) -> UnitReasons {
    let mut reasons = UnitReasons::new();
    let units: Vec<(usize, &str, bool)> = stages
        .iter()
        .enumerate()
        .filter_map(|(index, stage)| match stage {
            Stage::Outside(name, required) => Some((index, *name, *required)),
            Stage::Inside(_) => None,
        })
        .collect();
    if units.is_empty() || kept.left() == 0 {
        return reasons;
    }
    let rows = by_name(context, kept);
    let hosts: Vec<&str> = rows.iter().map(|row| context.cluster.name(*row)).collect();
    let names: Vec<String> = units.iter().map(|(_, name, _)| name.to_string()).collect();
    let mut outcome = outside.filter(&names, &hosts, context);
    for (index, name, required) in units {
        match outcome.remove(name) {
            Some(Ok(rejected)) => {
                let before = kept.left();
                kept.begin(index);
                let places = rejected.hosts.into_iter();
                let gone: HashMap<Row, String> =
                    places.filter_map(|(place, why)| Some((*rows.get(place as usize)?, why))).collect();
                gone.keys().for_each(|row| kept.remove(*row));
                if before > kept.left() {
                    choice.removed.push(Removed { filter: name.into(), hosts: before - kept.left() });
                }
                reasons.insert(name.into(), gone);
            }
            Some(Err(error)) => failed(required, error.to_string(), choice),
            None => failed(required, format!("{name}: it gave no answer"), choice),
        }
    }
    reasons
}

fn failed(required: bool, error: String, choice: &mut Choice) {
    match required {
        true if choice.refused.is_empty() => choice.refused = error,
        _ => choice.errors.push(error),
    }
}

fn weights_inside(
    context: &Context<'_>,
    policy: &Policy,
    scratch: &mut Scratch,
    mut weighed: Option<&mut Vec<Weighed>>,
) {
    let Scratch { rows, raw, totals, base, counts, .. } = scratch;
    for used in &policy.weights {
        let Some(weight) = weights::find(&used.name) else { continue };
        let same = f64::from(used.factor) * (rows.len() - 1) as f64;
        if weighed.is_none() && policy.selector == Selector::Rank && weight.is_neutral(context) {
            *base += same;
            continue;
        }
        raw.clear();
        raw.resize(rows.len(), 0);
        weight.weigh(context, rows, raw);
        let (least, most) = ends(raw);
        if let Some(weighed) = &mut weighed {
            let mut points = Vec::new();
            add(policy.selector, raw, used.factor, totals, Some(&mut points), counts);
            let raw = raw.iter().map(|raw| i64::from(*raw)).collect();
            weighed.push(Weighed { weight: used.name.clone(), factor: used.factor, raw, points });
        }
        // If all hosts have the same score, all get the same rank.
        if least == most && policy.selector == Selector::Rank {
            *base += same;
            continue;
        }
        add(policy.selector, raw, used.factor, totals, None, counts);
    }
}

fn weights_outside(
    context: &Context<'_>,
    policy: &Policy,
    outside: &mut Outside<'_>,
    scratch: &mut Scratch,
    choice: &mut Choice,
    tracing: bool,
) -> Vec<Weighed> {
    let mut weighed = Vec::new();
    let used: Vec<_> = policy.weights.iter().filter(|used| weights::find(&used.name).is_none()).collect();
    if used.is_empty() {
        return weighed;
    }
    let Scratch { kept, rows, raw, totals, counts, .. } = scratch;
    let named = by_name(context, kept);
    let hosts: Vec<&str> = named.iter().map(|row| context.cluster.name(*row)).collect();
    let units: Vec<(String, u32)> = used.iter().map(|used| (used.name.clone(), used.factor)).collect();
    let mut outcome = outside.score(&units, &hosts, context);
    let mut by_row: Vec<Option<i64>> = Vec::new();
    for used in used {
        let scores = match outcome.remove(&used.name) {
            Some(Ok(scores)) => scores,
            Some(Err(error)) => {
                failed(used.required, error.to_string(), choice);
                continue;
            }
            None => continue,
        };
        // A host without a score gets the worst score.
        let worst = scores.iter().flatten().copied().max().unwrap_or(0);
        by_row.clear();
        by_row.resize(kept.len(), None);
        for (row, score) in named.iter().zip(scores) {
            by_row[*row as usize] = score;
        }
        let limit = |score: i64| score.clamp(-1_000_000_000, 1_000_000_000) as i32;
        raw.clear();
        raw.extend(rows.iter().map(|row| limit(by_row[*row as usize].unwrap_or(worst))));
        add(policy.selector, raw, used.factor, totals, None, counts);
        if tracing {
            let mut points = Vec::new();
            add(policy.selector, raw, used.factor, totals, Some(&mut points), counts);
            let raw = raw.iter().map(|raw| i64::from(*raw)).collect();
            weighed.push(Weighed { weight: used.name.clone(), factor: used.factor, raw, points });
        }
    }
    weighed
}

/// Builds the trace of a choice: the result of every filter on every host, including filters that did not
/// run.
fn trace(
    context: &Context<'_>,
    stages: &[Stage<'_>],
    reasons: &UnitReasons,
    weighed: Vec<Weighed>,
    scratch: &Scratch,
    choice: &Choice,
) -> Trace {
    let mut rejected: HashMap<Row, Vec<Verdict>> = HashMap::new();
    let mut alone = Kept::default();
    let mut note = |row: Row, filter: &str, reason: String| {
        rejected.entry(row).or_default().push(Verdict { filter: filter.into(), reason });
    };
    for stage in stages {
        match stage {
            Stage::Inside(filter) => {
                alone.all(&context.cluster.columns.present);
                alone.begin(0);
                filter.filter(context, &mut alone);
                for row in (0..alone.len() as Row).filter(|row| alone.removed_by(*row).is_some()) {
                    note(row, filter.name(), filter.reason(context, row));
                }
            }
            Stage::Outside(name, _) => {
                for (row, why) in reasons.get(*name).into_iter().flatten() {
                    let why = if why.is_empty() { "rejected by an external unit" } else { why };
                    note(*row, name, why.into());
                }
            }
        }
    }
    let all = (0..scratch.kept.len() as Row).filter(|row| context.cluster.slot(*row).is_some());
    let mut hosts: Vec<HostTrace> = all
        .map(|row| {
            let place = scratch.rows.binary_search(&row).ok();
            let weights = place.into_iter().flat_map(|at| {
                weighed.iter().map(move |weighed| WeightTrace {
                    weight: weighed.weight.clone(),
                    factor: weighed.factor,
                    raw: weighed.raw[at],
                    points: weighed.points[at],
                })
            });
            HostTrace {
                host: context.cluster.name(row).to_string(),
                removed_by: scratch.kept.removed_by(row).map(|index| stages[index].name().to_string()),
                rejected: rejected.remove(&row).unwrap_or_default(),
                weights: weights.collect(),
                score: place.map(|at| scratch.totals.sums[at] + scratch.base),
            }
        })
        .collect();
    hosts.sort_by(|a, b| a.host.cmp(&b.host));
    Trace {
        vms: choice.vms.clone(),
        filters: stages.iter().map(|stage| stage.name().to_string()).collect(),
        hosts,
    }
}
