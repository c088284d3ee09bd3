//! The types of the API's JSON. Times are in nanoseconds. Counters are totals, from which readers compute rates.

use crate::file::FUNCTION_KEYS;
use ringway_port::{Exits, RegisterExits};
use ringway_spec::MacAddress;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

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
    /// Process ID of `control`.
    pub pid: u32,
    /// Process ID of `data`; 0 while it is being restarted.
    pub data_pid: u32,
    /// Number of restarts of `data`.
    pub restarts: u64,
    /// Nanoseconds since the fabric came up.
    pub uptime: u64,
    /// Its switches.
    pub switches: Vec<SwitchView>,
    /// Its workers.
    pub workers: Vec<WorkerView>,
    /// Number of ports.
    pub ports: usize,
    /// Number of guests.
    pub guests: usize,
    /// Number of functions.
    #[serde(default)]
    pub functions: usize,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SwitchView {
    /// Its name.
    pub name: String,
    /// The lookup that finds a frame's port: `learning`, `static`, `hash` or `flow`.
    pub lookup: String,
    /// Names of its ports.
    pub ports: Vec<String>,
    /// Number of its flows, if its lookup is `flow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<usize>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    /// Its name.
    pub name: String,
    /// The NUMA node that it and its ports' memory are on: the configured one, or on a host with several that of its
    /// core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// Number of queues that it serves.
    pub queues: usize,
    /// Number of queues that it polls now.
    pub active: usize,
    /// Turns since its start.
    pub turns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Nanoseconds of turns in which frames moved.
    pub busy: u64,
    /// A problem with it; empty if there is none.
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
    /// Where its peer connects: a socket's path, an interface's name.
    pub peer: String,
    /// What it is connected to: `switch main`, `patch b`; empty for a pipe.
    pub to: String,
    /// The worker of its first queue; empty without one.
    pub worker: String,
    /// What was negotiated with the peer.
    pub detail: String,
    /// What its switch lets it send and receive: the keys that `port set` changes, in the syntax of the file.
    #[serde(default)]
    pub policy: BTreeMap<String, String>,
    /// Why it last lost its peer, or has none.
    pub reason: String,
}

/// An emulated link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// Its name.
    pub name: String,
    /// Its two directions.
    pub directions: Vec<DirectionView>,
}

/// One direction of an emulated link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DirectionView {
    /// The port that sends.
    pub from: String,
    /// The port that receives.
    pub to: String,
    /// The settings that differ from their defaults, in the syntax of the file.
    pub settings: BTreeMap<String, String>,
    /// Frames that entered the link.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that left it, duplicates included.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Dropped frames by reason; reasons without drops are omitted.
    pub drops: BTreeMap<String, u64>,
    /// Frames in its queue.
    pub queued: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Frames under way.
    pub in_flight: u64,
    /// Frames marked Congestion Experienced.
    pub marked: u64,
    /// Frames with an inverted bit.
    pub corrupted: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames that overtook another.
    pub reordered: u64,
    /// The longest time after its due time at which a frame left, since the settings changed.
    pub latest: u64,
    /// Frames that left more than a millisecond after their due time, since the settings changed.
    #[serde(default)]
    pub late: u64,
    /// Nanoseconds since the last of these left; null without any.
    #[serde(default)]
    pub late_ago: Option<u64>,
    /// Mean time of a frame in the link since its settings changed, its queue included; 0 without frames.
    #[serde(default)]
    pub delay_mean: u64,
    /// The standard deviation of that time.
    #[serde(default)]
    pub delay_sd: u64,
    /// Frames sent on the wire since the settings changed.
    #[serde(default)]
    pub carried: u64,
    /// How many of these were lost there.
    #[serde(default)]
    pub lost: u64,
}

/// New settings of an emulated link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LinkChange {
    /// The port of the direction to change; without it, both change.
    #[serde(default)]
    pub from: Option<String>,
    /// Values by key, in the syntax of the file; null for the default. Other settings stay.
    pub settings: BTreeMap<String, Option<String>>,
}

/// Counters of every port at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatsView {
    /// The time, in nanoseconds of the host's monotonic clock.
    pub at: u64,
    /// By port, in the order of the file.
    pub ports: Vec<PortStats>,
}

/// What the processes of a fabric have used until one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// The time, in nanoseconds of the host's monotonic clock.
    pub at: u64,
    /// `control`, `data`, guests, functions.
    pub processes: Vec<ProcessView>,
}

/// What a process has used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessView {
    /// Name of the guest or function; or `control`, or `data`.
    pub name: String,
    /// `control`, `data`, a guest's kind, or a function's isolation.
    pub kind: String,
    /// Process ID; 0 if it has no process of its own, or does not run: then it uses nothing of its own.
    pub pid: u32,
    /// Nanoseconds of processor time since its start, in steps of the kernel's clock ticks.
    pub cpu: u64,
    /// Bytes of memory; of pages shared with other processes, its part.
    pub memory: u64,
    /// Ports of the guest or function.
    pub ports: Vec<String>,
}

/// Counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortStats {
    /// Its name.
    pub name: String,
    /// Sum over its queues.
    pub total: Counts,
    /// By queue.
    pub queues: Vec<Counts>,
}

/// Counters of a queue. TX is what the peer sends, RX what it receives.
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
    /// Protocol violations by the peer.
    pub faults: u64,
    /// Dropped frames that entered here, by reason; reasons without drops are omitted.
    pub tx_drops: BTreeMap<String, u64>,
    /// Dropped frames for this queue, by reason.
    pub rx_drops: BTreeMap<String, u64>,
    /// Addresses whose translation was known.
    #[serde(default)]
    pub iotlb_hits: u64,
    /// Addresses whose translation had to be requested.
    #[serde(default)]
    pub iotlb_misses: u64,
    /// Invalidations of translations.
    #[serde(default)]
    pub iotlb_invalidations: u64,
    /// Accesses that the guest's IOMMU refused.
    #[serde(default)]
    pub iotlb_faults: u64,
    /// Bytes in memory of the files that the front-end shares, within the shared ranges; a current value, not a
    /// total.
    #[serde(default)]
    pub memory_resident: u64,
    /// Bytes by which such files grew while the port used them.
    #[serde(default)]
    pub memory_grown: u64,
    /// Addresses that the peer sent from while the switch knew them at another port.
    #[serde(default)]
    pub moved: u64,
    /// Pauses of the peer's session: it was woken too often without a message.
    #[serde(default)]
    pub session_pauses: u64,
    /// Frames whose source address was not learned, since the port has learned too many.
    #[serde(default)]
    pub unlearned: u64,
    /// Frames for the port that became part of the frame before them: they are not in `rx_frames`.
    #[serde(default)]
    pub joined: u64,
    /// Frames of the peer that were too long for their destination, and whose senders were told so.
    #[serde(default)]
    pub answered: u64,
}

impl Counts {
    /// Total number of drops.
    pub fn drops(&self) -> u64 {
        self.tx_drops.values().chain(self.rx_drops.values()).sum()
    }

    /// Adds another queue's counters.
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
        self.moved += other.moved;
        self.session_pauses += other.session_pauses;
        self.unlearned += other.unlearned;
        self.joined += other.joined;
        self.answered += other.answered;
        for (reason, count) in &other.tx_drops {
            *self.tx_drops.entry(reason.clone()).or_default() += count;
        }
        for (reason, count) in &other.rx_drops {
            *self.rx_drops.entry(reason.clone()).or_default() += count;
        }
    }
}

/// Accesses to a card's registers and its interrupts since its client connected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExitsView {
    /// The port.
    pub port: String,
    /// By register; those without accesses are left out.
    pub registers: Vec<RegisterView>,
    /// Frames that the guest sent.
    pub tx_frames: u64,
    /// Frames that the guest received.
    pub rx_frames: u64,
    /// How often a worker found frames to send announced, trapped or mapped.
    pub tx_doorbells: u64,
    /// How often a worker found receive buffers announced.
    pub rx_doorbells: u64,
    /// Interrupts raised.
    pub raised: u64,
    /// Interrupts held back to the end of an interval.
    pub held: u64,
}

/// Accesses to a register, each an exit of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RegisterView {
    /// Its name.
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Whether the client may map it; accesses through the mapping are not counted.
    pub mapped: bool,
}

impl ExitsView {
    /// The exits of `port`.
    pub fn of(port: String, exits: Exits) -> ExitsView {
        let Exits { registers, tx_frames, rx_frames, tx_doorbells, rx_doorbells, raised, held } = exits;
        let view = |register: RegisterExits| {
            let RegisterExits { name, reads, writes, mapped } = register;
            RegisterView { name, reads, writes, mapped }
        };
        let registers = registers.into_iter().map(view).collect();
        ExitsView { port, registers, tx_frames, rx_frames, tx_doorbells, rx_doorbells, raised, held }
    }
}

/// Addresses that a switch knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TableView {
    /// The switch.
    pub switch: String,
    /// Its entries.
    pub entries: Vec<TableEntryView>,
}

/// An address that a switch knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TableEntryView {
    /// The address.
    #[schema(value_type = String)]
    pub mac: MacAddress,
    /// The number of its VLAN, that of the outer tag; 0 without a tag.
    #[serde(default)]
    pub vlan: u16,
    /// The port it is behind.
    pub port: String,
    /// Seconds since it last sent; none for static entries.
    pub age: Option<u32>,
}

