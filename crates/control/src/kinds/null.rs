//! `kind = "null"`: discards the frames that it gets.

use super::{Described, PortControl};
use crate::open::{EngineHandle, OpenError};
use ringway_host::PageChoice;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port};
use tokio::task::JoinHandle;

pub struct Null;

impl PortControl for Null {
    fn name(&self) -> &'static str {
        ringway_port::null::KIND.name
    }

    fn keys(&self) -> &'static [&'static str] {
        &[]
    }

    fn read(&self, _section: &mut Section<'_>, _notes: &Diagnostics) -> Described {
        Described { kind: Kind::new(self.name(), &()), socket: None, queues: 1 }
    }

    fn open(
        &self,
        _port: &Port,
        _engine: EngineHandle,
        _pages: PageChoice,
    ) -> Result<Option<JoinHandle<()>>, OpenError> {
        Ok(None)
    }
}
