//! The connection to a client.

use super::device::CardDevice;
use crate::State;
use crate::late::Late;
use ringway_frame::{CountersRef, add};
use ringway_host::{Clock, Closer, Duplicates, FdKind, HostError};
use ringway_vfio_user::{CodecError, DESCRIPTORS, Inbox, Offer, Session, SessionError};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Receive calls before other ports are served. Attack: a client that sends endlessly would block the session thread
/// for all other ports.
const RECEIVES: usize = 64;
/// Nanoseconds after which other ports are served even earlier. Attack: register writes that stop a ring each, and wait
/// for turns of all workers.
const SHARE: u64 = 10_000_000;

/// Why a connection ended. The text is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackendError {
    /// The client disconnected.
    #[error("the client closed the connection")]
    Closed,
    /// The client violated the protocol.
    #[error("the client broke the protocol: {0}")]
    Session(#[from] SessionError),
    /// The client sends requests and never reads the replies.
    #[error("the client does not read the replies to its messages")]
    Deaf,
    /// It sent a descriptor whose use may block for as long as the client likes, or too many within one message.
    #[error(
        "the client sent a descriptor that is neither memory (a memfd, or a file on tmpfs or hugetlbfs) \
         nor an eventfd, or too many"
    )]
    Descriptor,
    /// Such descriptors of the last client are still being closed.
    #[error("descriptors of a former client can't be closed; this one may try again later")]
    Unclosed,
    /// Waking it takes too long.
    #[error("waking the client took several milliseconds each time: too many watch what it is woken by")]
    Slow,
    /// The files that it shared grew too much.
    #[error("the files behind the guest's memory grew by more than twice the port's `memory`")]
    Grown,
    /// The file behind the guest's memory shrank.
    #[error("the guest's memory was lost: its file shrank")]
    Lost,
    /// The system refused.
    #[error("the connection to the client failed: {0}")]
    Host(#[from] HostError),
    /// The system refused.
    #[error("the connection to the client failed: {0}")]
    Io(#[from] io::Error),
}

impl BackendError {
    /// Whether the client or its guest broke the protocol.
    pub fn is_fault(&self) -> bool {
        !matches!(
            self,
            BackendError::Closed | BackendError::Unclosed | BackendError::Host(_) | BackendError::Io(_)
        )
    }
}

impl From<CodecError> for BackendError {
    fn from(error: CodecError) -> BackendError {
        BackendError::Session(error.into())
    }
}

struct Connection {
    stream: UnixStream,
    inbox: Inbox,
    session: Session,
    /// Dropped after the inbox, which may have the descriptors of half a message.
    late: Late,
    /// Descriptors received since no part of a message was left.
    received: usize,
}

/// The back-end of a port, which serves its client. Owned by one thread.
pub(super) struct Backend {
    offer: Offer,
    device: CardDevice,
    counters: CountersRef,
    connection: Option<Connection>,
    refused: Option<SessionError>,
    closer: Closer,
    duplicates: Duplicates,
}

impl Backend {
    pub fn new(device: CardDevice, counters: CountersRef) -> Backend {
        let (connection, refused) = (None, None);
        let (closer, duplicates) = (Closer::default(), Duplicates::default());
        Backend { offer: device.offer(), device, counters, connection, refused, closer, duplicates }
    }

    /// Connects a client and disconnects a former one.
    pub fn connect(&mut self, stream: OwnedFd) -> Result<(), BackendError> {
        self.disconnect();
        if !self.closer.is_done() || self.duplicates.is_stuck() {
            return Err(BackendError::Unclosed);
        }
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(true)?;
        self.device.begin_session(stream.as_fd())?;
        let (inbox, session) = (Inbox::default(), Session::new(self.offer.clone()));
        self.connection = Some(Connection { stream, inbox, session, late: Late::default(), received: 0 });
        Ok(())
    }

    /// The descriptor of a connected client: call [`Backend::readable`] whenever it is readable (level-triggered), and
    /// periodically.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().and_then(|_| Some(self.device.epoll()?.as_fd()))
    }

    /// Handles messages that have arrived. After an error there is no client any more, and the next can be connected.
    pub fn readable(&mut self) -> Result<(), BackendError> {
        let result = self.receive();
        if let Err(error) = &result {
            if error.is_fault() {
                add(&self.counters.faults, 1);
            }
            self.disconnect();
        }
        result
    }

    fn receive(&mut self) -> Result<(), BackendError> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        self.device.drain_unmask();
        let clock = Clock::new();
        let until = clock.now().saturating_add(SHARE);
        for _ in 0..RECEIVES {
            // Attack: hundreds of thousands of watchers of its end, which each receive wakes.
            let mut received = Ok(None);
            self.device.budget().wake(|| {
                let space = connection.inbox.space();
                received = ringway_host::try_receive_with(connection.stream.as_fd(), space, DESCRIPTORS);
            });
            let (count, fds) = match received {
                Ok(Some(received)) => received,
                Ok(None) => break,
                // The client died before it read an answer.
                Err(HostError::Call { error, .. }) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(BackendError::Closed);
                }
                Err(error) => return Err(error.into()),
            };
            let usable = |kind: &FdKind| matches!(kind, FdKind::Memory | FdKind::EventFd);
            let kinds = fds.iter().map(|fd| FdKind::of(fd.as_fd()).filter(usable));
            let Some(kinds) = kinds.collect::<Option<Vec<FdKind>>>() else {
                self.closer.close(fds);
                return Err(BackendError::Descriptor);
            };
            for (fd, kind) in fds.iter().zip(&kinds) {
                match kind {
                    FdKind::Memory => connection.late.add(fd)?,
                    _ => self.duplicates.keep(fd.as_fd(), self.device.descriptors())?,
                }
            }
            if self.duplicates.is_stuck() {
                return Err(BackendError::Unclosed);
            }
            // Attack: descriptors with pieces of messages, of which one is always incomplete.
            connection.received += fds.len();
            if connection.received > 16 * DESCRIPTORS {
                return Err(BackendError::Descriptor);
            }
            if count == 0 {
                connection.inbox.ended()?;
                return Err(BackendError::Closed);
            }
            connection.inbox.filled(count, fds)?;
            handle(connection, &mut self.device, &mut self.refused)?;
            if connection.inbox.ended().is_ok() {
                connection.late.close();
                connection.received = 0;
            }
            if clock.now() >= until {
                break;
            }
        }
        self.look_around(clock.now())
    }

    /// The checks after messages.
    fn look_around(&mut self, now: u64) -> Result<(), BackendError> {
        if self.device.is_lost() {
            return Err(BackendError::Lost);
        }
        if self.device.has_grown(now, &self.counters) {
            return Err(BackendError::Grown);
        }
        if self.device.budget().is_spent() {
            return Err(BackendError::Slow);
        }
        Ok(())
    }

    /// Disconnects the client. When this returns, the card is reset and no worker accesses the guest's memory.
    pub fn disconnect(&mut self) {
        if let Some(Connection { stream, mut session, .. }) = self.connection.take() {
            self.device.clear();
            session.end(&mut self.device);
            // Attack: descriptors in messages that were not received are closed with the socket.
            let _ = stream.shutdown(Shutdown::Both);
            self.duplicates.adopt(stream.into());
        }
        self.duplicates.release();
        self.device.has_grown(0, &self.counters);
    }

    /// The last request that was refused since the previous call, for the log.
    pub fn refused(&mut self) -> Option<SessionError> {
        self.refused.take()
    }

    /// The state of the port.
    pub fn state(&self) -> State {
        match &self.connection {
            None => State::Waiting,
            Some(_) if self.device.is_running() => State::Up,
            Some(_) => State::Attached,
        }
    }

    /// Nanoseconds during which no client may connect, since the last one exceeded its budget.
    pub fn rest(&self, now: u64) -> u64 {
        self.device.budget().rest(now)
    }

    /// The model and the interrupts in use, for display.
    pub fn detail(&self) -> String {
        self.device.detail()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// Handles all complete messages.
fn handle(
    connection: &mut Connection,
    device: &mut CardDevice,
    refused: &mut Option<SessionError>,
) -> Result<(), BackendError> {
    let Connection { stream, inbox, session, .. } = connection;
    while let Some(message) = inbox.message()? {
        let outcome = session.handle(message, device)?;
        *refused = outcome.refused.or(refused.take());
        let Some(answer) = outcome.answer else { continue };
        let mut written = Ok(0);
        device.budget().wake(|| written = stream.write(&answer.bytes));
        match written {
            Ok(0) if device.budget().is_spent() => return Err(BackendError::Slow),
            Ok(count) if count == answer.bytes.len() => {}
            // Attack: replies that pile up because they are not read.
            Ok(_) => return Err(BackendError::Deaf),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Err(BackendError::Deaf),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    return Err(BackendError::Closed);
                }
                _ => return Err(error.into()),
            },
        }
    }
    Ok(())
}
