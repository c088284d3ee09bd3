//! Lists of clusters, groups and facts, and all settings of one object.

use super::arguments::Removable;
use super::source::Source;
use crate::command_error::CommandError;
use crate::text::{self, Table, cell};
use ringway_place::engine::Object;
use ringway_place::object::{AffinityGroup, Cluster, Rule};
use ringway_scheduler::kind_and_name;
use ringway_spec::file::nearest;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// A cluster with its size.
#[derive(Serialize)]
struct ClusterRow {
    #[serde(flatten)]
    cluster: Cluster,
    hosts: usize,
    vms: usize,
}

/// Lists clusters, including those that have only hosts.
pub fn clusters(source: &mut Source, json: bool) -> Result<(), CommandError> {
    let (hosts, vms) = (source.hosts()?, source.vms()?);
    let mut described: Vec<Cluster> = Vec::new();
    for object in source.objects(Removable::Cluster)? {
        if let Object::Cluster(cluster) = object {
            described.push(cluster);
        }
    }
    let named: BTreeSet<&String> = hosts.iter().map(|host| &host.cluster).collect();
    let bare = |name: &&String| Cluster { name: (*name).clone(), ..Cluster::default() };
    let is_new = |name: &&String| !described.iter().any(|cluster| cluster.name == ***name);
    let more: Vec<Cluster> = named.into_iter().filter(|name| is_new(name)).map(|name| bare(&name)).collect();
    described.extend(more);
    described.sort_by(|a, b| a.name.cmp(&b.name));
    let row = |cluster: Cluster| ClusterRow {
        hosts: hosts.iter().filter(|host| host.cluster == cluster.name).count(),
        vms: vms.iter().filter(|view| view.vm.cluster == cluster.name).count(),
        cluster,
    };
    let rows: Vec<ClusterRow> = described.into_iter().map(row).collect();
    if json {
        text::json(&rows);
        return Ok(());
    }
    let heads = ["CLUSTER", "POLICY", ">HOSTS", ">VMS", ">INTERVAL", "EXECUTOR", "PROPERTIES"];
    let mut table = Table::new(&heads);
    for ClusterRow { cluster, hosts, vms } in rows {
        let properties: Vec<String> =
            cluster.properties.iter().map(|(name, value)| format!("{name}={value}")).collect();
        table.row(vec![
            cell(&cluster.name),
            cell(&cluster.policy),
            cell(hosts),
            cell(vms),
            cell(format!("{} s", cluster.interval)),
            cell(format!("{:?}", cluster.executor).to_lowercase()),
            cell(properties.join(" ")),
        ]);
    }
    table.print();
    Ok(())
}

/// Lists affinity groups.
pub fn groups(source: &mut Source, json: bool) -> Result<(), CommandError> {
    let groups = source.objects(Removable::Group)?;
    let groups: Vec<&AffinityGroup> = groups
        .iter()
        .filter_map(|it| if let Object::Group(group) = it { Some(group) } else { None })
        .collect();
    if json {
        text::json(&groups);
        return Ok(());
    }
    let rule = |rule: Rule, enforced: bool| match rule {
        Rule::Disabled => "-".to_string(),
        rule => format!("{}{}", format!("{rule:?}").to_lowercase(), if enforced { ", enforced" } else { "" }),
    };
    let listed = |names: &[String], labels: &[String]| {
        let labels = labels.iter().map(|label| format!("label {label}"));
        names.iter().cloned().chain(labels).collect::<Vec<_>>().join(", ")
    };
    let mut table = Table::new(&["GROUP", "CLUSTER", ">PRIORITY", "VM RULE", "VMS", "HOST RULE", "HOSTS"]);
    for group in groups {
        table.row(vec![
            cell(&group.name),
            cell(&group.cluster),
            cell(group.priority),
            cell(rule(group.vm_rule, group.vm_enforcing)),
            cell(listed(&group.vms, &group.vm_labels)),
            cell(rule(group.host_rule, group.host_enforcing)),
            cell(listed(&group.hosts, &group.host_labels)),
        ]);
    }
    table.print();
    Ok(())
}

/// Lists facts that have not expired.
pub fn facts(source: &mut Source, host: Option<&str>, json: bool) -> Result<(), CommandError> {
    let mut hosts = source.hosts()?;
    if let Some(host) = host {
        if !hosts.iter().any(|row| row.name == host) {
            return Err(unknown("host", host, hosts.iter().map(|row| row.name.as_str())));
        }
        hosts.retain(|row| row.name == host);
    }
    if json {
        let facts: serde_json::Map<String, Value> =
            hosts.iter().map(|row| (row.name.clone(), serde_json::json!(row.facts))).collect();
        text::json(&facts);
        return Ok(());
    }
    let mut table = Table::new(&["HOST", "FACT", ">VALUE"]);
    for row in &hosts {
        for (name, value) in &row.facts {
            table.row(vec![cell(&row.name), cell(name), cell(value)]);
        }
    }
    table.print();
    Ok(())
}

/// Shows the settings of an object.
pub fn object(source: &mut Source, kind: Removable, name: &str, json: bool) -> Result<(), CommandError> {
    let objects = source.objects(kind)?;
    let names: Vec<String> = objects.iter().map(|object| kind_and_name(object).1).collect();
    let Some(at) = names.iter().position(|known| known == name) else {
        return Err(unknown(kind.name(), name, names.iter().map(String::as_str)));
    };
    // An object is `{"host": {...}}`.
    let value = serde_json::to_value(&objects[at]).map_err(CommandError::because)?;
    let Some(settings) = value.as_object().and_then(|tagged| tagged.values().next()).cloned() else {
        return Ok(());
    };
    if json {
        text::json(&settings);
        return Ok(());
    }
    let mut table = Table::new(&["SETTING", "VALUE"]);
    for (key, value) in settings.as_object().into_iter().flatten().filter(|(_, value)| !is_empty(value)) {
        let shown = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        table.row(vec![cell(key.replace('_', "-")), cell(shown)]);
    }
    table.print();
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        Value::Number(number) => number.as_u64() == Some(0),
        Value::Bool(true) => false,
    }
}

fn unknown<'k>(kind: &str, name: &str, known: impl Iterator<Item = &'k str>) -> CommandError {
    let fix = nearest(name, known).map_or(String::new(), |near| format!("; did you mean {near}?"));
    CommandError::Unknown(format!("there is no {kind} {}{fix}", name.escape_debug()))
}
