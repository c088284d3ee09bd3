//! The peer of a port: the interface common to all kinds.

use crate::frame_queue::Inside;
use crate::{Doorbell, Queue};
use ringway_frame::CountersRef;
use ringway_host::{EventFd, HostError};
use ringway_ring::Policy;
use ringway_spec::Port;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// A new port without an attached peer: its [`Peer`] object and its queues.
pub type Opened = Result<(Box<dyn Peer>, Vec<Queue>), PeerError>;

/// A kind of port on the side of the data path; [`crate::KINDS`] has a row for each.
pub struct PortKind {
    /// The kind's name in the configuration file.
    pub name: &'static str,
    /// Makes a port of this kind, without a peer yet, and its queues: one for each of the context's counters.
    pub open: fn(Context<'_>) -> Opened,
}

/// The environment of a new port.
pub struct Context<'a> {
    /// The port as the configuration file describes it.
    pub port: &'a Port,
    /// Doorbells of its queues' workers, one per queue.
    pub doorbells: Vec<Arc<dyn Doorbell>>,
    /// Counters of its queues, one per queue.
    pub counters: &'a [CountersRef],
    /// Signalled when [`Peer::check`] must be called.
    pub check: &'a Arc<EventFd>,
    /// Keeps what peers tell, for a data path that is started again.
    pub keeper: Option<&'a Arc<dyn PeerRecords>>,
}

/// Keeps messages and descriptors of peers outside this process, so that another one can go on if this one crashes.
pub trait PeerRecords: Send + Sync {
    /// Keeps a message of the peer of `port` under `key`, in place of a former one; without one, forgets it. When this
    /// returns, it outlives this process.
    fn keep(&self, port: &str, key: u32, message: Option<(&[u8], &[OwnedFd])>);
}

/// A message that was kept.
#[derive(Debug)]
pub struct PeerRecord {
    /// Its key.
    pub key: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors.
    pub fds: Vec<OwnedFd>,
}

impl Context<'_> {
    /// The notification policy.
    pub fn policy(&self) -> Policy {
        let ringway_spec::Notify { batch, combine, moderate, suppress, poll } = self.port.notify;
        Policy { batch, combine, moderate, suppress, poll }
    }
}

/// The peer side of a port. Called by the session thread only.
pub trait Peer: Send {
    /// Attaches a peer with these descriptors. Any former peer was detached before.
    ///
    /// # Errors
    /// The descriptors are not those that the kind needs, or are unusable.
    fn attach(&mut self, descriptors: Vec<OwnedFd>) -> Result<(), PeerError>;

    /// Attaches a peer again that was attached when the former data path ended; `kept` is what was kept of it, in the
    /// order of the keys.
    ///
    /// # Errors
    /// As [`Peer::attach`], or the peer can't go on. It is then detached.
    fn resume(&mut self, _kept: Vec<PeerRecord>, descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        self.attach(descriptors)
    }

    /// Detaches the peer. When this returns, no worker touches its memory.
    fn detach(&mut self);

    /// Gives the port to a function of this process.
    ///
    /// # Errors
    /// The kind serves no functions.
    fn join(&mut self, _inside: Arc<Inside>) -> Result<(), PeerError> {
        Err(PeerError::kind("a function needs a port of kind ring"))
    }

    /// Whether no frame waits in its rings, or in the queues of the function of this process that has it.
    fn is_quiet(&self) -> bool {
        true
    }

    /// Takes the port back from a function of this process, unless another one has it by now.
    fn leave(&mut self, _inside: &Arc<Inside>) {}

