//! Listening sockets: how connections come to programs' sockets, and listeners in the stack that programs share.
//!
//! There a listener takes the connections before the agent's does, which goes on to listen, and takes them again as
//! soon as the shared one has ended. Processes with the preloaded library accept them without the agent, which knows of
//! such a connection only when it is to move here. A listener comes back for good if anything is asked of it that the
//! shared stack does not serve, such as to accept without the library; and if several processes have accepted there,
//! and none does any more.

use super::calls::Reply;
use super::direct::{Direct, Stopping};
use super::local::{self, AgentEnd};
use super::options::OptionValues;
use super::stream::errno;
use super::table::{Key, Kind, Owner, Sharing, Socket, Stream};
use super::{Activity, Agent, OBSERVED};
use crate::direct::attendant::{Command, LONGEST_STATE, states};
use ringway_direct::addresses_of;
use ringway_direct::requests::{ADOPT, ADOPT_PAUSED, ADOPTION, LEVEL};
use ringway_host::{Call, memfd, numbers as sys, read_memory};
use ringway_netstack::{SocketId, SocketOptions};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Most processes that ask for a listener to be shared.
const MAX_ASKERS: usize = 64;

/// Whether a call asks to adopt a connection that was accepted in the shared stack.
pub fn is_adoption(call: &Call) -> bool {
    call.number == sys::GETSOCKOPT
        && call.arguments[1] as i32 == LEVEL
        && [ADOPT, ADOPT_PAUSED].contains(&(call.arguments[2] as i32))
}

/// What is read of such a call: the connection's handle, its local address, and its remote one.
fn read_adoption(call: &Call) -> Result<(SocketId, SocketAddr, SocketAddr), Errno> {
    let mut request = [0; 8 * ADOPTION];
    if read_memory(call.thread, call.arguments[3], &mut request)? < request.len() {
        return Err(Errno::FAULT);
    }
    let (handle, addresses) = request.split_first_chunk::<8>().ok_or(Errno::INVAL)?;
    let (local, remote) = addresses.first_chunk().and_then(addresses_of).ok_or(Errno::INVAL)?;
    Ok((SocketId::from_bits(u64::from_ne_bytes(*handle)), local, remote))
}

impl Direct {
    /// Asks the attendant for the connections that a listener has; `false`: there are no descriptors, and the listener
    /// is closed.
    fn ask_for_connections(&mut self, key: Key, listener: &mut Stopping) -> bool {
        // The file takes memory only for what is written.
        let file = memfd("ringway-connections", LONGEST_STATE as usize).ok().map(File::from);
        let copy = file.as_ref().and_then(|file| file.try_clone().ok());
        let (asked, socket) = (copy.is_some(), listener.id.to_bits());
        match file.zip(copy) {
            Some((file, copy)) => {
                listener.file = Some(copy);
                self.send(Command::StopListening { key: key.into(), socket }, Some(file));
            }
            None => {
                listener.closes = true;
                self.send(Command::CloseListener { key: key.into(), socket }, None);
            }
        }
        asked
    }

    /// Closes a listener, once.
    fn close_listener(&mut self, key: Key) {
        let Some(listener) = self.stopping.get_mut(&key).filter(|listener| !listener.closes) else { return };
        listener.closes = true;
        let socket = listener.id.to_bits();
        self.send(Command::CloseListener { key: key.into(), socket }, None);
    }
}

impl Agent {
    /// Puts the connections of a listener into the listen queues of the programs' sockets.
    pub(super) fn deliver_connections(&mut self, id: SocketId) {
        while self.host.stack().has_connections(id) {
            if self.table.is_full() {
                // The connection waits until another socket is closed.
                self.stalled.insert(id);
                return;
            }
            let Some(key) = self.table.keys_of(id).first().copied() else { return };
            let Some(listening) = self.table.listening(key) else { return };
            match self.names.connect_to_listener(&listening.path.address) {
                Ok((number, agent_socket)) => {
                    // If this fails, the connection is reset.
                    let _ = self.deliver_connection(id, key, number, agent_socket);
                    self.take_listener_back(key);
                    self.wake(key);
                }
                // All programs that had the socket have closed it.
                Err(Errno::CONNREFUSED) => self.close(key),
                // The queue is full, or there are no descriptors. Who accepts makes room.
                Err(_) => {
                    self.stalled.insert(id);
                    return;
                }
            }
            self.table.rotate_keys(id);
        }
    }

