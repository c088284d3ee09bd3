//! Who polls a socket.

use ringway_host::EventFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

/// The events to signal when a socket becomes ready. The stack wakes one task of a socket, so that all who poll it
/// share this one. Their number is bounded by the program's own threads, and by one for each socket.
#[derive(Debug, Default)]
pub struct Watch(Mutex<Vec<Arc<EventFd>>>);

impl Watch {
    /// Signals `event` when the socket becomes ready, once.
    pub fn add(&self, event: &Arc<EventFd>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.iter().any(|one| Arc::ptr_eq(one, event)) {
            list.push(event.clone());
        }
    }

    /// Does not signal `event` any more.
    pub fn remove(&self, event: &Arc<EventFd>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|one| !Arc::ptr_eq(one, event));
    }

    /// Signals all.
    pub fn signal(&self) {
        let list = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        list.iter().for_each(|event| event.signal());
    }
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.signal();
    }
}
