//! The connection to a front-end.

use super::device::Guest;
use super::offer;
use crate::session_loop::{self, Progress, Served};
use crate::session_socket::{Accepted, Received, SessionSocket, SocketError};
use crate::{PeerRecord, PeerRecords};
use ringway_frame::Counters;
use ringway_host::FdKind;
use ringway_vhost_user::feature::protocol;
use ringway_vhost_user::{BackendRequest, CodecError, DESCRIPTORS, Inbox, Record, Session, SessionError};
use std::os::fd::OwnedFd;
use std::sync::Arc;

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

/// A front-end's connection.
pub struct Connection {
    inbox: Inbox,
    session: Session,
    /// A reply promised that something is no longer used.
    revoked: bool,
    /// That reply, and those behind it.
    held: Vec<u8>,
}

/// The back-end of a port, which serves its front-end. Owned by one thread.
pub type Backend = session_loop::Backend<Connection>;

/// State of the session in the port's counters: everything that the front-end told is kept, or a message is being
/// handled.
const OPEN: u64 = 1;
pub(super) const BUSY: u64 = 2;

impl session_loop::Connection for Connection {
    type Device = Guest;
    type Error = BackendError;

    // Two for each message: its header, its payload.
    const RECEIVES: usize = 128;
    const LOST: BackendError = BackendError::Lost;
    const GROWN: BackendError = BackendError::Grown;

    fn is_fault(error: &BackendError) -> bool {
        match error {
            BackendError::Socket(error) => error.is_fault(),
            BackendError::Interrupted => false,
            _ => true,
        }
    }

    fn receive(
        &mut self,
        device: &mut Guest,
        socket: &mut SessionSocket,
        refused: &mut Option<String>,
    ) -> Result<Progress, BackendError> {
        let Connection { inbox, session, revoked, held } = self;
        let in_use = || session.descriptors().chain(device.descriptors());
        let received = socket.receive(inbox.space(), &ACCEPTED, device.budget(), in_use)?;
        let Some(Received { count, fds, kinds }) = received else { return Ok(Progress::Nothing) };
        if count == 0 {
            inbox.ended().map_err(SessionError::from)?;
            return Err(SocketError::Closed.into());
        }
        let mut sockets = fds.iter().zip(&kinds).filter(|(_, kind)| **kind == FdKind::Socket);
        if !sockets.all(|(fd, _)| ringway_host::only_send(fd)) {
            return Err(BackendError::NamedSocket);
        }
        let message = inbox.filled(count, fds).map_err(SessionError::from)?;
        let Some(message) = message else { return Ok(Progress::Part) };
        let outcome = session.handle(message, device)?;
        socket.handled();
        *revoked |= outcome.revoked;
        match outcome.answer {
            Some(answer) if *revoked => held.extend_from_slice(&answer.bytes),
            Some(answer) => socket.send(&answer.bytes, &[], device.budget())?,
            None => {}
        }
        keep(device.keeper.as_ref(), session.take_records());
        *refused = outcome.refused.map(|refused| refused.to_string()).or(refused.take());
        Ok(Progress::Messages)
    }

    fn finish(
        &mut self,
        device: &mut Guest,
        socket: &mut SessionSocket,
        counters: &Counters,
    ) -> Result<(), BackendError> {
        if std::mem::take(&mut self.revoked) {
            device.revoke();
            socket.send(&std::mem::take(&mut self.held), &[], device.budget())?;
        }
        device.look_around();
        device.serve_control(counters);
        if device.take_config_change() {
            self.config_changed(device);
        }
        Ok(())
    }

    fn check(&mut self, device: &mut Guest) -> Result<(), BackendError> {
        if let Some((ring, reason)) = device.broken() {
            return Err(BackendError::Ring { ring, reason });
        }
        if !self.inbox.is_partial() {
            device.set_session(OPEN);
        }
        Ok(())
    }

    fn end(connection: Option<Connection>, device: &mut Guest) {
        if let Some(mut connection) = connection {
            connection.session.end(device);
            device.set_session(0);
        }
        device.clear();
    }
}

impl Connection {
    /// Tells the driver to read its configuration space again.
    fn config_changed(&self, device: &mut Guest) {
        let both = protocol::CONFIG | protocol::BACKEND_REQ;
        if self.session.protocol() & both == both {
            device.send_request(&BackendRequest::ConfigChange.encode());
        }
    }
}

impl Backend {
    /// Connects a front-end and disconnects a former one. The code that accepts connections lets the next front-end
    /// wait until the one that is served is gone.
    pub fn connect(&mut self, stream: OwnedFd) -> Result<(), BackendError> {
        self.disconnect();
        self.device.forget_places();
        self.begin(stream)
    }

    fn begin(&mut self, stream: OwnedFd) -> Result<(), BackendError> {
        self.device.begin_session(self.socket.connect(stream)?).map_err(SocketError::from)?;
        let mut session = Session::new(self.device.offer);
        if self.device.keeper.is_some() {
            session.record();
        }
        let (inbox, revoked, held) = (Inbox::default(), false, Vec::new());
        self.connection = Some(Connection { inbox, session, revoked, held });
        self.device.set_session(OPEN);
        Ok(())
    }

    /// Keeps sessions in `keeper`, as those of port `name`.
    pub(super) fn keep_in(&mut self, name: &str, keeper: Arc<dyn PeerRecords>) {
        self.device.keeper = Some((name.into(), keeper));
    }

    /// Goes on with a session that a former data path began, on the same socket, with what was kept of it. After an
    /// error there is no front-end.
    pub fn resume(&mut self, stream: OwnedFd, kept: Vec<PeerRecord>) -> Result<(), BackendError> {
        self.disconnect();
        let before = self.device.session_state();
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

    fn restore(&mut self, kept: Vec<PeerRecord>) -> Result<(), BackendError> {
        let Some(Connection { session, .. }) = &mut self.connection else { return Ok(()) };
        self.device.set_resuming(true);
        for PeerRecord { key, bytes, fds } in kept {
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
        if self.device.set_carrier(carrier)
            && let Some(connection) = &self.connection
        {
            connection.config_changed(&mut self.device);
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

impl From<CodecError> for BackendError {
    fn from(error: CodecError) -> BackendError {
        BackendError::Session(error.into())
    }
}
