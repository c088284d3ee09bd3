//! Connections of the program, each with a socket of the host.

use super::frame::Ends;
use super::{Shared, options};
use ringway_frame::Offload;
use ringway_netstack::{SECOND, SocketError, SocketId, Stack};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, connect, recv, send, shutdown,
    socket_with, sockopt,
};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Connections of a listener that were not accepted yet.
const BACKLOG: usize = 256;
/// How long a program may take to answer the SYN-ACK of a connection that it began.
const OPENING_TIMEOUT: u64 = 75 * SECOND;
/// How long the host's socket is connected after the program's last SYN, which come at most 32 s apart while it waits.
const CONNECTING_TIMEOUT: u64 = 40 * SECOND;
/// Bytes of a frame with a SYN that is kept. Attack: SYNs with 64 KB of data each. The program sends a longer one
/// again, and in the end without data.
const MAX_SYN: usize = 2048;

/// The program's end of a connection.
#[derive(Debug)]
enum State {
    /// The host's socket is being connected; the program's SYN waits.
    Connecting { syn: Vec<u8>, offload: Offload },
    /// The stack has answered the SYN.
    Opening,
    /// The connection is the stack's socket.
    Open(SocketId),
}

#[derive(Debug)]
struct Stream {
    socket: OwnedFd,
    ends: Ends,
    state: State,
    /// When the state began, or the SYN of a connection that is being connected came last.
    since: u64,
    /// Bytes of the host that the stack had no room for.
    held: Vec<u8>,
    /// The host's side has sent all, and the stack was told.
    has_host_ended: bool,
    /// The program has sent all, and the host's socket was told.
    has_program_ended: bool,
}

/// All connections.
#[derive(Debug, Default)]
pub struct Streams {
    all: HashMap<u64, Stream>,
    /// By the addresses that the program used: the peer's, and its own.
    by_ends: HashMap<(SocketAddr, SocketAddr), u64>,
    by_socket: HashMap<SocketId, u64>,
    /// The listener for an address, and how many connections are opened by it.
    listeners: HashMap<SocketAddr, (SocketId, usize)>,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    GoesOn,
    /// Both directions have ended.
    Ended,
    /// The host's side has reset it, or can't be used.
    ResetByHost,
    /// The program has.
    ResetByProgram,
}

impl Streams {
    /// Whether there is a connection with these addresses.
    pub fn has(&self, ends: &Ends) -> bool {
        self.by_ends.contains_key(&(ends.to, ends.from))
    }

    /// Whether its host's socket is being connected, for which the program has asked again.
    pub fn is_connecting(&mut self, ends: &Ends, now: u64) -> bool {
        let stream = self.by_ends.get(&(ends.to, ends.from)).and_then(|key| self.all.get_mut(key));
        let stream = stream.filter(|stream| matches!(stream.state, State::Connecting { .. }));
        stream.map(|stream| stream.since = now).is_some()
    }

    /// Makes room for one more connection: gives up the one that is being connected, and was asked for the longest ago.
    /// Whether there is room.
    fn make_room(&mut self, most: usize) -> bool {
        if self.all.len() < most {
            return true;
        }
        let connecting =
            self.all.iter().filter(|(_, stream)| matches!(stream.state, State::Connecting { .. }));
        let oldest = connecting.min_by_key(|(_, stream)| stream.since).map(|(key, _)| *key);
        oldest.map(|key| self.forget(key)).is_some()
    }

