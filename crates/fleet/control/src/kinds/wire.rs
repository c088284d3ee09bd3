//! `kind = "wire"`: another host, over UDP (VXLAN, Geneve) or TCP.

use super::{Described, Opening, PortControl};
use crate::open::EngineHandle;
use ringway_host::PageChoice;
use ringway_port::wire::{Dscp, Encapsulation, KIND, SOURCE_PORTS, Settings, open};
use ringway_spec::file::units::Wrong;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port, names};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub struct Wire;

/// Encapsulations by name.
const ENCAPSULATIONS: &[(&str, Encapsulation)] = &[
    ("vxlan", Encapsulation::Vxlan),
    ("geneve", Encapsulation::Geneve),
    ("udp", Encapsulation::Udp),
    ("tcp", Encapsulation::Tcp),
];
/// Source ports of a port that chooses none.
const PORTS: u64 = 16;

impl PortControl for Wire {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let encapsulation = section.word("encapsulation", ENCAPSULATIONS).unwrap_or(Encapsulation::Vxlan);
        let (peer, local) = addresses(section);
        let (port, local_port) = ports(section, encapsulation);
        let vni = section.number("vni", 0..=0xff_ffff);
        if encapsulation.has_network() && vni.is_none() && !section.has("vni") {
            section.missing("vni", "add vni = 1, the number of the network that both ends have");
        }
        only(section, "vni", encapsulation.has_network(), "only VXLAN and Geneve number their networks");
        let is_tcp = encapsulation == Encapsulation::Tcp;
        for key in ["source-ports", "checksum", "dscp", "ttl"] {
            only(section, key, !is_tcp, "it is for UDP");
        }
        only(section, "role", is_tcp, "both ends of UDP are equal");
        let settings = Settings {
            encapsulation,
            peer: SocketAddr::new(peer, port),
            local: SocketAddr::new(local, local_port),
            vni: vni.unwrap_or_default() as u32,
            source_ports: section.number("source-ports", 1..=SOURCE_PORTS.into()).unwrap_or(PORTS) as u16,
            mtu: section.number("mtu", 68..=65_521).map(|mtu| mtu as u16),
            checksum: section.boolean("checksum").unwrap_or(peer.is_ipv6()),
            dscp: section.parsed("dscp", "0", dscp).unwrap_or(Dscp::Fixed(0)),
            ttl: section.number("ttl", 1..=255).map(|ttl| ttl as u8),
            server: section.word("role", &[("server", true), ("client", false)]).unwrap_or(false),
            namespace: section.parsed("namespace", "red", |text| names::namespace(text).map(String::from)),
        };
        Described { kind: Kind::new(self.name(), &settings), socket: None, queues: 1 }
    }

    fn adopts(&self) -> bool {
        true
    }

    fn open(&self, port: &Port, engine: EngineHandle, _pages: PageChoice) -> Opening {
        let settings: Settings = engine.settings(port)?;
        if settings.encapsulation == Encapsulation::Tcp && settings.server {
            let opened = open::listen(&settings).map_err(|error| engine.no_door(io::Error::other(error)))?;
            return Ok(Some(tokio::spawn(serve(engine, opened, settings))));
        }
        Ok(Some(tokio::spawn(keep(engine, settings))))
    }

    /// One end of a wire: where it listens, in which namespace, and for UDP which peer it hears.
    fn claims(&self, port: &Port) -> Option<(&'static str, String)> {
        let Settings { encapsulation, local, peer, namespace, .. } = port.kind.settings().ok()?;
        if peer.ip().is_unspecified() {
            // Its error is reported already.
            return None;
        }
        let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        let protocol = if encapsulation == Encapsulation::Tcp { "TCP" } else { "UDP" };
        Some(("peer", format!("{} at {protocol} {local}{place}", peer.ip())))
    }

    fn needs(&self, port: &Port) -> Option<(&'static str, PathBuf)> {
        let namespace = port.kind.settings::<Settings>().ok()?.namespace?;
        Some(("namespace", ringway_host::namespace_path(&namespace)))
    }

    fn peer(&self, port: &Port) -> String {
        let Ok(Settings { encapsulation, peer, vni, .. }) = port.kind.settings() else {
            return String::new();
        };
        let name = ENCAPSULATIONS.iter().find(|(_, known)| *known == encapsulation);
        let name = name.map_or("", |(name, _)| name);
        if encapsulation.has_network() {
            format!("{name} {vni} to {peer}")
        } else {
            format!("{name} to {peer}")
        }
    }
}

