//! `lookup = "learning"`.

use super::LookupKeys;
use ringway_spec::Kind;
use ringway_spec::file::{Diagnostics, Section};
use ringway_switch::learning::{LOOKUP, Settings};

pub struct Learning;

impl LookupKeys for Learning {
    fn name(&self) -> &'static str {
        LOOKUP.name
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Kind {
        let ageing = section.duration("ageing", 1_000_000_000..=86_400_000_000_000, "300s");
        let settings = Settings {
            ageing: ageing.map_or(300, |nanoseconds| (nanoseconds / 1_000_000_000) as u32),
            entries: section.number("entries", 1..=1 << 20).unwrap_or(4096) as u32,
            refuse_moves: section.boolean("refuse-moves").unwrap_or(false),
        };
        Kind::new(self.name(), &settings)
    }

    fn ports(&self, _lookup: &Kind) -> Vec<(String, String)> {
        Vec::new()
    }
}
