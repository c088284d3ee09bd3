//! The connection to a front-end.

use super::device::Guest;
use super::{Config, offer};
use crate::session_socket::{Accepted, Received, SessionSocket, SocketError};
use crate::{Doorbell, Kept, PeerRecords, Queue, State};
use ringway_frame::{CountersRef, add};
use ringway_host::{Clock, FdKind};
use ringway_vhost_user::feature::protocol;
use ringway_vhost_user::{
    BackendRequest, CodecError, DESCRIPTORS, Inbox, Offer, Record, Session, SessionError,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Messages handled before other ports are served. Attack: a front-end that sends endlessly would block the
/// session thread for all other ports.
const MESSAGES: usize = 64;
/// Nanoseconds after which other ports are served even earlier. Attack: messages that change every ring, each
/// of which waits for turns of all workers.
pub(super) const SHARE: u64 = 10_000_000;

/// What a front-end may send besides memory.
const ACCEPTED: Accepted = Accepted {
    most: DESCRIPTORS,
    kinds: &[FdKind::EventFd, FdKind::Pipe, FdKind::Socket],
    names: "an eventfd, a pipe or a UNIX socket",
};

/// Why a connection ended. The text is for people.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The socket is of no more use.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The front-end violated the protocol, or requested something impossible.
    #[error("the front-end broke the protocol: {0}")]
    Session(#[from] SessionError),
    /// It sent a connected socket that has a name. Attack: its own end of the session, which would then never
    /// be seen to close.
    #[error("the front-end sent a socket that has a name; requests and interrupts need a socket pair")]
    NamedSocket,
    /// A ring or the memory behind it broke.
    #[error("the guest broke ring {ring}: {reason}")]
    Ring {
        /// Index of the ring.
        ring: usize,
        /// The error.
        reason: String,
    },
    /// The files that it shared grew too much.
    #[error("the files behind the guest's memory grew by more than twice the port's `memory`")]
    Grown,
    /// The file behind the guest's memory, or its log, shrank.
    #[error("the guest's memory or its dirty log was lost: its file shrank")]
    Lost,
    /// The data path ended while it handled a message of the front-end.
    #[error("the data process ended while it handled a message of the front-end, which must connect again")]
    Interrupted,
}

impl BackendError {
    /// Whether the front-end or its guest broke the protocol.
    pub fn is_fault(&self) -> bool {
        match self {
            BackendError::Socket(error) => error.is_fault(),
            BackendError::Interrupted => false,
            _ => true,
        }
    }
}

struct Connection {
    inbox: Inbox,
    session: Session,
}

/// The back-end of a port, which serves its front-end. Owned by one thread.
pub struct Backend {
    offer: Offer,
    device: Guest,
    counters: CountersRef,
    connection: Option<Connection>,
    refused: Option<SessionError>,
    socket: SessionSocket,
    /// Keeps the sessions of the port of this name.
    keeper: Option<(String, Arc<dyn PeerRecords>)>,
}

/// State of the session in the port's counters: everything that the front-end told is kept, or a message is being
/// handled.
const OPEN: u64 = 1;
const BUSY: u64 = 2;

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
            socket: SessionSocket::default(),
            keeper: None,
        };
        (backend, queues)
    }

    /// Connects a front-end and disconnects a former one. The code that accepts connections lets the next front-end
    /// wait until the one that is served is gone.
    pub fn connect(&mut self, stream: OwnedFd) -> Result<(), BackendError> {
        self.disconnect();
        self.device.forget_places();
        self.begin(stream)
    }

    fn begin(&mut self, stream: OwnedFd) -> Result<(), BackendError> {
        self.device.begin_session(self.socket.connect(stream)?).map_err(SocketError::from)?;
        let mut session = Session::new(self.offer);
        if self.keeper.is_some() {
            session.record();
        }
        self.connection = Some(Connection { inbox: Inbox::default(), session });
        self.counters.session.store(OPEN, Ordering::Release);
        Ok(())
    }

    /// Keeps sessions in `keeper`, as those of port `name`.
    pub(super) fn keep_in(&mut self, name: &str, keeper: Arc<dyn PeerRecords>) {
        self.keeper = Some((name.into(), keeper));
    }

    /// Goes on with a session that a former data path began, on the same socket, with what was kept of it. After an
    /// error there is no front-end.
    pub fn resume(&mut self, stream: OwnedFd, kept: Vec<Kept>) -> Result<(), BackendError> {
        self.disconnect();
        let before = self.counters.session.load(Ordering::Acquire);
        if before == 0 && kept.is_empty() {
            return self.connect(stream);
        }
        if before != OPEN {
            return Err(BackendError::Interrupted);
        }
        let result = self.begin(stream).and_then(|()| self.restore(kept));
        self.device.set_resuming(false);
        if result.is_err() {
            self.disconnect();
        }
        result
    }

    fn restore(&mut self, kept: Vec<Kept>) -> Result<(), BackendError> {
        let Some(Connection { session, .. }) = &mut self.connection else { return Ok(()) };
        self.device.set_resuming(true);
        for Kept { key, bytes, fds } in kept {
            let device = &self.device;
            let in_use = || session.descriptors().chain(device.descriptors());
            self.socket.admit(&fds, &ACCEPTED, in_use)?;
            let message = Inbox::whole(&bytes, fds).map_err(SessionError::from)?;
            session.recorded(key);
            // Only replies that the front-end has already got.
            session.handle(message, &mut self.device)?;
            self.socket.handled();
            // They are kept already.
            session.take_records();
        }
        Ok(())
    }

    /// The descriptor of a connected front-end: call [`Backend::readable`] whenever it is readable (level-triggered),
    /// and periodically. It covers the socket and the kicks of the control queue.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().and_then(|_| Some(self.device.epoll()?.as_fd()))
    }

    /// Number of times that bytes arrived.
    pub fn received(&self) -> u64 {
        self.socket.received()
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
        let Some(Connection { inbox, session }) = &mut self.connection else { return Ok(()) };
        // Until everything is kept that is received from here on, another process can't go on with the session.
        self.counters.session.store(BUSY, Ordering::Release);
        self.device.drain_kicks();
        let clock = Clock::new();
        let until = clock.now().saturating_add(SHARE);
        // Replies that promise that something is no longer used, and the replies behind them.
        let (mut held, mut revoked) = (Vec::new(), false);
        for _ in 0..2 * MESSAGES {
            let device = &self.device;
            let in_use = || session.descriptors().chain(device.descriptors());
            let received = self.socket.receive(inbox.space(), &ACCEPTED, device.budget(), in_use)?;
            let Some(Received { count, fds, kinds }) = received else { break };
            if count == 0 {
                inbox.ended().map_err(SessionError::from)?;
                return Err(SocketError::Closed.into());
            }
            let mut sockets = fds.iter().zip(&kinds).filter(|(_, kind)| **kind == FdKind::Socket);
            if !sockets.all(|(fd, _)| ringway_host::only_send(fd)) {
                return Err(BackendError::NamedSocket);
            }
            let message = inbox.filled(count, fds).map_err(SessionError::from)?;
            let Some(message) = message else { continue };
            let outcome = session.handle(message, &mut self.device)?;
            self.socket.handled();
            revoked |= outcome.revoked;
            match outcome.answer {
                Some(answer) if revoked => held.extend_from_slice(&answer.bytes),
                Some(answer) => self.socket.send(&answer.bytes, &[], self.device.budget())?,
                None => {}
            }
            keep(self.keeper.as_ref(), session.take_records());
            self.refused = outcome.refused.or(self.refused.take());
            if clock.now() >= until {
                break;
            }
        }
        if revoked {
            self.device.revoke();
            self.socket.send(&held, &[], self.device.budget())?;
        }
        let is_partial = inbox.is_partial();
        self.look_around(clock.now())?;
        if !is_partial {
            self.counters.session.store(OPEN, Ordering::Release);
        }
        Ok(())
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
            return Err(SocketError::Slow.into());
        }
        match self.device.broken() {
            Some((ring, reason)) => Err(BackendError::Ring { ring, reason }),
            None => Ok(()),
        }
    }

    /// Disconnects the front-end. When this returns, every ring is stopped and no worker accesses the guest's memory; a
    /// thread unmaps it.
    pub fn disconnect(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.session.end(&mut self.device);
            self.counters.session.store(0, Ordering::Release);
        }
        self.device.clear();
        self.socket.disconnect();
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

    /// Ends as a process that is killed does.
    #[cfg(test)]
    pub(super) fn crash(mut self) {
        self.connection = None;
        self.socket.crash();
    }

    /// Sends unanswered misses again, as at `now`.
    #[cfg(test)]
    pub(super) fn remind(&mut self, now: u64) {
        self.device.remind(now);
    }

    /// Features negotiated with the front-end, for display: `packed mrg-rxbuf csum`.
    pub fn detail(&self) -> String {
        let connection = self.connection.as_ref();
        let features = connection.map(|connection| offer::describe(connection.session.features()));
        let carrier = if self.device.has_carrier() { "" } else { " no-carrier" };
        format!("{}{carrier}", features.unwrap_or_default()).trim_start().into()
    }

    /// Turns the carrier on or off. A driver that reads the configuration space of this back-end sees it.
    pub fn set_carrier(&mut self, carrier: bool) {
        if self.device.set_carrier(carrier) {
            self.config_changed();
        }
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

/// Keeps records of a session.
fn keep(keeper: Option<&(String, Arc<dyn PeerRecords>)>, records: Vec<Record>) {
    let Some((port, keeper)) = keeper else { return };
    for Record { key, packet } in records {
        keeper.keep(port, key, packet.as_ref().map(|packet| (&*packet.bytes, &*packet.fds)));
        // Attack: as for memory in messages that were not handled; `control` has duplicates of all.
        drop(packet);
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.disconnect();
    }
}

impl From<CodecError> for BackendError {
    fn from(error: CodecError) -> BackendError {
        BackendError::Session(error.into())
    }
}
