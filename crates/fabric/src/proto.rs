//! What `control` and `data` say to each other: JSON over a stream socket pair, descriptors beside it.
//!
//! `control` sends [`Call`]s and gets one [`Said::Reply`] for each, in order; `data` sends [`Said::Event`]s whenever
//! something happens. Names were checked by `control`; `data` still refuses what it doesn't know.

use ringway_ring::Policy;
use serde::{Deserialize, Serialize};

/// A request and its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Comes back in the reply.
    pub id: u64,
    /// What to do.
    pub request: Request,
}

/// One change to the running fabric, or a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// The first call, once. Carries one descriptor: the memfd of the counters page, `counters` entries of
    /// [`ringway_frame::Counters`].
    Start {
        /// Threads of the data path, at least one.
        workers: Vec<Worker>,
        /// Entries in the counters page.
        counters: u32,
    },
    /// A new switch without ports.
    AddSwitch {
        /// Its name.
        name: String,
        /// How it finds a frame's port.
        lookup: Lookup,
    },
    /// Takes a switch away, which no port may be on.
    RemoveSwitch {
        /// Its name.
        name: String,
    },
    /// A new port, without a peer yet (`null` and `source` need none).
    AddPort(Port),
    /// Takes a port away; its peer's session ends.
    RemovePort {
        /// Its name.
        name: String,
    },
    /// A peer is there; the descriptors depend on the kind:
    /// `vhost-user`: the connected socket; `tap`: one a queue; `ring`: the ring's memfd, the eventfd that the program
    /// writes, the eventfd that we write.
    Attach {
        /// The port's name.
        port: String,
    },
    /// The peer is gone, or is to go.
    Detach {
        /// The port's name.
        port: String,
    },
    /// Asks for [`Reply::State`].
    State,
    /// Asks for [`Reply::Table`].
    Table {
        /// The switch's name.
        switch: String,
    },
    /// Ends `data`.
    Stop,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// Its name, also its thread's.
    pub name: String,
    /// The core it is pinned to.
    pub core: Option<usize>,
    /// When it sleeps.
    pub poll: Poll,
    /// How long a queue stays polled after its last frame, in nanoseconds.
    pub spin: u64,
    /// How long frames of its ports wait for a full destination, in nanoseconds, where a port doesn't say.
    pub hold: u64,
}

/// When a worker sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poll {
    /// Polls active queues, arms idle ones, sleeps when all are idle.
    #[default]
    Adaptive,
    /// Never arms a queue, never sleeps.
    Always,
    /// Arms a queue as soon as it is empty.
    Never,
}

/// How a switch finds a frame's port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Lookup {
    /// Learns source addresses, floods what it doesn't know.
    Learning {
        /// Seconds after which an address that sends nothing is forgotten.
        ageing: u32,
        /// Addresses it can hold.
        entries: u32,
    },
    /// Addresses written in the file; others are dropped, group addresses flooded.
    Static {
        /// Address and port name.
        entries: Vec<(String, String)>,
    },
    /// Frames from any port but the members go to one member, by flow hash; frames from a member to `uplink`.
    Hash {
        /// Port names.
        members: Vec<String>,
        /// Port name.
        uplink: String,
    },
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its kind, with what that needs.
    pub kind: Kind,
    /// Where its frames go.
    pub to: To,
    /// The worker that takes its frames; the one with the fewest queues if none.
    pub worker: Option<String>,
    /// How long frames wait for a full destination before they are dropped, in nanoseconds; as long as its worker says
    /// if none.
    pub hold: Option<u64>,
    /// When its peer is notified; for `vhost-user` and `ring`.
    #[serde(default)]
    pub notify: Notify,
    /// First entry of the counters page that is this port's; one entry a queue.
    pub counters: u32,
}

/// Which habits of not notifying are in use with a port's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    /// One notification a burst, not one a frame.
    pub batch: bool,
    /// Notifications of one turn wait for its end, and are one; for so many nanoseconds at most, 0: they don't.
    pub combine: u64,
    /// Nanoseconds that have one notification at most; 0: no such window.
    pub moderate: u64,
    /// None while the peer says that it needs none.
    pub suppress: bool,
    /// The peer is asked for its notifications only while its queue is not polled.
    pub poll: bool,
}

