//! Messages between `control` and `data`: JSON over a stream socket pair, with descriptors.
//!
//! `control` sends [`Call`]s and gets one [`DataMessage::Reply`] for each, in any order; calls about one port are
//! executed in order. `data` sends [`DataMessage::Event`]s whenever something happens. Names were checked by
//! `control`; `data` still refuses unknown ones.

use ringway_port::Exits;
use ringway_spec::{Function, MacAddress, Port, Switch, Worker};
use ringway_switch::PortNumbers;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A request and its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Returned in the reply.
    pub id: u64,
    /// What to do.
    pub request: Request,
}

/// A change to the running fabric, or a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// The first call, once. Carries three descriptors. The memfd of the counters page: `counters` entries of
    /// [`ringway_frame::Counters`]. A socket of datagrams: each of its datagrams from `data` is a record
    /// ([`crate::records`]) for whoever keeps them; each to `data` has a stream to another `control` process, in place
    /// of one that ended. The memory of a [`ringway_host::EndNotice`], by which `control` notices the end of `data`.
    Start {
        /// Threads of the data path, at least one.
        workers: Vec<Worker>,
        /// Entries in the counters page.
        counters: u32,
    },
    /// Adds a switch without ports.
    AddSwitch(Switch),
    /// Removes a switch, which must have no ports.
    RemoveSwitch {
        /// Its name.
        name: String,
    },
    /// Adds a port, without a peer yet (`null` and `source` need none).
    AddPort {
        /// The port.
        port: Port,
        /// The port's first entry of the counters page; one entry per queue pair.
        counters: u32,
    },
    /// Removes a port; its peer's session ends.
    RemovePort {
        /// Its name.
        name: String,
    },
    /// Attaches a peer. The descriptors depend on the kind: `vhost-user`: the connected socket; `tap`: one per queue;
    /// `ring`: the ring's memfd, the eventfd that the program writes, the eventfd that we write.
    Attach {
        /// The port's name.
        port: String,
        /// Whether a former `data` process had the peer, with what [`Request::Restore`] passed since then.
        #[serde(default)]
        resumed: bool,
    },
    /// A record of the peer, with its descriptors; in the order of the keys.
    Restore {
        /// The port's name.
        port: String,
        /// Its key.
        key: u32,
        /// The message.
        bytes: Vec<u8>,
    },
    /// A record of addresses that a former `data` process had learned at a port, of those that [`crate::table_slot`]
    /// names.
    RestoreTable {
        /// The switch's name.
        switch: String,
        /// The record.
        bytes: Vec<u8>,
    },
    /// Detaches the peer, which is gone or must go.
    Detach {
        /// The port's name.
        port: String,
    },
    /// Moves a port to another worker; its peer stays.
    MovePort {
        /// The port's name.
        name: String,
        /// The worker's name; `None` for the workers with the fewest queues.
        worker: Option<String>,
    },
    /// Changes settings of a port that its peer need not know; the peer stays.
    ChangePort {
        /// The port as it shall be.
        port: Port,
    },
    /// The files that [`ringway_host::open_thread_files`] opens for a worker's thread, in response to
    /// [`Event::Worker`].
    Watch {
        /// The worker's name.
        worker: String,
        /// Its thread ID.
        thread: i32,
    },
    /// Runs a function on the worker of its first port. Carries one descriptor: the socket by which connections to its
    /// handlers come.
    StartFunction {
        /// Its number, in events and further requests.
        number: u64,
        /// The function.
        function: Box<Function>,
        /// The place of its handlers in configurations.
        handlers: String,
    },
    /// Ends a function.
    StopFunction {
        /// Its number.
        number: u64,
    },
    /// Suspends a function, or lets it go on.
    SuspendFunction {
        /// Its number.
        number: u64,
        /// Whether it is suspended.
        suspended: bool,
    },
    /// Makes the frames of ports wait where they are, or lets them go on.
    Hold {
        /// The ports.
        ports: Vec<String>,
        /// Whether they wait.
        held: bool,
        /// Whether [`Event::Wanted`] reports the first of them.
        #[serde(default)]
        watched: bool,
    },
    /// A guest arrives from another fabric; its frames are kept while it runs nowhere.
    Arrival {
        /// Its ports, and its address at each.
        ports: Vec<(String, MacAddress)>,
        /// How far it is.
        step: ArrivalStep,
    },
    /// A guest leaves for another fabric. [`DepartureStep::Left`] requests [`Reply::Delivered`].
    Departure {
        /// Its ports, and its address at each.
        ports: Vec<(String, MacAddress)>,
        /// How far it is.
        step: DepartureStep,
    },
    /// Requests [`Reply::Quiet`].
    Quiet {
        /// The ports.
        ports: Vec<String>,
    },
    /// Joins ports of patches to others, all at once, and lets the frames of held ports go on.
    Join {
        /// Ports, and the port that each is joined to.
        ports: Vec<(String, String)>,
        /// Held ports.
        held: Vec<String>,
    },
    /// Changes the instances of a function that multiplies.
    Assign {
        /// The function's name in the file.
        function: String,
        /// Instances that get new flows, a bit each from the lowest.
        open: u32,
        /// Instances that keep the flows that they have.
        there: u32,
    },
    /// Requests [`Reply::Load`].
    Load {
        /// The function's name in the file.
        function: String,
        /// Whether flows are counted.
        counts: bool,
    },
    /// Requests [`Reply::State`].
    State,
    /// Requests [`Reply::Exits`].
    Exits {
        /// The port's name.
        port: String,
    },
    /// Requests [`Reply::Table`].
    Table {
        /// The switch's name.
        switch: String,
    },
    /// Requests [`Reply::Groups`].
    Groups {
        /// The switch's name.
        switch: String,
    },
    /// Requests [`Reply::AddressCounts`].
    AddressCounts,
    /// Changes or reads the flow tables of a switch.
    Flows {
        /// The switch's name.
        switch: String,
        /// What to do.
        order: FlowOrder,
    },
    /// Begins a capture. Carries one descriptor: the memfd that copies are written to.
    Capture {
        /// Its number.
        number: u64,
        /// What is captured.
        capture: Capture,
    },
    /// Ends a capture.
    EndCapture {
        /// Its number.
        number: u64,
    },
    /// Requests [`Reply::Traced`].
    Trace(Box<Trace>),
    /// Ends `data` so that another `data` process can go on with its ports: workers end their turns, sessions rest, and
    /// no peer is told anything. When the reply comes, this process touches no peer's memory any more, unless a peer
    /// blocks it.
    Leave,
    /// Requests [`Reply::Profile`], and has workers measure their stages for so long.
    Profile {
        /// Nanoseconds.
        time: u64,
    },
    /// Ends `data`.
    Stop,
}

