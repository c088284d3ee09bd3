//! Polling descriptors known by number only, as elements of a function name them.
use std::time::Duration;

/// A descriptor with the events to wait for; after [`poll`], the events that occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The descriptor. One that is closed counts as ready, so that its owner notices.
    pub descriptor: i32,
    /// It can be read.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
}

/// Waits until one of the descriptors is ready, or for `most`; a signal interrupts it.
pub fn poll(wishes: &mut [Wish], most: Duration) {
    let events = |wish: &Wish| {
        let read = if wish.readable { libc::POLLIN } else { 0 };
        read | if wish.writable { libc::POLLOUT } else { 0 }
    };
    let entry = |wish: &Wish| libc::pollfd { fd: wish.descriptor, events: events(wish), revents: 0 };
    let mut watched: Vec<libc::pollfd> = wishes.iter().map(entry).collect();
    let time = libc::timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    // SAFETY: `watched` holds as many entries as are said, and they and `time` outlive the call.
    let ready = unsafe {
        libc::ppoll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, &raw const time, std::ptr::null())
    };
    for (wish, entry) in wishes.iter_mut().zip(&watched) {
        let there = if ready > 0 { entry.revents } else { 0 };
        wish.readable &= there & !libc::POLLOUT != 0;
        wish.writable &= there & !libc::POLLIN != 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn ready_descriptors_are_reported() {
        let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
        let wish = Wish { descriptor: left.as_raw_fd(), readable: true, writable: false };
        let mut wishes = [wish];
        poll(&mut wishes, Duration::ZERO);
        assert!(!wishes[0].readable);
        std::io::Write::write_all(&mut &right, b"x").unwrap();
        let mut wishes = [wish];
        poll(&mut wishes, Duration::from_secs(10));
        assert!(wishes[0].readable && !wishes[0].writable);
    }
}
