//! Inventory files: converts TOML to objects, or reports all errors.
//!
//! `[cluster.NAME]`, `[host.NAME]` (with `count`, that many, numbered), `[vm.NAME]` (`count` too), `[group.NAME]`,
//! `[policy.NAME]`, `[[load]]`, `[[fact]]`, `[[blacklist]]`; keys are those of the objects, with `-` or `_`.

mod edit;

pub use edit::edit;

use crate::engine::{Object, There};
use crate::object::{AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Vm, Wrong};
use crate::policy::{built_in, check_properties, read_table};
use crate::unit::ExternalUnit;
use ringway_spec::file::{Diagnostics, Problem, Problems, nearest, parse};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// Attack: an endless file. Largest size in bytes.
pub const LARGEST: usize = 64 << 20;
/// Attack: a huge `count`. Largest number of objects.
const COUNT: i64 = 1_000_000;
const TABLES: [&str; 8] = ["cluster", "host", "vm", "group", "policy", "load", "fact", "blacklist"];

/// Existing objects that the file may refer to.
#[derive(Clone, Debug, Default)]
pub struct KnownObjects {
    /// External units.
    pub units: Vec<ExternalUnit>,
    /// Hosts.
    pub hosts: BTreeSet<String>,
    /// Policies that are not built in.
    pub policies: BTreeSet<String>,
    /// The time in milliseconds since 1970, if it matters.
    pub now: Option<u64>,
}

