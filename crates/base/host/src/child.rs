//! A child process that does work which this process must not do itself.

use crate::error::HostError;
use crate::process_setup::{Forked, fork};
use rustix::process::Pid;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

/// Number of the child's only descriptor besides standard input and the outputs.
const SOCKET: i32 = 3;

/// Starts a child that calls `work` with its end of a socket for messages, has no other descriptors but standard input
/// and the outputs, and exits with what `work` returns. Returns the child and this process's end. To be called while
/// this process has one thread.
///
/// # Errors
/// There can't be one more process.
pub fn start_child(work: impl FnOnce(OwnedFd) -> i32) -> Result<(Pid, OwnedFd), HostError> {
    let theirs = match fork()? {
        Forked::Parent(process, ours) => return Ok((process, ours)),
        Forked::Child(theirs) => theirs.into_raw_fd(),
    };
    // SAFETY: the calls take numbers. The descriptors that they close belong to values which this process never uses or
    // drops again, since it ends below.
    let socket = unsafe {
        if theirs != SOCKET {
            libc::dup2(theirs, SOCKET);
        }
        libc::syscall(libc::SYS_close_range, SOCKET + 1, u32::MAX, 0);
        OwnedFd::from_raw_fd(SOCKET)
    };
    let code = work(socket);
    // SAFETY: it ends this process, without what the parent has registered to be run at its end.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitOptions, waitpid};

    #[test]
    fn a_child_has_a_socket_and_ends_with_its_result() {
        let (child, ours) = start_child(|socket| {
            let mut bytes = [0; 8];
            let received = rustix::io::read(&socket, &mut bytes).unwrap_or(0);
            let sent = rustix::io::write(&socket, &bytes[..received]).unwrap_or(0);
            // The end.
            let end = rustix::io::read(&socket, &mut bytes);
            if received == 5 && sent == 5 && end == Ok(0) { 7 } else { 8 }
        })
        .unwrap();
        rustix::io::write(&ours, b"hello").unwrap();
        let mut bytes = [0; 8];
        assert_eq!((rustix::io::read(&ours, &mut bytes), &bytes[..5]), (Ok(5), &b"hello"[..]));
        drop(ours);
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(7));
    }
}
