//! Waking the worker that serves a queue, by the queue or by the session thread that sets it up.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Wakes the worker that serves a queue.
pub trait Doorbell: Send + Sync {
    /// Makes the worker poll the queue in its next turn, whether it is busy or asleep.
    fn wake(&self);

    /// From now on, `kick` becoming readable wakes the worker (edge-triggered: it need not be read). Replaces the
    /// descriptor watched before.
    fn watch(&self, kick: Arc<OwnedFd>);

    /// Stops watching the kick descriptor.
    fn unwatch(&self);
}

/// A doorbell without effect: for queues that are always polled, and for tests.
#[derive(Debug, Default)]
pub struct Silent;

impl Doorbell for Silent {
    fn wake(&self) {}

    fn watch(&self, _kick: Arc<OwnedFd>) {}

    fn unwatch(&self) {}
}
