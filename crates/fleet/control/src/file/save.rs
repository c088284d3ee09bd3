//! The file that describes what runs: the text of the file that described the fabric last, edited where the fabric
//! was changed by requests since then. Comments, order and spacing of the rest stay.

use super::request::SHORT;
use super::{Fabric, flows, policy};
use crate::kinds::{self, PortControl, link};
use ringway_spec::{Function, Port};
use std::collections::{BTreeMap, BTreeSet};
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// Objects that requests added, by table and name, such as `port.left`: their tables as a file has them.
pub type Added = BTreeMap<String, String>;

/// The text of a file that describes `running`. `text` describes `described`, from which requests led to `running`.
///
/// # Errors
/// The text is not TOML.
pub fn edited(
    text: &str,
    (described, running): (&Fabric, &Fabric),
    added: &Added,
    more: &'static [&'static dyn PortControl],
) -> Result<String, String> {
    let mut file: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    remove_absent(&mut file, running);
    for (path, table) in added {
        add(&mut file, path, table, running)?;
    }
    links(&mut file, described, running);
    carriers(&mut file, described, running, more);
    policies(&mut file, described, running);
    rules(&mut file, described, running);
    configurations(&mut file, described, running);
    Ok(file.to_string())
}

/// Removes tables of objects that requests removed.
fn remove_absent(file: &mut DocumentMut, running: &Fabric) {
    let mut gone = BTreeSet::new();
    for what in ["switch", "port", "function"] {
        let Some(tables) = file.get_mut(what).and_then(Item::as_table_like_mut) else { continue };
        let names: Vec<String> = tables.iter().map(|(name, _)| name.to_string()).collect();
        for name in names.into_iter().filter(|name| !has(running, what, name)) {
            tables.remove(&name);
            gone.insert(name);
        }
    }
    // A worker's list names ports.
    let workers = file.get_mut("worker").and_then(Item::as_table_like_mut);
    for (_, worker) in workers.into_iter().flat_map(|workers| workers.iter_mut()) {
        let ports = worker.as_table_like_mut().and_then(|worker| worker.get_mut("ports")?.as_array_mut());
        if let Some(ports) = ports {
            let stays = |port: &Value| {
                port.as_str().is_none_or(|port| !gone.contains(port) || running.port(port).is_some())
            };
            ports.retain(stays);
        }
    }
}

fn has(fabric: &Fabric, what: &str, name: &str) -> bool {
    match what {
        "switch" => fabric.switches.iter().any(|switch| switch.name == name),
        "port" => fabric.port(name).is_some(),
        _ => fabric.function(name).is_some(),
    }
}

/// Adds the table of an object that a request added, if it is still there.
fn add(file: &mut DocumentMut, path: &str, table: &str, running: &Fabric) -> Result<(), String> {
    let Some((what, name)) = path.split_once('.').filter(|(what, name)| has(running, what, name)) else {
        return Ok(());
    };
    let mut own: DocumentMut = table.parse().map_err(|error: toml_edit::TomlError| error.to_string())?;
    let own = own.get_mut(what).and_then(Item::as_table_like_mut).and_then(|tables| tables.remove(name));
    let Some(mut own) = own else { return Ok(()) };
    if let Some(table) = own.as_table_mut() {
        unplaced(table);
        table.decor_mut().set_prefix("\n");
    }
    if let (Some(table), Some(function)) = (own.as_table_like_mut(), running.function(name))
        && table.get("click").and_then(Item::as_str) == Some(SHORT)
    {
        table.insert("click", text(&function.configuration.text));
    }
    if file.get(what).is_none() {
        let mut tables = Table::new();
        tables.set_implicit(true);
        file.insert(what, Item::Table(tables));
    }
    let tables = file.get_mut(what).and_then(Item::as_table_like_mut);
    tables.into_iter().for_each(|tables| drop(tables.insert(name, own.clone())));
    Ok(())
}

/// Forgets where a table and those in it were in another file: each is written behind the one that it belongs to.
fn unplaced(table: &mut Table) {
    table.set_position(None);
    table.iter_mut().filter_map(|(_, item)| item.as_table_mut()).for_each(unplaced);
}

/// A text, of several lines if it has them.
fn text(text: &str) -> Item {
    Item::Value(text.into())
}

/// The end from which a direction's frames come, and its settings.
type Direction<'f> = (&'f str, BTreeMap<String, String>);

