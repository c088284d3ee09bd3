//! Live migration of QEMU guests between fabrics.
//!
//! The source's `control` leads ([`source`]): it asks the destination to prepare ([`arrival`]), copies memory from QEMU
//! to QEMU, stops its own guest, and asks the destination to activate the other one. Both name the attempt by a ticket.
//! Only the source asks to activate, once, after its guest has stopped; and it lets its own guest go on only if it has
//! not asked, or if the destination says that it neither has activated the ticket nor ever will. Only the fabric that
//! prepared the guest can say so ([`identity`]); if it never answers again, an operator decides.
//!
//! Fabrics of one host reach each other by the control socket, those of two hosts by ssh ([`ssh`], [`receiver`]).

pub mod arrival;
pub mod check;
pub mod identity;
pub mod limit;
pub mod receiver;
pub mod remote;
pub mod source;
pub mod ssh;

use remote::RemoteError;
use ringway_linux_guests::MonitorError;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use utoipa::ToSchema;

/// Why a guest was not migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// QEMU does not do it.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The other fabric does not do it.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The guest can't be described.
    #[error("what it was started with is not known ({0}): an older version started it; start it again")]
    Facts(#[source] io::Error),
    /// Its virtual machine is in another state.
    #[error("its virtual machine is {0}, not running")]
    State(String),
    /// The way for its memory broke.
    #[error("the connection for its memory: {0}")]
    Way(#[source] io::Error),
    /// The destination is not named as one.
    #[error(transparent)]
    Address(#[from] ssh::AddressError),
    /// QEMU gave up.
    #[error("QEMU ended the migration: {0}")]
    Ended(String),
    /// An operator ended it.
    #[error("it was cancelled")]
    Cancelled,
    /// An operator decided that the guest goes on at the source.
    #[error("an operator decided that it goes on here; whether the other fabric runs it is not known")]
    Resolved,
    /// The fabric is going down.
    #[error("the fabric is going down")]
    Down,
}

/// A guest to migrate.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewMigration {
    /// The control socket of another fabric of this host, or `ssh://[USER@]HOST[:PORT][/FABRIC]`.
    pub to: String,
    /// Most bytes of memory that are copied in a second while the guest runs; without it, as many as possible.
    #[serde(default)]
    pub bandwidth: Option<u64>,
}

/// How far a migration is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MigrationView {
    /// The guest.
    pub guest: String,
    /// The control socket or the address of the other fabric.
    pub to: String,
    /// `preparing`, `copying`, `stopping`, `activating`, `asking` (whether the other fabric has activated it), and at
    /// the end `done`, `failed` or `cancelled`.
    pub stage: String,
    /// Bytes of memory that were sent.
    pub transferred: u64,
    /// Bytes of memory that are left, as far as is known.
    pub remaining: u64,
    /// Bytes of memory of the guest.
    pub total: u64,
    /// How often changed pages were looked for.
    pub rounds: u64,
    /// Milliseconds for which QEMU had stopped the guest.
    pub downtime: u64,
    /// Why it failed.
    pub error: String,
    /// Where an operator decided that the guest runs, `source` or `destination`, if nobody could say it.
    #[serde(default)]
    pub resolved: String,
}

/// One of the two fabrics of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MigrationEnd {
    /// The one where the guest was.
    Source,
    /// The one to which it was to go.
    Destination,
}

impl MigrationEnd {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            MigrationEnd::Source => "source",
            MigrationEnd::Destination => "destination",
        }
    }
}

/// An operator's decision about a guest of which nobody can say where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MigrationDecision {
    /// Where it runs from now on.
    pub runs_at: MigrationEnd,
}

/// A port of a guest that is to arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MovingPort {
    /// Its name.
    pub name: String,
    /// Its queue pairs.
    pub queues: u16,
    /// The MTU that it offers, if it does.
    pub mtu: Option<u16>,
    /// Features that it does not offer.
    pub without: Vec<String>,
    /// Bytes of memory that it may be given.
    pub memory: u64,
}

/// A guest that is to arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GuestArrival {
    /// Its name.
    pub name: String,
    /// The attempt; no two have the same.
    pub ticket: String,
    /// QEMU's machine type.
    pub machine: String,
    /// QEMU's version.
    pub qemu: String,
    /// `KVM` or `TCG`.
    pub accelerator: String,
    /// The model of its processor.
    pub processor: String,
    /// Memory in MiB.
    pub memory: u64,
    /// Virtual processors.
    pub processors: u32,
    /// Size and hash of its kernel.
    pub kernel: String,
    /// Size and hash of its initial file system.
    pub initrd: String,
    /// Its kernel's command line.
    pub command_line: String,
    /// The addresses of its interfaces.
    pub macs: Vec<String>,
    /// Its ports.
    pub ports: Vec<MovingPort>,
}

