//! The socket of a session: receives bytes with descriptors of its peer, and sends replies.

use ringway_host::{BackgroundClose, Budget, Duplicates, FdKind, HostError};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Why a socket is of no more use. The text is for people.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The peer disconnected.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer sends requests and never reads the replies.
    #[error("the peer does not read the replies to its messages")]
    Deaf,
    /// The peer sent a descriptor whose use may block for as long as the peer likes.
    #[error(
        "the peer sent a descriptor that is neither memory (a memfd, or a file on tmpfs or hugetlbfs) nor {0}"
    )]
    Descriptor(&'static str),
    /// Descriptors of the last peer are still being closed.
    #[error("descriptors of a former peer can't be closed; this one may try again later")]
    Unclosed,
    /// Waking it takes too long.
    #[error("waking the peer took several milliseconds each time: too many watch what it is woken by")]
    Slow,
    /// The system refused.
    #[error("the connection to the peer failed: {0}")]
    Host(#[from] HostError),
    /// The system refused.
    #[error("the connection to the peer failed: {0}")]
    Io(#[from] io::Error),
}

impl SocketError {
    /// Whether the peer broke the protocol.
    pub fn is_fault(&self) -> bool {
        use SocketError::{Closed, Host, Io, Unclosed};
        !matches!(self, Closed | Unclosed | Host(_) | Io(_))
    }
}

/// What one call received.
pub struct Received {
    /// Number of bytes; 0 at the end of the connection.
    pub count: usize,
    pub fds: Vec<OwnedFd>,
    /// The kind of each descriptor.
    pub kinds: Vec<FdKind>,
}

/// The descriptors that a protocol may carry.
pub struct Accepted {
    /// Number per call.
    pub most: usize,
    /// Kinds besides memory.
    pub kinds: &'static [FdKind],
    /// Names of `kinds`, for the error.
    pub names: &'static str,
}

/// The socket of a port's sessions, one after the other.
#[derive(Default)]
pub struct SessionSocket {
    stream: Option<UnixStream>,
    /// Duplicates of descriptors of memory in messages that are not handled yet, closed by a separate thread.
    ///
    /// Attack: gigabytes of memory of which the peer keeps no descriptor, so that closing our last one frees them.
    /// The duplicates are closed after those from the message.
    memory: Vec<OwnedFd>,
    closer: BackgroundClose,
    duplicates: Duplicates,
    /// Number of receive calls that returned bytes, or the end of a session.
    received: u64,
}

impl SessionSocket {
    /// Begins a session on `stream`; there must be none.
    pub fn connect(&mut self, stream: OwnedFd) -> Result<BorrowedFd<'_>, SocketError> {
        if !self.closer.is_done() || self.duplicates.is_stuck() {
            return Err(SocketError::Unclosed);
        }
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(true)?;
        let stream: &UnixStream = self.stream.insert(stream);
        Ok(stream.as_fd())
    }

    /// Receives into `space`; `None` if nothing has arrived. `in_use` are the descriptors that the session uses.
    pub fn receive<'a, I: Iterator<Item = BorrowedFd<'a>>>(
        &mut self,
        space: &mut [u8],
        accepted: &Accepted,
        budget: &Budget,
        in_use: impl Fn() -> I,
    ) -> Result<Option<Received>, SocketError> {
        let Some(stream) = &self.stream else { return Ok(None) };
        // Attack: hundreds of thousands of watchers of its end, which each receive wakes.
        let mut received = Ok(None);
        budget.wake(|| received = ringway_host::try_receive_with(stream.as_fd(), space, accepted.most));
        let (count, fds) = match received {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(None),
            // The peer died before it read a reply.
            Err(HostError::Call { error, .. }) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(SocketError::Closed);
            }
            Err(error) => return Err(error.into()),
        };
        self.received = self.received.wrapping_add(1);
        let kinds = self.admit(&fds, accepted, in_use);
        match kinds {
            Ok(kinds) => Ok(Some(Received { count, fds, kinds })),
            Err(error) => {
                self.closer.close(fds);
                Err(error)
            }
        }
    }

    /// Checks descriptors of the peer, and returns their kinds.
    pub fn admit<'a, I: Iterator<Item = BorrowedFd<'a>>>(
        &mut self,
        fds: &[OwnedFd],
        accepted: &Accepted,
        in_use: impl Fn() -> I,
    ) -> Result<Vec<FdKind>, SocketError> {
        let usable = |kind: &FdKind| *kind == FdKind::Memory || accepted.kinds.contains(kind);
        let kinds = fds.iter().map(|fd| FdKind::of(fd.as_fd()).filter(usable));
        let kinds = kinds.collect::<Option<Vec<FdKind>>>();
        let kinds = kinds.ok_or(SocketError::Descriptor(accepted.names))?;
        for (fd, kind) in fds.iter().zip(&kinds) {
            match kind {
                FdKind::Memory => self.memory.push(fd.try_clone()?),
                _ => self.duplicates.keep(fd.as_fd(), in_use())?,
            }
        }
        if self.duplicates.is_stuck() {
            return Err(SocketError::Unclosed);
        }
        Ok(kinds)
    }

    /// Number of receive calls that returned bytes, or the end of a session.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// All descriptors received so far are those of handled messages.
    pub fn handled(&mut self) {
        ringway_host::close_memory(std::mem::take(&mut self.memory));
    }

    /// Sends a reply. The socket's buffer has room for it if the peer reads its replies at all.
    pub fn send(&mut self, reply: &[u8], fds: &[BorrowedFd<'_>], budget: &Budget) -> Result<(), SocketError> {
        let Some(stream) = &self.stream else { return Ok(()) };
        let mut written = Ok(0);
        budget.wake(|| written = ringway_host::send_with(stream, reply, fds));
        match written {
            Ok(0) if budget.is_spent() => Err(SocketError::Slow),
            Ok(count) if count == reply.len() => Ok(()),
            // Attack: replies that pile up because they are not read.
            Ok(_) => Err(SocketError::Deaf),
            Err(HostError::Call { call, error }) => match error.kind() {
                io::ErrorKind::WouldBlock => Err(SocketError::Deaf),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Err(SocketError::Closed),
                _ => Err(HostError::Call { call, error }.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Closes the socket as the end of a process does; another descriptor of it stays connected.
    #[cfg(test)]
    pub fn crash(&mut self) {
        self.stream = None;
    }

    /// Ends the session, whose own descriptors are closed by now.
    pub fn disconnect(&mut self) {
        if let Some(stream) = self.stream.take() {
            // Attack: descriptors in messages that were not received are closed with the socket.
            let _ = stream.shutdown(Shutdown::Both);
            self.duplicates.adopt(stream.into());
        }
        self.handled();
        self.duplicates.release();
    }
}

impl Drop for SessionSocket {
    fn drop(&mut self) {
        self.disconnect();
    }
}
