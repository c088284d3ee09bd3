//! How a queue, or whoever sets it up, reaches the worker that serves it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A queue's way to its worker.
pub trait Doorbell: Send + Sync {
    /// Has the worker look at the queue in its next turn, whether it is busy or asleep.
    fn wake(&self);

    /// From now on, `kick` becoming readable wakes the worker (edge-triggered: nobody needs to read it). Replaces
    /// the descriptor watched before.
    fn watch(&self, kick: Arc<OwnedFd>);

    /// Stops watching.
    fn unwatch(&self);
}

/// A doorbell that nobody hears: for queues that are polled always, and for tests.
#[derive(Debug, Default)]
pub struct Silent;

impl Doorbell for Silent {
    fn wake(&self) {}

    fn watch(&self, _kick: Arc<OwnedFd>) {}

    fn unwatch(&self) {}
}
