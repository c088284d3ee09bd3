//! `kind = "null"`: discards the frames that it gets.

use super::{Described, PortControl};
use ringway_spec::Kind;
use ringway_spec::file::{Diagnostics, Section};

pub struct Null;

impl PortControl for Null {
    fn name(&self) -> &'static str {
        ringway_port::null::KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<()>().map(drop)
    }

    fn read(&self, _section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        Described { kind: Kind::new(self.name(), &()), socket: None, queues: 1 }
    }
}
