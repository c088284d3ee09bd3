//! The connection to a front-end.

use super::device::Guest;
use super::{Config, offer};
use crate::late::Late;
use crate::{Doorbell, Queue, State};
use ringway_frame::{CountersRef, add};
use ringway_host::{Budget, Clock, Closer, Duplicates, FdKind, HostError};
use ringway_vhost_user::feature::protocol;
use ringway_vhost_user::{BackendRequest, CodecError, DESCRIPTORS, Inbox, Offer, Session, SessionError};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Messages handled before other ports are served. Attack: a front-end that sends endlessly would block the
/// session thread for all other ports.
const MESSAGES: usize = 64;
/// Nanoseconds after which other ports are served even earlier. Attack: messages that change every ring, each
/// of which waits for turns of all workers.
pub(super) const SHARE: u64 = 10_000_000;

/// Why a connection ended. The text is for people.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The front-end disconnected.
    #[error("the front-end closed the connection")]
    Closed,
    /// The front-end violated the protocol, or requested something impossible.
    #[error("the front-end broke the protocol: {0}")]
    Session(#[from] SessionError),
    /// The front-end sends requests and never reads the replies.
    #[error("the front-end does not read the answers to its messages")]
    Deaf,
    /// It sent a descriptor whose use may block for as long as the front-end likes.
    #[error(
        "the front-end sent a descriptor that is neither memory (a memfd, or a file on tmpfs or hugetlbfs) \
         nor an eventfd, a pipe or a UNIX socket"
    )]
    Descriptor,
    /// It sent a connected socket that has a name. Attack: its own end of the session, which would then never
    /// be seen to close.
    #[error("the front-end sent a socket that has a name; requests and interrupts need a socket pair")]
    Socket,
    /// Such descriptors of the last front-end are still being closed.
    #[error("descriptors of a former front-end can't be closed; this one may try again later")]
    Unclosed,
    /// A ring or the memory behind it broke.
    #[error("the guest broke ring {ring}: {reason}")]
    Ring {
        /// Index of the ring.
        ring: usize,
        /// The error.
        reason: String,
    },
    /// Waking it takes too long.
    #[error(
        "waking the guest or its front-end took several milliseconds each time: too many watch what it is \
         woken by"
    )]
    Slow,
    /// The files that it shared grew too much.
    #[error("the files behind the guest's memory grew by more than twice the port's `memory`")]
    Grown,
    /// The file behind the guest's memory, or its log, shrank.
    #[error("the guest's memory or its dirty log was lost: its file shrank")]
    Lost,
    /// The system refused.
    #[error("the connection to the front-end failed: {0}")]
    Host(#[from] HostError),
    /// The system refused.
    #[error("the connection to the front-end failed: {0}")]
    Io(#[from] io::Error),
}

impl BackendError {
    /// Whether the front-end or its guest broke the protocol.
    pub fn is_fault(&self) -> bool {
        !matches!(
            self,
            BackendError::Closed | BackendError::Unclosed | BackendError::Host(_) | BackendError::Io(_)
        )
    }
}

struct Connection {
    stream: UnixStream,
    inbox: Inbox,
    session: Session,
    /// Dropped after the inbox, which may have the descriptors of half a message.
    late: Late,
}

/// The back-end of a port, which serves its front-end. Owned by one thread.
pub struct Backend {
    offer: Offer,
    device: Guest,
    counters: CountersRef,
    connection: Option<Connection>,
    refused: Option<SessionError>,
    closer: Closer,
    duplicates: Duplicates,
}

impl Backend {
    pub(super) fn new(
        config: Config,
        doorbells: Vec<Arc<dyn Doorbell>>,
        counters: Vec<CountersRef>,
    ) -> (Backend, Vec<Queue>) {
        let offer = offer::offer(&config);
        let first = counters.first().cloned().unwrap_or_else(CountersRef::private);
        let (device, queues) = Guest::new(config, &offer, doorbells, counters);
        let backend = Backend {
            offer,
            device,
            counters: first,
            connection: None,
            refused: None,
            closer: Closer::default(),
            duplicates: Duplicates::default(),
        };
        (backend, queues)
    }

    /// Connects a front-end and disconnects a former one. The code that accepts connections lets the next front-end
    /// wait until the one that is served is gone.
    pub fn connect(&mut self, stream: OwnedFd) -> Result<(), BackendError> {
        self.disconnect();
        if !self.closer.is_done() || self.duplicates.is_stuck() {
            return Err(BackendError::Unclosed);
        }
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(true)?;
        self.device.begin_session(stream.as_fd())?;
        let session = Session::new(self.offer);
        self.connection =
            Some(Connection { stream, inbox: Inbox::default(), session, late: Late::default() });
        Ok(())
    }

    /// The descriptor of a connected front-end: call [`Backend::readable`] whenever it is readable (level-triggered),
    /// and periodically. It covers the socket and the kicks of the control queue.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().and_then(|_| Some(self.device.epoll()?.as_fd()))
    }

    /// Handles messages that have arrived, and checks whether the guest broke a ring meanwhile. After an error there is
    /// no front-end any more, and the next can be connected.
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
        let Some(Connection { stream, inbox, session, late }) = &mut self.connection else { return Ok(()) };
        self.device.drain_kicks();
        let clock = Clock::new();
        let until = clock.now().saturating_add(SHARE);
        // Replies that promise that something is no longer used, and the replies behind them.
        let (mut held, mut revoked) = (Vec::new(), false);
        for _ in 0..2 * MESSAGES {
            // Attack: hundreds of thousands of watchers of its end, which each receive wakes.
            let mut received = Ok(None);
            self.device.budget().wake(|| {
                received = ringway_host::try_receive_with(stream.as_fd(), inbox.space(), DESCRIPTORS);
            });
            let (count, fds) = match received {
                Ok(Some(received)) => received,
                Ok(None) => break,
                // The front-end died before it read an answer.
                Err(HostError::Call { error, .. }) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(BackendError::Closed);
                }
                Err(error) => return Err(error.into()),
            };
            let kinds: Option<Vec<FdKind>> = fds.iter().map(|fd| FdKind::of(fd.as_fd())).collect();
            let Some(kinds) = kinds else {
                self.closer.close(fds);
                return Err(BackendError::Descriptor);
            };
            for (fd, kind) in fds.iter().zip(&kinds) {
                match kind {
                    FdKind::Memory => late.add(fd)?,
                    _ => {
                        let in_use = session.descriptors().chain(self.device.descriptors());
                        self.duplicates.keep(fd.as_fd(), in_use)?;
                    }
                }
            }
            if self.duplicates.is_stuck() {
                return Err(BackendError::Unclosed);
            }
            if count == 0 {
                inbox.ended().map_err(SessionError::from)?;
                return Err(BackendError::Closed);
            }
            let mut sockets = fds.iter().zip(&kinds).filter(|(_, kind)| **kind == FdKind::Socket);
            if !sockets.all(|(fd, _)| ringway_host::only_send(fd)) {
                return Err(BackendError::Socket);
            }
            let message = inbox.filled(count, fds).map_err(SessionError::from)?;
            let Some(message) = message else { continue };
            let outcome = session.handle(message, &mut self.device)?;
            late.close();
            revoked |= outcome.revoked;
            match outcome.answer {
                Some(answer) if revoked => held.extend_from_slice(&answer.bytes),
                Some(answer) => send(stream, &answer.bytes, self.device.budget())?,
                None => {}
            }
            self.refused = outcome.refused.or(self.refused.take());
            if clock.now() >= until {
                break;
            }
        }
        if revoked {
            self.device.revoke();
            send(stream, &held, self.device.budget())?;
        }
        self.look_around(clock.now())
    }

    /// The work after messages: that of the device, and a check for violations of the guest.
    fn look_around(&mut self, now: u64) -> Result<(), BackendError> {
        self.device.look_around();
        self.device.serve_control(&self.counters);
        if self.device.take_config_change() {
            self.config_changed();
        }
        if self.device.is_lost() {
            return Err(BackendError::Lost);
        }
        if self.device.has_grown(now, &self.counters) {
            return Err(BackendError::Grown);
        }
        if self.device.budget().is_spent() {
            return Err(BackendError::Slow);
        }
        match self.device.broken() {
            Some((ring, reason)) => Err(BackendError::Ring { ring, reason }),
            None => Ok(()),
        }
    }

    /// Disconnects the front-end. When this returns, every ring is stopped and no worker accesses the guest's memory; a
    /// thread unmaps it.
    pub fn disconnect(&mut self) {
        if let Some(Connection { stream, mut session, .. }) = self.connection.take() {
            session.end(&mut self.device);
            // Attack: descriptors in messages that were not received are closed with the socket.
            let _ = stream.shutdown(Shutdown::Both);
            self.duplicates.adopt(stream.into());
        }
        self.device.clear();
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
            Some(_) if self.device.is_up() => State::Up,
            Some(_) => State::Attached,
        }
    }

    /// Nanoseconds during which no front-end may connect, since the last one exceeded its budget.
    pub fn rest(&self, now: u64) -> u64 {
        self.device.budget().rest(now)
    }

    /// Number of queue pairs that the guest receives on now, counted from the first without a gap.
    pub fn receiving(&self) -> u16 {
        self.device.receiving()
    }

    /// Sends all unanswered misses again, as after a timeout.
    #[cfg(test)]
    pub(super) fn remind(&mut self) {
        self.device.remind(u64::MAX);
    }

    /// Features negotiated with the front-end, for display: `packed mrg-rxbuf csum`.
    pub fn detail(&self) -> String {
        self.connection
            .as_ref()
            .map_or_else(String::new, |connection| offer::describe(connection.session.features()))
    }

    /// Tells the driver to read its configuration space again.
    pub fn config_changed(&mut self) {
        let agreed = |connection: &Connection| {
            let both = protocol::CONFIG | protocol::BACKEND_REQ;
            connection.session.protocol() & both == both
        };
        if self.connection.as_ref().is_some_and(agreed) {
            self.device.send_request(&BackendRequest::ConfigChange.encode());
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// Sends an answer. The socket's buffer has room for it if the front-end reads its answers at all.
fn send(stream: &mut UnixStream, answer: &[u8], budget: &Budget) -> Result<(), BackendError> {
    let mut written = Ok(0);
    budget.wake(|| written = stream.write(answer));
    match written {
        Ok(0) if budget.is_spent() => Err(BackendError::Slow),
        Ok(count) if count == answer.len() => Ok(()),
        // Attack: replies that pile up because they are not read.
        Ok(_) => Err(BackendError::Deaf),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => Err(BackendError::Deaf),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Err(BackendError::Closed),
            _ => Err(error.into()),
        },
    }
}

impl From<CodecError> for BackendError {
    fn from(error: CodecError) -> BackendError {
        BackendError::Session(error.into())
    }
}
