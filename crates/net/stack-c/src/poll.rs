//! `poll` of sockets.

use crate::{Result, table};
use libc::pollfd;
use ringway_host::{EventFd, wait_readable};
use std::ffi::c_int;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits until one of the sockets is ready, at most `timeout` milliseconds; as long as it takes if that is negative.
/// Returns how many are.
pub fn poll(list: &mut [pollfd], timeout: c_int) -> Result<c_int> {
    let event = Arc::new(EventFd::new().map_err(|_| libc::EMFILE)?);
    let end = u64::try_from(timeout).ok().map(|most| Instant::now() + Duration::from_millis(most));
    let sockets: Vec<_> = list.iter().map(|one| table::socket(one.fd).ok()).collect();
    let count = loop {
        event.clear();
        for (one, socket) in list.iter_mut().zip(&sockets) {
            one.revents = match socket {
                Some(socket) => socket.ready(one.events, &event),
                None if one.fd < 0 => 0,
                None => libc::POLLNVAL,
            };
        }
        let count = list.iter().filter(|one| one.revents != 0).count();
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if count > 0 || left.is_some_and(|left| left.is_zero()) {
            break count;
        }
        let most = left.map(|left| left.as_nanos() as u64);
        wait_readable(&[event.as_fd()], most).map_err(|_| libc::EIO)?;
    };
    for socket in sockets.iter().flatten() {
        socket.forget(&event);
    }
    Ok(count as c_int)
}
