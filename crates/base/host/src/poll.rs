//! Polling descriptors known by number only, as elements of a function name them.
use std::time::Duration;

/// A descriptor with the events to wait for; after [`poll`], the events that occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollFd {
    /// The descriptor. One that is closed counts as ready, so that its owner notices.
    pub descriptor: i32,
    /// Whether it is, or must become, readable.
    pub readable: bool,
    /// Whether it is, or must become, writable.
    pub writable: bool,
}

/// Waits until one of the descriptors is ready, or for `most`; a signal interrupts it.
pub fn poll(poll_fds: &mut [PollFd], most: Duration) {
    let events = |poll_fd: &PollFd| {
        let read = if poll_fd.readable { libc::POLLIN } else { 0 };
        read | if poll_fd.writable { libc::POLLOUT } else { 0 }
    };
    let entry =
        |poll_fd: &PollFd| libc::pollfd { fd: poll_fd.descriptor, events: events(poll_fd), revents: 0 };
    let mut watched: Vec<libc::pollfd> = poll_fds.iter().map(entry).collect();
    let time = libc::timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    // SAFETY: the call gets the number of entries in `watched`, and these and `time` outlive it.
    let ready = unsafe {
        libc::ppoll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, &raw const time, std::ptr::null())
    };
    for (poll_fd, entry) in poll_fds.iter_mut().zip(&watched) {
        let there = if ready > 0 { entry.revents } else { 0 };
        poll_fd.readable &= there & !libc::POLLOUT != 0;
        poll_fd.writable &= there & !libc::POLLIN != 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn ready_descriptors_are_reported() {
        let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
        let poll_fd = PollFd { descriptor: left.as_raw_fd(), readable: true, writable: false };
        let mut poll_fds = [poll_fd];
        poll(&mut poll_fds, Duration::ZERO);
        assert!(!poll_fds[0].readable);
        std::io::Write::write_all(&mut &right, b"x").unwrap();
        let mut poll_fds = [poll_fd];
        poll(&mut poll_fds, Duration::from_secs(10));
        assert!(poll_fds[0].readable && !poll_fds[0].writable);
    }
}
