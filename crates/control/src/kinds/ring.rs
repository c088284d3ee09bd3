//! `kind = "ring"`: a program.

use super::{Described, PortControl};
use crate::file::{shape, socket};
use crate::open::{self, EngineHandle, OpenError};
use ringway_host::PageChoice;
use ringway_port::ring::{KIND, Settings};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port};
use tokio::task::JoinHandle;

pub struct Ring;

impl PortControl for Ring {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn keys(&self) -> &'static [&'static str] {
        &["socket", "slots", "slot-size", "notify", "owner", "group", "mode"]
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let socket = Some(socket(section));
        Described { kind: Kind::new(self.name(), &shape(section)), socket, queues: 1 }
    }

    fn open(
        &self,
        port: &Port,
        engine: EngineHandle,
        pages: PageChoice,
    ) -> Result<Option<JoinHandle<()>>, OpenError> {
        let door = engine.ring_door(port)?;
        let settings: Settings = engine.settings(port)?;
        Ok(Some(tokio::spawn(open::ring::serve(engine, door, settings.geometry(), pages))))
    }

    fn notifies(&self) -> bool {
        true
    }
}