/// Reads the text of a file named `file` in messages. Policies come first, then clusters, hosts,
/// measurements, VMs, groups.
pub fn read(file: &str, text: &str, beside: &KnownObjects) -> Result<Vec<Object>, Problems> {
    let diagnostics = Diagnostics::default();
    let table = parse(text, LARGEST, &diagnostics);
    let list = diagnostics.into_problems();
    let external = beside.units.as_slice();
    let mut reader = Reader { external, list, objects: Vec::new(), tables: Vec::new() };
    for (key, _) in table.get_ref().iter() {
        if !TABLES.contains(&key.get_ref().as_ref()) {
            let fix = nearest(key.get_ref(), TABLES).map_or_else(
                || format!("there may be {}", TABLES.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            reader.error(&key.span(), format!("there is no table `{}`", key.get_ref().escape_debug()), fix);
        }
    }
    let top = table.get_ref();
    if let Some(DeValue::Table(tables)) = top.get("policy").map(Spanned::get_ref) {
        let policies = read_table(tables, external, &mut reader.list);
        reader.objects.extend(policies.into_iter().map(|policy| (Object::Policy(policy), None)));
    }
    reader.clusters(top);
    reader.named::<Host>(
        top,
        "host",
        |it, name| (it.name = name, it.check()).1,
        |it| Object::Host(Box::new(it)),
    );
    reader.listed::<Load>(top, "load", Load::check, Object::Load);
    reader.listed::<Fact>(top, "fact", Fact::check, Object::Fact);
    reader.listed::<Blacklist>(top, "blacklist", Blacklist::check, Object::Blacklist);
    reader.named::<Vm>(top, "vm", |it, name| (it.name = name, it.check()).1, |it| Object::Vm(Box::new(it)));
    let group = |it: &mut AffinityGroup, name| {
        it.name = name;
        if it.cluster.is_empty() {
            it.cluster = "default".into();
        }
        it.check()
    };
    reader.named::<AffinityGroup>(top, "group", group, Object::Group);
    reader.check_names(beside);
    reader.check_twice(text);
    let Reader { mut list, objects, .. } = reader;
    let objects = objects.into_iter().map(|(object, _)| object).collect();
    list.sort_by_key(|problem| problem.at.start);
    match list.is_empty() {
        true => Ok(objects),
        false => Err(Problems { file: file.into(), text: text.into(), list }),
    }
}

/// Reads only the tables `[cluster.NAME]` of a file, in order.
pub fn read_clusters(
    top: &DeTable<'_>,
    external: &[ExternalUnit],
    problems: &mut Vec<Problem>,
) -> Vec<Cluster> {
    let list = std::mem::take(problems);
    let mut reader = Reader { external, list, objects: Vec::new(), tables: Vec::new() };
    reader.clusters(top);
    *problems = reader.list;
    let cluster = |(object, _)| if let Object::Cluster(cluster) = object { Some(cluster) } else { None };
    reader.objects.into_iter().filter_map(cluster).collect()
}

struct Reader<'t> {
    external: &'t [ExternalUnit],
    list: Vec<Problem>,
    /// Each object with the number of its table.
    objects: Vec<(Object, Option<usize>)>,
    tables: Vec<Places>,
}

/// Positions of a table and its keys.
struct Places {
    at: Range<usize>,
    keys: HashMap<String, Range<usize>>,
}

impl Reader<'_> {
    fn clusters(&mut self, top: &DeTable<'_>) {
        self.named::<Cluster>(top, "cluster", |it, name| (it.name = name, it.check()).1, Object::Cluster);
    }

    /// Records a table's position and returns its number.
    fn table(&mut self, at: Range<usize>, value: &Spanned<DeValue<'_>>) -> Option<usize> {
        let DeValue::Table(entries) = value.get_ref() else { return None };
        let place = |(key, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
            (key.get_ref().replace('-', "_"), value.span())
        };
        self.tables.push(Places { at, keys: entries.iter().map(place).collect() });
        Some(self.tables.len() - 1)
    }

    /// Reports references to unknown objects, one per table.
    fn check_names(&mut self, beside: &KnownObjects) {
        let (mut hosts, mut policies) = (HashMap::new(), HashMap::new());
        policies.extend(built_in().into_iter().map(|policy| (policy.name.clone(), Arc::new(policy))));
        for (object, _) in &self.objects {
            match object {
                Object::Host(host) => drop(hosts.insert(host.name.as_str(), host)),
                Object::Policy(policy) => {
                    drop(policies.insert(policy.name.clone(), Arc::new(policy.clone())))
                }
                _ => {}
            }
        }
        let there = There {
            host: &|name| match hosts.get(name) {
                Some(host) => Some(Some(host.ports.iter().map(|port| port.name.clone()).collect())),
                None => beside.hosts.contains(name).then_some(None),
            },
            policy: &|name| match policies.get(name) {
                Some(policy) => Some(Some(policy.clone())),
                None => beside.policies.contains(name).then_some(None),
            },
            now: beside.now,
        };
        let mut wrong = Vec::new();
        let mut reported = BTreeSet::new();
        for (object, table) in &self.objects {
            let Some(places) = table.and_then(|table| self.tables.get(table)) else { continue };
            if let Err(error) = there.check(object)
                && reported.insert(*table)
            {
                let at = places.keys.get(error.key).unwrap_or(&places.at).clone();
                wrong.push(Problem::new(at, format!("{}: {}", error.object, error.what), error.fix));
            }
        }
        self.list.append(&mut wrong);
    }

    /// Reports objects that are described twice, of which one would be lost: by two tables if one has a `count`, or
    /// by two entries of a list.
    fn check_twice(&mut self, text: &str) {
        let (mut seen, mut reported) = (HashMap::new(), BTreeSet::new());
        let mut wrong = Vec::new();
        for (object, table) in &self.objects {
            let Some(table) = table else { continue };
            let key = match object {
                Object::Cluster(it) => ("cluster", it.name.as_str(), ""),
                Object::Host(it) => ("host", it.name.as_str(), ""),
                Object::Vm(it) => ("VM", it.name.as_str(), ""),
                Object::Group(it) => ("group", it.name.as_str(), ""),
                Object::Load(it) => ("load of host", it.host.as_str(), ""),
                Object::Blacklist(it) => ("blacklist entry of host", it.host.as_str(), ""),
                Object::Fact(it) => ("fact about host", it.host.as_str(), it.name.as_str()),
                Object::Policy(_) => continue,
            };
            let Some(other) = seen.insert(key, *table).filter(|other| other != table) else { continue };
            if !reported.insert((other, *table)) {
                continue;
            }
            let places = [other, *table].map(|table| self.tables.get(table).map(|places| places.at.clone()));
            let [Some(first), Some(second)] = places else { continue };
            let name = [key.0, key.1, key.2].join(" ");
            for (at, elsewhere) in [(&first, &second), (&second, &first)] {
                let (line, column) = line_and_column(text, elsewhere.start);
                let what = format!("{} is described here and at {line}:{column}", name.trim_end());
                wrong.push(Problem::new(at.clone(), what, "keep one"));
            }
        }
        self.list.append(&mut wrong);
    }

    fn error(&mut self, at: &Range<usize>, what: impl Into<String>, fix: impl Into<String>) {
        self.list.push(Problem::new(at.clone(), what, fix));
    }

    fn named<T: DeserializeOwned + Clone>(
        &mut self,
        top: &DeTable<'_>,
        kind: &str,
        name_and_check: impl Fn(&mut T, String) -> Result<(), Wrong>,
        object: impl Fn(T) -> Object,
    ) {
        let Some(DeValue::Table(tables)) = top.get(kind).map(Spanned::get_ref) else {
            if let Some(value) = top.get(kind) {
                self.error(&value.span(), format!("`{kind}` is not a table"), format!("write [{kind}.NAME]"));
            }
            return;
        };
        let mut entries: Vec<_> = tables.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let Some((item, count)) = self.item::<T>(kind, &name.span(), value) else { continue };
            let width = count.unwrap_or(0).saturating_sub(1).to_string().len();
            let names: Vec<String> = match count {
                None => vec![name.get_ref().to_string()],
                Some(count) => (0..count).map(|n| format!("{}-{n:0width$}", name.get_ref())).collect(),
            };
            if self.objects.len() + names.len() > COUNT as usize {
                return self.error(&name.span(), format!("a file has {COUNT} objects at most"), "");
            }
            let table = self.table(name.span(), value);
            for one in names {
                let mut item = item.clone();
                if let Err(error) = name_and_check(&mut item, one) {
                    self.error(&name.span(), error.to_string(), "");
                    break;
                }
                self.objects.push((object(item), table));
            }
        }
    }

    fn listed<T: DeserializeOwned>(
        &mut self,
        top: &DeTable<'_>,
        kind: &str,
        check: impl Fn(&T) -> Result<(), Wrong>,
        object: impl Fn(T) -> Object,
    ) {
        let Some(value) = top.get(kind) else { return };
        let DeValue::Array(entries) = value.get_ref() else {
            return self.error(&value.span(), format!("`{kind}` is not a list"), format!("write [[{kind}]]"));
        };
        for value in entries.iter() {
            let Some((item, _)) = self.item::<T>(kind, &value.span(), value) else { continue };
            match check(&item) {
                Ok(()) => {
                    let table = self.table(value.span(), value);
                    self.objects.push((object(item), table));
                }
                Err(error) => self.error(&value.span(), error.to_string(), ""),
            }
        }
    }

    /// An object, and its `count`.
    fn item<T: DeserializeOwned>(
        &mut self,
        kind: &str,
        at: &Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<(T, Option<i64>)> {
        let DeValue::Table(entries) = value.get_ref() else {
            self.error(at, "this is not a table", "write its keys below it");
            return None;
        };
        let mut table = plain(entries);
        let count = match table.remove("count") {
            None => None,
            Some(Value::Integer(count @ 1..=COUNT)) => Some(count),
            Some(_) => {
                let place = entries.get("count").map_or(at.clone(), Spanned::span);
                self.error(&place, format!("`count` is a number from 1 to {COUNT}"), "");
                return None;
            }
        };
        if let Some(Value::Table(properties)) = table.get_mut("properties") {
            properties.iter_mut().for_each(|(_, value)| as_text(value));
        }
        if let Some(DeValue::Table(properties)) = entries.get("properties").map(Spanned::get_ref) {
            self.properties(properties);
        }
        match read_as::<T>(table.clone()) {
            Ok(item) => Some((item, count)),
            Err(what) => {
                // The key at fault is the one without which the error does not occur.
                let about = entries.iter().find(|(key, _)| {
                    let mut others = table.clone();
                    others.remove(&key.get_ref().replace('-', "_"));
                    read_as::<T>(others).err().as_ref() != Some(&what)
                });
                let (place, what, fix) = explain(kind, at, about, what);
                self.error(&place, what, fix);
                None
            }
        }
    }

    /// Checks custom properties, with their positions.
    fn properties(&mut self, properties: &DeTable<'_>) {
        for (name, value) in properties.iter() {
            let mut text = value_of(value.get_ref(), true);
            as_text(&mut text);
            let Value::String(text) = text else { continue };
            let one = BTreeMap::from([(name.get_ref().to_string(), text)]);
            for (_, what, fix) in check_properties(&one, self.external) {
                self.error(&value.span(), what, fix);
            }
        }
    }
}

