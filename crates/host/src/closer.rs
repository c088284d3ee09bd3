//! Closing what may make whoever closes it wait.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Closes descriptors on threads of their own.
///
/// Attack: a peer sends descriptors on a file system that it serves itself, and never answers when they are closed. A
/// thread and the descriptors are lost to it then, so nothing more is taken from it until [`Closer::is_done`].
#[derive(Debug, Default)]
pub struct Closer(Arc<AtomicUsize>);

impl Closer {
    /// Has them closed, some time.
    pub fn close(&self, descriptors: Vec<OwnedFd>) {
        let open = self.0.clone();
        open.fetch_add(1, Ordering::Relaxed);
        let close = move || {
            drop(descriptors);
            open.fetch_sub(1, Ordering::Relaxed);
        };
        // Where no thread can be had the descriptors are closed here, and the count shows for ever that it went wrong.
        let _ = crate::spawn("closer", None, close);
    }

    /// Whether all of them are closed.
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}
