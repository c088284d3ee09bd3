//! What the API says: shapes of its JSON. All numbers are plain; times are in nanoseconds, rates are the
//! reader's.

use ringway_spec::MacAddress;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The fabric as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FabricView {
    /// Its name.
    pub name: String,
    /// The file that describes it.
    pub file: String,
    /// Its run directory.
    pub run: String,
    /// Version of the program.
    pub version: String,
    /// Process number of `control`.
    pub pid: u32,
    /// Process number of `data`; 0 while it is being started again.
    pub data_pid: u32,
    /// How often `data` had to be started again.
    pub restarts: u64,
    /// Nanoseconds since the fabric came up.
    pub uptime: u64,
    /// Its switches.
    pub switches: Vec<SwitchView>,
    /// Its workers.
    pub workers: Vec<WorkerView>,
    /// How many ports it has.
    pub ports: usize,
    /// How many guests it has.
    pub guests: usize,
    /// How many functions it has.
    #[serde(default)]
    pub functions: usize,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SwitchView {
    /// Its name.
    pub name: String,
    /// How it finds a frame's port: `learning`, `static` or `hash`.
    pub lookup: String,
    /// Names of its ports.
    pub ports: Vec<String>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    /// Its name.
    pub name: String,
    /// Queues it serves.
    pub queues: usize,
    /// Those of them that it polls now.
    pub active: usize,
    /// Turns since its start.
    pub turns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Nanoseconds of turns in which frames moved.
    pub busy: u64,
    /// What is wrong with it; empty if nothing is.
    #[serde(default)]
    pub note: String,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortView {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// `waiting` (no peer), `attached` (a peer, not ready yet) or `up`.
    pub state: String,
    /// Where its peer comes in: a socket's path, an interface's name.
    pub peer: String,
    /// Where its frames go: `switch main`, `patch b`; empty for a pipe.
    pub to: String,
    /// The worker of its first queue; empty without one.
    pub worker: String,
    /// What was agreed with the peer.
    pub detail: String,
    /// Why it last lost its peer, or has none.
    pub reason: String,
}

/// Counters of every port at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatsView {
    /// When, in nanoseconds of the host's monotonic clock.
    pub at: u64,
    /// By port, in the order of the file.
    pub ports: Vec<PortStats>,
}

/// Counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortStats {
    /// Its name.
    pub name: String,
    /// Sum over its queues.
    pub total: Counts,
    /// Queue by queue.
    pub queues: Vec<Counts>,
}

/// What is counted of a queue. TX is what the peer sends, RX what it receives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Frames that entered the fabric here.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that left the fabric here.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Notifications from the peer.
    pub kicks: u64,
    /// Notifications to the peer.
    pub interrupts: u64,
    /// Bursts taken.
    pub bursts: u64,
    /// Breaches of protocol by the peer.
    pub faults: u64,
    /// Frames that came in here and were dropped, by reason; reasons without any are left out.
    pub tx_drops: BTreeMap<String, u64>,
    /// Frames for this queue that were dropped, by reason.
    pub rx_drops: BTreeMap<String, u64>,
    /// Addresses that the guest's IOMMU was known to grant.
    #[serde(default)]
    pub iotlb_hits: u64,
    /// Addresses that had to be asked for.
    #[serde(default)]
    pub iotlb_misses: u64,
    /// Times that grants were taken back.
    #[serde(default)]
    pub iotlb_invalidations: u64,
    /// Accesses that the guest's IOMMU refused.
    #[serde(default)]
    pub iotlb_faults: u64,
    /// Bytes in memory of the files that the front-end shares, as far as it shares them; now, not in all.
    #[serde(default)]
    pub memory_resident: u64,
    /// Bytes by which such files grew while the port used them.
    #[serde(default)]
    pub memory_grown: u64,
}

impl Counts {
    /// All drops.
    pub fn drops(&self) -> u64 {
        self.tx_drops.values().chain(self.rx_drops.values()).sum()
    }

    /// Adds another queue's.
    pub fn add(&mut self, other: &Counts) {
        self.tx_frames += other.tx_frames;
        self.tx_bytes += other.tx_bytes;
        self.rx_frames += other.rx_frames;
        self.rx_bytes += other.rx_bytes;
        self.kicks += other.kicks;
        self.interrupts += other.interrupts;
        self.bursts += other.bursts;
        self.faults += other.faults;
        self.iotlb_hits += other.iotlb_hits;
        self.iotlb_misses += other.iotlb_misses;
        self.iotlb_invalidations += other.iotlb_invalidations;
        self.iotlb_faults += other.iotlb_faults;
        self.memory_resident += other.memory_resident;
        self.memory_grown += other.memory_grown;
        for (reason, count) in &other.tx_drops {
            *self.tx_drops.entry(reason.clone()).or_default() += count;
        }
        for (reason, count) in &other.rx_drops {
            *self.rx_drops.entry(reason.clone()).or_default() += count;
        }
    }
}

/// Addresses that a switch knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TableView {
    /// The switch.
    pub switch: String,
    /// What it knows.
    pub entries: Vec<TableEntryView>,
}

/// An address that a switch knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TableEntryView {
    /// The address.
    #[schema(value_type = String)]
    pub mac: MacAddress,
    /// The port it is behind.
    pub port: String,
    /// Seconds since it last sent; none for static entries.
    pub age: Option<u32>,
}

/// A guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GuestView {
    /// Its name.
    pub name: String,
    /// `uml` or `qemu`.
    pub kind: String,
    /// `stopped`, `starting`, `running`, `stopping` or `ended`.
    pub state: String,
    /// What really runs it, such as `QEMU with KVM`.
    pub note: String,
    /// Its process; 0 without one.
    pub pid: u32,
    /// Its ports.
    pub ports: Vec<String>,
    /// The log of its console.
    pub console: String,
    /// Why it isn't running though it should be.
    pub reason: String,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionView {
    /// Its name.
    pub name: String,
    /// `stopped`, `starting`, `running`, or `ended` (and about to be started again).
    pub state: String,
    /// Its process; 0 without one.
    pub pid: u32,
    /// Its ports.
    pub ports: Vec<String>,
    /// The file of its configuration.
    pub configuration: String,
    /// The socket of its handlers, a ControlSocket.
    pub handlers: String,
    /// How often it had to be started again since it was started.
    pub restarts: u64,
    /// Why it last ended, or doesn't run though it should.
    pub reason: String,
}

/// A handler's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HandlerValue {
    /// The value; bytes that are no text are replaced.
    pub value: String,
}

/// A command for a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exec {
    /// One line for its shell, of at most 3500 bytes.
    pub command: String,
    /// Seconds after which it is ended.
    pub timeout: u64,
}

/// What came of a command in a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecView {
    /// Exit status of the shell; 143 when its time was up.
    pub status: i32,
    /// What it printed, standard output and error.
    pub text: String,
}

/// A fabric file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewFabric {
    /// Its path, absolute: relative paths of guests' files in it are relative to its folder.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// What was changed, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// Each in words, such as `add port a (ring)`.
    pub changes: Vec<String>,
}
