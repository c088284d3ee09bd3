//! Validation of policies, which reports all errors.

use super::{Policy, Position};
use crate::expression::Expression;
use crate::unit::{ExternalKind, ExternalUnit, allowed, describe};
use crate::{balancers, filters, weights};
use regex::Regex;
use ringway_spec::file::nearest;
use std::collections::BTreeMap;

/// Attack: a policy of thousands of units. Largest number of units.
const UNITS: usize = 100;
/// Attack: sums of ranks that overflow. Largest factor.
const FACTOR: u32 = 1_000_000;
/// Attack: numbers that are too large to compute with. Most characters of a number.
const DIGITS: usize = 18;

/// Errors in a policy: the key (`filters`, `weights`, `properties.NAME`...), the error, the remedy.
/// `external` are the available external units.
pub fn check(policy: &Policy, external: &[ExternalUnit]) -> Vec<(String, String, String)> {
    let mut wrong = Vec::new();
    let mut say = |key: &str, what: String, fix: String| wrong.push((key.to_string(), what, fix));
    let outside = |kind: ExternalKind| {
        external.iter().filter(move |unit| unit.kind == kind).map(|unit| unit.name.as_str())
    };
    let known: Vec<&str> =
        filters::SELECTABLE.iter().map(|unit| unit.name()).chain(outside(ExternalKind::Filter)).collect();
    let names: Vec<&str> = policy.filters.iter().map(|unit| unit.name.as_str()).collect();
    units("filters", "filter", &names, &known, &mut say);
    for (position, word) in [(Position::First, "first"), (Position::Last, "last")] {
        let there: Vec<&str> = policy
            .filters
            .iter()
            .filter(|unit| unit.position == position)
            .map(|unit| unit.name.as_str())
            .collect();
        if there.len() > 1 {
            say(
                word,
                format!("{} are both {word}", there.join(" and ")),
                format!("one filter at most is {word}"),
            );
        }
    }
    let known: Vec<&str> =
        weights::ALL.iter().map(|unit| unit.name()).chain(outside(ExternalKind::Score)).collect();
    let names: Vec<&str> = policy.weights.iter().map(|unit| unit.name.as_str()).collect();
    units("weights", "weight", &names, &known, &mut say);
    for weight in policy.weights.iter().filter(|weight| weight.factor > FACTOR) {
        say(
            &format!("weights.{}", weight.name),
            format!("the factor of {} is {}", weight.name, weight.factor),
            format!("permitted: 0 to {FACTOR}"),
        );
    }
    let known: Vec<&str> =
        balancers::ALL.iter().map(|unit| unit.name).chain(outside(ExternalKind::Balance)).collect();
    if !policy.balancer.is_empty() {
        units("balancer", "balancer", &[policy.balancer.as_str()], &known, &mut say);
    }
    properties(&policy.properties, external, &mut say);
    for name in policy.properties.keys() {
        if let Some((what, fix)) = policy.without_reader(name) {
            say(&format!("properties.{name}"), what, fix);
        }
    }
    wrong
}

/// Properties that have an effect only with one unit.
const READERS: [(&str, &str, &str); 2] =
    [("FactFilter", "filters", "Facts"), ("MetricsWeightSetting", "weights", "Metrics")];

impl Policy {
    /// Error and remedy if none of the policy's units reads the property.
    pub fn without_reader(&self, property: &str) -> Option<(String, String)> {
        let (_, list, unit) = READERS.iter().find(|(name, _, _)| *name == property)?;
        let is_there = match *list {
            "filters" => self.filters.iter().any(|used| used.name == *unit),
            _ => self.weights.iter().any(|used| used.name == *unit),
        };
        let what = format!("nothing reads {property}: \"{unit}\" is not among the {list}");
        (!is_there).then(|| (what, format!("add \"{unit}\" to the policy's `{list}`")))
    }
}

fn units(key: &str, what: &str, names: &[&str], known: &[&str], say: &mut impl FnMut(&str, String, String)) {
    if names.len() > UNITS {
        say(key, format!("{} {what}s", names.len()), format!("at most {UNITS} are permitted"));
    }
    for (index, name) in names.iter().enumerate() {
        if !known.contains(name) {
            let fix = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "`ringway place policies --units` lists them".to_string(),
            };
            say(&format!("{key}.{name}"), format!("there is no {what} \"{}\"", name.escape_debug()), fix);
        }
        if names[..index].contains(name) {
            say(&format!("{key}.{name}"), format!("{what} \"{name}\" is defined twice"), "keep one".into());
        }
    }
}

/// Errors in custom properties of a cluster or a VM, in the form of [`check`].
pub fn check_properties(
    values: &BTreeMap<String, String>,
    external: &[ExternalUnit],
) -> Vec<(String, String, String)> {
    let mut wrong = Vec::new();
    properties(values, external, &mut |key, what, fix| wrong.push((key.to_string(), what, fix)));
    wrong
}

/// Checks custom properties against the expressions of all units.
fn properties(
    properties: &BTreeMap<String, String>,
    external: &[ExternalUnit],
    say: &mut impl FnMut(&str, String, String),
) {
    let mut outside: BTreeMap<String, Regex> = BTreeMap::new();
    for unit in external {
        outside.extend(allowed(&unit.properties).unwrap_or_default());
    }
    for (name, value) in properties {
        let key = format!("properties.{name}");
        let regex = match describe(name) {
            Some(parameter) => crate::unit::whole(parameter.regex).ok(),
            None => outside.get(name).cloned(),
        };
        let shown = value.escape_debug();
        match regex {
            None => {
                let known = crate::unit::PARAMETERS.iter().map(|parameter| parameter.name);
                let fix = nearest(name, known.chain(outside.keys().map(String::as_str)))
                    .map_or("no unit reads it".to_string(), |near| format!("did you mean `{near}`?"));
                say(&key, format!("there is no property `{}`", name.escape_debug()), fix);
            }
            Some(regex) if !regex.is_match(value) => {
                let whole = regex.as_str().trim_start_matches("\\A(?:").trim_end_matches(")\\z").to_string();
                say(&key, format!("{name} = \"{shown}\" does not match {whole}"), "correct the value".into());
            }
            Some(_) if matches!(name.as_str(), "FactFilter" | "MetricsWeightSetting") => {
                if let Err(error) = Expression::read(value) {
                    say(&key, format!("{name}: {error}"), "correct the expression".into());
                }
            }
            // Numbers of more digits could not be compared exactly.
            Some(_) if describe(name).is_some() && value.len() > DIGITS => {
                say(&key, format!("{name} has {} characters", value.len()), format!("at most {DIGITS}"));
            }
            Some(_) => {}
        }
    }
}
