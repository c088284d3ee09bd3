//! A socket with POSIX's states and errors.

use crate::watch::Watch;
use crate::{Result, address};
use ringway_host::EventFd;
use ringway_netstack::{ConnectionError, SocketError, SocketId, State as TcpState};
use ringway_sockets::{Algorithm, Host, Interest, Network, SocketOptions};
use std::ffi::{c_int, c_short};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// Most connections of a listener that wait to be accepted.
const BACKLOG: c_int = 4096;

/// What a socket is.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Neither connected nor listening; the address that it is bound to.
    New(Option<SocketAddr>),
    Listener(SocketId),
    /// `told`: `connect` has succeeded.
    Stream {
        id: SocketId,
        told: bool,
    },
    Datagram {
        id: SocketId,
        peer: Option<SocketAddr>,
    },
}

/// A socket; closed when the last call that uses it has ended.
#[derive(Debug)]
pub struct Socket {
    pub network: Network,
    pub family: c_int,
    pub kind: c_int,
    state: Mutex<State>,
    pub nonblocking: AtomicBool,
    /// SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds; 0: none.
    pub timeouts: [AtomicU64; 2],
    read_shut: AtomicBool,
    /// SO_ERROR has told why the connection ended.
    error_told: AtomicBool,
    options: Mutex<SocketOptions>,
    algorithm: Mutex<Option<Algorithm>>,
    watch: Arc<Watch>,
    /// The event for the program's own poll loop.
    event: OnceLock<Arc<EventFd>>,
}

/// The errno of an error of the stack.
pub fn errno(error: &io::Error) -> c_int {
    match error.kind() {
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::AddrInUse => libc::EADDRINUSE,
        ErrorKind::AddrNotAvailable => libc::EADDRNOTAVAIL,
        ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::InvalidInput => libc::EMSGSIZE,
        ErrorKind::QuotaExceeded => libc::ENFILE,
        ErrorKind::BrokenPipe => libc::EPIPE,
        ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        ErrorKind::ConnectionReset => libc::ECONNRESET,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        ErrorKind::NetworkDown => libc::ENETDOWN,
        _ => libc::EIO,
    }
}

fn is_connected(host: &mut Host, id: SocketId) -> std::result::Result<(), SocketError> {
    if let Some(error) = host.stack().error(id)? {
        return Err(error.into());
    }
    match host.stack().info(id)?.tcpi_state {
        TcpState::SynSent | TcpState::SynReceived => Err(SocketError::WouldBlock),
        TcpState::Closed => Err(ConnectionError::Reset.into()),
        _ => Ok(()),
    }
}