/// The members of groups that a switch knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupsView {
    /// The switch.
    pub switch: String,
    /// Whether it snoops: otherwise every port gets every group.
    pub snooping: bool,
    /// Its entries.
    pub entries: Vec<GroupEntryView>,
}

/// A port with a member of a group, or with a router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupEntryView {
    /// The number of the VLAN; 0: none.
    pub vlan: u16,
    /// The group's address; none for a router, which gets all groups.
    pub group: Option<String>,
    /// The port.
    pub port: String,
    /// For how many more seconds, unless the member or router says it again.
    pub left: u64,
}

/// An unmodified program with a network of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProgramView {
    /// Its name.
    pub name: String,
    /// `running`; `stopping`; `stopped`; `waiting`, to be started again; `ended`, by itself.
    pub state: String,
    /// Its port.
    pub port: String,
    /// Its addresses, each with the length of its prefix.
    pub addresses: Vec<String>,
    /// Its file and its arguments.
    pub command: Vec<String>,
    /// Whose TCP serves it: `native` or `kernel`.
    pub stack: String,
    /// Its user, if it has one of its own.
    pub user: String,
    /// When it is started again: `never`, `on-failure` or `always`.
    pub restart: String,
    /// How often it was started again by itself.
    pub restarts: u64,
    /// Process ID of what runs it; 0 if it does not run.
    pub pid: u32,
    /// How it ended last, if it does not run.
    pub reason: String,
    /// The file with its output.
    pub output: String,
}

/// A host: a network namespace with interfaces of ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// `up`, or `stopping` while processes in it are being ended: it is removed, or its programs change.
    pub state: String,
    /// The file that keeps its namespace, as for `nsenter --net=`.
    pub namespace: String,
    /// Its interfaces.
    pub interfaces: Vec<HostInterfaceView>,
    /// Its programs.
    pub programs: Vec<HostProgramView>,
    /// The file with the output of its programs.
    pub output: String,
}

/// An interface of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostInterfaceView {
    /// Its name in the host.
    pub name: String,
    /// The port whose interface it is.
    pub port: String,
    /// The port's state.
    pub state: String,
    /// Its addresses, each with the length of its prefix.
    pub addresses: Vec<String>,
}

/// A program of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HostProgramView {
    /// The command of the shell.
    pub command: String,
    /// `starting`, `running` or `ended`.
    pub state: String,
    /// Process ID of its shell; 0 if it does not run.
    pub pid: u32,
    /// How it ended.
    pub reason: String,
}

/// A guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GuestView {
    /// Its name.
    pub name: String,
    /// `uml` or `qemu`.
    pub kind: String,
    /// `stopped`, `starting`, `arriving` from another fabric, `running`, `stopping` or `ended`.
    pub state: String,
    /// The runner in use, such as `QEMU with KVM`.
    pub note: String,
    /// Process ID; 0 if it has no process of its own, or does not run.
    pub pid: u32,
    /// Its ports.
    pub ports: Vec<String>,
    /// The log of its console.
    pub console: String,
    /// Why it does not run although it should, with the last line of its console if it has ended; while it starts, what
    /// that waits for.
    pub reason: String,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionView {
    /// Its name.
    pub name: String,
    /// `stopped`, `dormant` (it starts when it is needed), `queued` (it starts once fewer others do), `starting`,
    /// `running`, `draining` (an instance that gets no new flows), `suspended`, or `ended` (and about to be restarted).
    pub state: String,
    /// Process ID; 0 if it does not run.
    pub pid: u32,
    /// What separates it from the rest of the fabric: `process`, `vm` or `worker`.
    #[serde(default)]
    pub isolation: String,
    /// Its ports.
    pub ports: Vec<String>,
    /// The file of its configuration, or where its text comes from; `inline` if nobody said so.
    pub configuration: String,
    /// The socket of its handlers, a ControlSocket.
    pub handlers: String,
    /// Number of automatic restarts since it was started.
    pub restarts: u64,
    /// Why it last ended, or does not run although it should.
    pub reason: String,
}

/// A snapshot of a function in a VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotView {
    /// Its name.
    pub name: String,
    /// The function that it was taken of.
    pub function: String,
    /// The function's ports. A clone needs as many.
    pub ports: Vec<String>,
    /// Bytes of memory that it keeps; clones share them.
    pub bytes: u64,
}

/// A snapshot to take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewSnapshot {
    /// Its name.
    pub name: String,
}

/// A clone to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewClone {
    /// The name of the new function.
    pub name: String,
    /// Its ports, in place of those of the original, in their order: ports of kind `ring` that nobody has.
    pub ports: Vec<String>,
}

