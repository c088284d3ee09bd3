//! Sockets as system calls show them.

use crate::machine::{File, Machine};
use crate::poll::Ready;
use crate::zerocopy::Zerocopy;
use ringway_netstack::{ConnectionError, SocketError, SocketId, SocketOptions, State};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    New,
    Listener(SocketId),
    /// `TCP_FASTOPEN_CONNECT`: the first bytes to send go with the SYN.
    Deferred(SocketAddr),
    Stream(SocketId),
}

/// A TCP socket.
#[derive(Clone, Debug)]
pub struct Socket {
    pub kind: Kind,
    pub v6: bool,
    pub nonblocking: bool,
    local: Option<SocketAddr>,
    pub options: SocketOptions,
    /// Options that only this library keeps, by level and name.
    pub others: BTreeMap<(i32, i32), i32>,
    /// Until `connect` has reported that the connection is established.
    connecting: bool,
    /// Whether an error was reported: it is reported once.
    pub told: bool,
    /// `shutdown` for reading.
    deaf: bool,
    /// `TCP_FASTOPEN_KEY`.
    pub fast_open_key: Option<[u64; 2]>,
    pub ready: Ready,
    pub zerocopy: Box<Zerocopy>,
}

impl Socket {
    pub fn stream(&self) -> Result<SocketId, i32> {
        match self.kind {
            Kind::Stream(id) => Ok(id),
            _ => Err(libc::ENOTCONN),
        }
    }
}

/// The error number of a call's failure.
pub fn errno(error: SocketError) -> i32 {
    match error {
        SocketError::BadSocket => libc::EINVAL,
        SocketError::AddressInUse => libc::EADDRINUSE,
        SocketError::AddressNotAvailable => libc::EADDRNOTAVAIL,
        SocketError::Unreachable => libc::ENETUNREACH,
        SocketError::WouldBlock => libc::EAGAIN,
        SocketError::MessageTooLong => libc::EMSGSIZE,
        SocketError::TooManySockets => libc::EMFILE,
        SocketError::BrokenPipe => libc::EPIPE,
        SocketError::Connection(error) => ended(error),
    }
}

fn ended(error: ConnectionError) -> i32 {
    match error {
        ConnectionError::Refused => libc::ECONNREFUSED,
        ConnectionError::Reset => libc::ECONNRESET,
        ConnectionError::TimedOut => libc::ETIMEDOUT,
        ConnectionError::Unreachable => libc::EHOSTUNREACH,
        ConnectionError::SourceLost => libc::EIO,
        ConnectionError::NetworkDown => libc::ENETDOWN,
    }
}

impl Machine {
    pub fn open(&mut self, v6: bool, nonblocking: bool) -> i32 {
        self.add(File::Socket(Socket {
            kind: Kind::New,
            v6,
            nonblocking,
            local: None,
            options: SocketOptions::default(),
            others: BTreeMap::new(),
            connecting: false,
            told: false,
            deaf: false,
            fast_open_key: None,
            ready: Ready::default(),
            zerocopy: Box::default(),
        }))
    }

    pub fn bind(&mut self, fd: i32, address: SocketAddr) -> Result<i32, i32> {
        self.socket(fd)?.local = Some(address);
        Ok(0)
    }

    pub fn listen(&mut self, fd: i32, backlog: i32) -> Result<i32, i32> {
        let socket = self.socket(fd)?;
        let Kind::New = socket.kind else { return Ok(0) };
        let local = socket.local.unwrap_or(([0, 0, 0, 0], 0).into());
        // Linux accepts one more than the backlog.
        let id = self.stack.listen(local, backlog.max(0) as usize + 1).map_err(errno)?;
        self.socket(fd)?.kind = Kind::Listener(id);
        self.pass_options(fd)?;
        Ok(0)
    }

    pub fn accept(&mut self, fd: i32) -> Result<(i32, SocketAddr), i32> {
        let socket = self.socket(fd)?;
        let Kind::Listener(listener) = socket.kind else { return Err(libc::EINVAL) };
        let mut new = socket.clone();
        let accepted = self.stack.accept(listener).map_err(errno)?;
        new.kind = Kind::Stream(accepted.socket);
        new.nonblocking = false;
        new.ready = Ready { writable: true, ..Ready::default() };
        new.zerocopy = Box::default();
        let fd = self.add(File::Socket(new));
        self.pass_options(fd)?;
        Ok((fd, accepted.peer))
    }

