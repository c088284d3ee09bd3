//! Mirrors: the keys of `[port.NAME]` that say of which frames the port gets copies.

use super::Fabric;
use super::cross_checks::unknown;
use super::policy::{VLANS, list_of_ranges};
use crate::kinds::{self, link};
use ringway_spec::file::units::Wrong;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Mirror, Mirrored, Policy, Port, To};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Bytes of a frame that are copied: at least those of its headers, as far as a worker has them anyway.
const SNAP: RangeInclusive<u64> = 64..=65_535;

/// The keys that need `mirror` or `mirror-switch`.
pub(super) const DEPENDENT: [&str; 4] = ["mirror-direction", "mirror-vlans", "mirror-snap", "mirror-tag"];

/// Reads what a port gets copies of.
pub(super) fn read(section: &mut Section<'_>) -> Option<Mirror> {
    let name = |text: &str| match text.is_empty() {
        true => Err(("a name is empty".into(), "write ports' names".into())) as Result<String, Wrong>,
        false => Ok(text.to_string()),
    };
    let ports = section.all_parsed("mirror", ("a list of ports", "[\"web\", \"db\"]"), name);
    let switch = section.string("mirror-switch", "main");
    let direction = section.word("mirror-direction", &Mirrored::ALL).unwrap_or_default();
    let vlans = section.ranges("mirror-vlans", VLANS, "[10, \"20-29\"]").unwrap_or_default();
    let snap = section.number("mirror-snap", SNAP).and_then(|snap| u32::try_from(snap).ok());
    let limits = u64::from(*VLANS.start())..=u64::from(*VLANS.end());
    let tag = section.number("mirror-tag", limits).and_then(|tag| u16::try_from(tag).ok());
    if let Some(key) = DEPENDENT.into_iter().find(|key| section.has(key))
        && !section.has("mirror")
        && !section.has("mirror-switch")
    {
        let fix = "add `mirror`, the ports whose frames are copied to this one, or `mirror-switch`";
        section.error(key, format!("`{key}` is there without `mirror`"), fix);
    }
    let most = Policy::MOST_MIRRORED;
    if let Some(count) = ports.as_ref().map(Vec::len).filter(|count| *count > most) {
        let what = format!("`mirror` has {count} ports");
        section.error("mirror", what, format!("use {most} at most, or `mirror-switch`"));
    }
    if ports.as_ref().is_some_and(Vec::is_empty) {
        section.error("mirror", "`mirror` is empty", "name ports, or leave it out");
    }
    let is_there = ports.is_some() || switch.is_some();
    is_there.then(|| Mirror { ports: ports.unwrap_or_default(), switch, direction, vlans, snap, tag })
}

/// The keys of a mirror, as values of a request.
pub(super) fn values(mirror: &Mirror) -> Map<String, Value> {
    let Mirror { ports, switch, direction, vlans, snap, tag } = mirror;
    let listed = (!ports.is_empty()).then(|| ports.join(",").into());
    let of_switch = switch.as_ref().map(|switch| switch.as_str().into());
    let direction = (*direction != Mirrored::Both).then(|| direction.name().into());
    let vlans = (!vlans.is_empty()).then(|| list_of_ranges(vlans).into());
    let all = [
        ("mirror", listed),
        ("mirror-switch", of_switch),
        ("mirror-direction", direction),
        ("mirror-vlans", vlans),
        ("mirror-snap", snap.map(Value::from)),
        ("mirror-tag", tag.map(Value::from)),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect()
}

/// Checks that mirrored ports and switches exist, and that no copies are copied again.
pub(super) fn check(fabric: &Fabric, diagnostics: &Diagnostics) {
    for port in &fabric.ports {
        let Some(mirror) = &port.policy.mirror else { continue };
        check_port(fabric, port, mirror, diagnostics);
    }
}

fn check_port(fabric: &Fabric, port: &Port, mirror: &Mirror, diagnostics: &Diagnostics) {
    let Port { name, kind, to, .. } = port;
    let place = format!("port.{name}.mirror");
    let at = diagnostics.of(&place);
    let passes_by = |kind: &str| kinds::find(kind, &[]).is_some_and(|kind| !kind.is_in_data());
    if passes_by(kind.name()) {
        let fix = "use a port of another kind: the two programs of a pipe have only each other";
        diagnostics.error(&at, format!("port {name}, a pipe, can't get copies"), fix);
    }
    if let Some(To::Patch(other)) = to {
        let what = format!("port {name} mirrors others, and is joined to {other}");
        let fix = "a port that gets copies is on a switch, without `link`, or on nothing";
        diagnostics.error(&at, what, fix);
    }
    // Ports of links have no tables in the file.
    let of_file = |port: &&Port| link::of(port).is_none();
    for own in &mirror.ports {
        match fabric.port(own).filter(of_file) {
            None => {
                let known = fabric.ports.iter().filter(of_file).map(|port| &*port.name);
                unknown(&place, "port", own, known, diagnostics);
            }
            Some(_) if own == name => {
                diagnostics.error(&at, format!("port {name} mirrors itself"), "name other ports");
            }
            Some(other) if other.policy.mirror.is_some() => {
                let what = format!("port {name} mirrors port {own}, which gets copies itself");
                let fix = format!("name the ports that {own} mirrors: copies are not copied again");
                diagnostics.error(&at, what, fix);
            }
            Some(other) if passes_by(other.kind.name()) => {
                let fix = "mirror other ports: the frames of a pipe do not pass through the fabric";
                diagnostics.error(&at, format!("port {own}, a pipe, can't be mirrored"), fix);
            }
            Some(_) => {}
        }
    }
    if let Some(switch) = &mirror.switch
        && !fabric.switches.iter().any(|own| own.name == *switch)
    {
        let known = fabric.switches.iter().map(|switch| &*switch.name);
        unknown(&format!("port.{name}.mirror-switch"), "switch", switch, known, diagnostics);
    }
}

/// The port that gets copies of a port's frames by its name.
pub(super) fn of_port<'f>(name: &str, fabric: &'f Fabric) -> Option<&'f Port> {
    let names = |mirror: &Mirror| mirror.ports.iter().any(|own| own == name);
    fabric.ports.iter().find(|port| port.policy.mirror.as_ref().is_some_and(names))
}

/// The port that gets copies of a switch's frames.
pub(super) fn of_switch<'f>(name: &str, fabric: &'f Fabric) -> Option<&'f Port> {
    let names = |mirror: &Mirror| mirror.switch.as_deref() == Some(name);
    fabric.ports.iter().find(|port| port.policy.mirror.as_ref().is_some_and(names))
}