/// A function in a VM that stands still, to go on in another fabric of this host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Departure {
    /// Its name.
    pub name: String,
    /// Its description, as JSON of this version of the program.
    pub function: String,
    /// The state of its CPU, as JSON.
    pub state: String,
    /// The process that has its memory.
    pub process: u32,
    /// The number of that process's descriptor of the memory.
    pub descriptor: u32,
    /// The memory's inode, since the number may be another file's by the time it is opened.
    pub inode: u64,
}

/// A chain of functions between two ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChainView {
    /// Its name.
    pub name: String,
    /// `up` if all of its functions run, else `down`.
    pub state: String,
    /// The ports at its ends.
    pub ports: Vec<String>,
    /// Its functions, in the order in which frames from its first port pass them.
    pub functions: Vec<String>,
    /// Which function does not run, and why.
    pub reason: String,
}

/// A function to create: its name, and the keys of `[function.NAME]`. `configuration` is another name for `click`; a
/// number is a size in bytes; null is as if the key were not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewFunction(pub Map<String, Value>);

impl PartialSchema for NewFunction {
    fn schema() -> RefOr<Schema> {
        let text = |what: &str| json!({ "type": "string", "description": what });
        let mut properties = json!({
            "name": text("Its name."),
            "configuration": text("Its configuration, in Click's language."),
            "source": text("Where that comes from, such as the path of a file, for people."),
        });
        FUNCTION_KEYS.iter().for_each(|key| properties[key.field()] = key.schema());
        let schema = json!({
            "type": "object",
            "description": "A function to create: its name, and the keys of `[function.NAME]`.",
            "required": ["name", "ports"],
            "properties": properties,
        });
        serde_json::from_value(schema).unwrap_or_default()
    }
}

impl ToSchema for NewFunction {}

/// A new configuration of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewConfiguration {
    /// The configuration, in Click's language.
    pub configuration: String,
    /// Where it comes from, such as the path of a file, for people.
    #[serde(default)]
    pub source: Option<String>,
}

/// The graph of a running function, with what passed during a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GraphView {
    /// Length of the sample in nanoseconds.
    pub nanoseconds: u64,
    /// Its elements.
    pub elements: Vec<GraphElement>,
    /// Its connections.
    pub connections: Vec<GraphConnection>,
}

/// An element of a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GraphElement {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Packets that entered it; of a source, those that it emitted.
    pub packets: u64,
    /// Ticks of the processor's clock in it.
    pub ticks: u64,
}

/// A connection of a graph, from an output to an input; elements are indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GraphConnection {
    /// The element that sends.
    pub from: usize,
    /// Its output.
    pub output: usize,
    /// The input of the receiving element.
    pub input: usize,
    /// The element that receives.
    pub to: usize,
    /// Packets that passed.
    pub packets: u64,
}

/// The fabric as a graph: who has ports, and what joins them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FabricGraphView {
    /// Length of the sample in nanoseconds.
    pub nanoseconds: u64,
    /// Guests, ports, switches, links and functions.
    pub nodes: Vec<FabricNode>,
    /// Pairs of nodes that are connected; indexes.
    pub edges: Vec<(usize, usize)>,
}

/// A node of the fabric's graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FabricNode {
    /// `guest`, `port`, `switch`, `link` or `function`.
    pub what: String,
    /// Its name.
    pub name: String,
    /// Its kind and state; of a switch its lookup, of a link its rate and delay.
    pub detail: String,
    /// Frames that the peer of a port sent during the sample; the sum over the ports of a guest, a function or a
    /// switch; frames that entered a link.
    pub tx_frames: u64,
    /// Frames that it received; those that left a link.
    pub rx_frames: u64,
    /// Frames dropped at a port or on a link.
    pub drops: u64,
}

/// A handler's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HandlerValue {
    /// The value; invalid UTF-8 is replaced.
    pub value: String,
}

/// A command for a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exec {
    /// One line for its shell, of at most 3500 bytes.
    pub command: String,
    /// Time limit in seconds.
    pub timeout: u64,
}

/// The result of a command in a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecView {
    /// Exit status of the shell; 143 after the time limit.
    pub status: i32,
    /// Its output, standard output and error.
    pub text: String,
}

/// A fabric file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewFabric {
    /// Its path, absolute: relative paths of guests' files in it are relative to its folder.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Whether nothing is changed: the answer has the changes that would be made.
    #[serde(default)]
    pub dry_run: bool,
}

/// The file that describes what runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SavedFabric {
    /// The path of the file that described the fabric last, to whose folder relative paths in the text are relative.
    pub file: String,
    /// Its text, with what requests have changed since then.
    pub text: String,
    /// What the text can't describe, as the changes that lead from it to what runs; empty if it describes everything.
    pub differences: Vec<String>,
}

/// The changes made, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// Descriptions such as `add port a (ring)`.
    pub changes: Vec<String>,
}