    /// Begins or continues to connect; `EAGAIN` while a blocking call must wait.
    pub fn connect(&mut self, fd: i32, remote: Option<SocketAddr>) -> Result<i32, i32> {
        let socket = self.socket(fd)?;
        let Some(remote) = remote else { return self.disconnect(fd) };
        match socket.kind {
            Kind::Listener(_) => Err(libc::EISCONN),
            Kind::Deferred(_) => Err(libc::EISCONN),
            Kind::Stream(id) => self.connected(fd, id),
            Kind::New => {
                let defers = socket.options.tcp_fastopen_connect && self.stack.may_send_with_syn(remote.ip());
                if defers {
                    self.socket(fd)?.kind = Kind::Deferred(remote);
                    return Ok(0);
                }
                self.begin(fd, remote)?;
                Err(libc::EAGAIN)
            }
        }
    }

    /// Opens the connection; the SYN leaves at the next flush.
    fn begin(&mut self, fd: i32, remote: SocketAddr) -> Result<SocketId, i32> {
        let (now, local) = (self.now, self.socket(fd)?.local);
        let id = match local.filter(|local| local.port() != 0 && !local.ip().is_unspecified()) {
            Some(local) => self.stack.connect_from(now, local, remote),
            None => self.stack.connect(now, remote),
        };
        let id = id.map_err(errno)?;
        let socket = self.socket(fd)?;
        (socket.kind, socket.connecting, socket.told) = (Kind::Stream(id), true, false);
        self.pass_options(fd)?;
        Ok(id)
    }

    fn connected(&mut self, fd: i32, id: SocketId) -> Result<i32, i32> {
        if let Some(error) = self.take_error(fd)? {
            self.socket(fd)?.kind = Kind::New;
            return Err(error);
        }
        let state = self.stack.info(id).map_err(errno)?.tcpi_state;
        let socket = self.socket(fd)?;
        match state {
            State::SynSent | State::SynReceived if socket.connecting => Err(libc::EAGAIN),
            _ if socket.connecting => {
                socket.connecting = false;
                Ok(0)
            }
            _ => Err(libc::EISCONN),
        }
    }

    /// `connect` to `AF_UNSPEC`.
    fn disconnect(&mut self, fd: i32) -> Result<i32, i32> {
        if let Kind::Stream(id) = self.socket(fd)?.kind {
            self.stack.abort(self.now, id).map_err(errno)?;
        }
        self.socket(fd)?.kind = Kind::New;
        Ok(0)
    }

    /// The error that ended the connection, once.
    pub fn take_error(&mut self, fd: i32) -> Result<Option<i32>, i32> {
        let socket = self.socket(fd)?;
        let (Kind::Stream(id), false) = (socket.kind, socket.told) else { return Ok(None) };
        let error = self.stack.error(id).map_err(errno)?;
        self.socket(fd)?.told = error.is_some();
        Ok(error.map(ended))
    }

    /// Sends `bytes` from `done` on, as far as there is room; `EAGAIN` if some are left.
    pub fn send(&mut self, fd: i32, bytes: &[u8], done: &mut usize, flags: i32) -> Result<usize, i32> {
        let now = self.now;
        let waits = flags & libc::MSG_DONTWAIT == 0 && !self.socket(fd)?.nonblocking;
        let (id, deferred) = match self.socket(fd)?.kind {
            Kind::Deferred(remote) => (self.begin(fd, remote)?, true),
            Kind::Stream(id) => (id, false),
            _ => return Err(libc::EPIPE),
        };
        if let Some(error) = self.take_error(fd)? {
            let refused = self.socket(fd)?.connecting;
            return if *done > 0 && !refused { Ok(*done) } else { Err(error) };
        }
        if !deferred && self.is_connecting(fd) {
            return Err(libc::EAGAIN);
        }
        self.socket(fd)?.connecting = deferred;
        // Linux takes what the SYN carries. The rest, if the program waits for the handshake, is in the stack's buffer
        // meanwhile.
        let most = if deferred && !waits { self.stack.syn_room(id).map_err(errno)? } else { usize::MAX };
        let bytes = &bytes[..bytes.len().min(most)];
        while *done < bytes.len() {
            let sent = match flags & libc::MSG_MORE {
                0 => self.stack.send(now, id, &bytes[*done..]),
                _ => self.stack.send_more(now, id, &bytes[*done..]),
            };
            match sent {
                Ok(count) => {
                    *done += count;
                    self.socket(fd)?.zerocopy.sent += count as u64;
                }
                Err(SocketError::WouldBlock) => {
                    self.socket(fd)?.ready.writable = false;
                    return Err(libc::EAGAIN);
                }
                Err(SocketError::Connection(_)) => return Err(libc::EPIPE),
                Err(error) => return Err(errno(error)),
            }
        }
        if flags & libc::MSG_EOR != 0 {
            self.stack.end_record(id).map_err(errno)?;
        }
        if deferred { Err(libc::EAGAIN) } else { Ok(*done) }
    }

