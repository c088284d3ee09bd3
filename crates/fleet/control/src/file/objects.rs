//! Switches and ports that are added and removed at run time: `[switch.NAME]` and `[port.NAME]` as JSON, read and
//! checked as the tables of a file are.

use super::link::Link;
use super::{
    Fabric, Host, Outside, cross_checks, external_names, flows, link, mirror, named, opening, policy, port,
    switch,
};
use crate::kinds::link as directions;
use crate::kinds::{self, KINDS, PortControl};
use crate::lookups;
use ringway_spec::file::{Diagnostics, parse, typed_keys_of};
use ringway_spec::{Port, To, names};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Switches and ports that a fabric may have when one more is requested. Attack: requests without end.
const MOST_SWITCHES: usize = 1024;
const MOST_PORTS: usize = 4096;
/// Names that a message lists.
const LISTED: usize = 8;

/// Why an object is not removed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// There is none of that name.
    #[error("there is no {what} \"{name}\"; `ringway {what} list` shows those there are")]
    Unknown {
        /// `switch` or `port`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Others need it.
    #[error("{0}; {1}")]
    Used(String, String),
}

/// Keys of a table, and those of them whose values are strings.
pub type TypedKeys = (Vec<&'static str>, Vec<&'static str>);

/// The keys of `[switch.NAME]`, of every lookup.
pub fn switch_keys() -> TypedKeys {
    let (mut all, mut texts) =
        (vec!["lookup", "forward-reserved", "multicast-snooping", "multicast-fast-leave"], vec!["lookup"]);
    for lookup in lookups::all() {
        let (keys, strings) =
            typed_keys_of("switch.a", |section, diagnostics| lookup.read(section, diagnostics));
        all.extend(keys);
        texts.extend(strings);
    }
    let (keys, strings) = typed_keys_of("switch.a", |section, _| opening::opening(section));
    all.extend(keys);
    texts.extend(strings);
    (all, texts)
}

/// The keys of `[port.NAME]` of a kind, which is one of the project's or of `more`, or of all kinds.
pub fn port_keys(kind: Option<&str>, more: &'static [&'static dyn PortControl]) -> TypedKeys {
    let (mut all, mut texts) = (vec!["kind", "switch", "link", "hold"], vec!["kind", "switch", "hold"]);
    all.extend(policy::keys());
    let mut others = Vec::new();
    let is_meant =
        |known: &&dyn PortControl| known.is_in_file() && kind.is_none_or(|kind| kind == known.name());
    for known in KINDS.iter().chain(more).copied().filter(is_meant) {
        let (keys, strings) =
            typed_keys_of("port.a", |section, diagnostics| known.read(section, diagnostics));
        others.extend(keys.iter().filter(|key| !strings.contains(key)).copied());
        all.extend(keys.into_iter().chain(known.notifies().then_some("notify")));
        texts.extend(strings);
    }
    all.sort_unstable();
    all.dedup();
    // Kinds may read a key of one name in different ways.
    texts.retain(|key| !others.contains(key));
    (all, texts)
}

/// What is read of a request.
pub(super) struct Request {
    name: String,
    /// The table as a file has it.
    pub(super) text: String,
}

/// Reads the name, and writes the other keys as a file has them.
pub(super) fn request(what: &str, mut keys: Map<String, Value>) -> Result<Request, String> {
    let name = match keys.remove("name") {
        Some(Value::String(name)) => name,
        Some(_) => return Err("/name: `name` is a string; write \"name\": \"...\"".into()),
        None => return Err(format!("the {what} has no `name`; add \"name\": \"...\"")),
    };
    names::name(&name).map_err(|(wrong, fix)| format!("/name: {wrong}; {fix}"))?;
    keys.retain(|_, value| !value.is_null());
    let file = BTreeMap::from([(what, BTreeMap::from([(&*name, keys)]))]);
    let text = toml::to_string(&file).map_err(|error| error.to_string())?;
    Ok(Request { name, text })
}

/// How a table is called.
pub(crate) fn table_name(what: &str, name: &str) -> String {
    format!("{what}.{name}")
}

/// The table of a switch or port that a request's keys describe, `what.NAME` and as a file has it.
pub(crate) fn table_of(what: &str, keys: Map<String, Value>) -> Option<(String, String)> {
    let Request { name, text } = request(what, keys).ok()?;
    Some((table_name(what, &name), text))
}

/// Checks that there is room for one more.
fn has_room(what: &str, plural: &str, count: usize, most: usize) -> Result<(), String> {
    let full =
        || format!("there are {count} {plural}, of {most} at most; remove one: `ringway {what} remove`");
    (count < most).then_some(()).ok_or_else(full)
}

