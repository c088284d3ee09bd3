//! An inventory file: TOML in, objects or everything that is wrong with it out.
//!
//! `[cluster.NAME]`, `[host.NAME]` (with `count`, that many, numbered), `[vm.NAME]` (`count` too), `[group.NAME]`,
//! `[policy.NAME]`, `[[load]]`, `[[fact]]`, `[[blacklist]]`; keys are those of the objects, with `-` or `_`.

use crate::engine::Object;
use crate::object::{AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Vm, Wrong};
use crate::policy::read_table;
use crate::problem::{Problem, Problems, nearest};
use crate::unit::ExternalUnit;
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// Attack: a file without end.
const LARGEST: usize = 64 << 20;
/// Attack: a count without end.
const COUNT: i64 = 1_000_000;
const TABLES: [&str; 8] = ["cluster", "host", "vm", "group", "policy", "load", "fact", "blacklist"];

/// Reads the text of the file known to people as `file`. Policies come first, then clusters, hosts, what is known of
/// them, VMs, groups.
pub fn read(file: &str, text: &str, external: &[ExternalUnit]) -> Result<Vec<Object>, Problems> {
    let mut list = Vec::new();
    if text.len() > LARGEST {
        let what = format!("the file has {} bytes", text.len());
        list.push(Problem { at: 0..0, what, fix: format!("{LARGEST} are enough") });
        return Err(Problems { file: file.into(), text: String::new(), list });
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        list.push(Problem { at: error.span().unwrap_or(0..0), what, fix: String::new() });
    }
    let mut reader = Reader { text, list, objects: Vec::new() };
    for (key, _) in table.get_ref().iter() {
        if !TABLES.contains(&key.get_ref().as_ref()) {
            let fix = nearest(key.get_ref(), TABLES)
                .map_or(String::new(), |near| format!("did you mean `{near}`?"));
            reader.wrong(&key.span(), format!("there is no table `{}`", key.get_ref().escape_debug()), fix);
        }
    }
    let top = table.get_ref();
    if let Some(DeValue::Table(tables)) = top.get("policy").map(Spanned::get_ref) {
        let policies = read_table(tables, external, &mut reader.list);
        reader.objects.extend(policies.into_iter().map(Object::Policy));
    }
    reader.named::<Cluster>(top, "cluster", |it, name| (it.name = name, it.check()).1, Object::Cluster);
    reader.named::<Host>(
        top,
        "host",
        |it, name| (it.name = name, it.check()).1,
        |it| Object::Host(Box::new(it)),
    );
    reader.listed::<Load>(top, "load", Load::check, Object::Load);
    reader.listed::<Fact>(top, "fact", Fact::check, Object::Fact);
    reader.listed::<Blacklist>(top, "blacklist", |_| Ok(()), Object::Blacklist);
    reader.named::<Vm>(top, "vm", |it, name| (it.name = name, it.check()).1, |it| Object::Vm(Box::new(it)));
    let group = |it: &mut AffinityGroup, name| {
        it.name = name;
        if it.cluster.is_empty() {
            it.cluster = "default".into();
        }
        it.check()
    };
    reader.named::<AffinityGroup>(top, "group", group, Object::Group);
    let Reader { mut list, objects, .. } = reader;
    list.sort_by_key(|problem| problem.at.start);
    match list.is_empty() {
        true => Ok(objects),
        false => Err(Problems { file: file.into(), text: text.into(), list }),
    }
}

struct Reader<'t> {
    text: &'t str,
    list: Vec<Problem>,
    objects: Vec<Object>,
}