impl Socket {
    pub fn new(network: &Network, family: c_int, kind: c_int) -> Result<Socket> {
        if family != libc::AF_INET && family != libc::AF_INET6 {
            return Err(libc::EAFNOSUPPORT);
        }
        let base = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        if base != libc::SOCK_STREAM && base != libc::SOCK_DGRAM {
            return Err(libc::ESOCKTNOSUPPORT);
        }
        Ok(Socket {
            network: network.clone(),
            family,
            kind: base,
            state: Mutex::new(State::New(None)),
            nonblocking: (kind & libc::SOCK_NONBLOCK != 0).into(),
            timeouts: Default::default(),
            read_shut: false.into(),
            error_told: false.into(),
            options: Default::default(),
            algorithm: Default::default(),
            watch: Default::default(),
            event: OnceLock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stream(&self) -> bool {
        self.kind == libc::SOCK_STREAM
    }

    fn attempt<T>(&self, call: impl FnMut(&mut Host) -> std::result::Result<T, SocketError>) -> Result<T> {
        self.network.attempt(call).map_err(|error| errno(&error))
    }

    /// Calls the stack, and waits unless the mode or the call's flags forbid it.
    fn call<T>(
        &self,
        id: SocketId,
        interest: Interest,
        flags: c_int,
        call: impl FnMut(&mut Host) -> std::result::Result<T, SocketError>,
    ) -> Result<T> {
        if flags & libc::MSG_DONTWAIT != 0 || self.nonblocking.load(Relaxed) {
            return self.attempt(call);
        }
        let nanoseconds = self.timeouts[usize::from(interest != Interest::Read)].load(Relaxed);
        let timeout = (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds));
        self.network.block(Some(id), interest, timeout, call).map_err(|error| {
            let is_own = error.kind() == ErrorKind::TimedOut && timeout.is_some();
            if is_own && self.failure(id).is_none() { libc::EAGAIN } else { errno(&error) }
        })
    }

    fn failure(&self, id: SocketId) -> Option<ConnectionError> {
        self.network.with(|stack| stack.error(id).ok().flatten())
    }

    pub fn bind(&self, local: SocketAddr) -> Result<()> {
        let mut state = self.state();
        let State::New(None) = *state else { return Err(libc::EINVAL) };
        if self.is_stream() {
            let is_own = local.ip().is_unspecified() || local.ip().is_loopback() || self.has(local);
            *state = State::New(Some(is_own.then_some(local).ok_or(libc::EADDRNOTAVAIL)?));
        } else {
            *state = State::Datagram { id: self.attempt(|host| host.stack().bind(local))?, peer: None };
        }
        Ok(())
    }

    /// Whether an address is the network's.
    fn has(&self, local: SocketAddr) -> bool {
        let own = |stack: &mut ringway_netstack::Stack| {
            stack.interface_addresses(0).iter().any(|cidr| cidr.address == local.ip())
        };
        self.network.with(own)
    }

    pub fn listen(&self, backlog: c_int) -> Result<()> {
        let mut state = self.state();
        match *state {
            _ if !self.is_stream() => Err(libc::EOPNOTSUPP),
            State::Listener(_) => Ok(()),
            State::New(local) => {
                let local = local.unwrap_or(address::any(self.family));
                // Attack: none of a peer; a program's own number is bounded as `somaxconn` does.
                let backlog = backlog.clamp(1, BACKLOG) as usize;
                let id = self.attempt(|host| host.stack().listen(local, backlog))?;
                *state = State::Listener(id);
                self.apply(id)
            }
            _ => Err(libc::EINVAL),
        }
    }

    pub fn accept(&self, flags: c_int) -> Result<(Socket, SocketAddr)> {
        let State::Listener(listener) = *self.state() else { return Err(libc::EINVAL) };
        let accepted = self.call(listener, Interest::Read, 0, |host| host.stack().accept(listener))?;
        let socket = Socket::new(&self.network, self.family, libc::SOCK_STREAM | flags)?;
        *socket.state() = State::Stream { id: accepted.socket, told: true };
        *socket.options() = *self.options();
        Ok((socket, accepted.peer))
    }

    pub fn connect(&self, remote: SocketAddr) -> Result<()> {
        let id = {
            let mut state = self.state();
            match *state {
                State::Listener(_) | State::Stream { told: true, .. } => return Err(libc::EISCONN),
                State::Stream { id, .. } => {
                    let now = self.attempt(|host| is_connected(host, id));
                    let blocks = !self.nonblocking.load(Relaxed);
                    match now {
                        Err(libc::EAGAIN) if blocks => id,
                        Err(libc::EAGAIN) => return Err(libc::EALREADY),
                        Ok(()) => {
                            *state = State::Stream { id, told: true };
                            return Ok(());
                        }
                        Err(error) => return Err(self.start_again(&mut state, id, error)),
                    }
                }
                State::Datagram { id, .. } => {
                    *state = State::Datagram { id, peer: Some(remote) };
                    return Ok(());
                }
                State::New(local) => {
                    let local = local.unwrap_or(address::any(self.family));
                    if !self.is_stream() {
                        let id = self.attempt(|host| host.stack().bind(local))?;
                        *state = State::Datagram { id, peer: Some(remote) };
                        return Ok(());
                    }
                    let id = self.attempt(|host| {
                        let now = host.now();
                        host.stack().connect_from(now, local, remote)
                    })?;
                    *state = State::Stream { id, told: false };
                    self.apply(id)?;
                    id
                }
            }
        };
        let done = self.call(id, Interest::Write, 0, |host| is_connected(host, id));
        let mut state = self.state();
        match done {
            Ok(()) => *state = State::Stream { id, told: true },
            Err(libc::EAGAIN) => return Err(libc::EINPROGRESS),
            Err(error) => return Err(self.start_again(&mut state, id, error)),
        }
        Ok(())
    }

    /// After a failed `connect` the socket may connect again.
    fn start_again(&self, state: &mut State, id: SocketId, error: c_int) -> c_int {
        if matches!(*state, State::Stream { id: own, .. } if own == id) {
            *state = State::New(None);
            self.network.close(id);
        }
        error
    }

    /// Sends bytes of a stream: all of them if it may wait.
    pub fn send(&self, bytes: &[u8], flags: c_int) -> Result<usize> {
        if flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let state = *self.state();
        let id = match state {
            State::Stream { id, .. } => id,
            State::Datagram { peer: None, .. } | State::New(_) if !self.is_stream() => {
                return Err(libc::EDESTADDRREQ);
            }
            State::Datagram { id, peer: Some(peer) } => return self.send_datagram(id, bytes, flags, peer),
            _ => return Err(libc::ENOTCONN),
        };
        let mut sent = 0;
        loop {
            let rest = &bytes[sent..];
            let count = self.call(id, Interest::Write, flags, |host| match flags & libc::MSG_MORE {
                0 => host.write(id, rest),
                _ => {
                    let now = host.now();
                    host.stack().send_more(now, id, rest)
                }
            });
            match count {
                Ok(count) => sent += count,
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(error),
            }
            let waits = flags & libc::MSG_DONTWAIT == 0 && !self.nonblocking.load(Relaxed);
            if sent == bytes.len() || !waits {
                return Ok(sent);
            }
        }
    }

    pub fn send_to(&self, bytes: &[u8], flags: c_int, to: SocketAddr) -> Result<usize> {
        if self.is_stream() {
            return self.send(bytes, flags);
        }
        let id = {
            let mut state = self.state();
            match *state {
                State::Datagram { id, .. } => id,
                _ => {
                    let local = address::any(self.family);
                    let id = self.attempt(|host| host.stack().bind(local))?;
                    *state = State::Datagram { id, peer: None };
                    id
                }
            }
        };
        self.send_datagram(id, bytes, flags, to)
    }

    fn send_datagram(&self, id: SocketId, bytes: &[u8], flags: c_int, to: SocketAddr) -> Result<usize> {
        self.call(id, Interest::Progress, flags, |host| {
            let now = host.now();
            match host.stack().send_to(now, id, bytes, to) {
                // Too many wait for the neighbour's address: dropped, as UDP may.
                Err(SocketError::WouldBlock) if !host.is_full() => Ok(()),
                sent => sent,
            }
        })?;
        Ok(bytes.len())
    }

    /// Receives; the sender of a datagram.
    pub fn receive(&self, out: &mut [u8], flags: c_int) -> Result<(usize, Option<SocketAddr>)> {
        if flags & !(libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_NOSIGNAL) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let state = *self.state();
        let id = match state {
            State::Stream { id, .. } => id,
            State::Datagram { id, peer } => return self.receive_datagram(id, peer, out, flags),
            _ => return Err(libc::ENOTCONN),
        };
        let mut filled = 0;
        while filled < out.len() {
            let rest = &mut out[filled..];
            let count = self.call(id, Interest::Read, flags, |host| self.read(host, id, rest, flags));
            match count {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
            if flags & libc::MSG_WAITALL == 0 || flags & libc::MSG_PEEK != 0 {
                break;
            }
        }
        Ok((filled, None))
    }

    fn read(
        &self,
        host: &mut Host,
        id: SocketId,
        out: &mut [u8],
        flags: c_int,
    ) -> std::result::Result<usize, SocketError> {
        let now = host.now();
        if self.read_shut.load(Relaxed) {
            return Ok(0);
        }
        if flags & libc::MSG_PEEK != 0 {
            let count = host.stack().peek(id, out)?;
            // Tells an error, the end, or that there is nothing.
            return if count == 0 { host.stack().recv(now, id, out) } else { Ok(count) };
        }
        match host.stack().recv(now, id, out) {
            Err(SocketError::WouldBlock) => match host.read(id, out) {
                Err(SocketError::WouldBlock) => host.stack().recv(now, id, out),
                result => result,
            },
            result => result,
        }
    }

    fn receive_datagram(
        &self,
        id: SocketId,
        peer: Option<SocketAddr>,
        out: &mut [u8],
        flags: c_int,
    ) -> Result<(usize, Option<SocketAddr>)> {
        if flags & libc::MSG_PEEK != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let received = self.call(id, Interest::Read, flags, |host| {
            loop {
                let (bytes, from) = host.stack().recv_from(id)?;
                if peer.is_none_or(|peer| peer == from) {
                    return Ok((bytes, from));
                }
            }
        });
        let (bytes, from) = received?;
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        Ok((len, Some(from)))
    }

    pub fn shutdown(&self, how: c_int) -> Result<()> {
        if ![libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_RDWR].contains(&how) {
            return Err(libc::EINVAL);
        }
        let State::Stream { id, .. } = *self.state() else { return Err(libc::ENOTCONN) };
        if how != libc::SHUT_WR {
            self.read_shut.store(true, Relaxed);
        }
        if how != libc::SHUT_RD {
            self.attempt(|host| {
                let now = host.now();
                host.stack().shutdown(now, id)
            })?;
        }
        self.watch.signal();
        Ok(())
    }

    pub fn local(&self) -> Result<SocketAddr> {
        match *self.state() {
            State::New(local) => Ok(local.unwrap_or(address::any(self.family))),
            State::Listener(id) | State::Stream { id, .. } | State::Datagram { id, .. } => {
                self.attempt(|host| host.stack().local_address(id))
            }
        }
    }

    pub fn peer(&self) -> Result<SocketAddr> {
        match *self.state() {
            State::Stream { id, .. } => {
                self.attempt(|host| is_connected(host, id)).map_err(|_| libc::ENOTCONN)?;
                Ok(self.attempt(|host| host.stack().addresses(id))?.1)
            }
            State::Datagram { peer: Some(peer), .. } => Ok(peer),
            _ => Err(libc::ENOTCONN),
        }
    }

    pub fn is_listening(&self) -> bool {
        matches!(*self.state(), State::Listener(_))
    }

    /// SO_ERROR: why the connection ended; told once.
    pub fn take_error(&self) -> c_int {
        let State::Stream { id, .. } = *self.state() else { return 0 };
        let Err(error) = self.attempt(|host| is_connected(host, id)) else { return 0 };
        if error == libc::EAGAIN || self.failure(id).is_none() || self.error_told.swap(true, Relaxed) {
            return 0;
        }
        error
    }

    pub fn options(&self) -> MutexGuard<'_, SocketOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes an option of the connection, or of those that a listener accepts.
    pub fn set_option(&self, change: impl FnOnce(&mut SocketOptions)) -> Result<()> {
        change(&mut self.options());
        match *self.state() {
            State::Listener(id) | State::Stream { id, .. } => self.apply(id),
            _ => Ok(()),
        }
    }

    pub fn set_congestion(&self, algorithm: Algorithm) -> Result<()> {
        *self.algorithm.lock().unwrap_or_else(PoisonError::into_inner) = Some(algorithm);
        match *self.state() {
            State::Stream { id, .. } => self.apply(id),
            State::Listener(_) => Err(libc::EINVAL),
            _ => Ok(()),
        }
    }

    pub fn congestion(&self) -> Algorithm {
        let own = *self.algorithm.lock().unwrap_or_else(PoisonError::into_inner);
        own.unwrap_or_else(|| self.network.with(|stack| stack.settings().tcp_congestion_control))
    }

    fn apply(&self, id: SocketId) -> Result<()> {
        let options = *self.options();
        let algorithm = *self.algorithm.lock().unwrap_or_else(PoisonError::into_inner);
        self.attempt(|host| {
            let now = host.now();
            host.stack().set_options(now, id, options)?;
            match algorithm {
                Some(algorithm) if host.stack().info(id).is_ok() => {
                    host.stack().set_congestion(now, id, algorithm)
                }
                _ => Ok(()),
            }
        })
    }

    /// What the socket is ready for, of `events` and of what is always told. `event` is signaled when that changes.
    pub fn ready(&self, events: c_short, event: &Arc<EventFd>) -> c_short {
        self.watch.add(event);
        let waker = self.watch.clone().into();
        let cx = Context::from_waker(&waker);
        let is = |id, interest, call: fn(&mut Host, SocketId) -> bool| {
            let check = |host: &mut Host| call(host, id).then_some(()).ok_or(SocketError::WouldBlock);
            !matches!(self.network.poll(&cx, id, interest, check), Poll::Pending)
        };
        let mut ready = match *self.state() {
            State::New(_) if self.is_stream() => libc::POLLOUT | libc::POLLHUP,
            State::New(_) => libc::POLLOUT,
            State::Listener(id) if is(id, Interest::Read, |host, id| host.stack().has_connections(id)) => {
                libc::POLLIN
            }
            State::Listener(_) => 0,
            State::Datagram { id, .. } => {
                let reads = is(id, Interest::Read, |host, id| host.stack().has_datagrams(id));
                libc::POLLOUT | if reads { libc::POLLIN } else { 0 }
            }
            State::Stream { id, .. } => {
                let reads = self.read_shut.load(Relaxed) || is(id, Interest::Read, reads);
                let writes = is(id, Interest::Write, writes);
                let ended = self.network.with(|stack| {
                    let closed = stack.info(id).map_or(true, |info| info.tcpi_state == TcpState::Closed);
                    (closed, stack.error(id).ok().flatten().is_some())
                });
                [
                    (reads, libc::POLLIN),
                    (writes, libc::POLLOUT),
                    (ended.0, libc::POLLHUP),
                    (ended.1, libc::POLLERR),
                ]
                .into_iter()
                .filter(|(is, _)| *is)
                .fold(0, |all, (_, one)| all | one)
            }
        };
        ready &= events | libc::POLLHUP | libc::POLLERR;
        ready
    }

    /// Does not signal `event` any more.
    pub fn forget(&self, event: &Arc<EventFd>) {
        self.watch.remove(event);
    }

    /// The event of the program's own poll loop: signaled when the socket is ready for one of `events`.
    pub fn arm(&self, events: c_short) -> Result<&EventFd> {
        if self.event.get().is_none() {
            let event = Arc::new(EventFd::new().map_err(|_| libc::EMFILE)?);
            // Another thread's is as good.
            let _ = self.event.set(event);
        }
        let event = self.event.get().ok_or(libc::EIO)?;
        event.clear();
        if self.ready(events, event) != 0 {
            event.signal();
        }
        Ok(event)
    }
}

fn reads(host: &mut Host, id: SocketId) -> bool {
    let stack = host.stack();
    stack.unread(id).is_ok_and(|count| count > 0)
        || stack.is_finished(id).unwrap_or(true)
        || stack.error(id).map_or(true, |error| error.is_some())
        || stack.info(id).map_or(true, |info| info.tcpi_state == TcpState::Closed)
}

fn writes(host: &mut Host, id: SocketId) -> bool {
    match is_connected(host, id) {
        Err(SocketError::WouldBlock) => false,
        Err(_) => true,
        Ok(()) => host.stack().send_room(id).map_or(true, |room| room > 0),
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        match *self.state() {
            State::New(_) => {}
            State::Listener(id) | State::Stream { id, .. } | State::Datagram { id, .. } => {
                self.network.close(id);
            }
        }
    }
}
