//! Changes to objects written into the text of an inventory file, whose comments, order and spacing stay.

use crate::engine::Object;
use crate::object::{AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Vm};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value as TomlValue};

/// An object in a file: the kind of its table, and its name, or the keys that tell entries of a list apart.
type Key = (&'static str, Vec<String>);

/// An object's keys that differ from the defaults, and its defaults.
struct Keys {
    own: Map<String, Value>,
    defaults: Map<String, Value>,
}

/// The text of a file with the changes that lead from the objects `before` to those `after`. An error is a change
/// that a file can't express.
pub fn edit(text: &str, before: &[Object], after: &[Object]) -> Result<String, String> {
    let mut file: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    let (old, new) = (by_key(before)?, by_key(after)?);
    for (key, _) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
        match key {
            (kind, name) if is_list(kind) => remove_entry(&mut file, kind, name),
            (kind, name) => {
                expand(&mut file, kind, &name[0]);
                if let Some(tables) = file.get_mut(kind).and_then(Item::as_table_like_mut) {
                    tables.remove(&name[0]);
                }
            }
        }
    }
    for (key, keys) in &new {
        let known = old.get(key);
        if known.is_some_and(|known| known.own == keys.own) {
            continue;
        }
        let (kind, name) = key;
        if *kind == "policy" {
            return Err(format!("policy {} can't be written into an inventory; edit its table", name[0]));
        }
        let before = known.map_or(&keys.defaults, |known| &known.own);
        match is_list(kind) {
            true => entry(&mut file, kind, name, keys)?,
            false => expand(&mut file, kind, &name[0]),
        }
        let table = match is_list(kind) {
            true => find_entry(&mut file, kind, name),
            false => Some(named(&mut file, kind, &name[0])?),
        };
        let Some(table) = table else { continue };
        for (field, value) in keys.own.iter().filter(|(field, value)| before.get(*field) != Some(value)) {
            let is_default = keys.defaults.get(field) == Some(value);
            set(table, field, value, is_default)?;
        }
    }
    Ok(file.to_string())
}

fn is_list(kind: &str) -> bool {
    matches!(kind, "load" | "fact" | "blacklist")
}

/// Keys that tell entries of a list apart.
fn identity(kind: &str) -> &'static [&'static str] {
    if kind == "fact" { &["host", "name"] } else { &["host"] }
}

fn by_key(objects: &[Object]) -> Result<BTreeMap<Key, Keys>, String> {
    objects.iter().map(keys_of).collect()
}

fn keys_of(object: &Object) -> Result<(Key, Keys), String> {
    let one = |name: &String| vec![name.clone()];
    match object {
        Object::Cluster(it) => Ok((("cluster", one(&it.name)), keys(it, &Cluster::default())?)),
        Object::Host(it) => Ok((("host", one(&it.name)), keys(&**it, &Host::default())?)),
        Object::Vm(it) => Ok((("vm", one(&it.name)), keys(&**it, &Vm::default())?)),
        Object::Group(it) => {
            let defaults = AffinityGroup { cluster: "default".into(), ..AffinityGroup::default() };
            Ok((("group", one(&it.name)), keys(it, &defaults)?))
        }
        Object::Policy(it) => Ok((("policy", one(&it.name)), keys(it, &crate::policy::Policy::default())?)),
        Object::Load(it) => Ok((("load", one(&it.host)), keys(it, &Load::default())?)),
        Object::Fact(it) => {
            Ok((("fact", vec![it.host.clone(), it.name.clone()]), keys(it, &Fact::default())?))
        }
        Object::Blacklist(it) => Ok((("blacklist", one(&it.host)), keys(it, &Blacklist::default())?)),
    }
}

fn keys<T: Serialize>(object: &T, defaults: &T) -> Result<Keys, String> {
    let map = |it: &T| match serde_json::to_value(it) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err("an object without keys".to_string()),
        Err(error) => Err(error.to_string()),
    };
    Ok(Keys { own: map(object)?, defaults: map(defaults)? })
}

/// Splits a table with `count` into one for each object, if the object `name` is one of them.
fn expand(file: &mut DocumentMut, kind: &str, name: &str) {
    let Some((base, number)) = name.rsplit_once('-') else { return };
    let Some(tables) = file.get_mut(kind).and_then(Item::as_table_like_mut) else { return };
    let count = |item: &Item| item.as_table_like()?.get("count")?.as_integer();
    let Some(count) = tables.get(base).and_then(count) else { return };
    let width = count.saturating_sub(1).to_string().len();
    let is_one = number.len() == width && number.parse::<i64>().is_ok_and(|number| number < count);
    if !is_one {
        return;
    }
    let Some(mut item) = tables.remove(base) else { return };
    if let Some(table) = item.as_table_like_mut() {
        table.remove("count");
    }
    for index in 0..count {
        tables.insert(&format!("{base}-{index:0width$}"), item.clone());
        // A comment above the table is kept once.
        if let Some(table) = item.as_table_mut() {
            table.decor_mut().set_prefix("\n");
        }
    }
}