    /// Connects a socket of the host for the program's first segment.
    pub fn connect(&mut self, shared: &mut Shared, ends: Ends, syn: &[u8], offload: Offload) {
        if syn.len() > MAX_SYN {
            return;
        }
        let Some(to) = shared.host_address(ends.to) else {
            return refuse(shared, Errno::CONNREFUSED, syn, offload);
        };
        // Attack: a program that scans ports, or opens connections without an end.
        if !self.make_room(shared.limits.streams) {
            return refuse(shared, Errno::MFILE, syn, offload);
        }
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match socket_with(family, SocketType::STREAM, flags, None) {
            Ok(socket) => socket,
            Err(error) => return refuse(shared, error, syn, offload),
        };
        // Bytes go on as they come.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return refuse(shared, error, syn, offload),
        }
        // A socket that is connected already is told of too.
        let key = match shared.watch(socket.as_fd()) {
            Ok(key) => key,
            Err(error) => return refuse(shared, error, syn, offload),
        };
        let stream = Stream {
            socket,
            ends,
            state: State::Connecting { syn: syn.to_vec(), offload },
            since: shared.clock.now(),
            held: Vec::new(),
            has_host_ended: false,
            has_program_ended: false,
        };
        self.by_ends.insert((ends.to, ends.from), key);
        self.all.insert(key, stream);
    }

    /// Handles what happened to a socket of the host; whether it is one of a connection.
    pub fn handle(&mut self, shared: &mut Shared, key: u64) -> bool {
        let Some(stream) = self.all.get_mut(&key) else { return false };
        match &stream.state {
            State::Connecting { .. } => self.finish_connect(shared, key),
            // What has come waits in the socket.
            State::Opening => {}
            State::Open(_) => self.pump(shared, key),
        }
        true
    }

    /// Answers the program once the host's socket is connected, or has failed to.
    fn finish_connect(&mut self, shared: &mut Shared, key: u64) {
        let Some(stream) = self.all.get_mut(&key) else { return };
        let result = match sockopt::socket_error(&stream.socket) {
            Ok(Ok(())) if rustix::net::getpeername(&stream.socket).is_err() => return,
            Ok(result) => result,
            Err(error) => Err(error),
        };
        let State::Connecting { syn, offload } = std::mem::replace(&mut stream.state, State::Opening) else {
            return;
        };
        stream.since = shared.clock.now();
        let to = stream.ends.to;
        match result.and_then(|()| self.listen(shared, to)) {
            Ok(()) => {
                let now = shared.clock.now();
                shared.stack.receive(now, 0, &syn, offload);
            }
            Err(error) => {
                self.forget(key);
                refuse(shared, error, &syn, offload);
            }
        }
    }

    /// Lets one more connection to an address be opened.
    fn listen(&mut self, shared: &mut Shared, to: SocketAddr) -> Result<(), Errno> {
        if let Some((_, count)) = self.listeners.get_mut(&to) {
            *count += 1;
            return Ok(());
        }
        let id = shared.stack.listen(to, BACKLOG).map_err(|_| Errno::NOBUFS)?;
        let now = shared.clock.now();
        // A listener takes all of them.
        let _ = shared.stack.set_options(now, id, options());
        self.listeners.insert(to, (id, 1));
        Ok(())
    }

    /// One connection to an address is opened less.
    fn release_listener(&mut self, shared: &mut Shared, to: SocketAddr) {
        let Some((id, count)) = self.listeners.get_mut(&to) else { return };
        *count -= 1;
        if *count == 0 {
            let (id, now) = (*id, shared.clock.now());
            // It is open.
            let _ = shared.stack.close(now, id);
            self.listeners.remove(&to);
        }
    }

    /// Takes the connections that the program has opened by a listener.
    pub fn accept(&mut self, shared: &mut Shared, listener: SocketId) {
        while let Ok(accepted) = shared.stack.accept(listener) {
            let now = shared.clock.now();
            let ends = shared.stack.addresses(accepted.socket).ok();
            let key = ends.and_then(|ends| self.by_ends.get(&ends).copied());
            let stream = key.and_then(|key| Some((key, self.all.get_mut(&key)?)));
            let Some((key, stream)) = stream.filter(|(_, stream)| matches!(stream.state, State::Opening))
            else {
                // Its host's socket was refused while another one to the address was opened.
                let _ = shared.stack.abort(now, accepted.socket);
                continue;
            };
            stream.state = State::Open(accepted.socket);
            let to = stream.ends.to;
            self.by_socket.insert(accepted.socket, key);
            self.release_listener(shared, to);
            self.pump(shared, key);
        }
    }

    /// Moves the bytes of the connection that is a socket of the stack; whether there is one.
    pub fn pump_socket(&mut self, shared: &mut Shared, id: SocketId) -> bool {
        let Some(key) = self.by_socket.get(&id).copied() else { return false };
        self.pump(shared, key);
        true
    }

    fn pump(&mut self, shared: &mut Shared, key: u64) {
        let Some(stream) = self.all.get_mut(&key) else { return };
        let State::Open(id) = stream.state else { return };
        let fate = match stream.move_bytes(shared, id) {
            Ok(fate) => fate,
            // The stack has no such connection any more.
            Err(_) => Fate::ResetByProgram,
        };
        let now = shared.clock.now();
        match fate {
            Fate::GoesOn => return,
            Fate::Ended => _ = shared.stack.close(now, id),
            Fate::ResetByHost => _ = shared.stack.abort(now, id),
            Fate::ResetByProgram => {
                // The host's socket is reset when it is closed.
                let _ = sockopt::set_socket_linger(&stream.socket, Some(Duration::ZERO));
                let _ = shared.stack.close(now, id);
            }
        }
        self.forget(key);
    }

    fn forget(&mut self, key: u64) {
        let Some(stream) = self.all.remove(&key) else { return };
        self.by_ends.remove(&(stream.ends.to, stream.ends.from));
        if let State::Open(id) = stream.state {
            self.by_socket.remove(&id);
        }
    }

    /// Gives connections up that their program has left while they were connected or opened.
    pub fn sweep(&mut self, shared: &mut Shared) {
        let now = shared.clock.now();
        let is_late = |stream: &Stream| match stream.state {
            State::Connecting { .. } => stream.since + CONNECTING_TIMEOUT <= now,
            State::Opening => stream.since + OPENING_TIMEOUT <= now,
            State::Open(_) => false,
        };
        let late: Vec<(u64, bool, SocketAddr)> = self
            .all
            .iter()
            .filter(|(_, stream)| is_late(stream))
            .map(|(key, stream)| (*key, matches!(stream.state, State::Opening), stream.ends.to))
            .collect();
        for (key, is_opening, to) in late {
            self.forget(key);
            if is_opening {
                self.release_listener(shared, to);
            }
        }
    }

    /// Bytes that the program has sent and that the host's sockets have not taken.
    pub fn unsent_bytes(&self, stack: &Stack) -> u64 {
        let unread = |stream: &Stream| match stream.state {
            State::Open(id) => stack.unread(id).unwrap_or(0) as u64,
            _ => 0,
        };
        self.all.values().map(unread).sum()
    }
}

