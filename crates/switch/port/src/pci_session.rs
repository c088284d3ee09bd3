//! The connection of a port that is a PCI device to its client, over vfio-user.

use crate::Exits;
use crate::session_loop::{self, Progress, Served};
use crate::session_socket::{Accepted, Received, SessionSocket, SocketError};
use ringway_host::{Budget, EventFd, FdKind};
use ringway_mem::MemoryError;
use ringway_nic::Area;
use ringway_nic::pci::{ConfigSpace, Identity};
use ringway_ring::LayoutError;
use ringway_vfio_user::{
    CodecError, DESCRIPTORS, Device, Inbox, Offer, Refused, Region, RegionInfo, Session, SessionError, pci,
};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

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

impl From<CodecError> for BackendError {
    fn from(error: CodecError) -> BackendError {
        BackendError::Session(error.into())
    }
}

/// A device whose session speaks vfio-user.
pub(crate) trait PciDevice: Served + Device {
    /// Begins a session on `socket`, with a device as after power-on. `file`: new memory that the client may map, if
    /// it may map any.
    fn begin_session(&mut self, socket: BorrowedFd<'_>, file: Option<OwnedFd>) -> Result<(), BackendError>;

    /// What the session offers.
    fn offer(&self) -> Offer;

    /// The client's descriptors in use.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Resets the device and clears all state of the client. When this returns, no worker accesses its memory.
    fn clear(&mut self);

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

/// A client's connection.
pub(crate) struct Connection<D> {
    inbox: Inbox,
    session: Session,
    /// Descriptors received since no part of a message was left.
    received: usize,
    device: PhantomData<D>,
}

/// The back-end of a port that is a PCI device.
pub(crate) type Backend<D> = session_loop::Backend<Connection<D>>;

impl<D: PciDevice> session_loop::Connection for Connection<D> {
    type Device = D;
    type Error = BackendError;

    const RECEIVES: usize = 64;
    const LOST: BackendError = BackendError::Lost;
    const GROWN: BackendError = BackendError::Grown;

    fn is_fault(error: &BackendError) -> bool {
        !matches!(error, BackendError::Socket(error) if !error.is_fault())
    }

    fn receive(
        &mut self,
        device: &mut D,
        socket: &mut SessionSocket,
        refused: &mut Option<String>,
    ) -> Result<Progress, BackendError> {
        let space = self.inbox.space();
        let received = socket.receive(space, &ACCEPTED, device.budget(), || device.descriptors())?;
        let Some(Received { count, fds, .. }) = received else { return Ok(Progress::Nothing) };
        // Attack: descriptors with pieces of messages, of which one is always incomplete.
        self.received += fds.len();
        if self.received > 16 * DESCRIPTORS {
            return Err(BackendError::Descriptors);
        }
        if count == 0 {
            self.inbox.ended()?;
            return Err(SocketError::Closed.into());
        }
        self.inbox.filled(count, fds)?;
        while let Some(message) = self.inbox.message()? {
            let outcome = self.session.handle(message, device)?;
            *refused = outcome.refused.map(|refused| refused.to_string()).or(refused.take());
            if let Some(reply) = outcome.answer {
                let fds: Vec<BorrowedFd<'_>> = reply.fds.iter().map(|fd| fd.as_fd()).collect();
                socket.send(&reply.bytes, &fds, device.budget())?;
            }
        }
        if self.inbox.ended().is_ok() {
            socket.handled();
            self.received = 0;
        }
        Ok(Progress::Messages)
    }

    fn end(connection: Option<Self>, device: &mut D) {
        if let Some(mut connection) = connection {
            device.clear();
            connection.session.end(device);
        }
    }
}

impl<D: PciDevice> Backend<D> {
    /// Connects a client and disconnects a former one. `file`: as for [`PciDevice::begin_session`].
    pub fn connect(&mut self, stream: OwnedFd, file: Option<OwnedFd>) -> Result<(), BackendError> {
        self.disconnect();
        self.device.begin_session(self.socket.connect(stream)?, file)?;
        let (inbox, session) = (Inbox::default(), Session::new(self.device.offer()));
        self.connection = Some(Connection { inbox, session, received: 0, device: PhantomData });
        Ok(())
    }
}