fn in_use(what: &str, name: &str) -> String {
    format!("/name: there is a {what} {name} already; use another name, or remove that one first")
}

/// The fabric with the switch that a request's keys describe.
///
/// # Errors
/// All errors in the request, each with the JSON pointer of its value.
pub fn with_switch(
    keys: Map<String, Value>,
    fabric: &Fabric,
    host: &Host,
    outside: &Outside<'_>,
) -> Result<Fabric, String> {
    let Request { name, text } = request("switch", keys)?;
    has_room("switch", "switches", fabric.switches.len(), MOST_SWITCHES)?;
    if fabric.switches.iter().any(|switch| switch.name == name) {
        return Err(in_use("switch", &name));
    }
    let diagnostics = Diagnostics::default();
    let mut target = fabric.clone();
    let table = parse(&text, usize::MAX, &diagnostics);
    for section in named(table.get_ref(), "switch", &diagnostics) {
        switch(section, &mut target, &diagnostics);
    }
    let is_link = fabric.ports.iter().filter_map(directions::of).any(|(link, ..)| link == name);
    if is_link && fabric.port(&name).is_some() {
        let what = format!("port {name} has a link, whose directions are named after its ends");
        diagnostics.error(&diagnostics.of(&format!("switch.{name}")), what, "use another name");
    }
    flows::check(&target, &diagnostics);
    flows::read(&mut target, fabric.switches.len(), (&text, Some(outside)), &diagnostics);
    cross_checks::added_switch(&target, host, &diagnostics);
    external_names::check_openings(&target, outside, &diagnostics);
    match diagnostics.has_errors() {
        true => Err(diagnostics.into_messages(&format!("switch.{name}"))),
        false => Ok(target),
    }
}

/// The fabric with the port that a request's keys describe, and with its link to its switch, if it has one. Its paths
/// are absolute.
///
/// # Errors
/// All errors in the request, each with the JSON pointer of its value.
pub fn with_port(
    keys: Map<String, Value>,
    fabric: &Fabric,
    host: &Host,
    outside: &Outside<'_>,
) -> Result<Fabric, String> {
    let Request { name, text } = request("port", keys)?;
    has_room("port", "ports", fabric.ports.len(), MOST_PORTS)?;
    if fabric.port(&name).is_some() {
        return Err(in_use("port", &name));
    }
    let diagnostics = Diagnostics::default();
    let mut target = fabric.clone();
    let mut links = Vec::new();
    let table = parse(&text, usize::MAX, &diagnostics);
    for section in named(table.get_ref(), "port", &diagnostics) {
        let read = port::port(section, (Some(outside), &diagnostics), host.kinds, &mut links);
        target.ports.extend(read);
    }
    check_port(&name, &mut target, links, (host, outside), &diagnostics);
    if diagnostics.has_errors() {
        return Err(diagnostics.into_messages(&format!("port.{name}")));
    }
    if let Some(run) = host.run_of(&target) {
        target
            .ports
            .iter_mut()
            .filter(|port| port.name == name)
            .for_each(|port| Fabric::resolve_port(port, &run));
    }
    Ok(target)
}

