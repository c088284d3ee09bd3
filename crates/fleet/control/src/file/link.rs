//! `[link.NAME]`.

use super::desired::Fabric;
use super::{Outside, Patch, joined, named};
use crate::kinds::link;
use ringway_spec::To;
use ringway_spec::file::{Diagnostics, Section};
use std::collections::BTreeMap;
use toml::de::DeTable;

/// A link: its name, its path in the file, its two ends, and the settings of the direction from each.
pub struct Link {
    pub name: String,
    pub patch: Patch,
    /// Whether it is the link of a port to its switch.
    pub is_of_port: bool,
    settings: [BTreeMap<String, String>; 2],
}

/// Reads all links. Files that their values name are read by `outside`; without it such values are left out.
pub fn links(top: &DeTable<'_>, outside: Option<&Outside<'_>>, diagnostics: &Diagnostics) -> Vec<Link> {
    let mut list = Vec::new();
    for mut section in named(top, "link", diagnostics) {
        let ends = joined(&mut section, "a link");
        let name = section.path.trim_start_matches("link.").to_string();
        list.extend(read(section, (name, false), ends, outside, diagnostics));
    }
    list
}

/// Reads the key `link` of a port: the link between the port and its switch.
pub fn of_port(
    section: &mut Section<'_>,
    to: Option<&To>,
    outside: Option<&Outside<'_>>,
    diagnostics: &Diagnostics,
) -> Option<Link> {
    let name = section.path.rsplit('.').next()?.to_string();
    let link = section.table("link", "{ rate = \"100mbit\", delay = \"20ms\", loss = \"1%\" }")?;
    let ends = match to {
        Some(To::Switch(switch)) => Some(vec![name.clone(), switch.clone()]),
        _ => {
            let what = format!("{} has a link, but no `switch` at the other end", section.path);
            section.error("link", what, "add `switch`; [link.NAME] joins two ports");
            None
        }
    };
    read(link, (name, true), ends, outside, diagnostics)
}

/// Reads the settings of a link.
fn read(
    mut section: Section<'_>,
    (name, is_of_port): (String, bool),
    ends: Option<Vec<String>>,
    outside: Option<&Outside<'_>>,
    diagnostics: &Diagnostics,
) -> Option<Link> {
    let both = settings(&mut section, outside);
    let mut own: BTreeMap<String, Section<'_>> =
        section.tables("from", "{ a = { delay = \"50ms\" } }").into_iter().collect();
    let mut directions = [both.clone(), both];
    // Values are checked even if the ends are missing.
    let unnamed = [String::new()];
    for (end, values) in ends.as_deref().unwrap_or(&unnamed).iter().zip(&mut directions) {
        let mut from = own.remove(end);
        values.extend(from.iter_mut().flat_map(|from| settings(from, outside)));
        for (key, what, fix) in link::check(values) {
            let place = from.as_ref().filter(|from| from.has(key)).unwrap_or(&section);
            place.error(key, what, fix);
        }
        from.into_iter().for_each(|from| from.finish(not_of_a_direction));
    }
    for (name, from) in own.into_iter().filter(|_| ends.is_some()) {
        diagnostics.error(
            &from.at,
            format!("port {name} is not on {}", section.path),
            "name one of its ports",
        );
    }
    let path = section.path.clone();
    section.finish(not_of_a_direction);
    Some(Link { name, patch: (path, ends?), is_of_port, settings: directions })
}

fn not_of_a_direction(key: &str) -> Option<String> {
    (key == "ports").then(|| "it belongs to [link.NAME]".into())
}

/// The values of a link, or of one of its directions. A value `@FILE` is the content of that file.
fn settings(section: &mut Section<'_>, outside: Option<&Outside<'_>>) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for key in link::KEYS {
        let Some(text) = section.text(key) else { continue };
        let Some(file) = text.strip_prefix('@') else {
            settings.insert(key.to_string(), text);
            continue;
        };
        let Some(outside) = outside else { continue };
        let read = (outside.read)(&outside.folder.join(file));
        match read.and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other)) {
            Ok(text) => drop(settings.insert(key.to_string(), text)),
            Err(error) => {
                section.error(key, format!("{file}: {error}"), "it is relative to the folder of this file");
            }
        }
    }
    settings
}

/// Checks the links' names, and the links of ports, whose other ends are switches.
pub fn check(fabric: &Fabric, links: &[Link], diagnostics: &Diagnostics) {
    for (index, link) in links.iter().enumerate().filter(|(_, link)| link.is_of_port) {
        let at = diagnostics.of(&link.patch.0);
        if links[..index].iter().any(|other| other.name == link.name) {
            let what =
                format!("there is a link {} already, and a port's link has the port's name", link.name);
            diagnostics.error(&at, what, "rename one");
        }
        // A direction is named after the end from which its frames come.
        if fabric.switches.iter().any(|switch| switch.name == link.name) {
            let what =
                format!("there is a switch {} too, so that the link's directions have one name", link.name);
            diagnostics.error(&at, what, "rename the port or the switch");
        }
    }
}

/// Whether an end of a link is a switch.
pub fn is_switch(fabric: &Fabric, end: &str) -> bool {
    fabric.port(end).is_none() && fabric.switches.iter().any(|switch| switch.name == end)
}

/// Adds the ports of the links' directions, and directs the links' ports to them.
///
/// If an end is a switch, the port of the direction to it is on the switch, and what the switch sends to that port goes
/// to the other direction. The two directions then take each other's frames: what is sent to a port at one end
/// leaves from the port at the other.
pub fn join(fabric: &mut Fabric, links: Vec<Link>) {
    for Link { name, patch: (_, ends), settings, .. } in links {
        let [one, other] = &*ends else { continue };
        let are_crossed = is_switch(fabric, one) || is_switch(fabric, other);
        for ((from, to), settings) in [(one, other), (other, one)].into_iter().zip(settings) {
            let through = link::name(&name, if are_crossed { to } else { from });
            let ends = fabric.ports.iter_mut().filter(|port| port.name == *from);
            ends.for_each(|port| port.to = Some(To::Patch(through.clone())));
            let target = match is_switch(fabric, to) {
                true => To::Switch(to.clone()),
                false => To::Patch(to.clone()),
            };
            let mut direction = link::direction(&name, from, target, settings);
            direction.receiver = are_crossed.then(|| link::name(&name, to));
            fabric.ports.push(direction);
        }
    }
}
