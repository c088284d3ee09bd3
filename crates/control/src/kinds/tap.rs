//! `kind = "tap"`: the host's network stack, by a TAP interface.

use super::{Described, PortControl};
use crate::file::station;
use crate::open::{EngineHandle, OpenError, PAUSE};
use ringway_host::PageChoice;
use ringway_port::tap::{KIND, Settings, open};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{IpNet, Kind, MacAddress, Port, addresses, names};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use tokio::task::JoinHandle;

pub struct Tap;

impl PortControl for Tap {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn keys(&self) -> &'static [&'static str] {
        &["interface", "queues", "mac", "mtu", "offloads", "namespace", "address"]
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let interface = section.parsed("interface", "rw0", |text| names::interface(text).map(String::from));
        if interface.is_none() && !section.has("interface") {
            section.missing("interface", "add interface = \"rw0\", the name it is to have");
        }
        let queues = section.number("queues", 1..=128).unwrap_or(1) as u16;
        let settings = Settings {
            interface: interface.unwrap_or_default(),
            mac: station(section, "mac"),
            mtu: section.number("mtu", 68..=65_521).unwrap_or(1500) as u16,
            offloads: section.boolean("offloads").unwrap_or(true),
            namespace: section.parsed("namespace", "red", |text| names::namespace(text).map(String::from)),
            address: section.parsed("address", "10.0.0.1/24", addresses::interface_address),
        };
        Described { kind: Kind::new(self.name(), &settings), socket: None, queues }
    }

    fn open(
        &self,
        port: &Port,
        engine: EngineHandle,
        _pages: PageChoice,
    ) -> Result<Option<JoinHandle<()>>, OpenError> {
        let settings: Settings = engine.settings(port)?;
        let opened = open(&settings, port.queues);
        let descriptors = opened.map_err(|error| engine.no_door(io::Error::other(error)))?;
        Ok(Some(tokio::spawn(keep(engine, settings, port.queues, descriptors))))
    }

    fn mac(&self, port: &Port) -> Option<MacAddress> {
        port.kind.settings::<Settings>().ok()?.mac
    }

    fn address(&self, port: &Port) -> Option<IpNet> {
        port.kind.settings::<Settings>().ok()?.address
    }

    fn claims(&self, port: &Port) -> Option<(&'static str, String)> {
        let name = self.peer(port);
        (!name.is_empty()).then_some(("interface", name))
    }

    fn needs(&self, port: &Port) -> Option<(&'static str, PathBuf)> {
        let namespace = port.kind.settings::<Settings>().ok()?.namespace?;
        Some(("namespace", ringway_host::namespace_path(&namespace)))
    }

    fn peer(&self, port: &Port) -> String {
        let Ok(Settings { interface, namespace, .. }) = port.kind.settings() else { return String::new() };
        match namespace {
            Some(namespace) => format!("{interface} in {namespace}"),
            None => interface,
        }
    }
}

/// Reports the interface with these `descriptors`, then each interface that replaces it.
async fn keep(mut engine: EngineHandle, settings: Settings, queues: u16, descriptors: Vec<OwnedFd>) {
    engine.arrived(descriptors, true);
    engine.wait().await;
    loop {
        // An interface that is deleted again and again must not keep this task busy.
        tokio::time::sleep(PAUSE).await;
        let again = settings.clone();
        // `open` blocks in the kernel, and may change its thread's network namespace.
        let opened = tokio::task::spawn_blocking(move || open(&again, queues)).await;
        match opened.map_err(io::Error::other).and_then(|opened| opened.map_err(io::Error::other)) {
            Ok(descriptors) => {
                engine.arrived(descriptors, true);
                engine.wait().await;
            }
            Err(error) => engine.trouble(error).await,
        }
    }
}
