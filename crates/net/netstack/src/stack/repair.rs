//! Connections that move from one stack to another, as with Linux's `TCP_REPAIR`; and what arrives for them meanwhile.

use super::input::Arrival;
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
use ringway_wire::{EtherType, Ethernet, Header, Protocol, Tcp, U32};

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

    /// Keeps the addresses of a connection that another stack with the same address has accepted, as if it had left
    /// this one by [`Stack::detach`].
    ///
    /// # Errors
    /// If there is such a connection, or the stack has no such address.
    pub fn reserve(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<SocketId, SocketError> {
        let tuple = Tuple { local, remote };
        if !self.interfaces.iter().any(|interface| interface.has(local.ip())) {
            return Err(SocketError::AddressNotAvailable);
        }
        self.end_time_wait(&tuple);
        if self.demux.find(&tuple).is_some() {
            return Err(SocketError::AddressInUse);
        }
        let id = self.allocate(Socket::Moved(Box::new(tuple))).ok_or(SocketError::TooManySockets)?;
        self.demux.insert(tuple, id.index);
        Ok(id)
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
        if self.diverted.len() >= QUEUE {
            self.statistics.queue_full += 1;
            return true;
        }
        let mut bytes = packet.payload.to_vec();
        for span in rest {
            let from = bytes.len();
            bytes.resize(from + span.len(), 0);
            span.read(&mut bytes[from..]);
        }
        let socket = SocketId { index, generation: self.slots[index as usize].generation };
        let Packet { source, destination, tos, .. } = *packet;
        self.diverted.push_back(Diverted { socket, source, destination, tos, bytes, mtu });
        true
    }

    /// What arrived for connections that have left the stack, the oldest first.
    pub fn next_diverted(&mut self) -> Option<Diverted> {
        self.diverted.pop_front()
    }

    /// Receives what arrived at another stack for a connection that has moved to this one. `false`: it is not here, and
    /// nothing was done.
    pub fn receive_diverted(&mut self, now: u64, interface: usize, diverted: &Diverted) -> bool {
        let &Diverted { source, destination, tos, ref bytes, mtu, .. } = diverted;
        let Some([a, b, c, d]) = bytes.first_chunk::<4>() else { return false };
        let ports = [[*a, *b], [*c, *d]].map(u16::from_be_bytes);
        let ends = (SocketAddr::new(source, ports[0]), SocketAddr::new(destination, ports[1]));
        // An error quotes a segment that we sent.
        let (remote, local) = if mtu.is_some() { (ends.1, ends.0) } else { ends };
        let Some(index) = self.demux.find(&Tuple { local, remote }) else { return false };
        if !matches!(self.slots[index as usize].socket, Some(Socket::Tcp(_))) {
            return false;
        }
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
        true
    }

    /// Whether a frame is a segment of a connection of this stack, so that a caller gives other frames to another one
    /// with the same address. `head` has all headers of the frame, and may have all of it; `rest` is the length of the
    /// rest. Segments in fragments are none.
    pub fn is_for_connection(&self, interface: usize, head: &[u8], rest: usize) -> bool {
        let found = self.segment_of(interface, head, rest);
        found.is_some_and(|(_, _, index)| matches!(self.slots[index as usize].socket, Some(Socket::Tcp(_))))
    }

    /// Whether a frame begins a connection to a listener of this stack that [takes](Stack::stop_admitting) them, as
    /// [`Stack::is_for_connection`]: a SYN, or what acknowledges a cookie. Other segments may be of connections that
    /// another stack with the same address has.
    pub fn is_for_listener(&self, interface: usize, head: &[u8], rest: usize) -> bool {
        if self.listeners.is_empty() {
            return false;
        }
        let Some((_, tcp, tuple)) = self.segment_to_us(interface, head, rest) else { return false };
        if self.demux.find(&tuple).is_some() || tcp.flags.has(Flags::RST) {
            return false;
        }
        let Some(listener) = self.find_listener(tuple.local) else { return false };
        let admits = matches!(
            &self.slots[listener as usize].socket,
            Some(Socket::Listener(listener)) if listener.admits
        );
        match tcp.flags.has(Flags::ACK) {
            true => {
                let numbers = (tcp.sequence_number.get(), tcp.acknowledgment_number.get());
                admits && !tcp.flags.has(Flags::SYN) && self.acknowledges_cookie(listener, &tuple, numbers)
            }
            false => admits && tcp.flags.has(Flags::SYN),
        }
    }

    /// The packet of a frame to this host that is a segment of a connection: its header, and the connection's number.
    pub(super) fn segment_of<'a>(
        &self,
        interface: usize,
        head: &'a [u8],
        rest: usize,
    ) -> Option<(Packet<'a>, &'a Tcp, u32)> {
        let (packet, tcp, tuple) = self.segment_to_us(interface, head, rest)?;
        let index = self.demux.find(&tuple)?;
        Some((packet, tcp, index))
    }

    /// The packet of a frame to this host that is a segment of TCP, and its addresses.
    fn segment_to_us<'a>(
        &self,
        interface: usize,
        head: &'a [u8],
        rest: usize,
    ) -> Option<(Packet<'a>, &'a Tcp, Tuple)> {
        let port = self.interfaces.get(interface)?;
        let (ethernet, bytes) = Ethernet::split(head)?;
        if ethernet.destination != port.mac || ethernet.source.is_group() {
            return None;
        }
        let packet = match ethernet.ethertype {
            EtherType::IPV4 => Packet::head_v4(bytes, rest)?,
            EtherType::IPV6 => Packet::head_v6(bytes, rest)?,
            _ => return None,
        };
        let arrival = Arrival { interface, group: false, trusted: true, looped: false, fragmented: false };
        let is_ours = self.is_for_us(arrival, packet.destination) || self.is_for_another(arrival, &packet);
        if packet.protocol != Protocol::TCP || !is_ours || !self.is_host(interface, packet.source) {
            return None;
        }
        let (tcp, _, _) = Tcp::parse(packet.payload)?;
        let tuple = Tuple {
            local: SocketAddr::new(packet.destination, tcp.destination_port.get()),
            remote: SocketAddr::new(packet.source, tcp.source_port.get()),
        };
        Some((packet, tcp, tuple))
    }
}