    /// Connects and sends bytes with the SYN (`MSG_FASTOPEN`).
    pub fn send_fast(
        &mut self,
        fd: i32,
        bytes: &[u8],
        done: &mut usize,
        remote: Option<SocketAddr>,
        flags: i32,
    ) -> Result<usize, i32> {
        let socket = self.socket(fd)?;
        match socket.kind {
            Kind::New => {
                let disabled = self.settings().tcp_fastopen & 1 == 0;
                let remote = remote.filter(|_| !disabled).ok_or(libc::EOPNOTSUPP)?;
                let defers = self.stack.may_send_with_syn(remote.ip());
                let kept = self.socket(fd)?.options;
                self.socket(fd)?.options.tcp_fastopen_connect = true;
                if defers && !bytes.is_empty() {
                    self.socket(fd)?.kind = Kind::Deferred(remote);
                    let _ = self.send(fd, bytes, done, flags);
                } else {
                    self.begin(fd, remote)?;
                }
                self.socket(fd)?.options = kept;
                Err(libc::EAGAIN)
            }
            Kind::Deferred(_) => self.send(fd, bytes, done, flags),
            Kind::Stream(id) if socket.connecting => match self.connected(fd, id) {
                Ok(_) => self.send(fd, bytes, done, flags),
                Err(error) => Err(error),
            },
            Kind::Stream(_) => Err(libc::EISCONN),
            _ => Err(libc::EALREADY),
        }
    }

    /// Whether a connection attempt is in progress.
    pub fn is_connecting(&mut self, fd: i32) -> bool {
        let Ok(Socket { kind: Kind::Stream(id), connecting: true, .. }) = self.socket(fd).cloned() else {
            return false;
        };
        self.stack.info(id).is_ok_and(|info| info.tcpi_state == State::SynSent)
    }

    pub fn receive(&mut self, fd: i32, bytes: &mut [u8], flags: i32) -> Result<usize, i32> {
        let socket = self.socket(fd)?;
        if let Kind::Deferred(_) = socket.kind {
            return Err(libc::EAGAIN);
        }
        let id = socket.stream()?;
        let deaf = socket.deaf;
        if bytes.is_empty() {
            return Ok(0);
        }
        let peeks = flags & libc::MSG_PEEK != 0;
        let unread = self.stack.unread(id).map_err(errno)?;
        if peeks && unread > 0 {
            return self.stack.peek(id, bytes).map_err(errno);
        }
        if unread == 0
            && let Some(error) = self.take_error(fd)?
        {
            return Err(error);
        }
        match self.stack.recv(self.now, id, bytes) {
            Ok(count) => Ok(count),
            Err(SocketError::WouldBlock) if deaf => Ok(0),
            Err(SocketError::Connection(_)) => Ok(0),
            Err(error) => Err(errno(error)),
        }
    }

    pub fn shutdown(&mut self, fd: i32, how: i32) -> Result<i32, i32> {
        let now = self.now;
        let socket = self.socket(fd)?;
        match socket.kind {
            Kind::Listener(id) => {
                self.stack.close(now, id).map_err(errno)?;
                self.socket(fd)?.kind = Kind::New;
            }
            Kind::Stream(id) => {
                socket.deaf |= how != libc::SHUT_WR;
                let state = self.stack.info(id).map_err(errno)?.tcpi_state;
                if matches!(state, State::Closed | State::TimeWait) {
                    return Err(libc::ENOTCONN);
                }
                if how != libc::SHUT_RD {
                    self.stack.shutdown(now, id).map_err(errno)?;
                }
            }
            _ => return Err(libc::ENOTCONN),
        }
        Ok(0)
    }

    pub fn close(&mut self, fd: i32) -> Result<i32, i32> {
        let now = self.now;
        match self.remove(fd)? {
            File::Socket(socket) => {
                let linger = socket.others.get(&(libc::SOL_SOCKET, libc::SO_LINGER));
                match socket.kind {
                    Kind::Stream(id) if linger == Some(&0) => self.stack.abort(now, id).map_err(errno)?,
                    Kind::Stream(id) | Kind::Listener(id) => self.stack.close(now, id).map_err(errno)?,
                    _ => {}
                }
            }
            File::Epoll(_) => {}
            File::Kernel(_) => {}
        }
        Ok(0)
    }

    /// What `TCP_INQ` passes with received bytes, if it is set: how many follow, or 1 if only the end does.
    pub fn inq(&mut self, fd: i32) -> Option<i32> {
        let socket = self.socket(fd).ok()?;
        socket.others.get(&(libc::SOL_TCP, 36)).filter(|value| **value != 0)?;
        let id = socket.stream().ok()?;
        let ends = self.stack.is_finished(id) == Ok(true);
        self.unread(fd).ok().map(|unread| if ends { unread.max(1) } else { unread })
    }

    /// Bytes that can be read.
    pub fn unread(&mut self, fd: i32) -> Result<i32, i32> {
        let id = self.socket(fd)?.stream()?;
        Ok(self.stack.unread(id).map_err(errno)? as i32)
    }
}
