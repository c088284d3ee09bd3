//! `[link.NAME]`.

use super::desired::Fabric;
use super::{Outside, Patch, joined, named};
use crate::kinds::link;
use ringway_spec::To;
use ringway_spec::file::{Diagnostics, Section};
use std::collections::BTreeMap;
use toml::de::DeTable;

/// A link: its path in the file, its ports, and the settings of the direction from each.
pub struct Link {
    pub patch: Patch,
    settings: [BTreeMap<String, String>; 2],
}

/// Reads all links. Files that their values name are read by `outside`; without it such values are left out.
pub fn links(top: &DeTable<'_>, outside: Option<&Outside<'_>>, diagnostics: &Diagnostics) -> Vec<Link> {
    let mut list = Vec::new();
    for mut section in named(top, "link", diagnostics) {
        let ports = joined(&mut section, "a link");
        let both = settings(&mut section, outside);
        let mut own: BTreeMap<String, Section<'_>> =
            section.tables("from", "{ a = { delay = \"50ms\" } }").into_iter().collect();
        let mut directions = [both.clone(), both];
        for (port, values) in ports.iter().flatten().zip(&mut directions) {
            let mut from = own.remove(port);
            values.extend(from.iter_mut().flat_map(|from| settings(from, outside)));
            if let Err((key, what, fix)) = link::check(values) {
                let place = from.as_ref().filter(|from| from.has(key)).unwrap_or(&section);
                place.error(key, what, fix);
            }
            from.into_iter().for_each(|from| from.finish(not_of_a_direction));
        }
        for (name, from) in own {
            diagnostics.error(
                &from.at,
                format!("port {name} is not on {}", section.path),
                "name one of its ports",
            );
        }
        let path = section.path.clone();
        section.finish(|_| None);
        list.extend(ports.map(|ports| Link { patch: (path, ports), settings: directions }));
    }
    list
}

fn not_of_a_direction(key: &str) -> Option<String> {
    (key == "ports").then(|| "it belongs to the link".into())
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

/// Adds the ports of the links' directions, and directs the links' ports to them.
pub fn join(fabric: &mut Fabric, links: Vec<Link>) {
    for Link { patch: (path, ports), settings } in links {
        let (name, [one, other]) = (path.trim_start_matches("link."), &*ports) else { continue };
        for ((from, to), settings) in [(one, other), (other, one)].into_iter().zip(settings) {
            let through = Some(To::Patch(link::name(name, from)));
            fabric
                .ports
                .iter_mut()
                .filter(|port| port.name == *from)
                .for_each(|port| port.to = through.clone());
            fabric.ports.push(link::direction(name, from, to, settings));
        }
    }
}
