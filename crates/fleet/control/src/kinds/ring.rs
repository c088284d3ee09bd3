//! `kind = "ring"`: a program.

use super::{Described, Opening, PortControl};
use crate::file::{SLOT_SIZE, SLOTS, shape, socket};
use crate::open::{self, EngineHandle};
use ringway_host::PageChoice;
use ringway_port::ring::{KIND, Settings};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port, Socket, To};

pub struct Ring;

/// The switch of a port that a program has opened on it, and the name that the program gave it. No other port's name
/// has a colon.
pub fn opened(port: &Port) -> Option<(&str, &str)> {
    port.name.split_once(':').filter(|_| port.kind.name() == KIND.name)
}

/// A port that the file does not name, for an end of a function in a chain, or for a program. Without a socket it is
/// for a function of the data process.
pub fn of_function(name: &str, socket: Option<Socket>, to: To) -> Port {
    let settings = Settings { slots: SLOTS, slot_size: SLOT_SIZE };
    Port { socket, ..Port::new(name, Kind::new(KIND.name, &settings), Some(to)) }
}

impl PortControl for Ring {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let socket = Some(socket(section));
        Described { kind: Kind::new(self.name(), &shape(section)), socket, queues: 1 }
    }

    fn adopts(&self) -> bool {
        true
    }

    fn open(&self, port: &Port, mut engine: EngineHandle, pages: PageChoice) -> Opening {
        if opened(port).is_some() {
            let settings: Settings = engine.settings(port)?;
            return Ok(Some(tokio::spawn(open::ring::serve_opener(engine, settings.geometry(), pages))));
        }
        if port.socket.is_none() {
            // Only a function of the data process has it.
            return Ok(None);
        }
        let listener = engine.ring_listener(port)?;
        let settings: Settings = engine.settings(port)?;
        Ok(Some(tokio::spawn(open::ring::serve(engine, listener, settings.geometry(), pages))))
    }

    fn notifies(&self) -> bool {
        true
    }
}