/// The table of a named object, which is added if it is missing.
fn named<'f>(file: &'f mut DocumentMut, kind: &str, name: &str) -> Result<&'f mut dyn TableLike, String> {
    let implicit = || {
        let mut tables = Table::new();
        tables.set_implicit(true);
        Item::Table(tables)
    };
    let tables = file.entry(kind).or_insert_with(implicit).as_table_like_mut();
    let tables = tables.ok_or_else(|| format!("`{kind}` is not a table"))?;
    if !tables.contains_key(name) {
        let mut table = Table::new();
        table.decor_mut().set_prefix("\n");
        tables.insert(name, Item::Table(table));
    }
    let table = tables.get_mut(name).and_then(Item::as_table_like_mut);
    table.ok_or_else(|| format!("`{kind}.{name}` is not a table"))
}

fn is_entry(table: &dyn TableLike, kind: &str, name: &[String]) -> bool {
    let keys = identity(kind).iter().zip(name);
    let mut same = keys.map(|(key, name)| table.get(key).and_then(Item::as_str) == Some(name.as_str()));
    same.all(|same| same)
}

fn find_entry<'f>(file: &'f mut DocumentMut, kind: &str, name: &[String]) -> Option<&'f mut dyn TableLike> {
    match file.get_mut(kind)? {
        Item::ArrayOfTables(entries) => entries
            .iter_mut()
            .find(|table| is_entry(*table, kind, name))
            .map(|table| table as &mut dyn TableLike),
        item => item.as_array_mut()?.iter_mut().find_map(|value| {
            let table = value.as_inline_table_mut()?;
            is_entry(table, kind, name).then_some(table as &mut dyn TableLike)
        }),
    }
}

/// Adds an entry of a list with its identity, if it is missing.
fn entry(file: &mut DocumentMut, kind: &str, name: &[String], keys: &Keys) -> Result<(), String> {
    if find_entry(file, kind, name).is_some() {
        return Ok(());
    }
    let list = file.entry(kind).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let identity = || identity(kind).iter().filter_map(|key| Some((*key, keys.own.get(*key)?)));
    match list {
        Item::ArrayOfTables(entries) => {
            let mut table = Table::new();
            identity().try_for_each(|(key, value)| set(&mut table, key, value, false))?;
            entries.push(table);
        }
        item => {
            let entries = item.as_array_mut().ok_or_else(|| format!("`{kind}` is not a list"))?;
            let mut table = InlineTable::new();
            identity().try_for_each(|(key, value)| set(&mut table, key, value, false))?;
            entries.push(table);
        }
    }
    Ok(())
}

fn remove_entry(file: &mut DocumentMut, kind: &str, name: &[String]) {
    match file.get_mut(kind) {
        Some(Item::ArrayOfTables(entries)) => entries.retain(|table| !is_entry(table, kind, name)),
        Some(item) => {
            if let Some(entries) = item.as_array_mut() {
                let is_it = |value: &TomlValue| {
                    value.as_inline_table().is_some_and(|table| is_entry(table, kind, name))
                };
                entries.retain(|value| !is_it(value));
            }
        }
        None => {}
    }
}

/// Sets a key, under the spelling that the table has; a default is left out.
fn set(table: &mut dyn TableLike, field: &str, value: &Value, is_default: bool) -> Result<(), String> {
    let dashed = field.replace('_', "-");
    let key = if table.contains_key(field) { field } else { &dashed };
    if is_default {
        table.remove(key);
        return Ok(());
    }
    let new = written(value).ok_or_else(|| format!("`{field}` has a value that TOML can't express"))?;
    match table.get_mut(key).and_then(Item::as_value_mut) {
        // A comment after the value stays.
        Some(old) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        None => drop(table.insert(key, Item::Value(new))),
    }
    Ok(())
}