/// Checks a new port, the fabric's last one, and joins its links.
fn check_port(
    name: &str,
    target: &mut Fabric,
    links: Vec<Link>,
    (host, outside): (&Host, &Outside<'_>),
    diagnostics: &Diagnostics,
) {
    let Some(port) = target.ports.last().filter(|port| port.name == name) else { return };
    let kind = kinds::find(port.kind.name(), host.kinds);
    if port.to.is_none() && port.policy.mirror.is_none() && kind.is_some_and(|kind| kind.is_in_data()) {
        let fix = "add `switch`; a port of a patch, a link or a chain comes with the file: `ringway apply`";
        diagnostics.error(
            &diagnostics.of(&format!("port.{name}")),
            format!("port.{name} has no `switch`"),
            fix,
        );
    }
    let has_link = |port: &Port| directions::of(port).is_some_and(|(link, ..)| link == name);
    if !links.is_empty() && target.ports.iter().any(has_link) {
        let at = diagnostics.of(&format!("port.{name}.link"));
        let what = format!("there is a link {name} already, and a port's link has the port's name");
        diagnostics.error(&at, what, "use another name");
    }
    let known = target.ports.len() - 1;
    external_names::check_ports(&target.ports[known..], target, (outside, host), diagnostics);
    cross_checks::added_port(target, links, host, diagnostics);
}

/// The fabric without a switch.
///
/// # Errors
/// There is none, or it has ports.
pub fn without_switch(name: &str, fabric: &Fabric) -> Result<Fabric, RemoveError> {
    if !fabric.switches.iter().any(|switch| switch.name == name) {
        return Err(RemoveError::Unknown { what: "switch", name: name.into() });
    }
    let is_on = |port: &&Port| matches!(&port.to, Some(To::Switch(switch)) if switch == name);
    let ports: Vec<&str> = fabric.ports.iter().filter(is_on).map(|port| &*port.name).collect();
    if !ports.is_empty() {
        let shown = ports[..ports.len().min(LISTED)].join(", ");
        let (s, more) = (if ports.len() == 1 { "" } else { "s" }, ports.len().saturating_sub(LISTED));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let what = format!("switch {name} has the port{s} {shown}{more}");
        return Err(RemoveError::Used(what, "remove its ports first: `ringway port remove`".into()));
    }
    if let Some(Port { name: by, .. }) = mirror::of_switch(name, fabric) {
        return Err(RemoveError::Used(format!("port {by} mirrors switch {name}"), END_MIRROR.into()));
    }
    let mut target = fabric.clone();
    target.switches.retain(|switch| switch.name != name);
    target.openings.remove(name);
    Ok(target)
}

/// The fabric without a port, and without its link to its switch.
///
/// # Errors
/// There is none, or another object needs it.
pub fn without_port(name: &str, fabric: &Fabric) -> Result<Fabric, RemoveError> {
    let Some(port) = fabric.port(name) else {
        return Err(RemoveError::Unknown { what: "port", name: name.into() });
    };
    if let Some((what, fix)) = needed(port, fabric) {
        return Err(RemoveError::Used(what, fix.into()));
    }
    let mut target = fabric.clone();
    let is_its_link = |port: &Port| directions::of(port).is_some_and(|(link, ..)| link == name);
    target.ports.retain(|port| port.name != name && !is_its_link(port));
    Ok(target)
}

const END_MIRROR: &str = "change what that port mirrors: `ringway port set`";
const CHANGE_FLOWS: &str = "change them first: `ringway flow`";
const CHANGE_FILE: &str = "take it out of the file, and use `ringway apply`";

/// What needs a port, and the remedy.
fn needed(port: &Port, fabric: &Fabric) -> Option<(String, &'static str)> {
    let name = &port.name;
    if let Some((link, ..)) = directions::of(port) {
        return Some((format!("port {name} is a direction of link {link}"), CHANGE_FILE));
    }
    if let Some(guest) = fabric.guests.iter().find(|guest| guest.ports.contains(name)) {
        return Some((format!("port {name} is guest {}'s", guest.name), CHANGE_FILE));
    }
    if let Some(function) = fabric.functions.iter().find(|own| own.fabric_ports().contains(name)) {
        let fix = "destroy the function first: `ringway function destroy`";
        let fix = if function.chained { CHANGE_FILE } else { fix };
        return Some((format!("port {name} is function {}'s", function.name), fix));
    }
    if let Some(program) = fabric.programs.iter().find(|program| program.port == *name) {
        return Some((format!("port {name} is program {}'s", program.name), CHANGE_FILE));
    }
    if fabric.host(name).is_some() {
        return Some((format!("port {name} is the interface of host {name}"), CHANGE_FILE));
    }
    if let Some(Port { name: by, .. }) = mirror::of_port(name, fabric) {
        return Some((format!("port {by} mirrors port {name}"), END_MIRROR));
    }
    for switch in &fabric.switches {
        if lookups::ports(&switch.lookup).iter().any(|(_, named)| named == name) {
            return Some((format!("the lookup of switch {} names port {name}", switch.name), CHANGE_FILE));
        }
        if flows::name_port(switch, name, fabric) {
            return Some((format!("flows of switch {} name port {name}", switch.name), CHANGE_FLOWS));
        }
    }
    if let Some(chain) = fabric.chains.iter().find(|chain| chain.ports.contains(name)) {
        return Some((format!("port {name} is at an end of chain {}", chain.name), CHANGE_FILE));
    }
    match &port.to {
        Some(To::Patch(other)) => match other.split_once('/') {
            // The link between a port and its switch is the port's own.
            Some((link, _)) if link == name && has_switch(link, fabric) => None,
            Some((link, _)) => Some((format!("port {name} is on link {link}"), CHANGE_FILE)),
            None => Some((format!("port {name} is patched to port {other}"), CHANGE_FILE)),
        },
        _ => None,
    }
}

/// Whether one end of a link is a switch.
fn has_switch(link: &str, fabric: &Fabric) -> bool {
    let ends = fabric.ports.iter().filter(|port| directions::of(port).is_some_and(|(own, ..)| own == link));
    ends.filter_map(directions::of).any(|(_, from, _)| link::is_switch(fabric, from))
}
