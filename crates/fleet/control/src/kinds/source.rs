//! `kind = "source"`: sends the same frame without end.

use super::{Described, PortControl};
use crate::file::station;
use ringway_frame::LARGEST;
use ringway_port::source::{KIND, SHORTEST, Settings};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, MacAddress, addresses};

pub struct Source;

impl PortControl for Source {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let settings = Settings {
            size: section.size("size", u64::from(SHORTEST)..=u64::from(LARGEST)).unwrap_or(60) as u32,
            to: section
                .parsed("to", "02:00:00:00:00:02", addresses::destination)
                .unwrap_or(MacAddress([2, 0, 0, 0, 0, 2])),
            from: station(section, "from").unwrap_or(MacAddress([2, 0, 0, 0, 0, 1])),
            rate: section.rate("rate", 1..=100_000_000),
        };
        Described { kind: Kind::new(self.name(), &settings), socket: None, queues: 1 }
    }
}
