//! `lookup = "static"`.

use super::LookupKeys;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, MacAddress, addresses};
use ringway_switch::fixed::{LOOKUP, Settings};

pub struct Static;

impl LookupKeys for Static {
    fn name(&self) -> &'static str {
        LOOKUP.name
    }

    fn read(&self, section: &mut Section<'_>, diagnostics: &Diagnostics) -> Kind {
        Kind::new(self.name(), &Settings { entries: entries(section, diagnostics) })
    }

    fn ports(&self, lookup: &Kind) -> Vec<(String, String)> {
        let Settings { entries } = lookup.settings().unwrap_or_default();
        entries.into_iter().enumerate().map(|(i, (_, port))| (format!("static.{i}"), port)).collect()
    }
}

fn entries(section: &mut Section<'_>, diagnostics: &Diagnostics) -> Vec<(MacAddress, String)> {
    let mut entries: Vec<(MacAddress, String)> = Vec::new();
    for (index, (mac, port)) in
        section.pairs("static", "{ \"02:00:00:00:00:01\" = \"a\" }").into_iter().enumerate()
    {
        let at = diagnostics.of(&format!("{}.static.{index}", section.path));
        match addresses::destination(&mac) {
            Err((what, fix)) => diagnostics.error(&at, what, fix),
            Ok(mac) if mac.is_group() => {
                let fix = "name stations; frames to groups go to every port";
                diagnostics.error(&at, format!("{mac} is a group's address"), fix);
            }
            Ok(mac) if entries.iter().any(|(other, _)| *other == mac) => {
                diagnostics.error(&at, format!("{mac} is defined twice"), "keep one");
            }
            Ok(mac) => entries.push((mac, port)),
        }
    }
    entries
}