/// Writes the settings of links that requests changed.
fn links(file: &mut DocumentMut, described: &Fabric, running: &Fabric) {
    let mut changed: BTreeMap<&str, Vec<Direction<'_>>> = BTreeMap::new();
    for port in &running.ports {
        let Some((name, from, settings)) = link::of(port) else { continue };
        changed.entry(name).or_default().push((from, settings));
    }
    let known = |name: &str, from: &str| link::of(described.port(&link::name(name, from))?).map(|own| own.2);
    for (name, directions) in changed {
        let differs = |(from, settings): &(&str, _)| known(name, from).is_none_or(|known| known != *settings);
        if !directions.iter().any(differs) {
            continue;
        }
        let Some(table) = link_table(file, name) else { continue };
        link::KEYS.iter().for_each(|key| drop(table.remove(key)));
        table.remove("from");
        let both = |key: &str, value: &str| {
            directions.iter().all(|(_, own)| own.get(key).is_some_and(|own| own == value))
        };
        let mut from = InlineTable::new();
        for (end, settings) in &directions {
            let mut own = InlineTable::new();
            for (key, value) in settings {
                match both(key, value) {
                    true => drop(table.insert(key, text(value))),
                    false => drop(own.insert(key, value.into())),
                }
            }
            if !own.is_empty() {
                from.insert(*end, own.into());
            }
        }
        if !from.is_empty() {
            table.insert("from", Item::Value(from.into()));
        }
    }
}

/// The table of a link, which is of its own or of the object at one of its ends.
fn link_table<'f>(file: &'f mut DocumentMut, name: &str) -> Option<&'f mut dyn TableLike> {
    let has_own = |file: &DocumentMut, what: &str| {
        file.get(what)
            .and_then(|tables| tables.as_table_like()?.get(name)?.as_table_like()?.get("link"))
            .is_some()
    };
    let owner = ["port", "host", "program"].into_iter().find(|what| has_own(file, what));
    let what = owner.unwrap_or("link");
    let table = file.get_mut(what)?.as_table_like_mut()?.get_mut(name)?.as_table_like_mut()?;
    match owner {
        Some(_) => table.get_mut("link")?.as_table_like_mut(),
        None => Some(table),
    }
}

/// Writes carriers that requests changed.
fn carriers(
    file: &mut DocumentMut,
    described: &Fabric,
    running: &Fabric,
    more: &'static [&'static dyn PortControl],
) {
    for port in &running.ports {
        let Some(own) = described.port(&port.name).filter(|own| own.kind != port.kind) else { continue };
        let kind = kinds::find(port.kind.name(), more);
        let is = |carrier| {
            kind.and_then(|kind| kind.with_carrier(own, carrier))
                .is_some_and(|changed| changed.kind == port.kind)
        };
        let tables = file.get_mut("port").and_then(Item::as_table_like_mut);
        let table = tables.and_then(|tables| tables.get_mut(&port.name)?.as_table_like_mut());
        let Some(table) = table else { continue };
        if is(false) {
            table.insert("carrier", Item::Value(false.into()));
        } else if is(true) {
            table.remove("carrier");
        }
    }
}

/// Writes policies on ports that requests changed.
fn policies(file: &mut DocumentMut, described: &Fabric, running: &Fabric) {
    let differs = |port: &&Port| described.port(&port.name).is_none_or(|own| own.policy != port.policy);
    for port in running.ports.iter().filter(differs) {
        let tables = file.get_mut("port").and_then(Item::as_table_like_mut);
        let table = tables.and_then(|tables| tables.get_mut(&port.name)?.as_table_like_mut());
        let Some(table) = table else { continue };
        policy::keys().into_iter().for_each(|key| drop(table.remove(key)));
        for (key, value) in policy::values(&port.policy) {
            let value: Value = match value {
                serde_json::Value::Bool(value) => value.into(),
                serde_json::Value::Number(value) => value.as_i64().unwrap_or_default().into(),
                other => other.as_str().unwrap_or_default().into(),
            };
            table.insert(&key, Item::Value(value));
        }
    }
}

/// Writes the rules of flow tables that requests changed.
fn rules(file: &mut DocumentMut, described: &Fabric, running: &Fabric) {
    for switch in &running.switches {
        let Some(own) = flows::settings(switch) else { continue };
        let known = described.switches.iter().find(|known| known.name == switch.name);
        if known.is_some_and(|known| flows::have_same_rules(known, (switch, running))) {
            continue;
        }
        let tables = file.get_mut("switch").and_then(Item::as_table_like_mut);
        let table = tables.and_then(|tables| tables.get_mut(&switch.name)?.as_table_like_mut());
        let Some(table) = table else { continue };
        table.remove("flows");
        match own.rules.is_empty() {
            true => drop(table.remove("rules")),
            false => drop(table.insert("rules", text(&own.rules))),
        }
    }
}

/// Writes the configurations of functions that requests replaced.
fn configurations(file: &mut DocumentMut, described: &Fabric, running: &Fabric) {
    let differs = |function: &&Function| {
        let own = described.function(&function.name);
        own.is_some_and(|own| own.configuration.text != function.configuration.text)
    };
    for function in running.functions.iter().filter(differs) {
        let tables = file.get_mut("function").and_then(Item::as_table_like_mut);
        let table = tables.and_then(|tables| tables.get_mut(&function.name)?.as_table_like_mut());
        if let Some(table) = table {
            table.remove("config");
            table.insert("click", text(&function.configuration.text));
        }
    }
}

#[cfg(test)]
mod tests;
