//! The session's descriptors: those that its thread waits for, and the eventfd that wakes it.

use super::{KICK, SOCKET, WAKEUP};
use crate::vhost_user::iommu::Wakeup;
use ringway_host::{Budget, Epoll, EventFd, HostError};
use ringway_vhost_user::Refused;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A session with a front-end, and state that persists until the next one.
pub(super) struct Session {
    /// Present during a session.
    pub epoll: Option<Epoll>,
    /// The control queue's kick fd, while it is watched.
    pub kick: Option<Arc<OwnedFd>>,
    /// The back-end channel.
    pub channel: Option<OwnedFd>,
    /// Signalled by workers that lack a translation.
    pub wakeup: Wakeup,
    /// The budget for waking the front-end.
    pub budget: Arc<Budget>,
}

impl Session {
    pub fn new(wakeup: Wakeup, budget: Arc<Budget>) -> Session {
        Session { epoll: None, kick: None, channel: None, wakeup, budget }
    }

    /// Begins a session on `socket`.
    pub fn begin(&mut self, socket: BorrowedFd<'_>) -> Result<(), HostError> {
        let epoll = Epoll::new()?;
        epoll.add_level(socket, SOCKET)?;
        if self.wakeup.get().is_none() {
            let _ = self.wakeup.set(EventFd::new()?);
        }
        if let Some(wakeup) = self.wakeup.get() {
            epoll.add_level(wakeup.as_fd(), WAKEUP)?;
        }
        self.budget.renew();
        self.epoll = Some(epoll);
        Ok(())
    }

    /// Closes the front-end's descriptors.
    pub fn end(&mut self) {
        (self.epoll, self.kick, self.channel) = (None, None, None);
    }

    /// Watches the control queue's kicks.
    pub fn watch(&mut self, kick: Arc<OwnedFd>) -> Result<(), Refused> {
        let Some(epoll) = &self.epoll else { return Ok(()) };
        // Edge-triggered. Attack: a descriptor that is always readable would keep the thread busy.
        epoll.add_edge(kick.as_fd(), KICK).map_err(|error| Refused(error.to_string()))?;
        self.kick = Some(kick);
        Ok(())
    }

    /// Stops watching the control queue's kicks.
    pub fn unwatch(&mut self) {
        if let (Some(epoll), Some(kick)) = (&self.epoll, self.kick.take()) {
            let _ = epoll.delete(kick.as_fd());
        }
    }
}
