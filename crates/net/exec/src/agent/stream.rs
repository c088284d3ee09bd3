//! TCP sockets: connecting, listening, accepting, and the bytes between programs and the stack.

use super::calls::{CLOEXEC, DONTWAIT, NONBLOCK, Parked, Reply};
use super::journal::{self, ListenerEntry};
use super::local::{self, AgentEnd};
use super::message::Message;
use super::options::OptionValues;
use super::table::{Key, Kind, Listening, Owner, Socket, Stream};
use super::{Activity, Agent, OBSERVED, ROOM, address, event_data};
use ringway_host::{Call, numbers, read_memory, write_memory};
use ringway_netstack::{ConnectionError, SocketError, SocketId, SocketOptions, State};
use rustix::event::PollFlags;
use rustix::event::epoll::modify;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketFlags, accept_with, send};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Ephemeral ports (`ip_local_port_range`).
const PORTS: (u16, u16) = (32_768, 60_999);
/// Bytes that a call sends at most if it names an address.
const MAX_NAMED_SEND: usize = 1 << 20;
/// Connections of a listener that wait at most (`somaxconn`).
const BACKLOG: i32 = 4096;

/// Linux's number of an error.
pub fn errno(error: SocketError) -> Errno {
    match error {
        SocketError::BadSocket => Errno::INVAL,
        SocketError::AddressInUse => Errno::ADDRINUSE,
        SocketError::AddressNotAvailable => Errno::ADDRNOTAVAIL,
        SocketError::Unreachable => Errno::NETUNREACH,
        SocketError::WouldBlock => Errno::AGAIN,
        SocketError::MessageTooLong => Errno::MSGSIZE,
        SocketError::TooManySockets => Errno::NFILE,
        SocketError::BrokenPipe => Errno::PIPE,
        SocketError::Connection(error) => match error {
            ConnectionError::Refused => Errno::CONNREFUSED,
            ConnectionError::Reset => Errno::CONNRESET,
            ConnectionError::TimedOut => Errno::TIMEDOUT,
            ConnectionError::Unreachable => Errno::HOSTUNREACH,
            ConnectionError::SourceLost => Errno::IO,
            ConnectionError::NetworkDown => Errno::NETDOWN,
        },
    }
}

/// The unspecified address of a remote address's IP version.
fn any_for(remote: SocketAddr, port: u16) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

/// The destination that Linux uses: an unspecified address means this host.
pub fn destination(mut remote: SocketAddr) -> SocketAddr {
    match remote.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => remote.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => remote.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    remote
}

impl Agent {
    pub(super) fn open_stream(&mut self, v6: bool, nonblocking: bool) -> Result<(OwnedFd, Key), Errno> {
        let socket = local::stream(nonblocking)?;
        let watch = self.watch(socket.as_fd())?;
        let key = self.table.add(Socket {
            cookie: local::cookie(socket.as_fd()).ok_or(Errno::NOTSOCK)?,
            watch: Some(watch),
            v6,
            pending_client: None,
            local: None,
            options: OptionValues::default(),
            error: None,
            kind: Kind::Unconnected,
        });
        let key = key.inspect_err(|_| self.forget_watch(watch))?;
        Ok((socket, key))
    }

    /// Binds a TCP or UDP socket.
    pub(super) fn bind_to(&mut self, key: Key, mut address: SocketAddr) -> Result<(), Errno> {
        let socket = self.table.get(key).ok_or(Errno::BADF)?;
        if socket.local.is_some() || !matches!(socket.kind, Kind::Unconnected | Kind::Datagrams(_)) {
            return Err(Errno::INVAL);
        }
        let ip = address.ip();
        if !ip.is_unspecified() && !ip.is_loopback() && !self.addresses.contains(&ip) {
            return Err(Errno::ADDRNOTAVAIL);
        }
        let values = socket.options.clone();
        if address.port() == 0 {
            address.set_port(self.unused_port(key, address)?);
        } else if self.table.is_address_in_use(key, address, &values) {
            self.handle_closed_on_port(address.port());
            if self.table.is_address_in_use(key, address, &values) {
                return Err(Errno::ADDRINUSE);
            }
        }
        if self.table.datagrams(key).is_some() {
            self.bind_datagrams(key, address)?;
        }
        self.table.bind(key, address);
        Ok(())
    }

