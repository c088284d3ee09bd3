//! Connections that move from one stack to another, as with Linux's `TCP_REPAIR`; and what arrives for them meanwhile.

use super::{LARGEST, QUEUE, Socket, SocketError, SocketId, Stack};
use crate::codec::{Bound, COUNT, Field, Reader, put_bytes};
use crate::connection::options::Options;
use crate::connection::repair::Saved;
use crate::connection::{Connection, State, context};
use crate::demux::Tuple;
use crate::net::ip::Packet;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use ringway_mem::Span;
use ringway_wire::tcp::Flags;
use ringway_wire::{Protocol, Tcp, U32};

/// Stands for the connection of a [stray](Diverted::is_stray).
const STRAY: SocketId = SocketId { index: u32::MAX, generation: u32::MAX };

/// A connection could not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// The connection is not established, or has ended, or its peer is this host, or one of its numbers is beyond the
    /// limits of [`Stack::attach`].
    #[error("this connection can't move to another stack")]
    NotMovable,
    /// The bytes are not what [`Stack::detach`] returned.
    #[error("these bytes are not the state of a connection")]
    Invalid,
    /// The stack can't have it.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// What arrived for a connection that has left a stack: a segment, or an error about one that says what the path
/// carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diverted {
    socket: SocketId,
    /// Those of the segment.
    source: IpAddr,
    destination: IpAddr,
    tos: u8,
    bytes: Vec<u8>,
    mtu: Option<usize>,
}

impl Diverted {
    /// The handle of the connection in the stack that it has left.
    pub fn socket(&self) -> SocketId {
        self.socket
    }

    /// Whether it is of no connection that the stack has, or has had; see [`Stack::divert_strays`].
    pub fn is_stray(&self) -> bool {
        self.socket == STRAY
    }

    /// The addresses of its connection; `None`: it is too short.
    fn tuple(&self) -> Option<Tuple> {
        let [a, b, c, d] = *self.bytes.first_chunk::<4>()?;
        let ports = [[a, b], [c, d]].map(u16::from_be_bytes);
        let ends = [(self.source, ports[0]), (self.destination, ports[1])].map(SocketAddr::from);
        // An error quotes a segment that we sent.
        let [remote, local] = if self.mtu.is_some() { [ends[1], ends[0]] } else { ends };
        Some(Tuple { local, remote })
    }

    /// As bytes, for [`Diverted::from_bytes`] of another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = Vec::new();
        (self.socket.index, self.socket.generation).put(&mut to);
        (self.source, self.destination).put(&mut to);
        (self.tos, self.mtu).put(&mut to);
        put_bytes(&mut to, self.bytes.len(), core::iter::once(&self.bytes[..]));
        to
    }

    /// What [`Diverted::to_bytes`] returned. Attack: bytes of another process, which may be anything; what is accepted
    /// is no more than a peer can send.
    pub fn from_bytes(bytes: &[u8]) -> Option<Diverted> {
        let mut from = Reader::new(bytes, 0);
        let (index, generation) = Field::take(&mut from, Bound::Any)?;
        let (source, destination) = Field::take(&mut from, Bound::Any)?;
        let (tos, mtu) = (Field::take(&mut from, Bound::Any)?, Field::take(&mut from, COUNT)?);
        let bytes = from.bytes(LARGEST)?.to_vec();
        let socket = SocketId { index, generation };
        from.is_empty().then_some(Diverted { socket, source, destination, tos, bytes, mtu })
    }
}

