//! Every benchmark, by key.

mod ablation;
mod capture;
mod document;
mod fanout;
mod guest;
mod iommu;
mod latency;
mod netmap;
mod notify;
mod pipe;
mod pktgen;
mod ring;
mod scale;
mod senders;
mod sizes;
mod tap;
mod tcpdump;
mod vhost;
mod virtio_user;
mod wire;

use crate::Failure;
use crate::entry::Entry;
use crate::plan::Plan;
use crate::report::Report;
use crate::run::Output;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Benchmarks with a common setup.
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// Its keys, in the order of their measurements.
    pub keys: &'static [Key],
    /// Number of 2 MB huge pages that it needs.
    pub huge_pages: u64,
    /// Whether it creates interfaces, in a separate network namespace.
    pub own_network: bool,
    /// Whether one core is enough.
    pub one_core: bool,
    /// Preparations in the host's network.
    pub prepare: fn() -> Result<(), Failure>,
    /// Seconds that each key, and the preparation, may take in addition to measuring.
    pub setup: f64,
    /// Factor on each key's measuring time.
    pub costs: f64,
    /// Measures the keys that have no measurement of their own.
    pub run: fn(&Plan, &mut Output<'_>) -> Result<(), Failure>,
}

/// A row of the report.
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it shows; after a semicolon, the peer.
    pub what: &'static str,
    /// How it is measured.
    pub measure: Measure,
}

impl Key {
    /// A row that is measured by itself.
    pub const fn new(
        name: &'static str,
        what: &'static str,
        measure: fn(&Plan) -> Result<Entry, Failure>,
    ) -> Key {
        Key { name, what, measure: Row(measure) }
    }
}