    /// Closes the sockets of a port that their program has closed just before this call.
    fn handle_closed_on_port(&mut self, port: u16) {
        self.handle_closed();
        let keys: Vec<Key> = self.table.bound_to_port(port).map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.handle_activity(key, Activity::Any));
    }

    fn unused_port(&mut self, key: Key, address: SocketAddr) -> Result<u16, Errno> {
        let count = PORTS.1 - PORTS.0 + 1;
        for _ in 0..count {
            self.next_port = (self.next_port + 1) % count;
            let port = PORTS.0 + self.next_port;
            if !self.table.is_address_in_use(
                key,
                SocketAddr::new(address.ip(), port),
                &OptionValues::default(),
            ) {
                return Ok(port);
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// `connect`, also when the call is made again after it was woken or interrupted by a signal.
    pub(super) fn connect(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let own = self.table.get_mut(key).ok_or(Errno::BADF)?;
        match &mut own.kind {
            Kind::Listening(_) => Err(Errno::ISCONN),
            Kind::Datagrams(_) => Err(Errno::OPNOTSUPP),
            Kind::Ended { .. } => Err(own.error.take().unwrap_or(Errno::CONNABORTED)),
            Kind::Unconnected => match own.error.take() {
                // Of an attempt that this call, or one before it, waited for.
                Some(error) => Err(error),
                None => self.start_connect(call, key, socket),
            },
            Kind::Stream(stream) if !stream.is_established => {
                let nonblocking = local::is_nonblocking(socket.as_fd());
                if nonblocking { Err(Errno::ALREADY) } else { Ok(Reply::Wait(key)) }
            }
            Kind::Stream(stream) if stream.is_connect_reported => Err(Errno::ISCONN),
            Kind::Stream(stream) => {
                stream.is_connect_reported = true;
                if stream.end.is_none() {
                    self.attach_or_reset(key, socket)?;
                }
                Ok(Reply::Value(0))
            }
        }
    }

    /// Whether there is no blocking `connect` that a signal has interrupted and that goes on. A program that was told
    /// EINTR polls its socket and asks for its error, as connect(2) says. The socket is in truth joined with none yet,
    /// and seems ready, so that the question waits.
    pub(super) fn has_connected(&mut self, key: Key, socket: &OwnedFd) -> Result<bool, Errno> {
        let Some(stream) = self.table.stream(key).filter(|stream| stream.end.is_none()) else {
            return Ok(true);
        };
        if !stream.is_established {
            let connects = |parked: &Parked| parked.key == key && parked.call.number == numbers::CONNECT;
            let goes_on = |parked: &Parked| connects(parked) && self.trap.is_waiting(parked.call.id);
            // Another thread that connects it is told the result itself.
            return Ok(self.parked.iter().any(goes_on));
        }
        stream.is_connect_reported = true;
        self.attach_or_reset(key, socket)?;
        Ok(true)
    }

    fn start_connect(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let own = self.table.get(key).ok_or(Errno::BADF)?;
        let remote = match address::read(call.thread, call.arguments[1], call.arguments[2], own.v6)? {
            address::Destination::Unspecified => return Ok(Reply::Value(0)),
            address::Destination::Address(remote) => destination(remote),
        };
        self.trap.check_waiting(call.id)?;
        let chosen = own.local.filter(|local| !local.ip().is_unspecified());
        let from = chosen.unwrap_or_else(|| any_for(remote, own.local.map_or(0, |local| local.port())));
        let (options, congestion) = (own.options.socket_options(), own.options.congestion());
        let now = self.host.now();
        let stack = self.host.stack();
        let tcp = stack.connect_from(now, from, remote).map_err(errno)?;
        stack.set_options(now, tcp, options).map_err(errno)?;
        if let Some(algorithm) = congestion {
            stack.set_congestion(now, tcp, algorithm).map_err(errno)?;
        }
        let stream = Stream {
            is_established: false,
            is_connect_reported: false,
            ..Stream::new(tcp, stack.addresses(tcp).map_err(errno)?, Owner::Agent)
        };
        self.table.add_stack_socket(tcp, key);
        self.table.get_mut(key).ok_or(Errno::BADF)?.kind = Kind::Stream(Box::new(stream));
        self.reserve_connection(tcp);
        if local::is_nonblocking(socket.as_fd()) {
            self.attach_or_reset(key, socket)?;
            return Err(Errno::INPROGRESS);
        }
        Ok(Reply::Wait(key))
    }

    /// As [`Agent::attach`]; a connection whose program can't have it is reset.
    fn attach_or_reset(&mut self, key: Key, socket: &OwnedFd) -> Result<(), Errno> {
        let attached = self.attach(key, socket);
        if attached.is_err()
            && let Some(stream) = self.table.stream(key)
        {
            let (tcp, now) = (stream.tcp, self.host.now());
            // The connection may have ended already.
            let _ = self.host.stack().abort(now, tcp);
            self.end_stream(key, None);
        }
        attached
    }

    /// Connects a program's socket with an end of ours. Until the connection is established, it is not writable.
    pub(super) fn attach(&mut self, key: Key, socket: &OwnedFd) -> Result<(), Errno> {
        let agent_socket = self.connector.join(socket.as_fd())?;
        let is_established = self.table.stream(key).ok_or(Errno::BADF)?.is_established;
        let filled = if is_established {
            send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?
        } else {
            self.filler.fill(socket.as_fd())
        };
        let end = AgentEnd::new(agent_socket)?;
        self.observe(end.as_fd(), key, OBSERVED)?;
        if let Some(watch) = self.table.take_watch(key) {
            self.forget_watch(watch);
        }
        let stream = self.table.stream(key).ok_or(Errno::BADF)?;
        stream.end = Some(end);
        stream.filler_bytes = filled;
        self.pump(key, Activity::Any);
        Ok(())
    }

    /// `listen`.
    pub(super) fn listen(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let backlog = (call.arguments[1] as i32).clamp(1, BACKLOG);
        let own = self.table.get(key).ok_or(Errno::BADF)?;
        match own.kind {
            Kind::Listening(_) => {
                rustix::net::listen(socket, backlog)?;
                return Ok(Reply::Value(0));
            }
            Kind::Unconnected => {}
            _ => return Err(Errno::INVAL),
        }
        let (v6, is_bound) = (own.v6, own.local.is_some());
        if !is_bound {
            let any: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            self.bind_to(key, SocketAddr::new(any, 0))?;
        }
        let local = self.table.get(key).ok_or(Errno::BADF)?.local.ok_or(Errno::INVAL)?;
        if self.listens(key, local) {
            self.handle_closed_on_port(local.port());
            if self.listens(key, local) {
                return Err(Errno::ADDRINUSE);
            }
        }
        if self.is_closing(local.port()) {
            return Ok(Reply::WaitForMove(key));
        }
        let own = self.table.get(key).ok_or(Errno::BADF)?;
        let addresses = own.options.addresses(local, v6);
        let options = own.options.socket_options();
        let path = self.names.new_listen_path()?;
        let listeners = self.listen_at_all(key, &addresses, options, backlog)?;
        if let Err(error) = local::listen_at(socket.as_fd(), &path, backlog) {
            self.names.remove(&path);
            self.stop_listening(&listeners, key);
            return Err(error);
        }
        let own = self.table.get_mut(key).ok_or(Errno::BADF)?;
        let flags = journal::flags(v6, &own.options);
        let record =
            self.journal.record_listener(&ListenerEntry { path: path.number, local, backlog, flags });
        own.kind = Kind::Listening(Listening::new(path, listeners, record, backlog));
        Ok(Reply::Value(0))
    }

    /// Listeners of the stack for a socket.
    pub(super) fn listen_at_all(
        &mut self,
        key: Key,
        addresses: &[SocketAddr],
        options: SocketOptions,
        backlog: i32,
    ) -> Result<Vec<SocketId>, Errno> {
        let mut listeners = Vec::new();
        for address in addresses {
            let id = self.listen_at(*address, backlog);
            let id = id.inspect_err(|_| self.stop_listening(&listeners, key))?;
            self.table.add_stack_socket(id, key);
            listeners.push(id);
            let now = self.host.now();
            self.host.stack().set_options(now, id, options).map_err(errno)?;
        }
        Ok(listeners)
    }

    /// Whether another socket listens at an address, and they don't share it.
    fn listens(&self, own: Key, address: SocketAddr) -> bool {
        let shares = |key: Key| self.table.get(key).is_some_and(|socket| socket.options.reuses_port());
        self.table.bound_to_port(address.port()).any(|(key, socket)| {
            let same = socket.local == Some(address) && matches!(socket.kind, Kind::Listening(_));
            key != own && same && !(shares(own) && shares(key))
        })
    }

    /// A listener of the stack: a new one, or the one that others share.
    fn listen_at(&mut self, address: SocketAddr, backlog: i32) -> Result<SocketId, Errno> {
        let stack = self.host.stack();
        match stack.listen(address, backlog as usize) {
            Err(SocketError::AddressInUse) => {}
            result => return result.map_err(errno),
        }
        let all = self.table.bound_to_port(address.port()).filter_map(|(_, socket)| match &socket.kind {
            Kind::Listening(listening) => Some(&listening.listeners),
            _ => None,
        });
        let ids: Vec<SocketId> = all.flatten().copied().collect();
        let stack = self.host.stack();
        ids.into_iter().find(|id| stack.local_address(*id) == Ok(address)).ok_or(Errno::ADDRINUSE)
    }

    fn stop_listening(&mut self, listeners: &[SocketId], key: Key) {
        let now = self.host.now();
        for id in listeners {
            if self.table.remove_stack_socket(*id, key) {
                // The listener may be closed already.
                let _ = self.host.stack().close(now, *id);
            }
        }
    }

    /// `accept` and `accept4`.
    pub(super) fn accept(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let [_, at, len_at, flags, ..] = call.arguments;
        let flags = if call.number == numbers::ACCEPT4 { flags } else { 0 };
        let v6 = match self.table.get(key) {
            Some(Socket { kind: Kind::Listening(_), v6, .. }) => *v6,
            _ => return Err(Errno::INVAL),
        };
        let nonblock = if flags & NONBLOCK != 0 { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
        loop {
            if local::ready(socket.as_fd(), PollFlags::IN).is_empty() {
                let nonblocking = local::is_nonblocking(socket.as_fd());
                return if nonblocking { Err(Errno::AGAIN) } else { Ok(Reply::Wait(key)) };
            }
            let accepted = accept_with(socket, SocketFlags::CLOEXEC | nonblock)?;
            // Attack: another process that has found the name.
            let name =
                self.names.client_of(accepted.as_fd()).filter(|_| local::is_peer_self(accepted.as_fd()));
            let number = local::cookie(accepted.as_fd());
            let Some(connection) =
                name.zip(number).and_then(|(name, number)| self.table.accept(name, number))
            else {
                continue;
            };
            // The byte that stays unread. Nobody takes it if the connection has ended.
            let _ = send(&accepted, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            let peer = match self.table.get(connection).map(|socket| &socket.kind) {
                Some(Kind::Stream(stream)) => stream.peer,
                Some(Kind::Ended { peer, .. }) => *peer,
                _ => continue,
            };
            let named = match at {
                0 => Ok(()),
                _ => address::write(call.thread, at, len_at, &address::encode(peer, v6)),
            };
            self.deliver_stalled_connections(key);
            let given = named.and_then(|()| self.trap.give(call.id, accepted.as_fd(), flags & CLOEXEC != 0));
            let number = given.inspect_err(|_| self.requeue_connection(key, connection, accepted.as_fd()))?;
            self.report.pumped(call.thread, number, true);
            return Ok(Reply::Done);
        }
    }

    /// `sendto` with an address, which TCP ignores, and a UNIX socket refuses.
    pub(super) fn send_named(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let [_, at, len, ..] = call.arguments;
        // Attack: a length that nobody has. The program sends the rest in another call.
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(MAX_NAMED_SEND)];
        if read_memory(call.thread, at, &mut bytes)? < bytes.len() {
            return Err(Errno::FAULT);
        }
        self.trap.check_waiting(call.id)?;
        self.write(key, socket, &bytes, call.arguments[3])
    }

    /// `sendmsg`. One without an address is the kernel's.
    pub(super) fn send_message_named(
        &mut self,
        call: &Call,
        key: Key,
        socket: &OwnedFd,
    ) -> Result<Reply, Errno> {
        let message = Message::read(call.thread, call.arguments[1])?;
        if message.name.0 == 0 || message.name.1 == 0 {
            return Ok(Reply::Resume);
        }
        let bytes = message.gather(call.thread, MAX_NAMED_SEND)?;
        self.trap.check_waiting(call.id)?;
        self.write(key, socket, &bytes, call.arguments[2])
    }

    /// Writes to a connection in a program's place.
    fn write(&mut self, key: Key, socket: &OwnedFd, bytes: &[u8], flags: u64) -> Result<Reply, Errno> {
        if !self.table.stream(key).is_some_and(|stream| stream.is_established) {
            return Err(Errno::PIPE);
        }
        match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(Reply::Value(sent as i64)),
            Err(Errno::AGAIN) if flags & DONTWAIT == 0 && !local::is_nonblocking(socket.as_fd()) => {
                Ok(Reply::Wait(key))
            }
            Err(error) => Err(error),
        }
    }

    /// Lets a connection wait for the next `accept` again, with all that was given to the program's socket: a signal
    /// came between, or the program may have no more descriptors.
    fn requeue_connection(&mut self, listener: Key, key: Key, program_socket: BorrowedFd<'_>) {
        let again = self.replace_end(listener, key, program_socket);
        if again.is_err() {
            self.close_stream(key, true);
        }
    }

    fn replace_end(&mut self, listener: Key, key: Key, program_socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let listening = self.table.listening(listener).ok_or(Errno::INVAL)?;
        let (number, agent_socket) = self.names.connect_to_listener(&listening.path.address)?;
        let end = AgentEnd::new(agent_socket)?;
        // What the stack holds follows at once.
        self.observe(end.as_fd(), key, OBSERVED | ROOM)?;
        let bytes = local::drain(program_socket);
        // These bytes had room in a socket of the same size.
        if !bytes.is_empty() && end.write(&bytes)? < bytes.len() {
            return Err(Errno::NOBUFS);
        }
        let stream = self.table.stream(key).ok_or(Errno::BADF)?;
        if stream.is_eof_delivered {
            end.shut_down_writing();
        }
        stream.end = Some(end);
        stream.is_receive_blocked = true;
        self.table.set_pending(number, key);
        Ok(())
    }

    fn deliver_stalled_connections(&mut self, key: Key) {
        let Some(listening) = self.table.listening(key) else { return };
        for id in listening.listeners.clone() {
            if self.stalled.remove(&id) {
                self.deliver_connections(id);
            }
        }
    }

    /// Serves a connection to which something has happened.
    pub(super) fn handle_stream_activity(&mut self, key: Key, activity: Activity) {
        let Some(stream) = self.table.stream(key) else { return };
        if !stream.owner.is_agent() {
            return self.handle_shared_activity(key);
        }
        let (tcp, was_up) = (stream.tcp, stream.is_established);
        let stack = self.host.stack();
        if let Ok(Some(error)) = stack.error(tcp) {
            return self.fail(key, errno(error.into()));
        }
        if was_up {
            return self.pump(key, activity);
        }
        match stack.info(tcp).map(|info| info.tcpi_state) {
            Ok(State::SynSent | State::SynReceived) => return,
            Ok(State::Closed) | Err(_) => return self.fail(key, Errno::CONNRESET),
            Ok(_) => {}
        }
        let Some(stream) = self.table.stream(key) else { return };
        stream.is_established = true;
        if let Some(end) = &mut stream.end {
            // All but the byte that stays.
            let filled = stream.filler_bytes.saturating_sub(1);
            if let Err(error) = end.consume(filled, usize::MAX, &mut self.buffer) {
                return self.fail(key, error);
            }
        }
        self.wake(key);
        self.pump(key, Activity::Any);
    }

    /// Moves bytes in the directions that may have changed.
    pub(super) fn pump(&mut self, key: Key, activity: Activity) {
        let sends = activity != Activity::StackEvent
            || self.table.stream(key).is_some_and(|stream| stream.is_send_blocked);
        let sent = if sends { self.send_bytes(key, activity) } else { Ok(()) };
        let given = if activity == Activity::ProgramWrote {
            sent
        } else {
            sent.and_then(|()| self.deliver_bytes(key))
        };
        match given {
            Ok(()) => {}
            // The program has closed the socket, and left bytes unread: as Linux, TCP resets the connection.
            Err(Errno::CONNRESET | Errno::PIPE) => self.close_stream(key, true),
            Err(error) => self.fail(key, error),
        }
    }

    /// Moves bytes from the program to the stack.
    fn send_bytes(&mut self, key: Key, activity: Activity) -> Result<(), Errno> {
        let now = self.host.now();
        let Some(stream) = self.table.agent_stream(key).filter(|stream| stream.is_established) else {
            return Ok(());
        };
        let Some(end) = &mut stream.end else { return Ok(()) };
        let stack = self.host.stack();
        let mut taken = 0;
        stream.is_send_blocked = false;
        while !stream.is_write_shut {
            let room = stack.send_room(stream.tcp).map_err(errno)?.min(self.buffer.len());
            if room == 0 {
                stream.is_send_blocked = true;
                break;
            }
            let (seen, may_be_more) = match end.peek(&mut self.buffer[..room]) {
                Err(Errno::AGAIN) => break,
                seen => seen?,
            };
            if seen == 0 {
                stream.is_write_shut = true;
                stack.shutdown(now, stream.tcp).map_err(errno)?;
                break;
            }
            let sent = match stack.send(now, stream.tcp, &self.buffer[..seen]) {
                Err(SocketError::WouldBlock) => 0,
                sent => sent.map_err(errno)?,
            };
            end.consume(sent, seen, &mut self.buffer)?;
            taken += sent;
            if sent < seen {
                stream.is_send_blocked = true;
                break;
            }
            // What is written from now on is told again, but not an end that was told with these bytes.
            if seen < room && !may_be_more && activity == Activity::ProgramWrote {
                break;
            }
        }
        if taken > 0 {
            // A call that waits for room.
            self.wake(key);
        }
        Ok(())
    }

    /// Moves bytes from the stack to the program, and handles the end of each direction.
    fn deliver_bytes(&mut self, key: Key) -> Result<(), Errno> {
        let now = self.host.now();
        let Some(stream) = self.table.agent_stream(key) else { return Ok(()) };
        let Some(end) = &mut stream.end else { return Ok(()) };
        let stack = self.host.stack();
        let mut given = 0;
        loop {
            let [bytes, _] = stack.received(stream.tcp).map_err(errno)?;
            if bytes.is_empty() {
                // Nothing has waited for room.
                if given == 0 && std::mem::take(&mut stream.is_receive_blocked) {
                    modify(&self.epoll, &*end, event_data(key), OBSERVED)?;
                }
                break;
            }
            let count = match end.write(bytes) {
                Err(Errno::AGAIN) => {
                    if !std::mem::replace(&mut stream.is_receive_blocked, true) {
                        modify(&self.epoll, &*end, event_data(key), OBSERVED | ROOM)?;
                    }
                    break;
                }
                // The program reads no more.
                Err(Errno::PIPE) if !end.is_closed() => bytes.len(),
                count => count?,
            };
            given += count;
            stack.consume(now, stream.tcp, count).map_err(errno)?;
        }
        if stream.is_established
            && !stream.is_eof_delivered
            && stack.is_finished(stream.tcp).map_err(errno)?
        {
            stream.is_eof_delivered = true;
            end.shut_down_writing();
        }
        // Once we have ended its reading, a closed socket looks like an open one.
        let is_over = stream.is_write_shut && stream.is_eof_delivered;
        let is_closed = !is_over && (stream.is_write_shut || !stream.is_established) && end.is_closed();
        if given > 0 || stream.is_eof_delivered {
            self.wake(key);
        }
        if is_over {
            self.finish_stream(key);
        } else if is_closed {
            self.close_stream(key, false);
        }
        Ok(())
    }

    /// Ends a connection whose directions have both ended: the program reads the rest from its socket.
    fn finish_stream(&mut self, key: Key) {
        if let Some(Stream { end: Some(end), .. }) = self.table.stream(key) {
            // Without the byte that stays, the program's socket is at its end, and not reset.
            let _ = end.consume(1, usize::MAX, &mut [0]);
        }
        self.end_stream(key, None);
    }

    fn close_stream(&mut self, key: Key, is_reset: bool) {
        let Some(socket) = self.table.get(key) else { return };
        let Kind::Stream(stream) = &socket.kind else { return };
        let (tcp, resets) = (stream.tcp, is_reset || socket.options.resets_at_close());
        let now = self.host.now();
        if resets {
            // The connection may have ended already.
            let _ = self.host.stack().abort(now, tcp);
        }
        self.close(key);
    }

    /// Ends a connection, or an attempt at one, with an error.
    pub(super) fn fail(&mut self, key: Key, error: Errno) {
        self.end_stream(key, Some(error));
    }

    fn end_stream(&mut self, key: Key, error: Option<Errno>) {
        let now = self.host.now();
        let Some(stream) = self.table.stream(key) else { return };
        let (tcp, local, peer) = (stream.tcp, stream.local, stream.peer);
        let is_joined = stream.end.is_some();
        self.table.remove_stack_socket(tcp, key);
        // What was written is still delivered; one that has failed only gives up its place.
        let _ = self.host.stack().close(now, tcp);
        if let Some(socket) = self.table.get_mut(key) {
            socket.error = error;
            // Without its end, the program's socket is reset.
            socket.kind = if is_joined { Kind::Ended { local, peer } } else { Kind::Unconnected };
        }
        if is_joined && let Some(old) = self.table.add_ended(key) {
            self.table.remove(old);
        }
        self.wake(key);
    }

    /// `shutdown`.
    pub(super) fn shut_down(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let how = match call.arguments[1] as i32 {
            0 => Shutdown::Read,
            1 => Shutdown::Write,
            2 => Shutdown::Both,
            _ => return Err(Errno::INVAL),
        };
        let own = self.table.get(key).ok_or(Errno::BADF)?;
        match &own.kind {
            Kind::Listening(_) if matches!(how, Shutdown::Write) => return Ok(Reply::Value(0)),
            Kind::Unconnected => return Err(Errno::NOTCONN),
            _ => {}
        }
        let is_connected = !matches!(&own.kind, Kind::Datagrams(datagrams) if datagrams.peer.is_none());
        rustix::net::shutdown(socket, how)?;
        // As in Linux, it listens no more, and who waits in `accept` is told.
        if let Some(listening) = self.table.listening(key) {
            let listeners = std::mem::take(&mut listening.listeners);
            listening.record = None;
            self.stop_listening(&listeners, key);
        }
        self.wake(key);
        if is_connected { Ok(Reply::Value(0)) } else { Err(Errno::NOTCONN) }
    }

    /// `SIOCOUTQ`: bytes that the peer has not acknowledged.
    pub(super) fn unsent(&mut self, call: &Call, key: Key) -> Result<i64, Errno> {
        let mut bytes = 0;
        if let Some(stream) = self.table.stream(key) {
            let waiting =
                stream.end.as_ref().filter(|_| stream.is_established).map_or(0, AgentEnd::unread_bytes);
            let info = self.host.stack().info(stream.tcp).map_err(errno)?;
            bytes = waiting + info.tcpi_notsent_bytes + info.tcpi_unacked * info.tcpi_snd_mss;
        }
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self.trap.check_waiting(call.id)?;
        write_memory(call.thread, call.arguments[2], &bytes.to_ne_bytes())?;
        Ok(0)
    }
}
