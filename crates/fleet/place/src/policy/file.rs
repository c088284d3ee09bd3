//! `[policy.NAME]` tables: converts TOML to policies, or reports all errors.

use super::{FilterUse, OnError, Optimise, Policy, Position, Selector, WeightUse, built_in, check};
use crate::unit::ExternalUnit;
use ringway_spec::file::{Diagnostics, Problem, Problems, nearest, parse};
use std::collections::HashMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Attack: an endless file. Largest size in bytes.
pub const LARGEST: usize = 1 << 20;
const KEYS: [&str; 11] = [
    "base",
    "filters",
    "first",
    "last",
    "weights",
    "balancer",
    "selector",
    "optimise",
    "on-error",
    "required",
    "properties",
];

/// Reads the policies of a file named `file` in messages.
pub fn read(file: &str, text: &str, external: &[ExternalUnit]) -> Result<Vec<Policy>, Problems> {
    let diagnostics = Diagnostics::default();
    let table = parse(text, LARGEST, &diagnostics);
    let mut list = diagnostics.into_problems();
    let mut policies = Vec::new();
    for (key, value) in table.get_ref().iter() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("policy", DeValue::Table(tables)) => policies.extend(read_table(tables, external, &mut list)),
            ("policy", _) => {
                list.push(Problem::new(key.span(), "`policy` is not a table", "write [policy.NAME]"));
            }
            (other, _) => {
                let what = format!("there is no table `{}`", other.escape_debug());
                list.push(Problem::new(key.span(), what, "write [policy.NAME]"));
            }
        }
    }
    list.sort_by_key(|problem| problem.at.start);
    match list.is_empty() {
        true => Ok(policies),
        false => Err(Problems { file: file.into(), text: text.into(), list }),
    }
}

/// Reads the tables below `policy` of a file.
pub fn read_table(
    tables: &DeTable<'_>,
    external: &[ExternalUnit],
    problems: &mut Vec<Problem>,
) -> Vec<Policy> {
    let mut policies: Vec<Policy> = Vec::new();
    let mut entries: Vec<_> = tables.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in entries {
        let mut reader = Reader { at: name.span(), places: HashMap::new(), problems };
        let DeValue::Table(table) = value.get_ref() else {
            reader.error(
                &name.span(),
                format!("`policy.{}` is not a table", name.get_ref()),
                "write [policy.NAME]",
            );
            continue;
        };
        if name.get_ref().is_empty() || name.get_ref().len() > 64 {
            reader.error(&name.span(), "a policy's name has 1 to 64 characters", "");
            continue;
        }
        let policy = reader.policy(name.get_ref(), table, &policies);
        for (key, what, fix) in check(&policy, external) {
            let at = reader.place(&key);
            reader.error(&at, what, &fix);
        }
        policies.push(policy);
    }
    policies
}

struct Reader<'p> {
    at: Range<usize>,
    places: HashMap<String, Range<usize>>,
    problems: &'p mut Vec<Problem>,
}