/// Reports a key that another encapsulation has.
fn only(section: &Section<'_>, key: &str, has_it: bool, why: &str) {
    if !has_it && section.has(key) {
        section.error(key, format!("this encapsulation has no `{key}`: {why}"), "remove it");
    }
}

/// One host's address.
fn host(text: &str) -> Result<IpAddr, Wrong> {
    let fix = "write an address such as \"192.0.2.2\" or \"2001:db8::2\"; the port is the key `port`";
    let address: IpAddr =
        text.parse().map_err(|_| (format!("\"{text}\" is not an IP address"), fix.to_string()))?;
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_multicast() || address.is_unspecified() || is_broadcast {
        let what = format!("{address} is not the address of one host");
        return Err((what, "use the address of the other host".into()));
    }
    Ok(address)
}

/// The addresses of the peer and of this end, which are of the same version of IP.
fn addresses(section: &mut Section<'_>) -> (IpAddr, IpAddr) {
    let peer = section.parsed("peer", "192.0.2.2", host);
    if peer.is_none() && !section.has("peer") {
        section.missing("peer", "add peer = \"192.0.2.2\", the address of the other host");
    }
    let local = section.parsed("local", "192.0.2.1", host);
    let any = |like: &IpAddr| match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    if let (Some(peer), Some(local)) = (peer, local)
        && peer.is_ipv4() != local.is_ipv4()
    {
        let what = format!("{local} and the peer's address {peer} are of different versions of IP");
        section.error("local", what, "use two addresses of the same version");
    }
    let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    (peer, local.filter(|local| local.is_ipv4() == peer.is_ipv4()).unwrap_or_else(|| any(&peer)))
}

/// The ports that frames are sent to and received at.
fn ports(section: &mut Section<'_>, encapsulation: Encapsulation) -> (u16, u16) {
    let port = section.number("port", 1..=65_535).map(|port| port as u16);
    if port.is_none() && encapsulation.port().is_none() && !section.has("port") {
        section.missing("port", "add port = 4790: this encapsulation has no port of its own");
    }
    let port = port.or(encapsulation.port()).unwrap_or(1);
    (port, section.number("local-port", 1..=65_535).map_or(port, |local| local as u16))
}

fn dscp(text: &str) -> Result<Dscp, Wrong> {
    if text == "inherit" {
        return Ok(Dscp::Inherit);
    }
    let fix = "use a number from \"0\" to \"63\", or \"inherit\", the inner packet's";
    let number = text.parse().ok().filter(|number| *number < 64);
    number.map(Dscp::Fixed).ok_or_else(|| (format!("`dscp` can't be \"{text}\""), fix.into()))
}

/// Runs what may block on a thread for that.
async fn blocking(
    run: impl FnOnce() -> Result<Vec<OwnedFd>, open::WireError> + Send + 'static,
) -> io::Result<Vec<OwnedFd>> {
    let done = tokio::task::spawn_blocking(run).await;
    done.map_err(io::Error::other).and_then(|done| done.map_err(io::Error::other))
}

/// Opens the sockets, or connects, and does so again when they are gone: also when there is no route yet.
async fn keep(mut engine: EngineHandle, settings: Settings) {
    let is_stream = settings.encapsulation == Encapsulation::Tcp;
    engine.wait().await;
    loop {
        let again = settings.clone();
        let opened = blocking(move || match is_stream {
            true => open::connect(&again).map(|stream| vec![stream]),
            false => open::datagrams(&again),
        });
        match opened.await {
            Ok(descriptors) => {
                // A frame that another `data` has received half of can't go on.
                engine.arrived(descriptors, !is_stream);
                engine.wait().await;
                tokio::time::sleep(crate::open::PAUSE).await;
            }
            Err(error) => engine.report(error).await,
        }
    }
}

/// Accepts the TCP peer, again and again.
async fn serve(mut engine: EngineHandle, listener: TcpListener, settings: Settings) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return engine.report(error).await,
    };
    engine.wait().await;
    loop {
        let accepted = listener.accept().await.and_then(|(stream, from)| Ok((stream.into_std()?, from)));
        match accepted {
            // Attack: another host connects in the peer's place, or keeps the peer from connecting.
            Ok((_, from)) if from.ip() != settings.peer.ip() => {}
            Ok((stream, _)) => match open::accept(stream) {
                Ok(stream) => {
                    engine.arrived(vec![stream], false);
                    engine.wait().await;
                }
                Err(error) => engine.report(io::Error::other(error)).await,
            },
            Err(error) => engine.report(error).await,
        }
    }
}