/// What to do with the flow tables of a switch. Texts have the names of ports, or their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowOrder {
    /// The numbers of ports are these. [`Reply::Done`].
    Ports(PortNumbers),
    /// Makes changes, one a line, all or none. [`Reply::Flows`] without lines.
    Change {
        /// The changes.
        text: String,
        /// The command of all lines, if they have none of their own.
        command: Option<String>,
    },
    /// Makes these rules, one a line, those that are there. [`Reply::Flows`] without lines.
    Replace(String),
    /// Asks for the flows that a filter means, groups and meters, with what is counted. [`Reply::Flows`].
    Dump {
        /// The filter.
        filter: String,
    },
    /// Asks for the rules, as a file has them. [`Reply::Flows`].
    Rules,
    /// Adds what another process had counted, from its dump. [`Reply::Done`].
    Counts(String),
}

/// The flow tables of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowState {
    /// Number of the changes so far.
    pub revision: u64,
    /// How many flows were changed.
    #[serde(default)]
    pub count: u64,
    /// Flows, a line each.
    #[serde(default)]
    pub flows: Vec<String>,
    /// Number of flows that are not among them.
    #[serde(default)]
    pub omitted: u64,
    /// Groups, a line each.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Meters, a line each, with their frames and those that were dropped.
    #[serde(default)]
    pub meters: Vec<(String, [u64; 2])>,
}

