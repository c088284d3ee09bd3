//! What the ways of starting a process have in common: a copy of this process with a socket to it, and what Rust's
//! runtime and the parent changed.

use crate::error::{HostError, Named};
use crate::tap::last_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use rustix::thread::CapabilitySet;
use std::os::fd::OwnedFd;

/// A side of a fork, with its end of a socket for messages.
pub(crate) enum Forked {
    /// The caller, and its child.
    Parent(Pid, OwnedFd),
    /// The child. It has one thread, and must neither return to its caller's callers nor run destructors of theirs.
    Child(OwnedFd),
}

/// Forks. To be called while this process has one thread.
///
/// # Errors
/// There can't be one more process.
pub(crate) fn fork() -> Result<Forked, HostError> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .named("socketpair")?;
    // SAFETY: the child has one thread, a copy of this one; the C library's fork leaves its allocator usable there.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child(theirs)),
        child => match Pid::from_raw(child).filter(|_| child > 0) {
            Some(process) => Ok(Forked::Parent(process, ours)),
            None => Err(HostError::Call { call: "fork", error: last_error() }),
        },
    }
}

/// Undoes what Rust's runtime and our parent changed.
pub(crate) fn default_signals() {
    // SAFETY: a set of signals is numbers, all of whose values are valid; the calls read and write it only.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// No program that this process executes has other capabilities than `kept`.
pub(crate) fn bound_capabilities(kept: CapabilitySet) {
    for capability in (0..64).filter(|capability| kept.bits() & 1 << capability == 0) {
        // SAFETY: the call takes numbers only. What isn't there, or isn't ours, needs no dropping.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    // A kernel without ambient capabilities has none to drop.
    let _ = rustix::thread::clear_ambient_capability_set();
}