/// How a row is measured.
pub enum Measure {
    /// By itself.
    Row(fn(&Plan) -> Result<Entry, Failure>),
    /// With those that name this one, which follow it.
    Several(fn(&Plan) -> Rows),
    /// With the row of this key.
    With(&'static str),
    /// By the group's `run`.
    ByGroup,
}
pub use Measure::{ByGroup, Row, Several, With};

/// The rows of one measurement, in the order of their keys.
pub type Rows = Result<Vec<Entry>, Failure>;

/// Keys, each with its measurement and its description.
macro_rules! keys {
    ($($name:literal: $measure:expr, $what:literal;)*) => {
        &[$($crate::keys::Key { name: $name, measure: $measure, what: $what }),*]
    };
}
pub(crate) use keys;

/// A subject with its own report.
pub struct Subject {
    /// Its name, and its report's: `target/bench/NAME.json`.
    pub name: &'static str,
    /// Its groups.
    pub groups: &'static [Group],
    /// Writes the tables and plots of a report into a folder of pages, if a page has them.
    pub document: Option<Document>,
}

impl Subject {
    /// Its keys with descriptions, in the order of their groups.
    pub fn keys(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        self.groups.iter().flat_map(|group| group.keys).map(|key| (key.name, key.what))
    }
}

/// Writes a report's tables and plots into a folder of pages.
pub type Document = fn(&Report, &Path) -> Result<(), Failure>;

/// All subjects.
pub const SUBJECTS: &[Subject] = &[
    Subject { name: "fabric", groups: FABRIC, document: Some(document::fabric) },
    Subject { name: "click", groups: crate::click::GROUPS, document: Some(document::click) },
    Subject {
        name: "functions",
        groups: crate::functions::GROUPS,
        document: Some(crate::functions::document),
    },
    Subject { name: "vms", groups: crate::vms::GROUPS, document: None },
    Subject { name: "iommu", groups: IOMMU, document: None },
    Subject { name: "nic", groups: crate::nic::GROUPS, document: Some(crate::nic::document) },
    Subject { name: "cards", groups: crate::cards::GROUPS, document: None },
    Subject { name: "tcp", groups: crate::tcp::GROUPS, document: None },
    Subject { name: "exec", groups: crate::exec::GROUPS, document: None },
    Subject { name: "bbr", groups: crate::bbr::GROUPS, document: Some(crate::bbr::document) },
];

const IOMMU: &[Group] = &[Group {
    name: "iommu",
    keys: keys! {
        "static.2m": Row(|plan| iommu::steady(plan, 0)),
            "two minimal guests behind an IOMMU with pages of 2 MB; the same without an IOMMU";
        "static.1g": Row(|plan| iommu::steady(plan, 1)), "the same with pages of 1 GB";
        "static.4k": Row(|plan| iommu::steady(plan, 2)), "the same with pages of 4 KB that are not adjacent";
        "stale": Row(|plan| iommu::steady(plan, 3)),
            "the same with 2048 more pages that are never used; without those";
        "dynamic": Row(iommu::dynamic),
            "two minimal guests that map each buffer separately, for one frame; DPDK's vhost";
        "pvp.2m": Row(|plan| iommu::passing(plan, 0)),
            "frames to a guest that returns them, pages of 2 MB; without an IOMMU, and DPDK's vhost";
        "pvp.1g": Row(|plan| iommu::passing(plan, 1)), "the same with pages of 1 GB";
        "micro.in": Row(|plan| iommu::passing(plan, 2)), "frames to a guest, pages of 2 MB; the same";
        "micro.out": Row(|plan| iommu::passing(plan, 3)), "frames from a guest; the same";
        "micro.loop": Row(|plan| iommu::passing(plan, 4)), "a guest's frames returned to it; the same";
        "micro.lookup": Row(iommu::look_up), "a lookup, by number of mapped pages";
    },
    // At least 100 pairs of slices a key, or 100 times four.
    setup: 150.0,
    huge_pages: HUGE,
    ..QUIET
}];

const FABRIC: &[Group] = &[
    Group {
        name: "vhost",
        keys: keys! {
            "vhost.split.64": Row(|plan| vhost::dpdk(plan, 0)),
                "two minimal guests on vhost-user ports, one worker, split rings, 64 B; DPDK's vhost";
            "vhost.packed.64": Row(|plan| vhost::dpdk(plan, 1)), "the same with packed rings";
            "vhost.split.1500": Row(|plan| vhost::dpdk(plan, 2)), "the same with split rings, 1500 B";
            "vhost.packed.1500": Row(|plan| vhost::dpdk(plan, 3)), "the same with packed rings, 1500 B";
            "vhost.ovs.split.64": Row(|plan| vhost::ovs(plan, 0)),
                "the same guests, split rings, 64 B; Open vSwitch with DPDK, NORMAL and one rule";
            "vhost.ovs.packed.64": Row(|plan| vhost::ovs(plan, 1)), "the same with packed rings";
            "vhost.ovs.split.1500": Row(|plan| vhost::ovs(plan, 2)), "the same with split rings, 1500 B";
            "vhost.ovs.packed.1500": Row(|plan| vhost::ovs(plan, 3)), "the same with packed rings, 1500 B";
        },
        setup: 90.0,
        huge_pages: HUGE,
        ..QUIET
    },
    Group {
        name: "flow",
        keys: keys! {
            "flow.10": Row(|plan| vhost::flows(plan, 10)),
                "two minimal guests, split rings, 64 B, a switch with 10 flows; Open vSwitch with DPDK";
            "flow.10000": Row(|plan| vhost::flows(plan, 10_000)), "the same with 10,000 flows of nine masks";
            "flow.100000": Row(|plan| vhost::flows(plan, 100_000)), "the same with 100,000 flows";
        },
        setup: 120.0,
        huge_pages: HUGE,
        ..QUIET
    },
    Group {
        name: "virtio_user",
        keys: keys! {
            "virtio_user.split.64": Row(|plan| virtio_user::measure(plan, "", 64)),
                "DPDK's virtio-user as front-end of both, split rings, 64 B; DPDK's vhost";
            "virtio_user.packed.64": Row(|plan| virtio_user::measure(plan, ",packed_vq=1", 64)),
                "the same with packed rings";
            "virtio_user.split.1500": Row(|plan| virtio_user::measure(plan, "", 1500)),
                "the same with split rings, 1500 B";
            "virtio_user.packed.1500": Row(|plan| virtio_user::measure(plan, ",packed_vq=1", 1500)),
                "the same with packed rings, 1500 B";
        },
        setup: 90.0,
        huge_pages: HUGE,
        ..QUIET
    },
    Group {
        name: "guest",
        keys: keys! {
            "guest.udp.64": ByGroup,
                "two Linux guests, UDP, frames of 64 B; the same over TAP and a Linux bridge";
            "guest.udp.1500": ByGroup, "the same, frames of 1500 B";
            "guest.rtt": ByGroup, "the same, ping";
            "guest.tcp": ByGroup, "the same, one TCP stream";
        },
        setup: 90.0,
        costs: 6.0,
        own_network: true,
        one_core: true,
        run: guest::uml,
        ..QUIET
    },
    Group {
        name: "guest.qemu",
        keys: keys! {
            "guest.qemu.udp.64": ByGroup,
                "two guests of QEMU, UDP, frames of 64 B; the same over TAP and a Linux bridge";
            "guest.qemu.udp.1500": ByGroup, "the same, frames of 1500 B";
            "guest.qemu.rtt": ByGroup, "the same, ping";
            "guest.qemu.tcp": ByGroup, "the same, one TCP stream";
        },
        setup: 150.0,
        costs: 6.0,
        own_network: true,
        prepare: guest::fetch_kernel,
        one_core: true,
        run: guest::qemu,
        ..QUIET
    },
    Group {
        name: "ring",
        keys: keys! {
            "ring.64": Row(|plan| ring::measure(plan, 64)),
                "program to program through the switch, one worker, 64 B; a copy between the same slots";
            "ring.1500": Row(|plan| ring::measure(plan, 1500)), "the same, 1500 B";
            "slots": Row(ring::slots), "the same, by number of slots in a ring";
            "profile.on": Row(ring::profiled),
                "the same, 64 B, while the worker measures where its time goes; while it does not";
            "features.vlan": Row(ring::vlan),
                "the same, 64 B, between access ports of a VLAN; between ports without policy";
            "features.isolated": Row(ring::isolated),
                "the same, 64 B, from an isolated port; from one without policy";
            "features.antispoof": Row(ring::antispoof),
                "the same, 64 B, from a port with allow-mac and allow; from one without policy";
            "features.rate": Row(ring::rate),
                "the same, 64 B, between ports with rates; between ports without policy";
            "features.mirror": Row(ring::mirror),
                "the same, 64 B, between ports that one without a peer mirrors; between ports without mirror";
            "capture.off": Row(capture::off),
                "the same, 64 B, while another port is captured; while none is";
            "capture.all": Row(capture::all),
                "the same, 64 B, while both ports are captured, whole; while none is";
            "pktgen.tx": Row(pktgen::transmitted),
                "frames of 64 B sent by the packet generator on one core, each checked by its receiver";
        },
        ..QUIET
    },
    Group {
        name: "pipe",
        keys: keys! {
            "pipe.64": Row(pipe::measure), "program to program through a pipe, frames numbered and verified";
        },
        ..QUIET
    },
    Group {
        name: "tap",
        keys: keys! {
            "tap.tcp": Row(tap::tcp),
                "one TCP stream between namespaces through two TAP ports; Linux bridge with veth";
        },
        own_network: true,
        costs: 3.0,
        one_core: true,
        ..QUIET
    },
    Group {
        name: "wire",
        keys: keys! {
            "wire.codec": Row(wire::codec), "frames of 64 B put into VXLAN and taken out, in memory";
            "wire.udp": Row(wire::udp),
                "one TCP stream between namespaces, two TAP and two wire ports (VXLAN); the kernel's VXLAN";
        },
        own_network: true,
        costs: 3.0,
        one_core: true,
        ..QUIET
    },
    Group {
        name: "scale",
        keys: keys! {
            "scale.ports": Row(scale::ports),
                "cost of a frame with 1024 ports, 2 of them active; with 2 ports";
            "workers": Row(scale::workers), "two streams through one worker and through two";
        },
        setup: 60.0,
        ..QUIET
    },
    Group {
        name: "latency",
        keys: keys! {
            "latency.ring": Row(latency::polling), "round trip through the switch, all threads poll";
            "latency.ring.sleeping": Several(latency::sleeping),
                "all threads sleep between frames, p50; a process between two UNIX sockets";
            "latency.ring.sleeping.p99": With("latency.ring.sleeping"), "the same, p99";
            "link.lateness": Row(latency::lateness),
                "how long after its due time a frame leaves an emulated link, p99, all threads poll";
        },
        ..QUIET
    },
    Group {
        name: "switch",
        keys: keys! {
            "switch.fanout": Row(fanout::fanout),
                "broadcast to 1 .. 64 programs, per delivered frame; Linux bridge over veth";
            "switch.fanout.ovs": Row(fanout::beside_ovs),
                "broadcast to 1 .. 64 minimal guests; Open vSwitch with DPDK";
        },
        setup: 90.0,
        costs: 3.0,
        huge_pages: HUGE,
        own_network: true,
        ..QUIET
    },
    Group {
        name: "ablation",
        keys: keys! {
            "ablation.switch": Row(ablation::switch),
                "ns a frame of the switch alone: bursts of 1 .. 64, a table or a lock a frame";
        },
        costs: 2.0,
        one_core: true,
        ..QUIET
    },
    Group {
        name: "sizes",
        keys: keys! {
            "sizes": Row(sizes::measure),
                "rings, vhost-user, cards and a function, frames of 64 .. 1500 B";
        },
        setup: 90.0,
        costs: 4.0,
        huge_pages: HUGE,
        own_network: true,
        ..QUIET
    },
    Group {
        name: "sockets.peer",
        keys: keys! {
            "sockets.peer": Row(senders::beside_rings),
                "a program that sends 64 B by a ring; by a UDP socket, a packet socket, pktgen";
        },
        own_network: true,
        costs: 2.0,
        ..QUIET
    },
    Group {
        name: "pcap",
        keys: keys! {
            "pcap.tcpdump": Row(tcpdump::captured),
                "frames that tcpdump captures without loss at a port; the same by AF_PACKET on veth";
        },
        own_network: true,
        // Six searches of each side.
        setup: 200.0,
        costs: 3.0,
        ..QUIET
    },
    Group {
        name: "netmap",
        keys: keys! {
            "netmap.pktgen": Row(netmap::pktgen),
                "netmap's pkt-gen, unmodified, to another one through a switch, 60 B";
            "netmap.bridge": Row(netmap::bridge),
                "the same through a switch, netmap's bridge and another switch";
            "netmap.guest": Row(netmap::guest),
                "pkt-gen in a Linux guest, on a PCI device's memory, to pkt-gen on the host; from the host";
        },
        // Each slice starts programs that wait a second.
        setup: 60.0,
        costs: 3.0,
        ..QUIET
    },
    Group {
        name: "notify",
        keys: keys! {
            "notify.none": Row(|plan| notify::alone(plan, 0)),
                "request and response between two threads, a notification per frame";
            "notify.batch": Row(|plan| notify::alone(plan, 1)), "the same, one notification per burst";
            "notify.combine": Row(|plan| notify::alone(plan, 2)), "the same, none while an answer is due";
            "notify.moderate": Row(|plan| notify::alone(plan, 3)), "the same, at most one in 20 us";
            "notify.suppress": Row(|plan| notify::alone(plan, 4)),
                "the same, none while the other's flag disables them";
            "notify.poll": Row(|plan| notify::alone(plan, 5)),
                "the same, the flag enables them only before sleep";
            "notify.all": Row(notify::all), "all of these, and a ladder from none to all";
        },
        ..QUIET
    },
];

/// 2 MB pages for three DPDK processes and some guests.
pub const HUGE: u64 = 800;

/// Defaults of most groups.
pub const QUIET: Group = Group {
    name: "",
    keys: &[],
    huge_pages: 0,
    own_network: false,
    one_core: false,
    prepare: || Ok(()),
    setup: 30.0,
    costs: 1.5,
    run: |_, _| Ok(()),
};

/// The folder for temporary folders; the parent process always removes it.
pub static SCRATCH: OnceLock<PathBuf> = OnceLock::new();

/// A folder for sockets and logs, removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder. Its path is short: a socket's path has at most 107 bytes.
    pub fn new() -> std::io::Result<Folder> {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = SCRATCH.get_or_init(std::env::temp_dir).join(format!("{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Leftovers are harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
