//! The kinds of port on the side of `control`: how each is read from the file, and how its peers connect.
//!
//! The data path's side of a kind is `port/KIND/`. [`KINDS`] has a row for each.

mod e1000;
pub(crate) mod link;
mod null;
mod packet;
mod pcap;
mod pipe;
pub(crate) mod ring;
mod ring_pci;
mod source;
mod tap;
mod vhost_user;
mod wire;
mod xdp;

use crate::migration::MovingPort;
use crate::open::{EngineHandle, OpenError};
use ringway_host::PageChoice;
use ringway_linux_guests::Interface;
use ringway_spec::file::{Diagnostics, Section, keys_of};
use ringway_spec::{IpNet, Kind, MacAddress, Port, Socket, names};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;

/// Every kind of the project.
pub const KINDS: &[&dyn PortControl] = &[
    &vhost_user::VhostUser,
    &e1000::E1000,
    &tap::Tap,
    &packet::Packet,
    &xdp::Xdp,
    &wire::Wire,
    &ring::Ring,
    &ring_pci::RingPci,
    &link::Link,
    &pipe::Pipe,
    &null::Null,
    &pcap::Pcap,
    &source::Source,
];

/// The task of a port that reports its peers; `None` for a port that has no peers.
pub type Opening = Result<Option<JoinHandle<()>>, OpenError>;

/// A kind of port.
pub trait PortControl: Sync {
    /// Its name in the file.
    fn name(&self) -> &'static str;

    /// Checks that this program can read settings of this kind that another program wrote.
    ///
    /// # Errors
    /// The reason why it can't.
    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error>;

    /// Its keys in addition to those of every kind.
    fn keys(&self) -> Vec<&'static str> {
        let notify = self.notifies().then_some("notify");
        let read = keys_of("port.a", |section, diagnostics| self.read(section, diagnostics));
        read.into_iter().chain(notify).collect()
    }

    /// Reads its keys, each whether or not the file has it, and notes their errors. A wrong value is replaced by a
    /// valid one, so that the rest of the file can be checked.
    fn read(&self, section: &mut Section<'_>, diagnostics: &Diagnostics) -> Described;

    /// Opens the port: creates its socket or interface, and starts the task that reports its peers to `engine`. Memory
    /// for peers is allocated in `pages`.
    ///
    /// # Errors
    /// The port can't work.
    fn open(&self, _port: &Port, _engine: EngineHandle, _pages: PageChoice) -> Opening {
        Ok(None)
    }

    /// Whether its opener goes on with a peer that a former `control` process had ([`EngineHandle::has_peer`]). If not,
    /// the peer must connect again.
    fn adopts(&self) -> bool {
        false
    }

    /// Whether a peer that is detached when `data` ends comes again by itself. If not, a guest loses its device.
    fn reconnects(&self) -> bool {
        true
    }

    /// Checks that this program can go on with a peer that another program had: `records` are the messages that the
    /// keeper has of it.
    ///
    /// # Errors
    /// The reason why it can't, for people.
    fn continues(&self, _port: &Port, _records: &[&[u8]]) -> Result<(), String> {
        Ok(())
    }

    /// Adds what `data` needs for a peer that arrived with `descriptors`, the first of which is its socket.
    ///
    /// # Errors
    /// The system refuses it.
    fn complete(&self, _port: &Port, _descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
        Ok(())
    }

    /// The port with its carrier on or off, if its peer can see a carrier.
    fn with_carrier(&self, _port: &Port, _carrier: bool) -> Option<Port> {
        None
    }

    /// Whether its peer is notified, so that it has the key `notify`.
    fn notifies(&self) -> bool {
        false
    }

    /// Whether a port can become the other while its peer stays. They differ, but not in their workers.
    fn changes(&self, _from: &Port, _to: &Port) -> bool {
        false
    }

    /// Whether a port of the file can have this kind; ports of other kinds follow from other tables.
    fn is_in_file(&self) -> bool {
        true
    }

    /// Whether its frames pass the data path.
    fn is_in_data(&self) -> bool {
        true
    }

    /// The Ethernet address of its peer, which must be unique.
    fn mac(&self, _port: &Port) -> Option<MacAddress> {
        None
    }

    /// The IP addresses of its peer, which must be unique on its network.
    fn addresses(&self, _port: &Port) -> Vec<IpNet> {
        Vec::new()
    }

    /// Key and value of a name on the host that must be unique among ports, other than the socket's path.
    fn claims(&self, _port: &Port) -> Option<(&'static str, String)> {
        None
    }

    /// Key and path of a file on the host that must exist.
    fn needs(&self, _port: &Port) -> Option<(&'static str, PathBuf)> {
        None
    }

    /// Whether a guest can have the port.
    fn serves_guests(&self) -> bool {
        false
    }

    /// The guest's side of the port, if a guest can have it.
    fn guest_side(&self, _port: &Port) -> Option<GuestSide> {
        None
    }

    /// What matters of a guest's port for another one that takes over its guest while it runs, if that is possible.
    fn moving(&self, _port: &Port) -> Option<MovingPort> {
        None
    }

    /// Whether its ports can be interfaces of hosts, so that it has the key `host`.
    fn serves_hosts(&self) -> bool {
        false
    }

    /// The port's interface in a host of the fabric, if it has one.
    fn host_side(&self, _port: &Port) -> Option<HostSide> {
        None
    }

    /// Completes the settings of a port when the run directory is known.
    fn resolve(&self, _port: &mut Port, _run: &Path) {}

    /// Where its peer connects, for messages.
    fn peer(&self, port: &Port) -> String {
        port.socket.as_ref().map(|socket| socket.path.display().to_string()).unwrap_or_default()
    }
}

