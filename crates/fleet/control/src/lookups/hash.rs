//! `lookup = "hash"`.

use super::LookupKeys;
use ringway_spec::Kind;
use ringway_spec::file::{Diagnostics, Section};
use ringway_switch::hash::{LOOKUP, Settings};

pub struct Hash;

impl LookupKeys for Hash {
    fn name(&self) -> &'static str {
        LOOKUP.name
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Kind {
        let members = section.strings("members", "[\"a\", \"b\"]");
        let uplink = section.string("uplink", "c");
        if members.as_ref().is_none_or(Vec::is_empty) {
            section.missing("members", "add members = [\"a\", \"b\"], the ports to spread flows over");
        }
        if uplink.is_none() && !section.has("uplink") {
            section.missing("uplink", "add uplink = \"c\", the port that members send to");
        }
        let settings = Settings { members: members.unwrap_or_default(), uplink: uplink.unwrap_or_default() };
        if settings.members.contains(&settings.uplink) {
            let what = format!("port {} is a member too", settings.uplink);
            section.error("uplink", what, "an uplink is not a member");
        }
        Kind::new(self.name(), &settings)
    }

    fn ports(&self, lookup: &Kind) -> Vec<(String, String)> {
        let Settings { members, uplink } = lookup.settings().unwrap_or_default();
        let members = members.into_iter().enumerate().map(|(i, port)| (format!("members.{i}"), port));
        let uplink = (!uplink.is_empty()).then(|| ("uplink".to_string(), uplink));
        members.chain(uplink).collect()
    }
}
