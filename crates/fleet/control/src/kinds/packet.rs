//! `kind = "packet"`: an interface of the host, by packet sockets.

use super::{Described, Opening, PortControl};
use crate::open::EngineHandle;
use crate::open::interface::{Conduct, keep};
use ringway_host::PageChoice;
use ringway_port::packet::{KIND, Settings, open};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port};
use std::path::PathBuf;
use std::sync::Arc;

pub struct Packet;

impl PortControl for Packet {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let (interface, namespace) = super::existing_interface(section);
        let settings =
            Settings { interface, namespace, promiscuous: section.boolean("promiscuous").unwrap_or(true) };
        let queues = section.number("queues", 1..=open::QUEUES.into()).unwrap_or(1) as u16;
        Described { kind: Kind::new(self.name(), &settings), socket: None, queues }
    }

    fn adopts(&self) -> bool {
        true
    }

    fn open(&self, port: &Port, engine: EngineHandle, _pages: PageChoice) -> Opening {
        let settings: Settings = engine.settings(port)?;
        let (wanted, queues) = (open::name(&settings), port.queues);
        let open = Arc::new(move || open::open(&settings, queues));
        let conduct = Conduct { keep: true, by_addresses: false, by_mtu: false };
        Ok(Some(tokio::spawn(keep(engine, wanted, conduct, open))))
    }

    fn needs(&self, port: &Port) -> Option<(&'static str, PathBuf)> {
        let Settings { interface, namespace, .. } = port.kind.settings().ok()?;
        Some(super::needs_interface(&interface, namespace.as_deref()))
    }

    fn peer(&self, port: &Port) -> String {
        let settings = port.kind.settings::<Settings>();
        settings
            .map(|Settings { interface, namespace, .. }| super::interface_in(interface, namespace))
            .unwrap_or_default()
    }
}