impl Stream {
    /// Moves what can be moved.
    fn move_bytes(&mut self, shared: &mut Shared, id: SocketId) -> Result<Fate, SocketError> {
        if shared.stack.error(id)?.is_some() {
            return Ok(Fate::ResetByProgram);
        }
        if !self.send_to_host(shared, id)? || !self.receive_from_host(shared, id)? {
            return Ok(Fate::ResetByHost);
        }
        let is_over = self.has_host_ended && self.has_program_ended;
        Ok(if is_over { Fate::Ended } else { Fate::GoesOn })
    }

    /// Moves bytes of the program; whether the host's socket can be used.
    fn send_to_host(&mut self, shared: &mut Shared, id: SocketId) -> Result<bool, SocketError> {
        loop {
            let [bytes, _] = shared.stack.received(id)?;
            if bytes.is_empty() {
                break;
            }
            match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => {
                    let now = shared.clock.now();
                    shared.stack.consume(now, id, count)?;
                }
                Err(Errno::AGAIN) => return Ok(true),
                Err(_) => return Ok(false),
            }
        }
        if !self.has_program_ended && shared.stack.is_finished(id)? {
            self.has_program_ended = true;
            // The host's side may have ended meanwhile.
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
        Ok(true)
    }

    /// Moves bytes to the program; whether the host's socket can be used.
    fn receive_from_host(&mut self, shared: &mut Shared, id: SocketId) -> Result<bool, SocketError> {
        while !self.has_host_ended {
            let now = shared.clock.now();
            if !self.held.is_empty() {
                let sent = send_some(&mut shared.stack, now, id, &self.held)?;
                self.held.drain(..sent);
                if !self.held.is_empty() {
                    break;
                }
            }
            let room = shared.stack.send_room(id)?.min(shared.buffer.len());
            if room == 0 {
                // The stack tells when there is some.
                break;
            }
            match recv(&self.socket, &mut shared.buffer[..room], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.has_host_ended = true;
                    shared.stack.shutdown(now, id)?;
                }
                Ok((count, _)) => {
                    let bytes = &shared.buffer[..count];
                    let sent = send_some(&mut shared.stack, now, id, bytes)?;
                    self.held.extend_from_slice(&bytes[sent..]);
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// As [`Stack::send`]; 0: there is no room.
fn send_some(stack: &mut Stack, now: u64, id: SocketId, bytes: &[u8]) -> Result<usize, SocketError> {
    match stack.send(now, id, bytes) {
        Err(SocketError::WouldBlock) => Ok(0),
        sent => sent,
    }
}

/// Tells the program why the host's socket can't be connected.
fn refuse(shared: &mut Shared, error: Errno, syn: &[u8], offload: Offload) {
    let now = shared.clock.now();
    match error {
        // Without a listener, the stack resets it.
        Errno::CONNREFUSED | Errno::CONNRESET => shared.stack.receive(now, 0, syn, offload),
        // The program's own time is over about now.
        Errno::TIMEDOUT => {}
        _ => shared.stack.reject(now, 0, syn),
    }
}
