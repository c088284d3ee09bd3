//! The session of a port with the peer behind its socket: one loop for every protocol.

use crate::peer::{Gone, State};
use crate::session_socket::{SessionSocket, SocketError};
use crate::vhost_user::SharedMemory;
use ringway_frame::{Counters, CountersRef, add};
use ringway_host::{Budget, Clock, Epoll};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Nanoseconds after which other ports are served although messages are left. Attack: messages that stop a ring each,
/// and wait for turns of all workers.
pub(crate) const SHARE: u64 = 10_000_000;

/// A device that a [`Backend`] serves.
pub trait Served {
    /// The session's epoll.
    fn epoll(&self) -> Option<&Epoll>;

    /// The budget of the peer.
    fn budget(&self) -> &Arc<Budget>;

    /// Handles what the peer signals by eventfds, before messages are received.
    fn drain(&mut self) {}

    /// The memory that the peer shares, if it shares any.
    fn memory(&mut self) -> Option<&mut SharedMemory> {
        None
    }

    /// Whether frames can pass.
    fn is_running(&self) -> bool;
}

/// What one receive call brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing has arrived.
    Nothing,
    /// Part of a message, whose rest follows at once.
    Part,
    /// Messages, which were handled.
    Messages,
}

/// A connection's messages: its protocol.
pub trait Connection: Sized {
    /// What the messages set up.
    type Device: Served;
    /// Why the connection ended. The text is for people.
    type Error: std::error::Error + From<SocketError>;

    /// Receive calls before other ports are served. Attack: a peer that sends endlessly would block the session thread
    /// for all other ports.
    const RECEIVES: usize;
    /// The file behind the peer's memory shrank.
    const LOST: Self::Error;
    /// The files behind the peer's memory grew too much.
    const GROWN: Self::Error;

    /// Whether an error means that the peer or its guest broke the protocol.
    fn is_fault(error: &Self::Error) -> bool;

    /// Calls receive once, and handles the messages that are complete.
    fn receive(
        &mut self,
        device: &mut Self::Device,
        socket: &mut SessionSocket,
        refused: &mut Option<String>,
    ) -> Result<Progress, Self::Error>;

    /// The work after messages.
    fn finish(
        &mut self,
        _device: &mut Self::Device,
        _socket: &mut SessionSocket,
        _counters: &Counters,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The check for violations of the guest, after all others.
    fn check(&mut self, _device: &mut Self::Device) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Ends the connection, if there is one, and clears all state of the peer. When this returns, no worker accesses
    /// its memory.
    fn end(connection: Option<Self>, device: &mut Self::Device);
}

/// The back-end of a port, which serves its peer. Owned by one thread.
pub struct Backend<C: Connection> {
    pub(crate) device: C::Device,
    counters: CountersRef,
    pub(crate) connection: Option<C>,
    refused: Option<String>,
    pub(crate) socket: SessionSocket,
}

impl<C: Connection> Backend<C> {
    pub(crate) fn new(device: C::Device, counters: CountersRef) -> Self {
        let (connection, refused, socket) = (None, None, SessionSocket::default());
        Backend { device, counters, connection, refused, socket }
    }

    /// The descriptor of a connected peer: call [`Backend::readable`] whenever it is readable (level-triggered), and
    /// periodically.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().and_then(|_| Some(self.device.epoll()?.as_fd()))
    }

    /// Number of times that bytes arrived.
    pub fn received(&self) -> u64 {
        self.socket.received()
    }

    /// Handles messages that have arrived, and checks whether the guest broke a rule meanwhile. After an error there is
    /// no peer any more, and the next can be connected.
    pub fn readable(&mut self) -> Result<(), C::Error> {
        let result = self.receive();
        if let Err(error) = &result {
            if C::is_fault(error) {
                add(&self.counters.faults, 1);
            }
            self.disconnect();
        }
        result
    }

    fn receive(&mut self) -> Result<(), C::Error> {
        let Backend { device, counters, connection, refused, socket } = self;
        let Some(connection) = connection else { return Ok(()) };
        device.drain();
        let clock = Clock::new();
        let until = clock.now().saturating_add(SHARE);
        for _ in 0..C::RECEIVES {
            match connection.receive(device, socket, refused)? {
                Progress::Nothing => break,
                Progress::Messages if clock.now() >= until => break,
                _ => {}
            }
        }
        connection.finish(device, socket, counters)?;
        if let Some(memory) = device.memory() {
            if memory.is_lost() {
                return Err(C::LOST);
            }
            if memory.has_grown(clock.now(), counters) {
                return Err(C::GROWN);
            }
        }
        if device.budget().is_spent() {
            return Err(SocketError::Slow.into());
        }
        connection.check(device)
    }

    /// Disconnects the peer. When this returns, no worker accesses the guest's memory, which a thread unmaps.
    pub fn disconnect(&mut self) {
        C::end(self.connection.take(), &mut self.device);
        self.socket.disconnect();
        self.device.memory().map(|memory| memory.has_grown(0, &self.counters));
    }

    /// [`Backend::readable`], as [`crate::Peer::check`] has it.
    pub fn check(&mut self) -> Result<(), Gone> {
        self.readable().map_err(|error| Gone {
            reason: error.to_string(),
            fault: C::is_fault(&error),
            rest: self.rest(Clock::new().now()),
        })
    }

    /// The last request that was refused since the previous call, for the log.
    pub fn refused(&mut self) -> Option<String> {
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

    /// Nanoseconds during which no peer may connect, since the last one exceeded its budget.
    pub fn rest(&self, now: u64) -> u64 {
        self.device.budget().rest(now)
    }
}

impl<C: Connection> Drop for Backend<C> {
    fn drop(&mut self) {
        self.disconnect();
    }
}