    fn deliver_connection(
        &mut self,
        id: SocketId,
        listener: Key,
        name: u64,
        agent_socket: OwnedFd,
    ) -> Result<(), Errno> {
        let accepted = self.host.stack().accept(id).map_err(errno)?.socket;
        self.add_accepted(accepted, listener, name, agent_socket)
    }

    fn add_accepted(
        &mut self,
        accepted: SocketId,
        listener: Key,
        name: u64,
        agent_socket: OwnedFd,
    ) -> Result<(), Errno> {
        let (local, peer) = self.host.stack().addresses(accepted).map_err(errno)?;
        let of = self.table.get(listener).ok_or(Errno::BADF)?;
        let end = Some(AgentEnd::new(agent_socket)?);
        let stream = Stream { end, ..Stream::new(accepted, (local, peer), Owner::Agent) };
        let key = self.table.add(Socket {
            cookie: 0,
            watch: None,
            v6: of.v6,
            pending_client: None,
            local: Some(local),
            options: of.options.clone(),
            error: None,
            kind: Kind::Stream(Box::new(stream)),
        });
        let Ok(key) = key else {
            let now = self.host.now();
            return self.host.stack().abort(now, accepted).map_err(errno);
        };
        self.table.set_pending(name, key);
        self.table.add_stack_socket(accepted, key);
        self.reserve_connection(accepted);
        if let Some(Kind::Stream(stream)) = self.table.get(key).map(|socket| &socket.kind)
            && let Some(end) = &stream.end
        {
            self.observe(end.as_fd(), key, OBSERVED)?;
        }
        self.handle_stream_activity(key, Activity::Any);
        Ok(())
    }

    /// Answers a process that wants to accept the connections of a listener in the shared stack.
    pub(super) fn share_listener(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let direct = self.direct.as_mut().ok_or(Errno::NOPROTOOPT)?;
        let Ok(process) = direct.register_process(call.thread, &self.epoll) else {
            // It waits for the socket itself from now on.
            self.stop_sharing(key, true);
            return Err(Errno::OPNOTSUPP);
        };
        let listening = self.table.listening(key).ok_or(Errno::OPNOTSUPP)?;
        if !listening.askers.contains(&process) {
            listening.askers.push(process);
            // Attack: more and more processes, while each is compared with the others.
            if listening.askers.len() > MAX_ASKERS {
                return match self.leave_listener(key) {
                    Reply::Value(_) => Err(Errno::OPNOTSUPP),
                    waits => Ok(waits),
                };
            }
        }
        match &mut listening.sharing {
            Sharing::Never => Err(Errno::OPNOTSUPP),
            Sharing::Begins | Sharing::Ends(..) => Ok(Reply::WaitForMove(key)),
            Sharing::Shared(id, processes) => {
                if !processes.contains(&process) {
                    processes.push(process);
                }
                let id = *id;
                self.report.shared(call.thread, call.arguments[0] as i32);
                self.write_entry(call, id, process)
            }
            Sharing::No => self.begin_sharing(key, socket),
        }
    }

    fn begin_sharing(&mut self, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let is_ready = !local::ready(socket.as_fd(), PollFlags::IN).is_empty();
        let address = self.shareable_address(key);
        let is_back = self.direct.as_ref().is_some_and(|direct| !direct.stopping.contains_key(&key));
        let listening = self.table.listening(key).ok_or(Errno::OPNOTSUPP)?;
        let Some(address) = address else {
            listening.sharing = Sharing::Never;
            return Err(Errno::OPNOTSUPP);
        };
        let stack = self.host.stack();
        let waits = |id: &SocketId| stack.has_connections(*id) || stack.half_open(*id) != Ok(0);
        let waits = is_ready || !is_back || listening.listeners.iter().any(waits);
        listening.has_deferred |= waits;
        if listening.has_deferred && listening.askers.len() > 1 {
            // One that was told to ask again may not, as long as another one accepts all.
            listening.sharing = Sharing::Never;
            return Err(Errno::OPNOTSUPP);
        }
        if waits || !self.reserve_port(address.port()) {
            return Err(Errno::AGAIN);
        }
        let listening = self.table.listening(key).ok_or(Errno::OPNOTSUPP)?;
        (listening.sharing, listening.has_own) = (Sharing::Begins, false);
        let backlog = u64::from(listening.backlog.unsigned_abs());
        // Some segments of its connections come here: fragments, for instance.
        self.host.stack().divert_strays(true);
        if let Some(direct) = &mut self.direct {
            direct.has_listened = true;
            direct.send(Command::Listen { key: key.into(), address, backlog }, None);
        }
        Ok(Reply::WaitForMove(key))
    }