fn written(value: &Value) -> Option<TomlValue> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(truth) => (*truth).into(),
        Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None if number.is_f64() => number.as_f64()?.into(),
            None => return None,
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(entries) => entries.iter().map(written).collect::<Option<Array>>()?.into(),
        Value::Object(map) => {
            let known = map.iter().filter(|(_, value)| !value.is_null());
            let entries = known.map(|(key, value)| Some((key.as_str(), written(value)?)));
            entries.collect::<Option<InlineTable>>()?.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{KnownObjects, read};
    use crate::object::{HostStatus, VmStatus};

    const TEXT: &str = "# Our racks.\n[host.node]\ncount = 2   # of one kind\ncores = 8\nthreads = 8\n\
        memory-mb = 4096\n\n# The last one.\n[host.late]\nstatus = \"up\" # for now\n\n\
        [vm.web]\nhost = \"node-0\"\nstatus = \"up\"\n\n\
        [[fact]]\nhost = \"late\"\nname = \"heat\"\nvalue = 70.5\n";

    fn objects(text: &str) -> Vec<Object> {
        read("i.toml", text, &KnownObjects::default()).unwrap()
    }

    fn edited(text: &str, change: impl Fn(&mut Vec<Object>)) -> String {
        let before = objects(text);
        let mut after = before.clone();
        change(&mut after);
        let text = edit(text, &before, &after).unwrap();
        let saved = |all: &[Object]| {
            let mut all: Vec<String> = all.iter().map(|it| format!("{it:?}")).collect();
            all.sort();
            all
        };
        assert_eq!(saved(&objects(&text)), saved(&after), "{text}");
        text
    }

    fn host<'o>(objects: &'o mut [Object], name: &str) -> &'o mut Host {
        let of = |object: &'o mut Object| match object {
            Object::Host(host) if host.name == name => Some(&mut **host),
            _ => None,
        };
        objects.iter_mut().find_map(of).unwrap()
    }

    #[test]
    fn a_change_leaves_everything_else_as_it_was() {
        assert_eq!(edited(TEXT, |_| {}), TEXT);
        let text = edited(TEXT, |all| host(all, "late").status = HostStatus::Maintenance);
        assert_eq!(text, TEXT.replace("status = \"up\" # for now", "status = \"maintenance\" # for now"));
        let back = edited(&text, |all| host(all, "late").status = HostStatus::Up);
        assert_eq!(back, TEXT.replace("status = \"up\" # for now\n", ""));
    }

    #[test]
    fn one_host_of_several_gets_its_own_table() {
        let text = edited(TEXT, |all| host(all, "node-1").status = HostStatus::Maintenance);
        let first = "# Our racks.\n[host.node-0]\ncores = 8\nthreads = 8\nmemory-mb = 4096\n";
        assert!(text.starts_with(first) && text.contains("[host.node-1]\ncores = 8"), "{text}");
        assert_eq!(text.matches("status = \"maintenance\"").count(), 1, "{text}");
        let text = edited(TEXT, |all| {
            all.retain(|object| !matches!(object, Object::Host(host) if host.name == "node-1"));
        });
        assert!(text.contains("[host.node-0]") && !text.contains("node-1"), "{text}");
    }

    #[test]
    fn entries_are_added_changed_and_removed() {
        let entry = Blacklist { host: "late".into(), reason: "smoke".into(), until: Some(7) };
        let text = edited(TEXT, |all| all.push(Object::Blacklist(entry.clone())));
        assert!(text.ends_with("[[blacklist]]\nhost = \"late\"\nreason = \"smoke\"\nuntil = 7\n"), "{text}");
        edited(&text, |all| all.retain(|object| !matches!(object, Object::Blacklist(_))));
        let text = edited(TEXT, |all| {
            for object in all {
                match object {
                    Object::Fact(fact) => fact.value = 71.0,
                    Object::Vm(vm) => (vm.host, vm.moved_at) = (Some("late".into()), Some(5)),
                    _ => {}
                }
            }
        });
        assert!(
            text.contains("value = 71.0\n") && text.contains("host = \"late\"\nstatus = \"up\""),
            "{text}"
        );
        let new = Vm { name: "new".into(), cores: 3, status: VmStatus::Down, ..Vm::default() };
        let text = edited(TEXT, |all| all.push(Object::Vm(Box::new(new.clone()))));
        assert!(text.contains("[vm.new]\ncores = 3\n"), "{text}");
        // Entries within one line are edited there.
        let inline = "host = { a = { threads = 2 } }\nfact = [{ host = \"a\", name = \"t\", value = 1 }]\n";
        let text = edited(inline, |all| host(all, "a").status = HostStatus::Down);
        assert_eq!(text, inline.replace("threads = 2 ", "threads = 2 , status = \"down\" "));
        edited(inline, |all| all.retain(|object| !matches!(object, Object::Fact(_))));
    }

    #[test]
    fn a_policy_is_not_rewritten() {
        let before = objects("[policy.p]\nbase = \"none\"\n");
        let mut after = before.clone();
        if let [Object::Policy(policy)] = after.as_mut_slice() {
            policy.balancer = "OptimalForPowerSaving".into();
        }
        assert!(edit("", &before, &after).unwrap_err().contains("edit its table"));
    }
}
