//! `lookup = "static"`.

use super::{LookupKeys, MAC_FIX};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, MacAddress};
use ringway_switch::fixed::{LOOKUP, Settings};

pub struct Static;

impl LookupKeys for Static {
    fn name(&self) -> &'static str {
        LOOKUP.name
    }

    fn keys(&self) -> &'static [&'static str] {
        &["static"]
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
        match mac.parse::<MacAddress>().ok() {
            None => diagnostics.error(&at, format!("\"{mac}\" is not an Ethernet address"), MAC_FIX),
            Some(mac) if mac.is_group() => {
                let fix = "name stations; frames to groups go to every port";
                diagnostics.error(&at, format!("{mac} is a group's address"), fix);
            }
            Some(mac) if entries.iter().any(|(other, _)| *other == mac) => {
                diagnostics.error(&at, format!("{mac} is defined twice"), "keep one");
            }
            Some(mac) => entries.push((mac, port)),
        }
    }
    entries
}