/// Line and column of a byte offset, from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// An object, or serde's error message.
fn read_as<T: DeserializeOwned>(table: Table) -> Result<T, String> {
    let words = |error: toml::de::Error| error.message().lines().next().unwrap_or_default().to_string();
    Value::Table(table).try_into::<T>().map_err(words)
}

/// Converts serde's message and its key to position, error and remedy.
fn explain(
    kind: &str,
    at: &Range<usize>,
    about: Option<(&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)>,
    what: String,
) -> (Range<usize>, String, String) {
    let Some((key, value)) = about else { return (at.clone(), what, String::new()) };
    let name = key.get_ref();
    if let Some((unknown, known)) = quoted(&what, "unknown field ") {
        // A nested key has the position of its top-level key.
        let is_it = unknown == name.replace('-', "_");
        let unknown = if is_it { name } else { unknown };
        let whose = if is_it { format!("a {kind}") } else { format!("`{name}`") };
        let known: Vec<String> = known.iter().map(|known| known.replace('_', "-")).collect();
        let fix = suggest(&unknown.replace('_', "-"), &known);
        return (key.span(), format!("{whose} has no key `{}`", unknown.escape_debug()), fix);
    }
    if let Some((word, known)) = quoted(&what, "unknown variant ") {
        let known: Vec<String> = known.into_iter().map(String::from).collect();
        let fix = suggest(word, &known);
        return (value.span(), format!("`{name}` can't be `{}`", word.escape_debug()), fix);
    }
    (value.span(), format!("`{name}`: {what}"), String::new())
}