/// How far the arrival of a guest is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArrivalStep {
    /// It is prepared: frames for it are kept.
    Keep,
    /// It runs here: frames that came since it stopped are delivered.
    Deliver {
        /// Nanoseconds since it stopped.
        stopped_ago: u64,
        /// What it had got where it was, if that is known.
        #[serde(default)]
        delivered: Option<DeliveredFrames>,
    },
    /// It does not arrive: what was kept is dropped.
    Abandon,
}

/// How far the departure of a guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DepartureStep {
    /// Its memory is copied: which frames it gets is noted, and those that come when it gives its rings back wait until
    /// its switch sends them elsewhere.
    Watch,
    /// It has stopped.
    Left {
        /// Nanoseconds since then.
        stopped_ago: u64,
    },
    /// It has left, or stays.
    End,
}

/// Frames that a guest had got before it left. The fabric where it arrives delivers those that it has kept and that are
/// not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredFrames {
    /// All that it got in so many nanoseconds before it stopped are known.
    pub known: u64,
    /// Their fingerprints, in the order of their delivery.
    pub frames: Vec<u64>,
}

/// What is captured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// The ports.
    pub ports: Vec<String>,
    /// Whether frames are captured that their peers send.
    pub inbound: bool,
    /// Whether frames are captured that their peers receive.
    pub outbound: bool,
    /// Whether frames are captured that are dropped at these ports.
    pub drops: bool,
    /// Expression of the frames that are captured; empty for all.
    pub filter: String,
    /// Most bytes of a frame that are copied.
    pub snap_len: u32,
    /// Whether the capture gets what happens to each frame that the ports' peers send ([`crate::capture::LiveFrame`])
    /// instead of frames.
    #[serde(default)]
    pub verdicts: bool,
}

/// A frame to trace, as if a port's peer sent it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The port.
    pub port: String,
    /// The frame.
    pub frame: Vec<u8>,
    /// Its offload header, as in `virtio_net_hdr`.
    pub offload: [u8; 10],
    /// Whether the frame is sent after that.
    pub inject: bool,
    /// Addresses that the port's switch would know besides those in its table, or at other ports: sources of the frames
    /// that are traced before this one.
    #[serde(default)]
    pub learned: Vec<LearnedAddress>,
}

/// An address that a switch would learn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedAddress {
    /// The address.
    pub mac: MacAddress,
    /// The number of its VLAN; 0: none.
    pub vlan: u16,
    /// The port's name.
    pub port: String,
}

/// What would become of a frame at the next ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traced {
    /// The worker that serves the port.
    pub worker: String,
    /// What the lookup found: `known`, `flooded`, `unknown`, `reserved`, `invalid`; `flow` on a switch with flow
    /// tables; `patch`, `instance`, `nowhere` where there is no switch.
    pub lookup: String,
    /// What a learning switch would do with the source address: `known`, `new`, `moved`, `refused`.
    #[serde(default)]
    pub learned: Option<String>,
    /// The frame's VLAN, if a port of the switch has policy.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Whether its sender's addresses are `allowed`, or why not, if its port restricts them.
    #[serde(default)]
    pub sender: Option<String>,
    /// Why the frame is dropped at the port where it enters.
    #[serde(default)]
    pub dropped: Option<String>,
    /// Whether the port's frames wait now, since a function that they are for does not run yet.
    #[serde(default)]
    pub held: bool,
    /// A line for each step through the flow tables of its switch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<String>,
    /// Its copies, one for each destination.
    #[serde(default)]
    pub copies: Vec<TracedCopy>,
    /// Number of destinations that were not looked at.
    #[serde(default)]
    pub omitted: usize,
    /// Copies for ports that mirror others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrored: Vec<TracedMirror>,
    /// What the switch knows of the frame's group, if it is flooded to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<TracedMulticast>,
    /// Whether the frame was sent, if that was requested.
    #[serde(default)]
    pub sent: Option<bool>,
}

/// Who gets a packet to a group, on a switch that snoops.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracedMulticast {
    /// The group; none for a message of IGMP or MLD.
    pub group: Option<IpAddr>,
    /// The ports of members and routers; none: all ports get it.
    pub ports: Option<Vec<String>>,
}