impl Reader<'_> {
    fn error(&mut self, at: &Range<usize>, what: impl Into<String>, fix: &str) {
        self.problems.push(Problem::new(at.clone(), what, fix));
    }

    /// Position of `key`, or of the innermost table that contains it.
    fn place(&self, key: &str) -> Range<usize> {
        let outer = key.split_once('.').map_or(key, |(outer, _)| outer);
        self.places.get(key).or_else(|| self.places.get(outer)).unwrap_or(&self.at).clone()
    }

    fn policy(&mut self, name: &str, table: &DeTable<'_>, before: &[Policy]) -> Policy {
        for (key, value) in table.iter() {
            self.places.insert(key.get_ref().to_string(), value.span());
            if !KEYS.contains(&key.get_ref().as_ref()) {
                let fix = nearest(key.get_ref(), KEYS)
                    .map_or(String::new(), |near| format!("did you mean `{near}`?"));
                self.error(&key.span(), format!("a policy has no `{}`", key.get_ref().escape_debug()), &fix);
            }
        }
        let mut policy = self.base(table, before);
        policy.name = name.into();
        if let Some(names) = table.get("filters").map(|value| self.strings("filters", value)) {
            policy.filters =
                names.into_iter().map(|name| FilterUse { name, ..FilterUse::default() }).collect();
        }
        for (key, position) in [("first", Position::First), ("last", Position::Last)] {
            if let Some(name) = table.get(key).and_then(|value| self.string(key, value)) {
                policy
                    .filters
                    .iter_mut()
                    .filter(|f| f.position == position)
                    .for_each(|f| f.position = Position::Middle);
                match policy.filters.iter_mut().find(|filter| filter.name == name) {
                    Some(filter) => filter.position = position,
                    None => {
                        let at = self.place(key);
                        let what = format!("\"{}\" is not among the filters", name.escape_debug());
                        self.error(&at, what, "add it to `filters`");
                    }
                }
            }
        }
        let named = |key: &str| match table.get(key).map(Spanned::get_ref) {
            Some(DeValue::String(name)) => Some(name.to_string()),
            _ => None,
        };
        if let Some(name) = named("first").filter(|name| named("last").as_ref() == Some(name)) {
            let at = self.place("last");
            let what = format!("\"{}\" is both first and last", name.escape_debug());
            self.error(&at, what, "name another one, or leave one of them out");
        }
        if let Some(value) = table.get("weights") {
            policy.weights = self.weights(value);
        }
        if let Some(balancer) = table.get("balancer").and_then(|value| self.string("balancer", value)) {
            policy.balancer = balancer;
        }
        let selectors = [
            ("rank", Selector::Rank),
            ("scaled-sum", Selector::ScaledSum),
            ("lowest-sum", Selector::LowestSum),
        ];
        policy.selector = self.word(table, "selector", &selectors).unwrap_or(policy.selector);
        let optimise =
            [("none", Optimise::None), ("speed", Optimise::Speed), ("overbooking", Optimise::Overbooking)];
        policy.optimise = self.word(table, "optimise", &optimise).unwrap_or(policy.optimise);
        if let Some(value) = table.get("properties") {
            self.properties(value, &mut policy);
        }
        if let Some(value) = table.get("on-error") {
            self.on_error(value, &mut policy);
        }
        if let Some(value) = table.get("required") {
            self.required(value, &mut policy);
        }
        policy
    }

    fn base(&mut self, table: &DeTable<'_>, before: &[Policy]) -> Policy {
        let Some(base) = table.get("base").and_then(|value| self.string("base", value)) else {
            return Policy { balancer: "None".into(), ..Policy::default() };
        };
        let built_in = built_in();
        if let Some(found) = before.iter().chain(&built_in).find(|policy| policy.name == base) {
            return found.clone();
        }
        let at = self.place("base");
        let known = before.iter().chain(&built_in).map(|policy| policy.name.as_str());
        let fix = nearest(&base, known)
            .map_or("name one that stands before it, or a built-in one".to_string(), |near| {
                format!("did you mean \"{near}\"?")
            });
        self.error(&at, format!("there is no policy \"{}\"", base.escape_debug()), &fix);
        Policy::default()
    }

    fn string(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => {
                self.error(
                    &value.span(),
                    format!("`{key}` is not one name"),
                    &format!("write {key} = \"NAME\""),
                );
                None
            }
        }
    }

    fn strings(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Vec<String> {
        let DeValue::Array(entries) = value.get_ref() else {
            self.error(
                &value.span(),
                format!("`{key}` is not a list"),
                &format!("write {key} = [\"NAME\", ...]"),
            );
            return Vec::new();
        };
        let mut names = Vec::new();
        for entry in entries.iter() {
            match entry.get_ref() {
                DeValue::String(name) => {
                    self.places.insert(format!("{key}.{name}"), entry.span());
                    names.push(name.to_string());
                }
                _ => self.error(
                    &entry.span(),
                    format!("`{key}` has an entry that is not a name"),
                    "put it in quotes",
                ),
            }
        }
        names
    }

    fn weights(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<WeightUse> {
        let DeValue::Table(entries) = value.get_ref() else {
            self.error(&value.span(), "`weights` is not a table", "write weights = { NAME = FACTOR }");
            return Vec::new();
        };
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut weights = Vec::new();
        for (name, factor) in entries {
            self.places.insert(format!("weights.{}", name.get_ref()), name.span());
            let number = match factor.get_ref() {
                DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
                _ => None,
            };
            match number.map(u32::try_from) {
                Some(Ok(factor)) => {
                    weights.push(WeightUse { name: name.get_ref().to_string(), factor, required: false });
                }
                _ => self.error(&factor.span(), "a factor is a whole number, 0 or more", "correct it"),
            }
        }
        weights
    }

    /// What happens if a filter fails: one word for all filters, or one for each of some.
    fn on_error(&mut self, value: &Spanned<DeValue<'_>>, policy: &mut Policy) {
        let words = [("refuse", OnError::Refuse), ("skip", OnError::Skip)];
        let DeValue::Table(entries) = value.get_ref() else {
            if let Some(on_error) = self.one_of("on-error", value, &words) {
                policy.filters.iter_mut().for_each(|filter| filter.on_error = on_error);
            }
            return;
        };
        for (name, value) in entries.iter() {
            let filter = policy.filters.iter_mut().find(|filter| filter.name == *name.get_ref());
            match (filter, self.one_of("on-error", value, &words)) {
                (Some(filter), Some(on_error)) => filter.on_error = on_error,
                (Some(_), None) => {}
                (None, _) => {
                    let what = format!("\"{}\" is not among the filters", name.get_ref().escape_debug());
                    self.error(&name.span(), what, "add it to `filters`");
                }
            }
        }
    }

    fn word<T: Copy>(&mut self, table: &DeTable<'_>, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        self.one_of(key, table.get(key)?, words)
    }

    fn one_of<T: Copy>(
        &mut self,
        key: &'static str,
        value: &Spanned<DeValue<'_>>,
        words: &[(&str, T)],
    ) -> Option<T> {
        let word = self.string(key, value)?;
        let found = words.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let list: Vec<String> = words.iter().map(|(known, _)| format!("\"{known}\"")).collect();
            let what = format!("`{key}` is \"{}\"", word.escape_debug());
            self.error(&value.span(), what, &format!("write one of {}", list.join(", ")));
        }
        found
    }

    fn properties(&mut self, value: &Spanned<DeValue<'_>>, policy: &mut Policy) {
        let DeValue::Table(entries) = value.get_ref() else {
            self.error(
                &value.span(),
                "`properties` is not a table",
                "write properties = { NAME = \"VALUE\" }",
            );
            return;
        };
        for (name, value) in entries.iter() {
            self.places.insert(format!("properties.{}", name.get_ref()), value.span());
            let text = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => number.to_string(),
                DeValue::Float(number) => number.to_string(),
                DeValue::Boolean(truth) => truth.to_string(),
                _ => {
                    self.error(
                        &value.span(),
                        format!("`{}` is not a value", name.get_ref()),
                        "write a string",
                    );
                    continue;
                }
            };
            policy.properties.insert(name.get_ref().to_string(), text);
        }
    }

    fn required(&mut self, value: &Spanned<DeValue<'_>>, policy: &mut Policy) {
        for name in self.strings("required", value) {
            let filters =
                policy.filters.iter_mut().filter(|unit| unit.name == name).map(|unit| &mut unit.required);
            let weights =
                policy.weights.iter_mut().filter(|unit| unit.name == name).map(|unit| &mut unit.required);
            let mut found = false;
            for required in filters.chain(weights) {
                (*required, found) = (true, true);
            }
            if !found {
                let at = self.place(&format!("required.{name}"));
                self.error(
                    &at,
                    format!("\"{}\" is not among the units", name.escape_debug()),
                    "add it first",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_parsed() {
        let text = "[policy.night]\nbase = \"none\"\nlast = \"Memory\"\nselector = \"scaled-sum\"\n\
            weights = { Packing = 3, HA = 1 }\nproperties = { HighUtilization = 70 }\n";
        let policies = read("p.toml", text, &[]).unwrap();
        let night = &policies[0];
        assert_eq!((night.name.as_str(), night.selector), ("night", Selector::ScaledSum));
        assert_eq!(night.ordered().last().unwrap().name, "Memory");
        assert_eq!(night.ordered()[0].name, "CPU");
        assert_eq!(night.weights[0], WeightUse { name: "Packing".into(), factor: 3, required: false });
        assert_eq!(night.properties["HighUtilization"], "70");
    }

    #[test]
    fn filters_that_fail_refuse_unless_the_policy_skips_them() {
        let refuses = |keys: &str| -> Result<Vec<bool>, String> {
            let text = format!("[policy.p]\nfilters = [\"CPU\", \"Memory\"]\n{keys}\n");
            let policies = read("p.toml", &text, &[]).map_err(|problems| problems.to_string())?;
            Ok(policies[0].filters.iter().map(FilterUse::refuses).collect())
        };
        assert_eq!(refuses(""), Ok(vec![true, true]));
        assert_eq!(refuses("on-error = \"skip\""), Ok(vec![false, false]));
        assert_eq!(refuses("on-error = \"skip\"\nrequired = [\"CPU\"]"), Ok(vec![true, false]));
        assert_eq!(refuses("on-error = { Memory = \"skip\" }"), Ok(vec![true, false]));
        let wrong = |keys: &str| refuses(keys).unwrap_err().lines().next().unwrap().to_string();
        assert_eq!(
            wrong("on-error = \"ignore\""),
            "p.toml:3:12: `on-error` is \"ignore\"; write one of \"refuse\", \"skip\""
        );
        assert!(wrong("on-error = { Swap = \"skip\" }").starts_with("p.toml:3:14: \"Swap\" is not among"));
    }

    #[test]
    fn all_errors_are_reported_with_positions() {
        let text = "[policy.bad]\nfilters = [\"CPU\", \"Memry\", \"CPU\"]\nfirst = [\"CPU\", \"Memory\"]\n\
            weights = { Packing = -1, Nothing = 2 }\nproperties = { HighUtilization = \"20\", Hi = \"1\" }\n\
            selector = \"best\"\nfiltrs = 1\n[other]\n";
        let message = read("p.toml", text, &[]).unwrap_err().to_string();
        let expected = "\
p.toml:2:19: there is no filter \"Memry\"; did you mean \"Memory\"?
p.toml:2:28: filter \"CPU\" is defined twice; keep one
p.toml:3:9: `first` is not one name; write first = \"NAME\"
p.toml:4:23: a factor is a whole number, 0 or more; correct it
p.toml:4:27: there is no weight \"Nothing\"; `ringway place policies --units` lists them
p.toml:5:34: HighUtilization = \"20\" does not match [5-9][0-9]; correct the value
p.toml:5:45: there is no property `Hi`; no unit reads it
p.toml:6:12: `selector` is \"best\"; write one of \"rank\", \"scaled-sum\", \"lowest-sum\"
p.toml:7:1: a policy has no `filtrs`; did you mean `filters`?
p.toml:8:2: there is no table `other`; write [policy.NAME]";
        assert_eq!(message, expected);
    }

    #[test]
    fn built_in_policies_are_valid() {
        for policy in built_in() {
            assert_eq!(check(&policy, &[]), [], "{}", policy.name);
        }
        assert_eq!(built_in()[0].filters.len(), 15);
    }

    #[test]
    fn settings_without_effect_are_reported() {
        let text = "[policy.a]\nfilters = [\"CPU\"]\nfirst = \"CPU\"\nlast = \"CPU\"\n\
            [policy.b]\nbase = \"none\"\n\
            properties = { FactFilter = \"t < 3\", MetricsWeightSetting = \"t\" }\n\
            [policy.c]\nbase = \"packing\"\nproperties = { FactFilter = \"t < 3\" }\n";
        let message = read("p.toml", text, &[]).unwrap_err().to_string();
        let expected = "\
p.toml:4:8: \"CPU\" is both first and last; name another one, or leave one of them out
p.toml:7:29: nothing reads FactFilter: \"Facts\" is not among the filters; \
add \"Facts\" to the policy's `filters`
p.toml:7:61: nothing reads MetricsWeightSetting: \"Metrics\" is not among the weights; \
add \"Metrics\" to the policy's `weights`";
        assert_eq!(message, expected);
    }
}
