//! Signals as descriptors, and the ends of processes.

use crate::error::{HostError, Named};
use crate::tap::last_error;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Signals that are taken from a descriptor instead of being delivered.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

/// A signal, and whether a process sent it. The kernel sends those of a terminal to all processes in its foreground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub number: i32,
    /// Whether a process sent it to this one.
    pub is_sent: bool,
}

impl SignalFd {
    /// Takes these signals. Threads that exist already still get theirs.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(signals: &[i32]) -> Result<SignalFd, HostError> {
        // SAFETY: a set of signals is numbers, all of whose values are valid; the calls read and write it only.
        let number = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            signals.iter().for_each(|signal| _ = libc::sigaddset(&raw mut set, *signal));
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if number < 0 {
            return Err(HostError::Call { call: "signalfd", error: last_error() });
        }
        // SAFETY: the kernel has just opened it for us.
        Ok(SignalFd(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// The next signal that has arrived.
    pub fn next(&self) -> Option<Arrived> {
        // SAFETY: all zeros is a valid `signalfd_siginfo`.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let len = size_of_val(&info);
        // SAFETY: the kernel writes at most `len` bytes there, and every bit pattern is valid.
        let count = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), len) };
        (count == len as isize)
            .then_some(Arrived { number: info.ssi_signo.cast_signed(), is_sent: info.ssi_code <= 0 })
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets orphans among the descendants of this process become its children, so that it can end them.
///
/// # Errors
/// Never on Linux.
pub fn become_subreaper() -> Result<(), HostError> {
    // SAFETY: the call takes numbers only.
    let done = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if done == 0 { Ok(()) } else { Err(last_error()).named("PR_SET_CHILD_SUBREAPER") }
}

/// Lets this thread, and those that it starts, get all signals again, of which a program inherits what its parent
/// took by [`SignalFd`].
pub fn unblock_signals() {
    // SAFETY: a set of signals is numbers, all of whose values are valid; the calls read and write it only.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Sends a signal by its number; a process that is gone needs none.
pub fn pass_signal(process: Pid, number: i32) {
    if let Some(signal) = Signal::from_named_raw(number) {
        let _ = kill_process(process, signal);
    }
}

/// Ends this process by the same signal that ended another, without a core dump of its own. Returns if it can't.
pub fn end_by_signal(number: i32) {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    // Without it the core dump would be of this program.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // SAFETY: the calls take numbers, and a set of signals of which all values are valid.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, number);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(number);
    }
}

/// Collects children that have ended, of any process group; the status of `wanted` if it is one of them.
pub fn collect_children(wanted: Pid) -> Option<WaitStatus> {
    let mut found = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((process, status))) if process == wanted => found = Some(status),
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(_) => return found,
        }
    }
}

/// The children of this process's first thread, which are those that come to it as orphans too.
pub fn children() -> Vec<i32> {
    children_of(rustix::process::getpid())
}

/// The children of a process's first thread; none if it is gone, or another user's.
pub fn children_of(process: Pid) -> Vec<i32> {
    let number = process.as_raw_nonzero();
    let text = std::fs::read_to_string(format!("/proc/{number}/task/{number}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Ends all children but `spared`, and theirs that come to us in turn, within a time limit.
pub fn end_children(limit: Duration, spared: Option<Pid>) {
    let end = Instant::now() + limit;
    while Instant::now() < end {
        let all = children().into_iter().filter_map(Pid::from_raw);
        let all: Vec<Pid> = all.filter(|process| Some(*process) != spared).collect();
        for process in &all {
            // The process may have ended already.
            let _ = kill_process(*process, Signal::KILL);
        }
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return,
            Ok(None) if all.is_empty() => return,
            Ok(Some(_)) => {}
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
