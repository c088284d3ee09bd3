//! What a fabric file asks for.

use crate::place_plugins::Options;
pub use ringway_fabric::proto::Notify;
use ringway_place::object::Cluster;
use ringway_place::policy::Policy;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A fabric as it should be. Lists are in the order of the file; every name that it mentions exists in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// Its name.
    pub name: String,
    /// Its run directory, if the file says.
    pub run: Option<PathBuf>,
    /// Pages for memory that we make ourselves.
    pub huge_pages: HugePages,
    /// Switches.
    pub switches: Vec<Switch>,
    /// Ports.
    pub ports: Vec<Port>,
    /// Guests.
    pub guests: Vec<Guest>,
    /// Functions.
    pub functions: Vec<Function>,
    /// What it says of placement.
    pub placement: Placement,
    /// Workers, at least one.
    pub workers: Vec<Worker>,
    /// What does no harm, and is not as somebody may expect: a line each, with its place.
    pub warnings: Vec<String>,
}

/// What a file says of placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Where units from outside come from.
    pub plugins: Options,
    /// Policies.
    pub policies: Vec<Policy>,
    /// Clusters.
    pub clusters: Vec<Cluster>,
}

/// Pages for memory that we make ourselves: rings of programs, memory of guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// Huge pages if there are free ones.
    #[default]
    Auto,
    /// 2 MB pages.
    Mb2,
    /// 1 GB pages.
    Gb1,
    /// Ordinary pages.
    Off,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// How it finds a frame's port.
    pub lookup: Lookup,
}

/// How a switch finds a frame's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Learns source addresses.
    Learning {
        /// Seconds until a silent address is forgotten.
        ageing: u32,
        /// Addresses that it can hold.
        entries: u32,
    },
    /// Addresses of the file.
    Static {
        /// Address and port name.
        entries: Vec<(Mac, String)>,
    },
    /// Spreads flows over ports.
    Hash {
        /// Port names.
        members: Vec<String>,
        /// Port name.
        uplink: String,
    },
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Where its frames go; `None` for a pipe, whose two programs have only each other.
    pub to: Option<To>,
    /// Name of the worker that takes its frames; any if none.
    pub worker: Option<String>,
    /// How long its frames wait for a full destination, in nanoseconds; as long as its worker says if none.
    pub hold: Option<u64>,
    /// When its peer is notified.
    pub notify: Notify,
}

/// Where a port's frames go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// To this switch.
    Switch(String),
    /// To this port.
    Patch(String),
}

/// Kind of a port, with what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A guest, by virtio-net.
    VhostUser(VhostUser),
    /// The host's stack.
    Tap(Tap),
    /// A program.
    Ring {
        /// Where the program asks for its ring.
        socket: Socket,
        /// Its geometry.
        shape: Shape,
    },
    /// Two programs.
    Pipe {
        /// Where both ask for their ends.
        socket: Socket,
        /// Geometry of both directions.
        shape: Shape,
    },
    /// Swallows frames.
    Null,
    /// Sends the same frame without end.
    Source {
        /// Bytes of the frame.
        size: u32,
        /// Its destination.
        to: Mac,
        /// Its source.
        from: Mac,
        /// Frames a second; as many as go if none.
        rate: Option<u64>,
    },
}

impl Kind {
    /// The name that the file uses.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::VhostUser(_) => "vhost-user",
            Kind::Tap(_) => "tap",
            Kind::Ring { .. } => "ring",
            Kind::Pipe { .. } => "pipe",
            Kind::Null => "null",
            Kind::Source { .. } => "source",
        }
    }

    /// Its socket, if it has one.
    pub fn socket(&self) -> Option<&Socket> {
        match self {
            Kind::VhostUser(vhost) => Some(&vhost.socket),
            Kind::Ring { socket, .. } | Kind::Pipe { socket, .. } => Some(socket),
            Kind::Tap(_) | Kind::Null | Kind::Source { .. } => None,
        }
    }

    fn socket_mut(&mut self) -> Option<&mut Socket> {
        match self {
            Kind::VhostUser(vhost) => Some(&mut vhost.socket),
            Kind::Ring { socket, .. } | Kind::Pipe { socket, .. } => Some(socket),
            Kind::Tap(_) | Kind::Null | Kind::Source { .. } => None,
        }
    }
}

/// A vhost-user port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUser {
    /// Its socket.
    pub socket: Socket,
    /// Whether we listen (the front-end connects), or connect.
    pub server: bool,
    /// Queue pairs at most.
    pub queues: u16,
    /// Address offered to the guest.
    pub mac: Option<Mac>,
    /// MTU offered to the guest.
    pub mtu: Option<u16>,
    /// Features not to offer: names of [`ringway_port::vhost_user::Without`].
    pub without: Vec<String>,
}