impl Default for Notify {
    fn default() -> Notify {
        let Policy { batch, combine, moderate, suppress, poll } = Policy::default();
        Notify { batch, combine, moderate, suppress, poll }
    }
}

impl From<Notify> for Policy {
    fn from(notify: Notify) -> Policy {
        let Notify { batch, combine, moderate, suppress, poll } = notify;
        Policy { batch, combine, moderate, suppress, poll }
    }
}

/// Where a port's frames go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum To {
    /// To a switch.
    Switch(String),
    /// To the other port of a patch, which may be added later.
    Patch(String),
}

/// Kind of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Kind {
    /// A guest, by virtio-net.
    VhostUser {
        /// Queue pairs at most.
        queues: u16,
        /// Address offered to the guest.
        mac: Option<String>,
        /// MTU offered to the guest.
        mtu: Option<u16>,
        /// Features not to offer: names of the virtio specification in lower case, such as `packed`, `event-idx`.
        without: Vec<String>,
    },
    /// The host's stack.
    Tap {
        /// Queue pairs.
        queues: u16,
        /// MTU.
        mtu: u16,
        /// Whether checksum and segmentation offloads are used.
        offloads: bool,
    },
    /// A program.
    Ring,
    /// Swallows what it gets.
    Null,
    /// Sends without end.
    Source {
        /// Bytes a frame.
        size: u32,
        /// Destination address.
        to: String,
        /// Source address.
        from: String,
        /// Frames a second; as many as go if none.
        rate: Option<u64>,
    },
}

impl Kind {
    /// How many queue pairs, and so entries of the counters page, a port of this kind has.
    pub fn queues(&self) -> u16 {
        match self {
            Kind::VhostUser { queues, .. } | Kind::Tap { queues, .. } => (*queues).max(1),
            Kind::Ring | Kind::Null | Kind::Source { .. } => 1,
        }
    }

    /// The name that the file uses.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::VhostUser { .. } => "vhost-user",
            Kind::Tap { .. } => "tap",
            Kind::Ring => "ring",
            Kind::Null => "null",
            Kind::Source { .. } => "source",
        }
    }
}

/// What `data` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Said {
    /// The answer to a call.
    Reply {
        /// The call's number.
        id: u64,
        /// The answer.
        reply: Reply,
    },
    /// Something happened.
    Event(Event),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done.
    Done,
    /// Nothing was changed; why, for people.
    Refused(String),
    /// What runs.
    State(State),
    /// Addresses a switch knows.
    Table(Vec<TableEntry>),
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A port's peer is gone: it went, or broke its protocol. `control` brings the next one.
    Detached {
        /// The port's name.
        port: String,
        /// Why, for people.
        reason: String,
        /// Whether the peer broke its protocol.
        fault: bool,
    },
    /// A port's state changed.
    Changed(PortState),
}

/// What runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Every port.
    pub ports: Vec<PortState>,
    /// Every worker.
    pub workers: Vec<WorkerState>,
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
    /// What was negotiated, for people: `packed mrg csum tso`.
    pub detail: String,
    /// Name of the worker of its first queue.
    pub worker: String,
}

/// State of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerState {
    /// Its name.
    pub name: String,
    /// Queues it serves.
    pub queues: usize,
    /// Those of them that are polled now.
    pub active: usize,
    /// Turns since its start.
    pub turns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Nanoseconds of turns in which frames moved.
    #[serde(default)]
    pub busy: u64,
}

/// An address that a switch knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableEntry {
    /// The address.
    pub mac: String,
    /// The port's name.
    pub port: String,
    /// Seconds since it last sent; none for static entries.
    pub age: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_reads_as_it_was_written() {
        let call = Call {
            id: 7,
            request: Request::AddPort(Port {
                name: "a".into(),
                kind: Kind::VhostUser {
                    queues: 2,
                    mac: None,
                    mtu: Some(1500),
                    without: vec!["packed".into()],
                },
                to: To::Switch("s".into()),
                worker: None,
                hold: Some(100_000),
                notify: Notify { moderate: 50_000, ..Notify::default() },
                counters: 4,
            }),
        };
        let text = serde_json::to_string(&call).unwrap();
        assert_eq!(serde_json::from_str::<Call>(&text).unwrap(), call);
    }
}