impl Reader<'_> {
    fn wrong(&mut self, at: &Range<usize>, what: impl Into<String>, fix: impl Into<String>) {
        self.list.push(Problem { at: at.clone(), what: what.into(), fix: fix.into() });
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
                self.wrong(&value.span(), format!("`{kind}` is not a table"), format!("write [{kind}.NAME]"));
            }
            return;
        };
        let mut entries: Vec<_> = tables.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let Some((item, count)) = self.item::<T>(&name.span(), value) else { continue };
            let width = count.unwrap_or(0).saturating_sub(1).to_string().len();
            let names: Vec<String> = match count {
                None => vec![name.get_ref().to_string()],
                Some(count) => (0..count).map(|n| format!("{}-{n:0width$}", name.get_ref())).collect(),
            };
            if self.objects.len() + names.len() > COUNT as usize {
                return self.wrong(&name.span(), format!("a file has {COUNT} objects at most"), "");
            }
            for one in names {
                let mut item = item.clone();
                if let Err(error) = name_and_check(&mut item, one) {
                    self.wrong(&name.span(), error.to_string(), "");
                    break;
                }
                self.objects.push(object(item));
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
            return self.wrong(&value.span(), format!("`{kind}` is not a list"), format!("write [[{kind}]]"));
        };
        for value in entries.iter() {
            let Some((item, _)) = self.item::<T>(&value.span(), value) else { continue };
            match check(&item) {
                Ok(()) => self.objects.push(object(item)),
                Err(error) => self.wrong(&value.span(), error.to_string(), ""),
            }
        }
    }

    /// An object, and its `count`.
    fn item<T: DeserializeOwned>(
        &mut self,
        at: &Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<(T, Option<i64>)> {
        let DeValue::Table(entries) = value.get_ref() else {
            self.wrong(at, "this is not a table", "write its keys below it");
            return None;
        };
        let mut table = plain(entries);
        let count = match table.remove("count") {
            None => None,
            Some(Value::Integer(count @ 1..=COUNT)) => Some(count),
            Some(_) => {
                let place = entries.get("count").map_or(at.clone(), Spanned::span);
                self.wrong(&place, format!("`count` is a number from 1 to {COUNT}"), "");
                return None;
            }
        };
        match Value::Table(table).try_into::<T>() {
            Ok(item) => Some((item, count)),
            Err(error) => {
                let what = error.message().lines().next().unwrap_or("it can't be read").to_string();
                // The message names the key; its place is there.
                let named = entries
                    .iter()
                    .find(|(key, _)| what.contains(&format!("`{}`", key.get_ref().replace('-', "_"))));
                let place = named.map_or_else(|| at.clone(), |(key, _)| key.span());
                let place = if place.end <= self.text.len() { place } else { at.clone() };
                self.wrong(&place, what, "");
                None
            }
        }
    }
}

/// The table without places, its keys with `_`.
fn plain(table: &DeTable<'_>) -> Table {
    table.iter().map(|(key, value)| (key.get_ref().replace('-', "_"), value_of(value.get_ref()))).collect()
}

fn value_of(value: &DeValue<'_>) -> Value {
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
            Value::Array(entries.iter().map(|entry| value_of(entry.get_ref())).collect())
        }
        // Keys of maps, such as properties, are the user's own.
        DeValue::Table(table) => {
            let entries =
                table.iter().map(|(key, value)| (key.get_ref().to_string(), value_of(value.get_ref())));
            Value::Table(entries.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_out() {
        let text = "[host.node]\ncount = 12\ncores = 8\nthreads = 8\n\
            memory-mb = 4096\nnetworks = [\"blue\"]\n\
            [vm.web]\nmemory_mb = 1024\nproperties = { FactFilter = \"t < 3\" }\n\
            [[fact]]\nhost = \"node-03\"\nname = \"t\"\nvalue = 2\n";
        let objects = read("i.toml", text, &[]).unwrap();
        assert_eq!(objects.len(), 14);
        assert!(matches!(&objects[3], Object::Host(host) if host.name == "node-03" && host.cores == 8));
        assert!(matches!(&objects[12], Object::Fact(fact) if fact.value == 2.0));
    }

    #[test]
    fn everything_wrong_is_said_at_its_place() {
        let text = "[host.a]\ncores = 0\n[host.b]\ncoers = 4\n[hots.c]\n[policy.p]\nfilters = [\"x\"]\n";
        let said = read("i.toml", text, &[]).unwrap_err().to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "i.toml:1:7: host a: `cores` is 0; 1 to 65536 will do");
        assert!(lines[1].starts_with("i.toml:4:1: unknown field `coers`"), "{said}");
        assert_eq!(lines[2], "i.toml:5:2: there is no table `hots`; did you mean `host`?");
        assert!(lines[3].starts_with("i.toml:7:12: there is no filter \"x\""), "{said}");
    }
}
