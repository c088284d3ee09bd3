//! What answers trapped calls while there is no network: after an agent has lost it, or before the next agent has it.

use super::journal::Journal;
use super::{has_no_callers, local};
use crate::run::wait;
use ringway_host::{Call, EventFd, Threads, Trap, numbers as sys, read_memory};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Calls that are answered before the network is tried again. Attack: threads that make them without a pause.
const CALLS: usize = 256;

/// Answers calls: those on other sockets than ours are the kernel's.
#[derive(Debug)]
pub struct Interim {
    trap: Trap,
    threads: Threads,
    journal: Arc<Journal>,
    /// Calls on our sockets fail, and do not wait for the next agent.
    is_down: bool,
}

impl Interim {
    /// Answers calls, or writes to the journal that they wait.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(trap: BorrowedFd<'_>, journal: Arc<Journal>) -> Result<Interim, Errno> {
        let trap = Trap::from(trap.try_clone_to_owned().map_err(|_| Errno::MFILE)?);
        Ok(Interim { trap, threads: Threads::default(), journal, is_down: false })
    }

    /// Lets calls fail from now on, also those that have waited for the next agent, but for those that wait for
    /// connections.
    pub fn fail(&mut self) {
        self.is_down = true;
        for (record, call) in self.journal.take_calls() {
            match call.number {
                sys::ACCEPT | sys::ACCEPT4 => record.leave(),
                _ => self.serve_call(call),
            }
        }
    }

    /// Answers the calls that wait.
    pub fn serve(&mut self) {
        for _ in 0..CALLS {
            // Receiving would block without one.
            if local::ready(self.trap.as_fd(), PollFlags::IN) != PollFlags::IN {
                return;
            }
            if let Ok(Some(call)) = self.trap.next() {
                self.serve_call(call);
            }
        }
    }

    /// Lets calls fail until this is stopped, or the last process has ended.
    pub fn serve_until(&mut self, stop: &EventFd) {
        self.fail();
        while !stop.clear() && !has_no_callers(self.trap.as_fd()) {
            if wait(&[self.trap.as_fd(), stop.as_fd()], None).is_err() {
                return;
            }
            self.serve();
        }
    }

    fn serve_call(&mut self, call: Call) {
        if !is_ours(&mut self.threads, &call) {
            return self.trap.resume(call.id);
        }
        let waits = if self.is_down { None } else { self.journal.record_call(&call) };
        match waits {
            Some(record) => record.leave(),
            None => _ = self.trap.answer(call.id, Err(Errno::NETDOWN)),
        }
    }
}

/// Whether a call is on a socket of an agent's that may be gone, or makes one.
pub fn is_ours(threads: &mut Threads, call: &Call) -> bool {
    if call.number == sys::SOCKET {
        return true;
    }
    let Ok(socket) = threads.descriptor(call.thread, call.arguments[0]) else { return false };
    if local::stands_in(socket.as_fd()) {
        return true;
    }
    // One that is not connected yet is as any UNIX socket, which would be asked for an address of the Internet.
    let mut family = [0; 2];
    let asks = matches!(call.number, sys::CONNECT | sys::BIND)
        && local::is_unix(socket.as_fd())
        && read_memory(call.thread, call.arguments[1], &mut family) == Ok(2);
    let family = u16::from_ne_bytes(family);
    asks && [AddressFamily::INET, AddressFamily::INET6].iter().any(|inet| inet.as_raw() == family)
}
