//! Closing descriptors whose close may block.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Closes descriptors on separate threads.
///
/// Attack: a peer sends descriptors on a file system that it serves itself, and never answers when they are
/// closed. The thread and the descriptors are then lost, so nothing more is accepted from the peer until
/// [`Closer::is_done`].
#[derive(Debug, Default)]
pub struct Closer(Arc<AtomicUsize>);

impl Closer {
    /// Closes them asynchronously.
    pub fn close(&self, descriptors: Vec<OwnedFd>) {
        let open = self.0.clone();
        open.fetch_add(1, Ordering::Relaxed);
        let close = move || {
            drop(descriptors);
            open.fetch_sub(1, Ordering::Relaxed);
        };
        // If no thread can be started, the descriptors are closed here, and the count records the failure.
        let _ = crate::spawn("closer", None, close);
    }

    /// Whether all have been closed.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}