/// A copy of a frame for a port that mirrors another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracedMirror {
    /// The port that gets the copy.
    pub port: String,
    /// The mirrored port.
    pub of: String,
    /// Whether the frame is copied as it goes to the mirrored port, instead of as it comes from there.
    pub leaves: bool,
}

/// What would become of a frame at a destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracedCopy {
    /// The destination.
    pub port: String,
    /// The number of the queue there.
    pub queue: u32,
    /// `delivered`, `dropped`; `waits`: the destination is full, and the frame waits; `busy`: it could not be looked
    /// at.
    pub verdict: String,
    /// Why it is dropped; for one that waits, why it will be if room does not come in time.
    #[serde(default)]
    pub reason: Option<String>,
    /// Nanoseconds that it waits at most.
    #[serde(default)]
    pub hold: u64,
    /// What becomes of its VLAN tag: `inserted 10`, `inserted 10 (802.1ad)`, `set 10`, `removed`.
    #[serde(default)]
    pub retag: Option<String>,
    /// The first frame that the destination gets, and its offload header, if the frame had to be completed for it, or
    /// has another tag there.
    #[serde(default)]
    pub completed: Option<(Vec<u8>, [u8; 10])>,
    /// Number of frames that the destination gets.
    #[serde(default)]
    pub frames: usize,
    /// Whether it may be joined with segments of its flow.
    #[serde(default)]
    pub joins: bool,
}

/// A message of `data`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataMessage {
    /// The answer to a call.
    Reply {
        /// The call's number.
        id: u64,
        /// The answer.
        reply: Reply,
    },
    /// An event.
    Event(Event),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// Nothing was changed; the reason, for people.
    Refused(String),
    /// The state of all ports and workers.
    State(State),
    /// Where accesses to a port's registers and its interrupts went; none if its kind has no registers.
    Exits(Option<Exits>),
    /// The addresses that a switch knows.
    Table(Vec<TableEntry>),
    /// The members of groups that a switch knows; none if it does not snoop.
    Groups(Option<Vec<GroupEntry>>),
    /// The number of addresses that each switch knows.
    AddressCounts(BTreeMap<String, u64>),
    /// The flow tables of a switch.
    Flows(FlowState),
    /// The load of a function's instances.
    Load(InstanceLoad),
    /// What would become of a frame.
    Traced(Traced),
    /// Where time went since workers began.
    Profile(Profile),
    /// What a guest that leaves has got; none if its ports don't know it.
    Delivered(Option<DeliveredFrames>),
    /// Whether no frame waits in the ports' rings, and no function of this process that has one has anything to do.
    Quiet(bool),
}

/// An event in `data`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A port's peer is detached: it left, or violated its protocol. `control` attaches the next one.
    Detached {
        /// The port's name.
        port: String,
        /// The reason, for people.
        reason: String,
        /// Whether the peer violated its protocol or exceeded its budget.
        fault: bool,
        /// Nanoseconds for which no other peer may be attached.
        #[serde(default)]
        rest: u64,
    },
    /// Every instance of a function has had more to do for a while than it could: another one is needed.
    Pressed {
        /// The function's name in the file.
        function: String,
    },
    /// A worker has started.
    Worker {
        /// Its name.
        worker: String,
        /// Its thread ID.
        thread: i32,
    },
    /// A port's state changed.
    Changed(PortState),
    /// The time of flows has ended, and they are removed.
    FlowsExpired {
        /// The switch's name.
        switch: String,
        /// Number of the changes of its tables before.
        revision: u64,
        /// The flows, as text; if there are many, the first ones.
        flows: Vec<String>,
        /// How many there are.
        count: u64,
    },
    /// A frame waits at a held port.
    Wanted {
        /// The port's name.
        port: String,
    },
    /// Something happened to a function.
    Function {
        /// Its number.
        number: u64,
        /// What.
        report: FunctionReport,
    },
}

/// What happened to a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionReport {
    /// The function's configuration runs.
    Up,
    /// Its configuration can't run: the errors, one per line.
    Wrong(String),
    /// The function ended by itself, with the reason.
    Ended(String),
}