/// A guest is to go on where it has arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Activation {
    /// When it stopped, in nanoseconds of the host's CLOCK_MONOTONIC, if that is known and both fabrics are on one
    /// host.
    #[serde(default)]
    pub stopped: Option<u64>,
    /// Nanoseconds between the stop and this request, if that is known and the fabrics are on two hosts. The time that
    /// the request takes makes the stop later, so that no frame comes twice.
    #[serde(default)]
    pub stopped_ago: Option<u64>,
    /// All frames that it got in so many nanoseconds before it stopped are in `delivered`; without it, none of them is
    /// known.
    #[serde(default)]
    pub known: Option<u64>,
    /// Fingerprints of the frames that it got there, which are not delivered again, in their order.
    #[serde(default)]
    pub delivered: Vec<u64>,
}

impl Activation {
    /// When it stopped, in nanoseconds of this host's CLOCK_MONOTONIC, if the request came at `now`; 0 if that is not
    /// known.
    fn stopped_at(&self, now: u64) -> u64 {
        let ago = |ago| now.saturating_sub(ago).max(1);
        self.stopped.or(self.stopped_ago.map(ago)).unwrap_or_default()
    }
}

/// State of a guest that arrives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArrivalView {
    /// The guest.
    pub guest: String,
    /// The attempt.
    pub ticket: String,
    /// `receiving`, `loaded`, `activating`, `active` or `failed`.
    pub state: String,
    /// The socket for its memory.
    pub stream: String,
    /// Why it failed.
    pub reason: String,
}

/// The stage in which it is not known where the guest runs.
const ASKING: &str = "asking";

/// How far a migration is, shared by those who lead it and who watch it.
#[derive(Debug)]
pub struct Progress {
    view: Mutex<MigrationView>,
    cancelled: AtomicBool,
    /// What an operator has decided, if the other fabric can't be asked.
    decision: Mutex<Option<MigrationEnd>>,
}

impl Progress {
    /// A migration that begins.
    pub fn new(guest: &str, to: &str) -> Progress {
        let view = MigrationView {
            guest: guest.into(),
            to: to.into(),
            stage: "preparing".into(),
            ..MigrationView::default()
        };
        Progress { view: Mutex::new(view), cancelled: AtomicBool::new(false), decision: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, MigrationView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is.
    pub fn view(&self) -> MigrationView {
        self.lock().clone()
    }

    /// Asks to end it. It ends as failed or done nevertheless if it is too late.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Forgets what was decided, if something was.
    pub fn forget_decision(&self) -> bool {
        self.decision.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// Decides where the guest runs, if that is not known; whether it is so. If the other fabric still answers, its
    /// answer counts.
    pub fn decide(&self, end: MigrationEnd) -> bool {
        let view = self.lock();
        let is_unknown = view.stage == ASKING;
        if is_unknown {
            *self.decision.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        }
        is_unknown
    }

    fn decision(&self) -> Option<MigrationEnd> {
        *self.decision.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolved(&self, end: MigrationEnd) {
        self.lock().resolved = end.name().into();
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    fn enter(&self, stage: &str) {
        let mut view = self.lock();
        tracing::info!(guest = view.guest, to = view.to, stage, "migration");
        view.stage = stage.into();
    }

    fn fail(&self, error: &MigrationError) {
        self.enter(if matches!(error, MigrationError::Cancelled) { "cancelled" } else { "failed" });
        self.lock().error = error.to_string();
    }
}

/// A name for an attempt.
pub fn ticket() -> String {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    uuid.trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stop_on_another_host_is_counted_from_the_request() {
        let at = |stopped, stopped_ago| {
            Activation { stopped, stopped_ago, ..Activation::default() }.stopped_at(1000)
        };
        assert_eq!(
            [at(Some(7), None), at(None, Some(30)), at(None, Some(5000)), at(None, None)],
            [7, 970, 1, 0]
        );
        // An older version sends less, and reads less.
        let empty: Activation = serde_json::from_str("{}").unwrap();
        assert_eq!(empty, Activation::default());
    }
}