impl Stack {
    /// Takes a connection out of the stack, and returns its state, for [`Stack::attach`] of another one with the same
    /// address and the same clock. The peer sees nothing of it: bytes that it has not acknowledged, and those that were
    /// not read, move too. What arrives meanwhile is sent again.
    ///
    /// The handle keeps the addresses: no other connection can have them, and what arrives for the connection is not
    /// answered, but returned by [`Stack::next_diverted`]. It serves for [`Stack::close`] only, which frees them; or
    /// the connection comes back by [`Stack::attach`] and has it again.
    ///
    /// # Errors
    /// If the socket is not a connection, or this one can't move; it stays as it is then.
    pub fn detach(&mut self, now: u64, id: SocketId) -> Result<Vec<u8>, RepairError> {
        self.advance(now);
        let connection = self.connection(id)?;
        let tuple = connection.tuple;
        if self.is_to_itself(id)? {
            return Err(RepairError::NotMovable);
        }
        let bytes = connection.save(self.now).ok_or(RepairError::NotMovable)?;
        // What would be refused elsewhere stays here.
        self.rebuild(&bytes).map_err(|_| RepairError::NotMovable)?;
        self.timers.set(id.index, None);
        let slot = &mut self.slots[id.index as usize];
        if let Some(Socket::Tcp(connection)) = &mut slot.socket {
            self.memory.discharge(connection, &self.settings.tcp_mem);
            self.ended_trace = connection.trace.take().or(self.ended_trace.take());
        }
        slot.socket = Some(Socket::Moved(Box::new(tuple)));
        Ok(bytes)
    }

    /// Makes a connection of what [`Stack::detach`] returned. `now` is at most 10 ms before the time of that, since
    /// processors may show the same clock differently. Its readiness is told anew. Attack: bytes of another process,
    /// which may be anything: they are refused, or make a connection that can do no more than a peer and a program
    /// can.
    ///
    /// # Errors
    /// If there is such a connection, the stack has no such address, or the bytes are no connection. Nothing is done
    /// then.
    pub fn attach(&mut self, now: u64, bytes: &[u8]) -> Result<SocketId, RepairError> {
        self.advance(now);
        let connection = self.rebuild(bytes)?;
        let (tuple, interface) = (connection.tuple, connection.interface);
        self.end_time_wait(&tuple);
        let id = match self.demux.find(&tuple) {
            Some(index) if self.is_moved(index) => {
                let slot = &mut self.slots[index as usize];
                slot.socket = Some(Socket::Tcp(Box::new(connection)));
                SocketId { index, generation: slot.generation }
            }
            Some(_) => return Err(SocketError::AddressInUse.into()),
            None => {
                let socket = Socket::Tcp(Box::new(connection));
                let id = self.allocate(socket).ok_or(SocketError::TooManySockets)?;
                self.demux.insert(tuple, id.index);
                id
            }
        };
        self.touch(id.index);
        let (own, others) = self.diverted.drain(..).partition(|diverted| diverted.socket == id);
        self.diverted = others;
        let own: VecDeque<Diverted> = own;
        own.iter().for_each(|diverted| _ = self.receive_diverted(now, interface, diverted));
        Ok(id)
    }

