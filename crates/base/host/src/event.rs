//! Eventfds, epoll, and waiting for descriptors.

use crate::error::{HostError, Named};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of events that one call of [`Epoll::wait`] reports.
const EVENTS: usize = 64;

/// An eventfd that wakes waiting threads.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new non-blocking eventfd.
    pub fn new() -> Result<EventFd, HostError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(EventFd(rustix::event::eventfd(0, flags).named("eventfd")?))
    }

    /// Signals our own eventfd, which no other process can access.
    pub fn signal(&self) {
        // A full eventfd is signalled already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Clears pending signals; returns whether there were any.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }

    /// The descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl From<OwnedFd> for EventFd {
    fn from(fd: OwnedFd) -> EventFd {
        EventFd(fd)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sets O_NONBLOCK on a peer's descriptor that we write.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), HostError> {
    let flags = rustix::fs::fcntl_getfl(fd).named("reading a descriptor's flags")?;
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)
        .named("making a descriptor non-blocking")
}

impl From<Epoll> for OwnedFd {
    /// Readable while one of the set is.
    fn from(epoll: Epoll) -> OwnedFd {
        epoll.0
    }
}

impl AsFd for Epoll {
    /// Readable while one of the set is.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    pub fn new() -> Result<Epoll, HostError> {
        Ok(Epoll(epoll::create(epoll::CreateFlags::CLOEXEC).named("epoll_create")?))
    }

    /// Adds a descriptor, edge-triggered, reported as `key`; an added one is reported as `key` from now on, and at once
    /// if it is readable.
    pub fn add_edge(&self, fd: BorrowedFd<'_>, key: u64) -> Result<(), HostError> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(key);
        let added = match epoll::add(&self.0, fd, data, flags) {
            Err(Errno::EXIST) => epoll::modify(&self.0, fd, data, flags),
            added => added,
        };
        added.named("watching a descriptor")
    }

    /// Adds a descriptor, level-triggered, reported as `key`.
    pub fn add_level(&self, fd: BorrowedFd<'_>, key: u64) -> Result<(), HostError> {
        let flags = epoll::EventFlags::IN;
        epoll::add(&self.0, fd, epoll::EventData::new_u64(key), flags).named("watching a descriptor")
    }

    /// Removes a descriptor.
    pub fn delete(&self, fd: BorrowedFd<'_>) -> Result<(), HostError> {
        epoll::delete(&self.0, fd).named("no longer watching a descriptor")
    }

    /// Waits for at most `timeout` nanoseconds, or without a limit; calls `each` for every reported key.
    pub fn wait(&self, timeout: Option<u64>, mut each: impl FnMut(u64)) {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        // A signal, a timeout, or any other error reports no events.
        let events = match timeout {
            Some(0) | None => epoll::wait(&self.0, &mut events, timeout.map(timespec).as_ref()),
            Some(timeout) => self.wait_exactly(&mut events, timeout),
        };
        let Ok((events, _)) = events else { return };
        events.iter().for_each(|event| each(event.data.u64()));
    }

    /// Waits with nanosecond resolution; with milliseconds on kernels before 5.11.
    fn wait_exactly<'e>(
        &self,
        events: &'e mut [MaybeUninit<epoll::Event>],
        timeout: u64,
    ) -> Result<(&'e mut [epoll::Event], &'e mut [MaybeUninit<epoll::Event>]), Errno> {
        static KNOWN: AtomicBool = AtomicBool::new(true);
        if KNOWN.load(Ordering::Relaxed) {
            let time = timespec(timeout);
            let (room, mask) = (events.len() as libc::c_int, std::ptr::null::<libc::sigset_t>());
            // SAFETY: the kernel writes at most `room` events, and `events` has room for as many; `time` has
            // the form of the kernel's `__kernel_timespec`.
            let count = unsafe {
                let fd = self.0.as_raw_fd();
                libc::syscall(libc::SYS_epoll_pwait2, fd, events.as_mut_ptr(), room, &raw const time, mask, 8)
            };
            if let Ok(count) = usize::try_from(count) {
                let (written, rest) = events.split_at_mut(count.min(events.len()));
                // SAFETY: the kernel wrote the first `count` events.
                return Ok((unsafe { &mut *(std::ptr::from_mut(written) as *mut [epoll::Event]) }, rest));
            }
            match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::NOSYS) => KNOWN.store(false, Ordering::Relaxed),
                error => return Err(error.unwrap_or(Errno::IO)),
            }
        }
        epoll::wait(&self.0, events, Some(&timespec(timeout.next_multiple_of(1_000_000))))
    }
}

fn timespec(nanoseconds: u64) -> Timespec {
    Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as i64 }
}

/// Waits until one of the descriptors is readable or closed, or for `timeout` nanoseconds. Returns which ones are.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], timeout: Option<u64>) -> Result<Vec<bool>, HostError> {
    let timeout = timeout.map(timespec);
    let watched = descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
    let mut watched: Vec<_> = watched.collect();
    loop {
        match rustix::event::poll(&mut watched, timeout.as_ref()) {
            Ok(_) => return Ok(watched.iter().map(|fd| !fd.revents().is_empty()).collect()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(HostError::Call { call: "poll", error }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_reported_once_for_each_signal() {
        let (epoll, event) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        epoll.add_edge(event.as_fd(), 7).unwrap();
        let keys = |timeout| {
            let mut keys = Vec::new();
            epoll.wait(Some(timeout), |key| keys.push(key));
            keys
        };
        assert_eq!(keys(0), []);
        for _ in 0..3 {
            event.signal();
            assert_eq!(keys(1_000_000_000), [7]);
            assert_eq!(keys(0), []);
        }
        assert!(event.clear() && !event.clear());
        epoll.delete(event.as_fd()).unwrap();
        event.signal();
        assert_eq!(keys(0), []);
    }
}
