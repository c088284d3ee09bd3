//! `kind = "pipe"`: connects two programs directly.

use super::{Described, Opening, PortControl};
use crate::file::{shape, socket};
use crate::open::{self, EngineHandle};
use ringway_host::PageChoice;
use ringway_port::ring::Settings;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port};

pub struct Pipe;

impl PortControl for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let socket = Some(socket(section));
        Described { kind: Kind::new(self.name(), &shape(section)), socket, queues: 1 }
    }

    fn open(&self, port: &Port, mut engine: EngineHandle, pages: PageChoice) -> Opening {
        let listener = engine.ring_listener(port)?;
        let settings: Settings = engine.settings(port)?;
        Ok(Some(tokio::spawn(open::ring::join(engine, listener, settings.geometry(), pages))))
    }

    fn is_in_data(&self) -> bool {
        false
    }
}
