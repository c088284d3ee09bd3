//! `lookup = "flow"`. The rules are read and checked in `file/flows.rs`, once the ports are known.

use super::LookupKeys;
use ringway_spec::Kind;
use ringway_spec::file::{Diagnostics, Section};
use ringway_switch::flows::{LOOKUP, Settings};

pub struct Flow;

impl LookupKeys for Flow {
    fn name(&self) -> &'static str {
        LOOKUP.name
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Kind {
        let file = section.string("flows", "main.flows");
        let rules = section.string("rules", "priority=5,ip,actions=output:a");
        if file.is_some() && rules.is_some() {
            section.error("rules", "`rules` is there, and `flows` too", "keep one: the text, or its file");
        }
        let (rules, ports) = (rules.unwrap_or_default(), Default::default());
        Kind::new(self.name(), &Settings { rules, file, ports })
    }

    fn ports(&self, _lookup: &Kind) -> Vec<(String, String)> {
        // Flows may name ports that are not there now.
        Vec::new()
    }
}