    /// Keeps the addresses of a connection that another stack with the same address has, as if it had left this one by
    /// [`Stack::detach`]. Attack: addresses of a program, which may be any.
    ///
    /// # Errors
    /// If there is such a connection, the stack has no such address, or the remote one can't be that of a host.
    pub fn reserve(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<SocketId, SocketError> {
        let tuple = Tuple { local, remote };
        let is_ours = self.interfaces.iter().any(|interface| interface.has(local.ip()));
        if !is_ours || local.port() == 0 || local.is_ipv4() != remote.is_ipv4() {
            return Err(SocketError::AddressNotAvailable);
        }
        let hop = self.hop(remote.ip()).ok_or(SocketError::Unreachable)?;
        if remote.port() == 0 || !self.is_host(hop.interface, remote.ip()) {
            return Err(SocketError::Unreachable);
        }
        self.end_time_wait(&tuple);
        if self.demux.find(&tuple).is_some() {
            return Err(SocketError::AddressInUse);
        }
        let id = self.allocate(Socket::Moved(Box::new(tuple))).ok_or(SocketError::TooManySockets)?;
        self.demux.insert(tuple, id.index);
        Ok(id)
    }

    /// Frees addresses that are kept by [`Stack::reserve`] or [`Stack::detach`]. Those of a connection that is here
    /// stay.
    pub fn unreserve(&mut self, local: SocketAddr, remote: SocketAddr) {
        let kept = self.demux.find(&Tuple { local, remote });
        if let Some(index) = kept.filter(|index| self.is_moved(*index)) {
            self.release(index);
        }
    }

    /// Whether a connection with these addresses is here, and not in TIME-WAIT, or has left.
    pub fn is_in_use(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let found = self.demux.find(&Tuple { local, remote });
        found.is_some_and(|index| match &self.slots[index as usize].socket {
            Some(Socket::Tcp(connection)) => connection.state != State::TimeWait,
            socket => socket.is_some(),
        })
    }

    /// The local and the remote address of the connection that was saved by [`Stack::detach`].
    pub fn addresses_of(&self, bytes: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
        Saved::new(bytes, self.now).map(|saved| (saved.tuple.local, saved.tuple.remote))
    }

    /// Ends a closed connection in TIME-WAIT: its peer has begun another one with these addresses, at another stack.
    fn end_time_wait(&mut self, tuple: &Tuple) {
        let Some(index) = self.demux.find(tuple) else { return };
        if let Some(Socket::Tcp(connection)) = &self.slots[index as usize].socket
            && connection.is_orphan()
            && connection.state == State::TimeWait
        {
            self.with(index, |connection, _| connection.end_with(None));
        }
    }

    /// Takes the connection back that left by [`Stack::detach`] with this handle. Attack: the state of another
    /// connection, which would be made.
    ///
    /// # Errors
    /// As [`Stack::attach`], and if the bytes are not of this connection.
    pub fn attach_again(&mut self, now: u64, id: SocketId, bytes: &[u8]) -> Result<(), RepairError> {
        self.advance(now);
        let Socket::Moved(tuple) = self.socket(id)? else { return Err(SocketError::BadSocket.into()) };
        if Saved::new(bytes, self.now).is_none_or(|saved| saved.tuple != **tuple) {
            return Err(RepairError::Invalid);
        }
        self.attach(now, bytes).map(drop)
    }

    /// Forgets a connection that has left the stack, since the one that has it is lost with all that it knew, and frees
    /// its addresses. The peer is sent a SYN, as of a host that has restarted (RFC 9293, 3.5.1): it answers with its
    /// numbers (RFC 5961, 4.2), and is reset with them. If a segment of these is lost, it is reset when it sends next.
    ///
    /// # Errors
    /// If no connection with this handle has left.
    pub fn lose(&mut self, now: u64, id: SocketId) -> Result<(), SocketError> {
        self.advance(now);
        let Socket::Moved(tuple) = self.socket(id)? else { return Err(SocketError::BadSocket) };
        let tuple = **tuple;
        let sequence_number = U32::new(self.initial_sequence_number(&tuple));
        let tcp = Tcp { sequence_number, flags: Flags::SYN, ..Tcp::EMPTY };
        self.send_control(&tuple, tcp, &Options::default());
        self.release(id.index);
        Ok(())
    }

    /// The connection that was saved.
    fn rebuild(&mut self, bytes: &[u8]) -> Result<Connection, RepairError> {
        let saved = Saved::new(bytes, self.now).ok_or(RepairError::Invalid)?;
        let Tuple { local, remote } = saved.tuple;
        if !self.interfaces.iter().any(|interface| interface.has(local.ip())) {
            return Err(SocketError::AddressNotAvailable.into());
        }
        let opening = self.opening(saved.tuple, saved.algorithm).ok_or(SocketError::Unreachable)?;
        if !self.is_host(opening.interface, remote.ip()) {
            return Err(SocketError::Unreachable.into());
        }
        let cx = context!(self);
        Connection::restore(saved, &opening, &cx).ok_or(RepairError::Invalid)
    }

    /// Whether a connection has left the stack.
    fn is_moved(&self, index: u32) -> bool {
        matches!(self.slots[index as usize].socket, Some(Socket::Moved(_)))
    }

    /// Keeps a packet for a connection that has left; `false`: it has not. Attack: segments that nobody fetches; those
    /// that are too many are dropped and counted.
    pub(super) fn divert(
        &mut self,
        index: u32,
        packet: &Packet<'_>,
        rest: &[Span<'_>],
        mtu: Option<usize>,
    ) -> bool {
        if !self.is_moved(index) {
            return false;
        }
        let socket = SocketId { index, generation: self.slots[index as usize].generation };
        self.keep_diverted(socket, packet, rest, mtu);
        true
    }

    /// As [`Stack::divert`], for a segment of no connection.
    pub(super) fn divert_stray(&mut self, packet: &Packet<'_>, rest: &[Span<'_>]) {
        self.keep_diverted(STRAY, packet, rest, None);
    }

    fn keep_diverted(
        &mut self,
        socket: SocketId,
        packet: &Packet<'_>,
        rest: &[Span<'_>],
        mtu: Option<usize>,
    ) {
        if self.diverted.len() >= QUEUE {
            self.statistics.queue_full += 1;
            return;
        }
        let mut bytes = packet.payload.to_vec();
        for span in rest {
            let from = bytes.len();
            bytes.resize(from + span.len(), 0);
            span.read(&mut bytes[from..]);
        }
        let Packet { source, destination, tos, .. } = *packet;
        self.diverted.push_back(Diverted { socket, source, destination, tos, bytes, mtu });
    }

    /// What arrived for connections that have left the stack, the oldest first.
    pub fn next_diverted(&mut self) -> Option<Diverted> {
        self.diverted.pop_front()
    }

    /// Receives what arrived at another stack for a connection that has moved to this one. `false`: it is not here, and
    /// nothing was done.
    pub fn receive_diverted(&mut self, now: u64, interface: usize, diverted: &Diverted) -> bool {
        let found = diverted.tuple().and_then(|tuple| self.demux.find(&tuple));
        let is_here =
            found.is_some_and(|index| matches!(self.slots[index as usize].socket, Some(Socket::Tcp(_))));
        if is_here {
            self.input_diverted(now, interface, diverted);
        }
        is_here
    }

    /// Receives a [stray](Diverted::is_stray) of another stack with the same addresses: a segment for a connection or
    /// a listener of this one, or for none at all, which is answered by a reset. What is for a connection that has left
    /// this stack too is dropped: it is on its way to the other one. Attack: as for [`Diverted::from_bytes`].
    pub fn receive_stray(&mut self, now: u64, interface: usize, diverted: &Diverted) {
        let Some(tuple) = diverted.tuple().filter(|_| diverted.mtu.is_none()) else { return };
        let (local, remote) = (tuple.local.ip(), tuple.remote.ip());
        let is_ours = self.interfaces.get(interface).is_some_and(|port| port.has(local));
        let is_right = is_ours && local.is_ipv4() == remote.is_ipv4() && self.is_host(interface, remote);
        let has_left = self.demux.find(&tuple).is_some_and(|index| self.is_moved(index));
        if is_right && !has_left {
            self.input_diverted(now, interface, diverted);
        }
    }

    fn input_diverted(&mut self, now: u64, interface: usize, diverted: &Diverted) {
        let &Diverted { source, destination, tos, ref bytes, mtu, .. } = diverted;
        self.advance(now);
        let packet = Packet {
            source,
            destination,
            protocol: Protocol::TCP,
            tos,
            ttl: 0,
            payload: bytes,
            fragment: None,
            bytes,
        };
        match mtu {
            Some(_) => self.path_error(&packet, mtu),
            None => self.tcp(interface, &packet, &[]),
        }
    }
}