/// A TAP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Name of the interface.
    pub interface: String,
    /// Queue pairs.
    pub queues: u16,
    /// Its Ethernet address; one of the kernel's choice if none.
    pub mac: Option<Mac>,
    /// MTU of the interface.
    pub mtu: u16,
    /// Whether checksums and segmentation are left to whoever can do them best.
    pub offloads: bool,
    /// Name or path of the network namespace that the interface lives in; ours if none.
    pub namespace: Option<String>,
    /// Address of the interface.
    pub address: Option<Cidr>,
}

/// A UNIX socket that we make, or find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Where; relative to the run directory.
    pub path: PathBuf,
    /// User name or number that is to own it.
    pub owner: Option<String>,
    /// Group name or number that is to own it.
    pub group: Option<String>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// Geometry of a shared ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Slots of each direction, a power of two.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_size: u32,
}

/// A guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// What runs it.
    pub kind: GuestKind,
    /// Its network devices in order: names of vhost-user ports.
    pub ports: Vec<String>,
    /// Bytes of memory.
    pub memory: u64,
    /// Virtual processors.
    pub cpus: u32,
    /// Its kernel; one that fits the kind if none.
    pub kernel: Option<PathBuf>,
    /// Directory of the kernel's modules.
    pub modules: Option<PathBuf>,
    /// Its initial file system; a small one of ours if none.
    pub initrd: Option<PathBuf>,
    /// A script that runs in it once it is up.
    pub init: Option<PathBuf>,
    /// Words to add to its kernel's command line.
    pub append: Vec<String>,
    /// Addresses of its devices, in the order of its ports.
    pub addresses: Vec<Cidr>,
    /// Whether it starts with the fabric.
    pub start: bool,
}

/// What runs a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestKind {
    /// User-Mode Linux.
    Uml,
    /// QEMU.
    Qemu,
}

/// A function: a Click configuration that runs in a process of its own, on ring ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its configuration.
    pub configuration: Configuration,
    /// The configuration's parameters, names and values.
    pub parameters: Vec<(String, String)>,
    /// Its ports: names of ring ports.
    pub ports: Vec<String>,
    /// Bytes of memory at most.
    pub memory: u64,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// Frames that it handles at once.
    pub burst: u32,
    /// Whether it starts with the fabric.
    pub start: bool,
}

/// A Click configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The file that it was read from.
    pub file: Option<PathBuf>,
    /// Its text.
    pub text: String,
}

impl Function {
    /// What its configuration is called in messages of Click.
    pub fn title(&self) -> &str {
        let file = self.configuration.file.as_ref().and_then(|file| file.to_str());
        file.unwrap_or(&self.name)
    }
}

/// A thread of the data path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// When it sleeps.
    pub poll: Poll,
    /// How long a queue stays polled after its last frame, in nanoseconds.
    pub spin: u64,
    /// How long frames of its ports wait for a full destination, in nanoseconds, where a port doesn't say.
    pub hold: u64,
}

/// When a worker sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// When all its queues are idle.
    #[default]
    Adaptive,
    /// Never.
    Always,
    /// Whenever there is nothing to do at once.
    Never,
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Reads `02:00:00:00:00:01`.
    pub fn read(text: &str) -> Option<Mac> {
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next()?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Mac(bytes))
    }

    /// Whether it names several stations.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An address of an interface, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network's prefix.
    pub prefix: u8,
}

impl Cidr {
    /// Reads `10.0.0.1/24`, `fd00::1/64`.
    pub fn read(text: &str) -> Option<Cidr> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let prefix = prefix.parse().ok()?;
        (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some(Cidr { address, prefix })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Fabric {
    /// Makes relative paths absolute: sockets are relative to the run directory `run`, files of guests to
    /// `folder`, the fabric file's.
    pub fn resolve(mut self, run: &Path, folder: &Path) -> Fabric {
        for port in &mut self.ports {
            if let Some(socket) = port.kind.socket_mut() {
                socket.path = run.join(&socket.path);
            }
        }
        for guest in &mut self.guests {
            let files = [&mut guest.kernel, &mut guest.modules, &mut guest.initrd, &mut guest.init];
            for file in files.into_iter().flatten() {
                *file = folder.join(&file);
            }
        }
        self
    }

    /// The port of this name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// The guest of this name.
    pub fn guest(&self, name: &str) -> Option<&Guest> {
        self.guests.iter().find(|guest| guest.name == name)
    }
}