    /// A descriptor that is readable while the peer's session has messages, if it has a session.
    fn session(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Number of times that its session received bytes. If the session's descriptor becomes readable too often without
    /// that, the session is served only once a millisecond.
    fn received(&self) -> u64 {
        0
    }

    /// Handles the session's messages, and checks whether a worker detected a protocol violation.
    ///
    /// # Errors
    /// The peer is gone, or must go.
    fn check(&mut self) -> Result<(), Gone> {
        Ok(())
    }

    /// The peer's last request that was refused since the previous call, for the log.
    fn refused(&mut self) -> Option<String> {
        None
    }

    /// Changes settings that the peer need not know; `port` differs in nothing else.
    ///
    /// # Errors
    /// The kind has no such settings.
    fn change(&mut self, port: &Port) -> Result<(), PeerError> {
        Err(PeerError::kind(format!("a port of kind {} can't change while it runs", port.kind.name())))
    }

    /// Where the peer's accesses to registers and its interrupts went, if it has registers.
    fn exits(&self) -> Option<Exits> {
        None
    }

    /// Figures of the kind besides its counters, by name.
    fn gauges(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// Whether the peer shares memory, so that it can make accesses arbitrarily slow.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Its state, and the negotiated features, for people.
    fn state(&self) -> (State, String);

    /// Number of queues on which the peer receives now.
    fn receiving(&self) -> u32 {
        u32::MAX
    }
}

/// Accesses to a device's registers and interrupts since its client connected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exits {
    /// By register; those without accesses are left out.
    pub registers: Vec<RegisterExits>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterExits {
    /// Its name.
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Whether the client may map it; accesses through the mapping are not counted.
    pub mapped: bool,
}

/// State of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The port has no peer.
    Waiting,
    /// The port has a peer that has not set up its queues.
    Attached,
    /// Frames can pass.
    Up,
}

impl State {
    /// The state's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Attached => "attached",
            State::Up => "up",
        }
    }
}

/// Why a peer is gone.
#[derive(Debug)]
pub struct Gone {
    /// The reason, for people.
    pub reason: String,
    /// Whether the peer violated its protocol or exceeded its budget.
    pub fault: bool,
    /// Nanoseconds during which no other peer may attach.
    pub rest: u64,
}

/// Why a port can't be created, or its peer can't be attached.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The settings are not those of the kind.
    #[error("the settings: {0}")]
    Settings(#[from] serde_json::Error),
    /// Not the descriptors that the kind needs.
    #[error("a peer of kind {kind} comes with {wanted} descriptors, not {given}")]
    Descriptors {
        /// Kind of the port.
        kind: &'static str,
        /// Number that it needs.
        wanted: usize,
        /// Number received.
        given: usize,
    },
    /// The system refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The kind has no peer.
    #[error("a port of kind {0} has no peer to attach")]
    NoPeer(&'static str),
    /// An error of the kind itself.
    #[error("{0}")]
    Kind(Box<dyn std::error::Error + Send + Sync>),
}

impl PeerError {
    /// An error of the kind itself.
    pub fn kind(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> PeerError {
        PeerError::Kind(error.into())
    }
}

/// A worker's report to the session thread that a peer is gone.
pub struct Alarm {
    check: Arc<EventFd>,
    gone: Mutex<Option<Gone>>,
}

impl Alarm {
    /// An alarm that signals `check`.
    pub fn new(check: &Arc<EventFd>) -> Arc<Alarm> {
        Arc::new(Alarm { check: check.clone(), gone: Mutex::new(None) })
    }

    /// Reports that the peer is gone. Called by a worker; does not block.
    pub fn raise(&self, gone: Gone) {
        // The lock is held only for one store.
        if let Ok(mut place) = self.gone.lock() {
            *place = Some(gone);
        }
        self.check.signal();
    }

    /// The report raised since the last call.
    pub fn take(&self) -> Option<Gone> {
        self.gone.lock().ok().and_then(|mut gone| gone.take())
    }
}

/// Exactly `N` descriptors.
///
/// # Errors
/// There are more or fewer.
pub fn exactly<const N: usize>(kind: &'static str, given: Vec<OwnedFd>) -> Result<[OwnedFd; N], PeerError> {
    let count = given.len();
    given.try_into().map_err(|_| PeerError::Descriptors { kind, wanted: N, given: count })
}

/// The peer of a port without peers.
pub struct NoPeer(pub &'static str);

impl Peer for NoPeer {
    fn attach(&mut self, _descriptors: Vec<OwnedFd>) -> Result<(), PeerError> {
        Err(PeerError::NoPeer(self.0))
    }

    fn detach(&mut self) {}

    fn state(&self) -> (State, String) {
        (State::Up, String::new())
    }
}
