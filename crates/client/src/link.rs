//! The part of a ring that both directions share.

use crate::RingError;
use ringway_host::Signal;
use ringway_ring::RingMemory;
use rustix::event::epoll;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

const CALL: u64 = 0;
const SOCKET: u64 = 1;

/// The memory and the descriptors of a ring.
#[derive(Debug)]
pub(crate) struct Link {
    pub memory: RingMemory,
    kick: Signal,
    pub kick_fd: Arc<OwnedFd>,
    pub call: OwnedFd,
    epoll: OwnedFd,
}

impl Link {
    pub fn new(
        memory: RingMemory,
        kick: OwnedFd,
        call: OwnedFd,
        socket: &UnixStream,
    ) -> Result<Link, RingError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edge-triggered, so that the eventfd never has to be read.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &call, epoll::EventData::new_u64(CALL), edge)?;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&epoll, socket, epoll::EventData::new_u64(SOCKET), interest)?;
        let kick_fd = Arc::new(kick);
        let kick = Signal::of(kick_fd.clone())?;
        Ok(Link { memory, kick, kick_fd, call, epoll })
    }

    /// Notifies the other side.
    #[cold]
    pub fn kick(&self) {
        self.kick.send();
    }

    /// Sleeps until the other side notifies us; `false` after `timeout`.
    pub fn sleep(&self, timeout: Option<Duration>) -> Result<bool, RingError> {
        let timeout = timeout.map(|time| rustix::time::Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 2];
        let (events, _) = match epoll::wait(self.epoll.as_fd(), &mut events, timeout.as_ref()) {
            Ok(events) => events,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        // The socket only becomes readable for a pipe's new end, or when it is closed.
        if events.iter().any(|event| event.data.u64() == SOCKET) {
            return Err(RingError::Closed);
        }
        Ok(!events.is_empty())
    }
}
