//! What an agent takes over from one that was killed: its listening sockets, and the calls that it has not answered.
//! Its connections are lost, and reset.

use super::Agent;
use super::journal::{ListenerEntry, Record};
use super::table::{Key, Kind, Listening, Socket};
use super::{interim, local};
use ringway_host::{Call, numbers as sys};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

impl Agent {
    /// Takes over what the journal says, which was the former agent's.
    pub fn take_over(&mut self) {
        // What is written stays there, for the next agent.
        for (record, entry) in self.journal.take_listeners() {
            // One that can't listen again is as one that its program has shut down.
            let _ = self.listen_again(record, &entry);
        }
        let last = self.journal.begin_call(0);
        for (record, call) in self.journal.take_calls() {
            if self.trap.is_waiting(call.id) {
                self.serve_again(record, call, last);
            }
        }
    }

    /// Serves a call that the former agent had received. Whatever it was about has ended, but for listening sockets.
    /// `last`: the call that the former agent was at when it ended, maybe by that call.
    fn serve_again(&mut self, record: Record, call: Call, last: u64) {
        let is_lost = call.id == last
            || match self.find(&call) {
                Ok(None) => call.number != sys::SOCKET && interim::is_ours(&mut self.threads, &call),
                _ => false,
            };
        if is_lost {
            // As the end of a connection is told.
            _ = self.trap.answer(call.id, Err(Errno::CONNRESET));
        } else {
            self.serve(call, Some(record), None);
        }
    }

    /// Listens at a former agent's address. The program's socket is known when a call is about it.
    fn listen_again(&mut self, record: Record, entry: &ListenerEntry) -> Result<(), Errno> {
        let (v6, options) = entry.options();
        let path = self.names.listen_path(entry.path)?;
        let addresses = options.addresses(entry.local, v6);
        let key = self.table.add(Socket {
            cookie: 0,
            watch: None,
            v6,
            pending_client: None,
            local: Some(entry.local),
            options: options.clone(),
            error: None,
            kind: Kind::Unconnected,
        })?;
        let listeners = self.listen_at_all(key, &addresses, options.socket_options(), entry.backlog);
        let listeners = listeners.inspect_err(|_| _ = self.table.remove(key))?;
        self.table.get_mut(key).ok_or(Errno::BADF)?.kind =
            Kind::Listening(Listening::new(path, listeners, Some(record), entry.backlog));
        self.adopted.insert(entry.path, key);
        Ok(())
    }

    /// The listening socket of a former agent that a program's socket is.
    pub(super) fn find_adopted(&mut self, cookie: u64, socket: BorrowedFd<'_>) -> Option<Key> {
        if self.adopted.is_empty() {
            return None;
        }
        let number = local::listen_number(socket)?;
        let key = *self.adopted.get(&number)?;
        let watch = self.watch(socket).ok()?;
        self.adopted.remove(&number);
        self.table.adopt(key, cookie, watch);
        Some(key)
    }
}