    /// The address of a listener that the shared stack can have; `None`: it shares the address with another socket, has
    /// several, or options that its connections inherit, or a thread waits in `accept` for a connection from the agent.
    fn shareable_address(&mut self, key: Key) -> Option<SocketAddr> {
        let socket = self.table.get(key)?;
        let Kind::Listening(listening) = &socket.kind else { return None };
        let [id] = *listening.listeners.as_slice() else { return None };
        let options = &socket.options;
        let is_plain = options.socket_options() == SocketOptions::default()
            && options.congestion().is_none()
            && !options.resets_at_close()
            && !options.reuses_port();
        let accepts = |number: i64| [sys::ACCEPT, sys::ACCEPT4].contains(&number);
        let is_awaited = self.parked.iter().any(|parked| parked.key == key && accepts(parked.call.number));
        let is_alone = self.table.keys_of(id) == [key];
        let v6 = socket.v6;
        let address = self.host.stack().local_address(id).ok()?;
        (is_plain && !is_awaited && is_alone && v6 == address.is_ipv6()).then_some(address)
    }

    /// A connection has come to the socket itself, from this host for instance, where a process that accepts in the
    /// shared stack does not look: the listener comes back. If others accept too, it is for good, since one of them may
    /// wait for the socket until it looks again.
    fn take_listener_back(&mut self, key: Key) {
        let Some(listening) = self.table.listening(key) else { return };
        let for_good = listening.askers.len() > 1;
        match listening.sharing {
            Sharing::Begins => listening.has_own = true,
            Sharing::Shared(..) => self.stop_sharing(key, for_good),
            _ => {}
        }
    }

    /// Lets a listener come back from the shared stack. `for_good`: it is not shared again.
    pub(super) fn stop_sharing(&mut self, key: Key, for_good: bool) {
        let Some(socket) = self.table.get_mut(key) else { return };
        let port = socket.local.map_or(0, |local| local.port());
        let Kind::Listening(listening) = &mut socket.kind else { return };
        match &mut listening.sharing {
            Sharing::Shared(id, _) => {
                let Some(direct) = &mut self.direct else { return };
                let mut stopping = Stopping { id: *id, port, file: None, closes: false };
                let asked = direct.ask_for_connections(key, &mut stopping);
                // Without descriptors, connections that were not accepted are reset.
                listening.sharing = if asked { Sharing::Ends(!for_good) } else { Sharing::Never };
                direct.stopping.insert(key, stopping);
            }
            Sharing::Ends(again) => *again &= !for_good,
            // Whoever waits asks again when it has begun.
            Sharing::Begins => {}
            sharing => {
                if for_good {
                    *sharing = Sharing::Never;
                }
            }
        }
    }

    /// Asks again for connections that were established since their listener takes no more.
    pub(super) fn ask_for_connections(&mut self) {
        let Some(direct) = &mut self.direct else { return };
        let mut stopping = std::mem::take(&mut direct.stopping);
        for (key, listener) in &mut stopping {
            if listener.file.is_none() && !listener.closes {
                direct.ask_for_connections(*key, listener);
            }
        }
        direct.stopping = stopping;
    }

    /// Closes a listener in the shared stack, which its program has closed.
    pub(super) fn close_shared(&mut self, key: Key, sharing: &Sharing, port: u16) {
        let Some(direct) = &mut self.direct else { return };
        match sharing {
            Sharing::Begins => _ = direct.closed_early.insert(key, port),
            Sharing::Shared(id, _) => {
                direct.stopping.insert(key, Stopping { id: *id, port, file: None, closes: false });
            }
            Sharing::No | Sharing::Never | Sharing::Ends(_) => {}
        }
        direct.close_listener(key);
    }

    /// Whether a listener with a port, which its program has closed, still takes connections in the shared stack.
    pub(super) fn is_closing(&self, port: u16) -> bool {
        self.direct.as_ref().is_some_and(|direct| {
            direct.stopping.values().any(|listener| listener.closes && listener.port == port)
                || direct.closed_early.values().any(|closed| *closed == port)
        })
    }

    /// Serves calls of `listen` again that wait until a port is free in the shared stack.
    fn wake_listeners(&mut self) {
        let waits = self.parked.iter().filter(|parked| parked.call.number == sys::LISTEN);
        let keys: Vec<Key> = waits.map(|parked| parked.key).collect();
        keys.into_iter().for_each(|key| self.wake(key));
    }

