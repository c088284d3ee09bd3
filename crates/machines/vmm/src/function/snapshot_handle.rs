//! SnapshotRequests for snapshots of a function that runs.

use crate::snapshot::{Snapshot, SnapshotRequest};
use ringway_host::EventFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Why there is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The guest has ended.
    #[error("the guest has ended")]
    Ended,
    /// Another snapshot is awaited.
    #[error("another snapshot of the function is being taken")]
    Busy,
    /// The snapshot failed.
    #[error("{0}")]
    Failed(String),
}

type Answer = Box<dyn FnOnce(Result<Snapshot, SnapshotError>) + Send>;

/// Takes snapshots of a function that runs.
#[derive(Clone)]
pub struct SnapshotHandle {
    sender: Sender<(Target, Answer)>,
    kick: Arc<EventFd>,
    snapshot_request: Arc<SnapshotRequest>,
}

/// Where a snapshot's memory goes, and whether the guest is then stopped.
type Target = (OwnedFd, bool);

impl std::fmt::Debug for SnapshotHandle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SnapshotHandle").finish_non_exhaustive()
    }
}

/// The monitor's side.
pub(super) struct SnapshotRequests {
    receiver: Receiver<(Target, Answer)>,
    awaited: Option<Answer>,
}

impl std::fmt::Debug for SnapshotRequests {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SnapshotRequests").field("awaited", &self.awaited.is_some()).finish_non_exhaustive()
    }
}

impl SnapshotHandle {
    /// `kick` wakes the monitor.
    pub(super) fn new(
        kick: EventFd,
        snapshot_request: Arc<SnapshotRequest>,
    ) -> (SnapshotHandle, SnapshotRequests) {
        let (sender, receiver) = channel();
        (
            SnapshotHandle { sender, kick: Arc::new(kick), snapshot_request },
            SnapshotRequests { receiver, awaited: None },
        )
    }

    /// Takes a snapshot; the memory goes to `file`, a memfd of the memory's size. `answer` is called when it was taken;
    /// never, if the guest does not take part.
    pub fn snapshot(
        &self,
        file: OwnedFd,
        answer: impl FnOnce(Result<Snapshot, SnapshotError>) + Send + 'static,
    ) {
        self.order((file, false), Box::new(answer));
    }

    /// Takes a snapshot and stops the guest at it until [`SnapshotHandle::thaw`].
    pub fn freeze(
        &self,
        file: OwnedFd,
        answer: impl FnOnce(Result<Snapshot, SnapshotError>) + Send + 'static,
    ) {
        self.order((file, true), Box::new(answer));
    }

    /// Lets a stopped guest resume.
    pub fn thaw(&self) {
        self.snapshot_request.thaw();
    }

    fn order(&self, target: Target, answer: Answer) {
        match self.sender.send((target, answer)) {
            Ok(()) => self.kick.signal(),
            Err(order) => order.0.1(Err(SnapshotError::Ended)),
        }
    }
}

impl SnapshotRequests {
    /// The next order.
    pub fn next(&mut self) -> Option<Target> {
        loop {
            let (target, answer) = self.receiver.try_recv().ok()?;
            if self.awaited.is_none() {
                self.awaited = Some(answer);
                return Some(target);
            }
            answer(Err(SnapshotError::Busy));
        }
    }

    /// The awaited one was taken, or could not be.
    pub fn taken(&mut self, result: Result<Snapshot, String>) {
        if let Some(answer) = self.awaited.take() {
            answer(result.map_err(SnapshotError::Failed));
        }
    }
}