/// The state of all ports and workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Every port.
    pub ports: Vec<PortState>,
    /// Every worker.
    pub workers: Vec<WorkerState>,
    /// Names of switches.
    #[serde(default)]
    pub switches: Vec<String>,
    /// Numbers of functions.
    #[serde(default)]
    pub functions: Vec<u64>,
    /// Numbers of captures.
    #[serde(default)]
    pub captures: Vec<u64>,
}

/// The load of a function's instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceLoad {
    /// Flows that each instance has; none if they were not counted.
    pub flows: Vec<u32>,
    /// Nanoseconds since one of them last had more to do for a while than it could.
    pub calm: u64,
}

/// Where time went since workers began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The time in nanoseconds of the clock.
    pub now: u64,
    /// Each worker.
    pub workers: Vec<WorkerProfile>,
    /// Each function that runs on a worker.
    pub functions: Vec<FunctionProfile>,
}

/// Where a worker's time went, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerProfile {
    /// Its name.
    pub name: String,
    /// In turns in which frames moved.
    pub busy: u64,
    /// Asleep.
    pub slept: u64,
    /// In functions, in turns in which frames moved; a part of `busy`.
    pub functions_busy: u64,
    /// In functions, in other turns.
    pub functions_alone: u64,
    /// Counts of the stages, of those turns that were measured.
    pub stages: Vec<StageCount>,
}

/// Counts of a stage, of turns that were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageCount {
    /// Its name.
    pub stage: String,
    /// Ticks of the processor's clock.
    pub ticks: u64,
    /// Bursts; of `notify`, signals.
    pub bursts: u64,
    /// Their frames.
    pub frames: u64,
}

/// Time of a function on a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionProfile {
    /// Its name.
    pub name: String,
    /// Its worker.
    pub worker: String,
    /// Nanoseconds.
    pub time: u64,
    /// Turns.
    pub turns: u64,
}

/// State of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortState {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// `waiting` (no peer), `attached` (a peer, its queues not all set up), `up`.
    pub state: String,
    /// Negotiated features, for people: `packed mrg csum tso`.
    pub detail: String,
    /// Name of the worker of its first queue.
    pub worker: String,
    /// Figures of its kind besides its counters, by name.
    #[serde(default)]
    pub gauges: BTreeMap<String, u64>,
}

/// State of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerState {
    /// Its name.
    pub name: String,
    /// Number of queues that it serves.
    pub queues: usize,
    /// Number of queues that it polls now.
    pub active: usize,
    /// Turns since its start.
    pub turns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Nanoseconds of turns in which frames moved.
    #[serde(default)]
    pub busy: u64,
    /// The peer whose memory blocks it now, and for how long; empty if none does.
    #[serde(default)]
    pub held: String,
    /// Whether helper threads signal peers' eventfds, since the system refuses `io_setup`.
    #[serde(default)]
    pub helped: bool,
}

/// An address that a switch knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableEntry {
    /// The address.
    pub mac: MacAddress,
    /// The number of its VLAN; 0: none.
    #[serde(default)]
    pub vlan: u16,
    /// The port's name.
    pub port: String,
    /// Seconds since it last sent; none for static entries.
    pub age: Option<u32>,
}

/// A port with a member of a group, or with a router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupEntry {
    /// The number of the VLAN; 0: none.
    pub vlan: u16,
    /// The group; none for a router, which gets all groups.
    pub group: Option<IpAddr>,
    /// The port's name.
    pub port: String,
    /// For how many more seconds, unless it is said again.
    pub left: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_spec::{Kind, Notify, To};

    #[test]
    fn calls_round_trip() {
        let port = Port {
            queues: 2,
            hold: Some(100_000),
            notify: Notify { moderate: 50_000, ..Notify::default() },
            ..Port::new("a", Kind::new("tap", &["settings"]), Some(To::Switch("s".into())))
        };
        let call = Call { id: 7, request: Request::AddPort { port, counters: 4 } };
        let text = serde_json::to_string(&call).unwrap();
        assert_eq!(serde_json::from_str::<Call>(&text).unwrap(), call);
    }
}
