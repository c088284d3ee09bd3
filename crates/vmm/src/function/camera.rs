//! Orders for snapshots of a function that runs.

use crate::snapshot::{Shutter, Snapshot};
use ringway_host::EventFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Why there is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PhotoError {
    /// The guest has ended.
    #[error("the guest has ended")]
    Ended,
    /// Another snapshot is awaited.
    #[error("another snapshot is awaited")]
    Busy,
    /// The snapshot failed.
    #[error("{0}")]
    Failed(String),
}

type Answer = Box<dyn FnOnce(Result<Snapshot, PhotoError>) + Send>;

/// Takes snapshots of a function that runs.
#[derive(Clone)]
pub struct Camera {
    sender: Sender<(Film, Answer)>,
    kick: Arc<EventFd>,
    shutter: Arc<Shutter>,
}

/// Where a snapshot's memory goes, and whether the guest is then stopped.
type Film = (OwnedFd, bool);

impl std::fmt::Debug for Camera {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Camera").finish_non_exhaustive()
    }
}

/// The monitor's side.
pub(super) struct Orders {
    receiver: Receiver<(Film, Answer)>,
    awaited: Option<Answer>,
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Orders").field("awaited", &self.awaited.is_some()).finish_non_exhaustive()
    }
}

impl Camera {
    /// `kick` wakes the monitor.
    pub(super) fn new(kick: EventFd, shutter: Arc<Shutter>) -> (Camera, Orders) {
        let (sender, receiver) = channel();
        (Camera { sender, kick: Arc::new(kick), shutter }, Orders { receiver, awaited: None })
    }

    /// Takes a snapshot; the memory goes to `file`, a memfd of the memory's size. `answer` is called when it was taken;
    /// never, if the guest does not take part.
    pub fn snapshot(
        &self,
        file: OwnedFd,
        answer: impl FnOnce(Result<Snapshot, PhotoError>) + Send + 'static,
    ) {
        self.order((file, false), Box::new(answer));
    }

    /// Takes a snapshot and stops the guest at it until [`Camera::thaw`].
    pub fn freeze(&self, file: OwnedFd, answer: impl FnOnce(Result<Snapshot, PhotoError>) + Send + 'static) {
        self.order((file, true), Box::new(answer));
    }

    /// Lets a stopped guest resume.
    pub fn thaw(&self) {
        self.shutter.thaw();
    }

    fn order(&self, film: Film, answer: Answer) {
        match self.sender.send((film, answer)) {
            Ok(()) => self.kick.signal(),
            Err(order) => order.0.1(Err(PhotoError::Ended)),
        }
    }
}

impl Orders {
    /// The next order.
    pub fn next(&mut self) -> Option<Film> {
        loop {
            let (film, answer) = self.receiver.try_recv().ok()?;
            if self.awaited.is_none() {
                self.awaited = Some(answer);
                return Some(film);
            }
            answer(Err(PhotoError::Busy));
        }
    }

    /// The awaited one was taken, or could not be.
    pub fn taken(&mut self, result: Result<Snapshot, String>) {
        if let Some(answer) = self.awaited.take() {
            answer(result.map_err(PhotoError::Failed));
        }
    }
}