fn suggest(word: &str, known: &[String]) -> String {
    match nearest(word, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there is {}", known.join(", ")),
    }
}

/// If serde's message begins with `begin`: the unknown name and the known ones.
fn quoted<'w>(what: &'w str, begin: &str) -> Option<(&'w str, Vec<&'w str>)> {
    let mut quoted = what.strip_prefix(begin)?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// A figure or a truth as the text that a custom property is.
fn as_text(value: &mut Value) {
    match value {
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => *value = Value::String(value.to_string()),
        _ => {}
    }
}

/// The table without positions, with `_` in its keys.
fn plain(table: &DeTable<'_>) -> Table {
    let entry = |(key, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
        let key = key.get_ref().replace('-', "_");
        let is_map = MAPS.contains(&key.as_str());
        (key, value_of(value.get_ref(), is_map))
    };
    table.iter().map(entry).collect()
}

/// Keys whose values are maps with user-defined keys.
const MAPS: [&str; 3] = ["properties", "huge_pages", "mdevs"];

fn value_of(value: &DeValue<'_>, is_map: bool) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => {
            let read = i64::from_str_radix(number.as_str(), number.radix());
            read.map_or_else(|_| Value::String(number.to_string()), Value::Integer)
        }
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(truth) => Value::Boolean(*truth),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(entries) => {
            Value::Array(entries.iter().map(|entry| value_of(entry.get_ref(), is_map)).collect())
        }
        DeValue::Table(table) if is_map => {
            let entry = |(key, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                (key.get_ref().to_string(), value_of(value.get_ref(), is_map))
            };
            Value::Table(table.iter().map(entry).collect())
        }
        DeValue::Table(table) => Value::Table(plain(table)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_hosts_are_numbered() {
        let text = "[host.node]\ncount = 12\ncores = 8\nthreads = 8\n\
            memory-mb = 4096\nnetworks = [\"blue\"]\n\
            [vm.web]\nmemory_mb = 1024\nproperties = { FactFilter = \"t < 3\" }\n\
            [[fact]]\nhost = \"node-03\"\nname = \"t\"\nvalue = 2\n";
        let objects = read("i.toml", text, &KnownObjects::default()).unwrap();
        assert_eq!(objects.len(), 14);
        assert!(matches!(&objects[3], Object::Host(host) if host.name == "node-03" && host.cores == 8));
        assert!(matches!(&objects[12], Object::Fact(fact) if fact.value == 2.0));
    }

    #[test]
    fn objects_that_are_described_twice_are_refused() {
        let text = "[host.n]\ncount = 2\n[host.n-0]\n[host.m]\n[[blacklist]]\nhost = \"m\"\n\
            [[fact]]\nhost = \"m\"\nname = \"a\"\nvalue = 1\n\
            [[fact]]\nhost = \"m\"\nname = \"b\"\nvalue = 1\n\
            [[blacklist]]\nhost = \"m\"\n";
        let message = read("i.toml", text, &KnownObjects::default()).unwrap_err().to_string();
        assert_eq!(
            message.lines().collect::<Vec<_>>(),
            [
                "i.toml:1:7: host n-0 is described here and at 3:7; keep one",
                "i.toml:3:7: host n-0 is described here and at 1:7; keep one",
                "i.toml:5:1: blacklist entry of host m is described here and at 15:1; keep one",
                "i.toml:15:1: blacklist entry of host m is described here and at 5:1; keep one",
            ]
        );
    }

    #[test]
    fn all_errors_are_reported_with_positions() {
        let text = "[host.a]\ncores = 0\n[host.b]\ncoers = 4\n[hots.c]\n[policy.p]\nfilters = [\"x\"]\n";
        let message = read("i.toml", text, &KnownObjects::default()).unwrap_err().to_string();
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(lines[0], "i.toml:1:7: host a: `cores` is 0; permitted: 1 to 65536");
        assert_eq!(lines[1], "i.toml:4:1: a host has no key `coers`; did you mean `cores`?");
        assert_eq!(lines[2], "i.toml:5:2: there is no table `hots`; did you mean `host`?");
        assert!(lines[3].starts_with("i.toml:7:12: there is no filter \"x\""), "{message}");
    }

    #[test]
    fn custom_properties_are_checked_with_positions() {
        let text = "[cluster.c]\nproperties = { HighUtilization = 70, LowUtilization = \"99\" }\n\
            [vm.v.properties]\nFactFiltr = \"t < 3\"\nFactFilter = \"t <\"\n";
        let message = read("i.toml", text, &KnownObjects::default()).unwrap_err().to_string();
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[0].starts_with("i.toml:2:55: LowUtilization = \"99\" does not match"), "{message}");
        assert_eq!(lines[1], "i.toml:4:13: there is no property `FactFiltr`; did you mean `FactFilter`?");
        assert!(lines[2].starts_with("i.toml:5:14: FactFilter: "), "{message}");
        assert_eq!(lines.len(), 3, "{message}");
    }

    #[test]
    fn names_in_a_file_must_exist() {
        let text = "[cluster.c]\npolicy = \"nigt\"\n[cluster.d]\nproperties = { FactFilter = \"t < 3\" }\n\
            [host.a]\nports = [{ name = \"p0\" }]\n\
            [[load]]\nhost = \"a\"\nports = [{ name = \"p1\" }]\n\
            [[fact]]\nname = \"t\"\nvalue = 1\nhost = \"b\"\n[[blacklist]]\nhost = \"b\"\n\
            [vm.v]\ncount = 3\nstatus = \"up\"\nhost = \"b\"\n[vm.w]\npolicy = \"p\"\nmoved-at = 99999999\n\
            [vm.down]\nhost = \"b\"\n";
        let lines = |beside: &KnownObjects| match read("i.toml", text, beside) {
            Err(problems) => problems.to_string().lines().map(String::from).collect(),
            Ok(_) => Vec::new(),
        };
        let message: Vec<String> = lines(&KnownObjects::default());
        let begin = [
            "i.toml:2:10: cluster c: there is no policy \"nigt\"",
            "i.toml:4:14: cluster d: nothing reads FactFilter",
            "i.toml:9:9: load of host a: host a has no port p1",
            "i.toml:13:8: fact t about host b: there is no host b",
            "i.toml:15:8: blacklist entry of host b: there is no host b",
            "i.toml:19:8: VM v-0: there is no host b",
            "i.toml:21:10: VM w: there is no policy \"p\"",
        ];
        assert_eq!(message.len(), begin.len(), "{message:#?}");
        assert!(message.iter().zip(begin).all(|(message, begin)| message.starts_with(begin)), "{message:#?}");
        let (hosts, policies) = (BTreeSet::from(["b".to_string()]), BTreeSet::from(["p".to_string()]));
        let message =
            lines(&KnownObjects { hosts, policies, now: Some(9_999_999), ..KnownObjects::default() });
        assert_eq!(message.len(), 4, "{message:#?}");
        assert!(
            message[3].starts_with("i.toml:22:12: VM w: `moved_at` is 99999999, and it is 9999999"),
            "{message:#?}"
        );
    }

    #[test]
    fn names_are_unique_per_host() {
        let read = |keys: &str| read("i.toml", &format!("[host.a]\n{keys}\n"), &KnownObjects::default());
        for (keys, what) in [
            ("devices = [{ name = \"gpu\" }, { name = \"gpu\" }]", "`devices` has gpu twice"),
            ("ports = [{ name = \"p\" }, { name = \"p\" }]", "`ports` has p twice"),
            ("numa = [{ index = 1 }, { index = 1 }]", "`numa` has 1 twice"),
        ] {
            let message = read(keys).unwrap_err().to_string();
            assert!(message.starts_with("i.toml:1:7: host a: ") && message.contains(what), "{message}");
        }
        let fact = "[[fact]]\nhost = \"a\"\nname = \"vms\"\nvalue = 1";
        let message = read(fact).unwrap_err().to_string();
        assert!(message.contains("`name` is vms, a built-in figure"), "{message}");
    }
}