/// A port as its kind read it from the file.
pub struct Described {
    /// The kind with its settings.
    pub kind: Kind,
    /// Its socket, if the kind has one.
    pub socket: Option<Socket>,
    /// Queue pairs.
    pub queues: u16,
}

/// A guest's side of its port.
pub struct GuestSide {
    /// Its network interface, without an address.
    pub interface: Interface,
    /// Its network card, named after the driver in Linux.
    pub nic: &'static str,
    /// Bytes of memory that the guest may share.
    pub memory: u64,
}

/// A port's interface in a host.
pub struct HostSide {
    /// The host.
    pub host: String,
    /// The interface.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
}

/// Reads the keys of an interface that the host has already: its name and its network namespace.
fn existing_interface(section: &mut Section<'_>) -> (String, Option<String>) {
    let interface = section.parsed("interface", "eth0", |text| names::interface(text).map(String::from));
    if interface.is_none() && !section.has("interface") {
        section.missing("interface", "add interface = \"eth0\", the name that `ip link` shows");
    }
    let namespace = section.parsed("namespace", "red", |text| names::namespace(text).map(String::from));
    (interface.unwrap_or_default(), namespace)
}

/// Has a folder for each interface of this process's network namespace; that of /sys is another one's at times.
pub const INTERFACES: &str = "/proc/sys/net/ipv4/conf";

/// The file that exists as long as an interface does in this namespace; that of another one if it has one.
fn needs_interface(interface: &str, namespace: Option<&str>) -> (&'static str, PathBuf) {
    match namespace {
        Some(namespace) => ("namespace", ringway_host::namespace_path(namespace)),
        None => ("interface", Path::new(INTERFACES).join(interface)),
    }
}

/// An interface and its place, for messages.
fn interface_in(interface: String, namespace: Option<String>) -> String {
    match namespace {
        Some(namespace) => format!("{interface} in {namespace}"),
        None => interface,
    }
}

/// The kind of this name among those of the project and `more`.
pub fn find(name: &str, more: &'static [&'static dyn PortControl]) -> Option<&'static dyn PortControl> {
    KINDS.iter().chain(more).copied().find(|kind| kind.name() == name)
}