    /// Answers a process that does not accept any more.
    pub(super) fn unshare_listener(&mut self, call: &Call, key: Key) -> Result<Reply, Errno> {
        let direct = self.direct.as_mut().ok_or(Errno::NOPROTOOPT)?;
        let process = direct.register_process(call.thread, &self.epoll)?;
        self.remove_sharer(key, process);
        Ok(Reply::Value(0))
    }

    /// A process does not accept in the shared stack any more. If others have asked to, one of them may wait for the
    /// socket itself: after the last one the listener comes back.
    fn remove_sharer(&mut self, key: Key, process: u64) {
        let Some(listening) = self.table.listening(key) else { return };
        let are_several = listening.askers.len() > 1;
        let Sharing::Shared(_, processes) = &mut listening.sharing else { return };
        processes.retain(|other| *other != process);
        if processes.is_empty() && are_several {
            self.stop_sharing(key, true);
        }
    }

    /// As [`Agent::remove_sharer`], for a process that has ended.
    pub(super) fn remove_from_listeners(&mut self, process: u64) {
        let keys: Vec<Key> = self.listening_keys();
        keys.into_iter().for_each(|key| self.remove_sharer(key, process));
    }

    fn listening_keys(&self) -> Vec<Key> {
        let listens = |socket: &Socket| matches!(socket.kind, Kind::Listening(_));
        self.table.iter().filter(|(_, socket)| listens(socket)).map(|(key, _)| key).collect()
    }

    /// Answers a call on a listener that the agent serves alone, when the listener has come back for it; `None`: the
    /// agent serves it now.
    pub(super) fn answer_for_listener(&mut self, call: &Call, key: Key) -> Option<Result<Reply, Errno>> {
        let listening = self.table.listening(key)?;
        let concerns = [sys::SETSOCKOPT, sys::SHUTDOWN, sys::ACCEPT, sys::ACCEPT4].contains(&call.number);
        if !concerns || matches!(listening.sharing, Sharing::No | Sharing::Never) {
            return None;
        }
        self.stop_sharing(key, true);
        Some(Ok(Reply::Wait(key)))
    }

    /// Answers a process that asks for a listener to come back for good, or waits for that.
    pub(super) fn leave_listener(&mut self, key: Key) -> Reply {
        self.stop_sharing(key, true);
        match self.table.listening(key) {
            Some(listening) if !listening.sharing.is_settled() => Reply::WaitForMove(key),
            _ => Reply::Value(0),
        }
    }

    /// The attendant listens, or can't. Attack: an attendant that is taken over, and was not asked.
    pub(super) fn handle_listening(&mut self, key: Key, socket: Option<u64>) {
        let id = socket.map(SocketId::from_bits);
        let Some(own) = self.table.get_mut(key) else { return self.close_early(key, id) };
        let port = own.local.map_or(0, |local| local.port());
        let Kind::Listening(listening) = &mut own.kind else { return };
        if !matches!(listening.sharing, Sharing::Begins) {
            return;
        }
        listening.sharing = id.map_or(Sharing::Never, |id| Sharing::Shared(id, Vec::new()));
        let has_own = listening.has_own;
        self.wake(key);
        // One that began here meanwhile must not be taken for one of the shared stack.
        if has_own || self.has_unreserved(port) {
            self.take_listener_back(key);
        }
    }

    /// The attendant listens for a program that has closed the listener meanwhile, or can't.
    fn close_early(&mut self, key: Key, id: Option<SocketId>) {
        let Some(direct) = &mut self.direct else { return };
        let Some(port) = direct.closed_early.remove(&key) else { return };
        match id {
            Some(id) => {
                direct.stopping.insert(key, Stopping { id, port, file: None, closes: false });
                direct.close_listener(key);
            }
            None => self.wake_listeners(),
        }
    }

    /// A listener takes no more connections in the shared stack; the states of those that it had have so many bytes.
    /// Attack: an attendant that is taken over, and was not asked.
    pub(super) fn handle_stopped_listening(&mut self, key: Key, len: u64, is_gone: bool) {
        let Some(direct) = &mut self.direct else { return };
        let Some(listener) = direct.stopping.get_mut(&key) else { return };
        let file = listener.file.take();
        // Each command has its answer: for one that is closed, the last one has no file.
        let is_over = if listener.closes { file.is_none() } else { is_gone };
        if is_over {
            direct.stopping.remove(&key);
        }
        if let Some(listening) = self.table.listening(key)
            && let Sharing::Ends(again) = listening.sharing
        {
            listening.sharing = if again { Sharing::No } else { Sharing::Never };
        }
        if let Some(file) = file {
            self.attach_states(key, &file, len);
        }
        self.wake(key);
        self.wake_listeners();
    }

