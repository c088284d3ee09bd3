//! `kind = "tap"`: the host's network stack, by a TAP interface.

use super::{Described, HostSide, Opening, PortControl};
use crate::file::station;
use crate::open::{EngineHandle, PAUSE};
use crate::run_dir;
use ringway_host::PageChoice;
use ringway_port::tap::{KIND, Settings, open};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{IpNet, Kind, MacAddress, Port, addresses, names};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub struct Tap;

impl PortControl for Tap {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        // `[host.NAME]` has the keys of the port that is its first interface.
        let of_host = section.path.strip_prefix("host.").map(String::from);
        let interface = section.parsed("interface", "rw0", |text| names::interface(text).map(String::from));
        if interface.is_none() && !section.has("interface") && of_host.is_none() {
            section.missing("interface", "add interface = \"rw0\", the name it is to have");
        }
        let interface = interface.unwrap_or_else(|| of_host.iter().map(|_| FIRST).collect());
        let queues = section.number("queues", 1..=128).unwrap_or(1) as u16;
        let (namespace, host) = match of_host {
            None => {
                let name = |text: &str| names::namespace(text).map(String::from);
                (section.parsed("namespace", "red", name), section.string("host", "h1"))
            }
            host => (None, host),
        };
        if namespace.is_some() && host.is_some() {
            section.error("namespace", format!("{} has a `host` too", section.path), "keep one");
        }
        let (addresses, all_good) = addresses(section);
        check_labels(section, &interface, &addresses);
        let settings = Settings {
            interface,
            mac: station(section, "mac"),
            mtu: section.number("mtu", 68..=65_521).unwrap_or(1500) as u16,
            offloads: section.boolean("offloads").unwrap_or(true),
            namespace,
            host,
            gateways: gateways(section, all_good.then_some(&*addresses)),
            addresses,
        };
        Described { kind: Kind::new(self.name(), &settings), socket: None, queues }
    }

    fn adopts(&self) -> bool {
        true
    }

    fn open(&self, port: &Port, engine: EngineHandle, _pages: PageChoice) -> Opening {
        let settings: Settings = engine.settings(port)?;
        let opened = (!engine.has_peer()).then(|| open(&settings, port.queues)).transpose();
        let descriptors = opened.map_err(|error| engine.no_door(io::Error::other(error)))?;
        Ok(Some(tokio::spawn(keep(engine, settings, port.queues, descriptors))))
    }

    fn mac(&self, port: &Port) -> Option<MacAddress> {
        port.kind.settings::<Settings>().ok()?.mac
    }

    fn addresses(&self, port: &Port) -> Vec<IpNet> {
        port.kind.settings::<Settings>().map(|settings| settings.addresses).unwrap_or_default()
    }

    fn claims(&self, port: &Port) -> Option<(&'static str, String)> {
        let name = self.peer(port);
        (!name.is_empty()).then_some(("interface", name))
    }

    fn needs(&self, port: &Port) -> Option<(&'static str, PathBuf)> {
        let namespace = port.kind.settings::<Settings>().ok()?.namespace?;
        Some(("namespace", ringway_host::namespace_path(&namespace)))
    }

    fn serves_hosts(&self) -> bool {
        true
    }

    fn host_side(&self, port: &Port) -> Option<HostSide> {
        let Settings { host, interface, addresses, .. } = port.kind.settings().ok()?;
        Some(HostSide { host: host?, interface, addresses })
    }

    fn resolve(&self, port: &mut Port, run: &Path) {
        let Ok(mut settings) = port.kind.settings::<Settings>() else { return };
        if let Some(host) = &settings.host {
            settings.namespace = Some(run_dir::namespace(run, host).display().to_string());
            port.kind = Kind::new(self.name(), &settings);
        }
    }

    fn peer(&self, port: &Port) -> String {
        let Ok(Settings { interface, namespace, host, .. }) = port.kind.settings() else {
            return String::new();
        };
        super::interface_in(interface, host.or(namespace))
    }
}

/// Name of a host's first interface, if it has no other.
const FIRST: &str = "eth0";

/// Reads the addresses; also returns whether all are good.
fn addresses(section: &mut Section<'_>) -> (Vec<IpNet>, bool) {
    let texts = section.one_or_many("address", "addresses", "10.0.0.1/24");
    let is_many = section.has("addresses");
    let place = |index| if is_many { format!("addresses.{index}") } else { "address".into() };
    let good: Vec<IpNet> = texts
        .iter()
        .enumerate()
        .filter_map(|(index, text)| section.checked(&place(index), addresses::interface_address(text)))
        .collect();
    let all_good = good.len() == texts.len();
    (good, all_good)
}

/// Checks that there is room for the labels of further IPv4 addresses, `INTERFACE:1` and so on, which the kernel limits
/// as it limits names.
fn check_labels(section: &mut Section<'_>, interface: &str, addresses: &[IpNet]) {
    let further = addresses.iter().filter(|net| net.addr().is_ipv4()).count().saturating_sub(1);
    let most = names::INTERFACE_NAME.saturating_sub(format!(":{further}").len());
    if further > 0 && interface.len() > most {
        let what = format!("the interface's name \"{interface}\" is too long for several IPv4 addresses");
        section.error("interface", what, format!("use {most} bytes at most"));
    }
}

/// Reads the gateways, at most one of each version, of an interface with these addresses, if they are known.
fn gateways(section: &mut Section<'_>, own: Option<&[IpNet]>) -> Vec<IpAddr> {
    let texts = section.one_or_many("gateway", "gateways", "10.0.0.254");
    let is_many = section.has("gateways");
    let mut gateways: Vec<IpAddr> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let place = if is_many { format!("gateways.{index}") } else { "gateway".into() };
        let Some(gateway) = section.checked(&place, addresses::gateway(text, own)) else { continue };
        if gateways.iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
            let version = if gateway.is_ipv4() { "IPv4" } else { "IPv6" };
            section.error(&place, format!("there are two gateways of {version}"), "keep one");
        } else {
            gateways.push(gateway);
        }
    }
    gateways
}

/// Reports the interface with these `descriptors`, unless one is there from before, then each interface that replaces
/// it.
async fn keep(mut engine: EngineHandle, settings: Settings, queues: u16, descriptors: Option<Vec<OwnedFd>>) {
    if let Some(descriptors) = descriptors {
        engine.arrived(descriptors, true);
    }
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
            Err(error) => engine.report(error).await,
        }
    }
}
