//! The connection of a port that is a PCI device to its client, over vfio-user.

use crate::Exits;
use crate::peer::{Gone, State};
use crate::session_socket::{Accepted, Received, SessionSocket, SocketError};
use ringway_frame::{Counters, CountersRef, add};
use ringway_host::{Budget, Clock, Epoll, EventFd, FdKind};
use ringway_mem::MemoryError;
use ringway_nic::Area;
use ringway_nic::pci::{ConfigSpace, Identity};
use ringway_ring::LayoutError;
use ringway_vfio_user::{
    CodecError, DESCRIPTORS, Device, Inbox, Offer, Refused, Region, RegionInfo, Session, SessionError, pci,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Receive calls before other ports are served. Attack: a client that sends endlessly would block the session thread
/// for all other ports.
const RECEIVES: usize = 64;
/// Nanoseconds after which other ports are served even earlier. Attack: register writes that stop a ring each, and wait
/// for turns of all workers.
const SHARE: u64 = 10_000_000;

/// What a client may send besides memory.
const ACCEPTED: Accepted = Accepted { most: DESCRIPTORS, kinds: &[FdKind::EventFd], names: "an eventfd" };

/// Why a connection ended. The text is for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    /// The socket is of no more use.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The client violated the protocol.
    #[error("the client broke the protocol: {0}")]
    Session(#[from] SessionError),
    /// Too many descriptors within one message.
    #[error("the client sent more descriptors than a message may have")]
    Descriptors,
    /// The files that it shared grew too much.
    #[error("the files behind the guest's memory grew by more than twice the port's `memory`")]
    Grown,
    /// The memory that the client maps is of no use.
    #[error("the device's memory: {0}")]
    Pages(#[from] MemoryError),
    /// The memory has no room for the ring.
    #[error("the device's memory: {0}")]
    Ring(#[from] LayoutError),
    /// The file behind the guest's memory shrank.
    #[error("the guest's memory was lost: its file shrank")]
    Lost,
}

impl BackendError {
    /// Whether the client or its guest broke the protocol.
    pub fn is_fault(&self) -> bool {
        !matches!(self, BackendError::Socket(error) if !error.is_fault())
    }
}

impl From<CodecError> for BackendError {
    fn from(error: CodecError) -> BackendError {
        BackendError::Session(error.into())
    }
}

/// A device that a [`Backend`] serves.
pub(crate) trait Served: Device {
    /// Begins a session on `socket`, with a device as after power-on. `file`: new memory that the client may map, if
    /// it may map any.
    fn begin_session(&mut self, socket: BorrowedFd<'_>, file: Option<OwnedFd>) -> Result<(), BackendError>;

    /// What the session offers.
    fn offer(&self) -> Offer;

    /// The session's epoll.
    fn epoll(&self) -> Option<&Epoll>;

    /// The client's descriptors in use.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// The budget of the client.
    fn budget(&self) -> &Arc<Budget>;

    /// Handles what the client signals by eventfds.
    fn drain(&mut self) {}

    /// Whether a file behind the client's memory shrank.
    fn is_lost(&self) -> bool {
        false
    }

    /// Whether the files behind the client's memory grew by more than permitted.
    fn has_grown(&mut self, _now: u64, _counters: &Counters) -> bool {
        false
    }

    /// Resets the device and clears all state of the client. When this returns, no worker accesses its memory.
    fn clear(&mut self);

    /// Whether frames can pass.
    fn is_running(&self) -> bool;

    /// Where accesses and interrupts went since the client connected.
    fn exits(&self) -> Exits;

    /// For people: what it is, and its settings in use.
    fn detail(&self) -> String;
}

/// A refusal of a client's request.
pub(crate) fn refused(errno: u32, reason: impl ToString) -> Refused {
    Refused { errno, reason: reason.to_string() }
}

/// The part of a device that has the number of a region.
pub(crate) fn area(region: u32) -> Result<Area, Refused> {
    match region {
        pci::CONFIG => Ok(Area::Config),
        bar => u8::try_from(bar).map(Area::Bar).map_err(|_| Refused::invalid("no such region")),
    }
}

/// The regions of a device, none of which can be mapped.
pub(crate) fn regions(identity: &Identity, config: &ConfigSpace) -> Vec<Region> {
    let flags = RegionInfo::READ | RegionInfo::WRITE;
    let mut regions = vec![Region::default(); pci::REGIONS];
    for (region, bar) in regions.iter_mut().zip(identity.bars) {
        if let Some(bar) = bar {
            *region = Region { size: bar.size.into(), flags, ..Region::default() };
        }
    }
    regions[pci::CONFIG as usize] = Region { size: config.len() as u64, flags, ..Region::default() };
    regions
}

/// Refuses what is no eventfd. Attack: a pipe that is full, or a socket that keeps the session open.
pub(crate) fn check_eventfd(fd: Option<&OwnedFd>) -> Result<(), Refused> {
    match fd.is_none_or(|fd| FdKind::of(fd.as_fd()) == Some(FdKind::EventFd)) {
        true => Ok(()),
        false => Err(Refused::invalid("the descriptor is no eventfd")),
    }
}

/// An eventfd that wakes the session thread when the budget is spent.
pub(crate) fn budget(check: &Arc<EventFd>) -> Arc<Budget> {
    let check = check.clone();
    Arc::new(Budget::new(move || check.signal()))
}

struct Connection {
    inbox: Inbox,
    session: Session,
    /// Descriptors received since no part of a message was left.
    received: usize,
}

/// The back-end of a port, which serves its client. Owned by one thread.
pub(crate) struct Backend<D: Served> {
    device: D,
    counters: CountersRef,
    connection: Option<Connection>,
    refused: Option<SessionError>,
    socket: SessionSocket,
}

impl<D: Served> Backend<D> {
    pub fn new(device: D, counters: CountersRef) -> Self {
        let (connection, refused, socket) = (None, None, SessionSocket::default());
        Backend { device, counters, connection, refused, socket }
    }

    /// Connects a client and disconnects a former one. `file`: as for [`Served::begin_session`].
    pub fn connect(&mut self, stream: OwnedFd, file: Option<OwnedFd>) -> Result<(), BackendError> {
        self.disconnect();
        self.device.begin_session(self.socket.connect(stream)?, file)?;
        let (inbox, session) = (Inbox::default(), Session::new(self.device.offer()));
        self.connection = Some(Connection { inbox, session, received: 0 });
        Ok(())
    }

    /// The descriptor of a connected client: call [`Backend::readable`] whenever it is readable (level-triggered), and
    /// periodically.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().and_then(|_| Some(self.device.epoll()?.as_fd()))
    }

    /// Number of times that bytes arrived.
    pub fn received(&self) -> u64 {
        self.socket.received()
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
        self.device.drain();
        let clock = Clock::new();
        let until = clock.now().saturating_add(SHARE);
        for _ in 0..RECEIVES {
            let (space, device) = (connection.inbox.space(), &self.device);
            let received = self.socket.receive(space, &ACCEPTED, device.budget(), || device.descriptors())?;
            let Some(Received { count, fds, .. }) = received else { break };
            // Attack: descriptors with pieces of messages, of which one is always incomplete.
            connection.received += fds.len();
            if connection.received > 16 * DESCRIPTORS {
                return Err(BackendError::Descriptors);
            }
            if count == 0 {
                connection.inbox.ended()?;
                return Err(SocketError::Closed.into());
            }
            connection.inbox.filled(count, fds)?;
            while let Some(message) = connection.inbox.message()? {
                let outcome = connection.session.handle(message, &mut self.device)?;
                self.refused = outcome.refused.or(self.refused.take());
                if let Some(reply) = outcome.answer {
                    let fds: Vec<BorrowedFd<'_>> = reply.fds.iter().map(|fd| fd.as_fd()).collect();
                    self.socket.send(&reply.bytes, &fds, self.device.budget())?;
                }
            }
            if connection.inbox.ended().is_ok() {
                self.socket.handled();
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
            return Err(SocketError::Slow.into());
        }
        Ok(())
    }

    /// Disconnects the client. When this returns, the device is reset and no worker accesses the guest's memory.
    pub fn disconnect(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            self.device.clear();
            connection.session.end(&mut self.device);
        }
        self.socket.disconnect();
        self.device.has_grown(0, &self.counters);
    }

    /// [`Backend::readable`], as [`crate::peer::Peer::check`] has it.
    pub fn check(&mut self) -> Result<(), Gone> {
        self.readable().map_err(|error| Gone {
            reason: error.to_string(),
            fault: error.is_fault(),
            rest: self.rest(Clock::new().now()),
        })
    }

    /// The last request that was refused since the previous call, for the log.
    pub fn refused(&mut self) -> Option<String> {
        self.refused.take().map(|refused| refused.to_string())
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

    /// The device behind the session.
    pub fn device_ref(&self) -> &D {
        &self.device
    }

    /// The device behind the session, for changes.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// Where accesses and interrupts went since the client connected.
    pub fn exits(&self) -> Exits {
        self.device.exits()
    }

    /// What the device is, for display.
    pub fn detail(&self) -> String {
        self.device.detail()
    }
}

impl<D: Served> Drop for Backend<D> {
    fn drop(&mut self) {
        self.disconnect();
    }
}