    /// Takes connections that came back with their listener.
    fn attach_states(&mut self, key: Key, file: &File, len: u64) {
        let mut bytes = vec![0; len.min(LONGEST_STATE) as usize];
        if file.read_exact_at(&mut bytes, 0).is_err() {
            return;
        }
        for state in states(&bytes) {
            let now = self.host.now();
            if let Some((local, remote)) = self.host.stack().addresses_of(state) {
                self.keep_reserved(local, remote);
            }
            // Attack: an attendant that is taken over, and wrote something else: it is refused, as any bytes are.
            if let Ok(tcp) = self.host.stack().attach(now, state) {
                self.deliver_returned(key, tcp);
            }
        }
    }

    /// Puts a connection that has come back with its listener into the queue of the program's socket, or resets it.
    fn deliver_returned(&mut self, key: Key, tcp: SocketId) {
        let delivered = match self.table.get(key).map(|socket| &socket.kind) {
            Some(Kind::Listening(listening)) if !self.table.is_full() => {
                self.names.connect_to_listener(&listening.path.address)
            }
            _ => Err(Errno::NFILE),
        };
        let delivered = delivered.and_then(|(number, socket)| self.add_accepted(tcp, key, number, socket));
        if delivered.is_err() {
            let now = self.host.now();
            // It may be gone already.
            let _ = self.host.stack().abort(now, tcp);
        }
    }

    /// Makes the socket of a connection that was accepted in the shared stack one of the agent's, and asks for the
    /// connection. Attack: a program that says so of any socket: it gets what `connect` would give it.
    pub(super) fn adopt(&mut self, call: &Call) -> Result<Reply, Errno> {
        if !self.has_shared {
            return Err(Errno::NOPROTOOPT);
        }
        let socket = self.threads.descriptor(call.thread, call.arguments[0])?;
        if !local::is_unconnected(socket.as_fd()) {
            return Err(Errno::NOPROTOOPT);
        }
        let (handle, local, peer) = read_adoption(call)?;
        self.trap.check_waiting(call.id)?;
        let is_for = |socket: &Socket| {
            let takes = |own: SocketAddr| own.ip() == local.ip() || own.ip().is_unspecified();
            matches!(socket.kind, Kind::Listening(_)) && socket.local.is_some_and(takes)
        };
        let listener = self.table.bound_to_port(local.port()).find(|(_, socket)| is_for(socket));
        let (v6, options) = listener.map_or_else(
            || (local.is_ipv6(), OptionValues::of_accepted()),
            |(_, socket)| (socket.v6, socket.options.clone()),
        );
        let tcp = self.host.stack().reserve(local, peer).map_err(errno)?;
        let may_reenter = call.arguments[2] as i32 == ADOPT_PAUSED;
        let stream = Stream { may_reenter, ..Stream::new(tcp, (local, peer), Owner::Shared(handle)) };
        let added = self.table.add(Socket {
            cookie: local::cookie(socket.as_fd()).ok_or(Errno::NOTSOCK)?,
            watch: None,
            v6,
            pending_client: None,
            local: Some(local),
            options,
            error: None,
            kind: Kind::Stream(Box::new(stream)),
        });
        let now = self.host.now();
        let key = added.inspect_err(|_| _ = self.host.stack().close(now, tcp))?;
        self.table.add_stack_socket(tcp, key);
        local::set_send_buffer(socket.as_fd());
        self.attach(key, &socket).inspect_err(|_| self.close(key))?;
        self.report.adopted(call.thread, call.arguments[0] as i32);
        if self.direct.is_none() {
            // The stack that had it is lost.
            self.lose_connection(key);
            return Ok(Reply::Value(0));
        }
        self.request_return(key);
        Ok(Reply::WaitForMove(key))
    }

    /// Lets no listener be shared any more: the shared stack is lost.
    pub(super) fn lose_listeners(&mut self) {
        for key in self.listening_keys() {
            if let Some(listening) = self.table.listening(key) {
                listening.sharing = Sharing::Never;
            }
            self.wake(key);
        }
        self.wake_listeners();
    }

    /// Whether peers have acknowledged what was sent in the shared stack. Asks the attendant again and again.
    pub(super) fn is_shared_drained(&mut self) -> bool {
        self.remove_ended_processes();
        let Some(direct) = &mut self.direct else { return true };
        match direct.rest {
            _ if !direct.has_listened => true,
            Some(0) => true,
            None => false,
            Some(_) => {
                direct.rest = None;
                direct.send(Command::Drain, None);
                false
            }
        }
    }
}
