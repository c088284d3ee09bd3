//! Sockets as programs see them.

use super::listen::Listener;
use super::{Readiness, Socket, SocketId, Stack};
use crate::congestion::Algorithm;
use crate::connection::shared::Source;
use crate::connection::{Bytes, Connection, ConnectionError, Opening, State, TcpInfo};
use crate::demux::{Tuple, address_words};
use crate::net::Network;
use crate::settings::SocketOptions;
use crate::trace::Trace;
use crate::udp::UdpSocket;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use ringway_frame::Needs;
use ringway_wire::tcp::HEADER_LEN;
use ringway_wire::{Ethernet, Header, Protocol};

/// First and last port for connections without a chosen one (`ip_local_port_range`).
const PORTS: (u16, u16) = (32_768, 60_999);
/// Counters of connections, each for a part of the destinations.
pub(super) const PORT_COUNTERS: usize = 64;

/// A call on a socket failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// The handle is not that of an open socket of this kind.
    #[error("bad socket")]
    BadSocket,
    /// The address or port is in use.
    #[error("address already in use")]
    AddressInUse,
    /// The stack has no such address, or none of the family.
    #[error("cannot assign requested address")]
    AddressNotAvailable,
    /// No route leads to the address.
    #[error("network is unreachable")]
    Unreachable,
    /// Nothing can be read or sent now.
    #[error("operation would block")]
    WouldBlock,
    /// The datagram is too long.
    #[error("message too long")]
    MessageTooLong,
    /// The stack has `max_sockets` sockets already.
    #[error("too many open sockets")]
    TooManySockets,
    /// The stream was shut down for sending.
    #[error("broken pipe")]
    BrokenPipe,
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// An accepted connection and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its socket.
    pub socket: SocketId,
    /// The peer's address.
    pub peer: SocketAddr,
}

impl Stack {
    pub(super) fn socket(&self, id: SocketId) -> Result<&Socket, SocketError> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.socket.as_ref()).ok_or(SocketError::BadSocket)
    }

    pub(super) fn connection(&self, id: SocketId) -> Result<&Connection, SocketError> {
        match self.socket(id)? {
            Socket::Tcp(connection) => Ok(connection),
            _ => Err(SocketError::BadSocket),
        }
    }

    pub(super) fn connection_mut(&mut self, id: SocketId) -> Result<&mut Connection, SocketError> {
        self.connection(id)?;
        match &mut self.slots[id.index as usize].socket {
            Some(Socket::Tcp(connection)) => Ok(connection),
            _ => Err(SocketError::BadSocket),
        }
    }

    /// What a new connection of these addresses starts from; `None` without a route.
    pub(super) fn opening(&mut self, tuple: Tuple, algorithm: Algorithm) -> Option<Opening> {
        let hop = self.hop(tuple.remote.ip())?;
        let interface = self.interfaces.get(hop.interface)?;
        let ip = Network::headers_len(tuple.local.ip()) - Ethernet::LEN;
        let tso = if tuple.local.is_ipv4() { Needs::TSO4 } else { Needs::TSO6 };
        let [a, b, c, d, _] = tuple.words();
        Some(Opening {
            tuple,
            interface: hop.interface,
            iss: self.initial_sequence_number(&tuple),
            // RFC 7323, 5.4: timestamps of connections to the same host stay monotonic.
            ts_offset: self.sequence.hash(&[a, b, c, d, 4]) as u32,
            path_mss: (interface.mtu - ip - HEADER_LEN) as u64,
            options: SocketOptions::default(),
            algorithm,
            seed: self.random.next(),
            gso: interface.offloads.covers(tso.with(Needs::CSUM)),
        })
    }

    /// RFC 6528: a clock of 4 us, and a secret offset for each connection.
    pub(super) fn initial_sequence_number(&self, tuple: &Tuple) -> u32 {
        let [a, b, c, d, e] = tuple.words();
        let offset = self.sequence.hash(&[a, b, c, d, e, 3]) as u32;
        offset.wrapping_add((self.now / 4000) as u32)
    }

    /// The address from which packets to `remote` are sent.
    pub(super) fn source_for(&self, remote: IpAddr) -> Result<IpAddr, SocketError> {
        let hop = self.hop(remote).ok_or(SocketError::Unreachable)?;
        if remote.is_loopback() || self.interfaces[hop.interface].has(remote) {
            return Ok(remote);
        }
        let own = &self.interfaces[hop.interface].addresses;
        // RFC 6724, 5, rule 2: of the same scope.
        let scope = |ip: IpAddr| (ip.is_ipv4(), matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()));
        let fits = |cidr: &&crate::net::route::Cidr| scope(cidr.address) == scope(remote);
        let near = own.iter().filter(fits).find(|cidr| cidr.contains(hop.next));
        let any = near.or_else(|| own.iter().find(fits)).ok_or(SocketError::AddressNotAvailable)?;
        Ok(any.address)
    }

    /// The own address from which packets to `remote` are sent.
    ///
    /// # Errors
    /// There is no route, or no address of the family.
    pub fn source_address(&self, remote: IpAddr) -> Result<IpAddr, SocketError> {
        self.source_for(remote)
    }

    /// A free port for a connection to `remote`: the first one after an offset that depends on the addresses
    /// and a counter of the connections (RFC 6056, 3.3.4). So a port is used again late, when the peer's
    /// TIME-WAIT of its last connection is over.
    /// As in Linux, it is not the port of a listener.
    fn free_port(&mut self, local: IpAddr, remote: SocketAddr) -> Option<u16> {
        let ([a, b], [c, d]) = (address_words(local), address_words(remote.ip()));
        let count = u64::from(PORTS.1 - PORTS.0) + 1;
        let hash = |tag| self.secret.hash(&[a, b, c, d, remote.port().into(), tag]);
        let (offset, place) = (hash(5), (hash(10) % PORT_COUNTERS as u64) as usize);
        let begin = self.port_counters[place] + self.random.below(8);
        let port = |step: u64| PORTS.0 + (offset.wrapping_add(begin + step) % count) as u16;
        let is_free = |&step: &u64| {
            let local = SocketAddr::new(local, port(step));
            // A connection to a listener of this host would be one to itself.
            let is_taken = self.listeners.contains_key(&local.port()) || local == remote;
            !is_taken && self.demux.find(&Tuple { local, remote }).is_none()
        };
        let step = (0..count).find(is_free)?;
        self.port_counters[place] = begin + step + 1;
        Some(port(step))
    }

    /// The first port after a random one that is not used.
    fn unused_port(&mut self, is_used: impl Fn(&Stack, u16) -> bool) -> Result<u16, SocketError> {
        let count = u64::from(PORTS.1 - PORTS.0) + 1;
        let offset = self.random.below(count);
        let mut ports = (0..count).map(|step| PORTS.0 + ((offset + step) % count) as u16);
        ports.find(|&port| !is_used(self, port)).ok_or(SocketError::AddressInUse)
    }

    /// Connects to `remote`, with the stack's own address and controller. [`Readiness::writable`] tells when
    /// the connection is established; bytes can be sent at once.
    ///
    /// # Errors
    /// There is no route, address, port or socket.
    pub fn connect(&mut self, now: u64, remote: SocketAddr) -> Result<SocketId, SocketError> {
        let local = self.source_for(remote.ip())?;
        self.connect_from(now, SocketAddr::new(local, 0), remote)
    }

    /// Connects from a chosen address and port; an unspecified address and port 0 are the stack's choice.
    ///
    /// # Errors
    /// As [`Stack::connect`]; a group's or a broadcast address is unreachable (RFC 9293, 3.9.2.3).
    pub fn connect_from(
        &mut self,
        now: u64,
        mut local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<SocketId, SocketError> {
        self.advance(now);
        if local.ip().is_unspecified() && local.is_ipv4() == remote.is_ipv4() {
            local.set_ip(self.source_for(remote.ip())?);
        }
        if local.port() == 0 {
            local.set_port(self.free_port(local.ip(), remote).ok_or(SocketError::AddressInUse)?);
        }
        let stays = local.ip().is_loopback() && remote.ip().is_loopback();
        if !stays && !self.interfaces.iter().any(|interface| interface.has(local.ip())) {
            return Err(SocketError::AddressNotAvailable);
        }
        let interface = self.hop(remote.ip()).map_or(0, |hop| hop.interface);
        if !self.is_own(interface, remote.ip()) && !self.is_host(interface, remote.ip()) {
            return Err(SocketError::Unreachable);
        }
        let tuple = Tuple { local, remote };
        if self.demux.find(&tuple).is_some() {
            return Err(SocketError::AddressInUse);
        }
        let algorithm = self.settings.tcp_congestion_control;
        let opening = self.opening(tuple, algorithm).ok_or(SocketError::Unreachable)?;
        let connection = Connection::connect(&opening, self.now, &self.settings);
        let id = self.allocate(Socket::Tcp(Box::new(connection))).ok_or(SocketError::TooManySockets)?;
        self.totals.open(true);
        self.demux.insert(tuple, id.index);
        self.touch(id.index);
        Ok(id)
    }

    /// Listens on an address, which may be unspecified, with a queue of `backlog` connections to accept;
    /// port 0 chooses one.
    ///
    /// # Errors
    /// If another listener has the address.
    pub fn listen(&mut self, mut local: SocketAddr, backlog: usize) -> Result<SocketId, SocketError> {
        if local.port() == 0 {
            local.set_port(self.unused_port(|stack, port| stack.listeners.contains_key(&port))?);
        }
        let same = |&index: &u32| match &self.slots[index as usize].socket {
            Some(Socket::Listener(listener)) => listener.local == local,
            _ => false,
        };
        if self.listeners.get(&local.port()).is_some_and(|list| list.iter().any(same)) {
            return Err(SocketError::AddressInUse);
        }
        let algorithm = self.settings.tcp_congestion_control;
        let listener = Socket::Listener(Box::new(Listener::new(local, backlog, algorithm)));
        let id = self.allocate(listener).ok_or(SocketError::TooManySockets)?;
        self.listeners.entry(local.port()).or_default().push(id.index);
        Ok(id)
    }

    /// The oldest connection of a listener that was not accepted yet.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there is none.
    pub fn accept(&mut self, listener: SocketId) -> Result<Accepted, SocketError> {
        self.socket(listener)?;
        let index = match &mut self.slots[listener.index as usize].socket {
            Some(Socket::Listener(listener)) => listener.queue.pop_front().ok_or(SocketError::WouldBlock)?,
            _ => return Err(SocketError::BadSocket),
        };
        let slot = &mut self.slots[index as usize];
        let Some(Socket::Tcp(connection)) = &mut slot.socket else { return Err(SocketError::WouldBlock) };
        (connection.owned, connection.listener) = (true, None);
        let accepted = Accepted {
            socket: SocketId { index, generation: slot.generation },
            peer: connection.tuple.remote,
        };
        self.touch_timers(index);
        Ok(accepted)
    }

    /// Whether a listener has a connection to accept.
    pub fn has_connections(&self, listener: SocketId) -> bool {
        self.listener_of(listener).is_ok_and(|listener| !listener.queue.is_empty())
    }

    /// Whether a UDP socket has a datagram, or an error, to receive.
    pub fn has_datagrams(&self, id: SocketId) -> bool {
        matches!(self.socket(id), Ok(Socket::Udp(udp)) if udp.is_readable())
    }

    /// Appends bytes to the stream; returns how many had room.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if none had; the connection's error if it ended.
    pub fn send(&mut self, now: u64, id: SocketId, bytes: &[u8]) -> Result<usize, SocketError> {
        self.append(now, id, [Bytes::Copied(bytes)], false)
    }

    /// As [`Stack::send`], but others follow soon (`MSG_MORE`): a segment that is not full waits for them until the
    /// next acknowledgment, or for one retransmission timeout if nothing is in flight.
    ///
    /// # Errors
    /// As [`Stack::send`].
    pub fn send_more(&mut self, now: u64, id: SocketId, bytes: &[u8]) -> Result<usize, SocketError> {
        self.append(now, id, [Bytes::Copied(bytes)], true)
    }

    /// As [`Stack::send`], but the bytes, a part of a source, are not copied: they are read each time that they are
    /// sent.
    ///
    /// # Errors
    /// As [`Stack::send`].
    pub fn send_shared(
        &mut self,
        now: u64,
        id: SocketId,
        source: &Arc<dyn Source>,
        range: Range<usize>,
    ) -> Result<usize, SocketError> {
        let end = range.end.min(source.len());
        self.append(now, id, [Bytes::Shared(source, range.start.min(end)..end)], false)
    }

    /// How many bytes [`Stack::send`] would take now.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn send_room(&self, id: SocketId) -> Result<usize, SocketError> {
        Ok(self.connection(id)?.send_room_now(&self.settings, self.memory.supply()))
    }

    /// As [`Stack::send_shared`], for the first bytes of each of several sources, and then as [`Stack::send`] for
    /// `rest`. Returns how many bytes had room in all.
    ///
    /// # Errors
    /// As [`Stack::send`].
    pub fn send_stored(
        &mut self,
        now: u64,
        id: SocketId,
        parts: &[(Arc<dyn Source>, usize)],
        rest: &[u8],
    ) -> Result<usize, SocketError> {
        let stored = parts.iter().map(|(source, len)| Bytes::Shared(source, 0..*len));
        self.append(now, id, stored.chain([Bytes::Copied(rest)]), false)
    }

    fn append<'a>(
        &mut self,
        now: u64,
        id: SocketId,
        parts: impl IntoIterator<Item = Bytes<'a>>,
        more: bool,
    ) -> Result<usize, SocketError> {
        self.advance(now);
        let connection = self.connection(id)?;
        if let Some(error) = connection.error {
            return Err(error.into());
        }
        if !connection.may_send() {
            return Err(SocketError::BrokenPipe);
        }
        let (mut sent, mut full) = (0, false);
        self.with(id.index, |connection, cx| {
            for part in parts {
                let count = connection.send(cx, &part, more);
                cx.memory.copied += if matches!(part, Bytes::Copied(_)) { count as u64 } else { 0 };
                (sent, full) = (sent + count, count < part.len());
                if full {
                    break;
                }
            }
        });
        if sent == 0 && full { Err(SocketError::WouldBlock) } else { Ok(sent) }
    }

    /// Copies received bytes and removes them; 0 at the end of the stream.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there are none yet; the connection's error if it ended.
    pub fn recv(&mut self, now: u64, id: SocketId, out: &mut [u8]) -> Result<usize, SocketError> {
        let count = self.peek(id, out)?;
        let connection = self.connection(id)?;
        if count == 0 && !out.is_empty() {
            return match connection.error {
                Some(error) => Err(error.into()),
                None if connection.is_finished() || connection.state == State::Closed => Ok(0),
                None => Err(SocketError::WouldBlock),
            };
        }
        self.memory.copied += count as u64;
        self.consume(now, id, count)?;
        Ok(count)
    }

    /// The first of the received bytes, in two pieces, to be read in place: at least 64 KB if there are as many, or
    /// half of a smaller third value of `tcp_rmem`.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn received(&self, id: SocketId) -> Result<[&[u8]; 2], SocketError> {
        let mut pieces = self.connection(id)?.received();
        Ok([(); 2].map(|()| pieces.next().unwrap_or_default()))
    }

    /// The bytes of memory that the connection's buffers have, at most
    /// [`Settings::receive_memory`](crate::Settings::receive_memory) and the third value of `tcp_wmem`, and of what
    /// it knows of sent segments if that is more than 4 KB.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn buffer_memory(&self, id: SocketId) -> Result<usize, SocketError> {
        Ok(self.connection(id)?.memory())
    }

    /// The bytes of memory that the buffers of all connections have; `tcp_mem` bounds them.
    pub fn memory(&self) -> usize {
        self.memory.used()
    }

    /// How many received bytes can be read.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn unread(&self, id: SocketId) -> Result<usize, SocketError> {
        Ok(self.connection(id)?.unread())
    }

    /// Copies received bytes, and does not remove them; 0 if there are none.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn peek(&self, id: SocketId, out: &mut [u8]) -> Result<usize, SocketError> {
        let mut count = 0;
        for piece in self.connection(id)?.received() {
            let len = piece.len().min(out.len() - count);
            if len == 0 {
                break;
            }
            out[count..count + len].copy_from_slice(&piece[..len]);
            count += len;
        }
        Ok(count)
    }

    /// Removes `count` received bytes.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn consume(&mut self, now: u64, id: SocketId, count: usize) -> Result<(), SocketError> {
        self.advance(now);
        self.connection(id)?;
        self.with(id.index, |connection, cx| connection.consume(cx, count));
        Ok(())
    }

    /// Whether everything the peer sent was read, and no more comes.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn is_finished(&self, id: SocketId) -> Result<bool, SocketError> {
        Ok(self.connection(id)?.is_finished())
    }

    /// Ends the stream after the bytes that were sent.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn shutdown(&mut self, now: u64, id: SocketId) -> Result<(), SocketError> {
        self.advance(now);
        self.connection_mut(id)?.shutdown();
        self.touch(id.index);
        Ok(())
    }

    /// Gives a socket up. What was sent is still delivered.
    ///
    /// # Errors
    /// If the handle is invalid.
    pub fn close(&mut self, now: u64, id: SocketId) -> Result<(), SocketError> {
        self.advance(now);
        match self.socket(id)? {
            Socket::Listener(_) => self.close_listener(id.index),
            Socket::Udp(udp) => {
                let port = udp.local.port();
                remove(&mut self.datagrams, port, id.index);
                self.release(id.index);
            }
            Socket::Moved(_) => self.release(id.index),
            Socket::Tcp(_) => {
                self.slots[id.index as usize].generation = super::next_generation(id.generation);
                let Some(Socket::Tcp(connection)) = &mut self.slots[id.index as usize].socket else {
                    return Ok(());
                };
                if connection.close(self.now, &self.settings) {
                    self.abort_index(id.index);
                } else {
                    self.touch(id.index);
                    self.add_orphan(id.index);
                }
            }
        }
        Ok(())
    }

    /// Gives a connection up with a reset.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn abort(&mut self, now: u64, id: SocketId) -> Result<(), SocketError> {
        self.advance(now);
        self.connection_mut(id)?.owned = false;
        self.abort_index(id.index);
        Ok(())
    }

    pub(super) fn abort_index(&mut self, index: u32) {
        let Some(Socket::Tcp(connection)) = &self.slots[index as usize].socket else { return };
        if let Some(reset) = connection.abort_reset(self.now) {
            let tuple = connection.tuple;
            self.send_reset(&tuple, reset);
        }
        self.with(index, |connection, _| {
            connection.owned = false;
            connection.end_with(None);
        });
    }

    /// Ends all connections to other hosts with [`ConnectionError::NetworkDown`]: the device went away, and memory of
    /// its own with bytes to send. Listeners and UDP sockets stay.
    pub fn end_connections(&mut self, now: u64) {
        self.advance(now);
        for index in 0..self.slots.len() as u32 {
            let Some(Socket::Tcp(connection)) = &self.slots[index as usize].socket else { continue };
            if !self.is_ours(connection.tuple.remote.ip()) {
                self.with(index, |connection, _| connection.end_with(Some(ConnectionError::NetworkDown)));
            }
        }
    }

    /// Whether an address is of this host, on any interface.
    fn is_ours(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.interfaces.iter().any(|interface| interface.has(address))
    }

    /// Whether a connection's peer is this host itself, so that its bytes leave by no device.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn is_to_itself(&self, socket: SocketId) -> Result<bool, SocketError> {
        Ok(self.is_ours(self.connection(socket)?.tuple.remote.ip()))
    }

    /// The next socket that became ready, and for what. Each change is told once.
    pub fn next_event(&mut self) -> Option<(SocketId, Readiness)> {
        while let Some(index) = self.events.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.has_event = false;
            let id = SocketId { index, generation: slot.generation };
            let ready = match &mut slot.socket {
                Some(Socket::Tcp(connection)) if connection.owned => core::mem::take(&mut connection.ready),
                Some(Socket::Listener(listener)) => {
                    Readiness { acceptable: !listener.queue.is_empty(), ..Readiness::default() }
                }
                Some(Socket::Udp(udp)) => Readiness { readable: udp.is_readable(), ..Readiness::default() },
                Some(Socket::Tcp(_) | Socket::Moved(_)) | None => Readiness::default(),
            };
            if ready != Readiness::default() {
                return Some((id, ready));
            }
        }
        None
    }

    /// Why a connection ended, if it ended with an error.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn error(&self, id: SocketId) -> Result<Option<ConnectionError>, SocketError> {
        Ok(self.connection(id)?.error)
    }

    /// `TCP_INFO`.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn info(&self, id: SocketId) -> Result<TcpInfo, SocketError> {
        Ok(self.connection(id)?.info(self.now))
    }

    /// Records a connection's state at acknowledgments, timeouts and retransmissions from now on, in at most
    /// `points` points (see [`Trace`]); 0: no more, and the trace is dropped.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn set_trace(&mut self, id: SocketId, points: usize) -> Result<(), SocketError> {
        let connection = self.connection_mut(id)?;
        connection.set_trace(points);
        if let Some(trace) = &mut connection.trace {
            trace.id = Some(id);
        }
        Ok(())
    }

    /// The trace, if the connection has one.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn trace(&self, id: SocketId) -> Result<Option<&Trace>, SocketError> {
        Ok(self.connection(id)?.trace.as_deref())
    }

    /// Sets options of a connection, or those that a listener's connections inherit.
    ///
    /// # Errors
    /// If the socket is neither.
    pub fn set_options(&mut self, now: u64, id: SocketId, options: SocketOptions) -> Result<(), SocketError> {
        self.advance(now);
        if let Socket::Listener(_) = self.socket(id)? {
            self.listener_mut(id.index).ok_or(SocketError::BadSocket)?.options = options;
            return Ok(());
        }
        self.connection(id)?;
        self.with(id.index, |connection, cx| connection.set_options(cx, options));
        if options.tcp_fastopen_connect {
            self.request_fast_open(id.index);
        }
        Ok(())
    }

    /// Ends a record (`MSG_EOR`): bytes that are sent later don't share a segment with earlier ones.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn end_record(&mut self, id: SocketId) -> Result<(), SocketError> {
        self.connection_mut(id)?.end_record();
        Ok(())
    }

    /// Changes the congestion controller of a connection (`TCP_CONGESTION`).
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn set_congestion(
        &mut self,
        now: u64,
        id: SocketId,
        algorithm: Algorithm,
    ) -> Result<(), SocketError> {
        self.advance(now);
        self.connection(id)?;
        let seed = self.random.next();
        self.with(id.index, |connection, cx| connection.set_congestion(cx, algorithm, seed));
        Ok(())
    }

    /// Local and remote address of a connection.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn addresses(&self, id: SocketId) -> Result<(SocketAddr, SocketAddr), SocketError> {
        let tuple = self.connection(id)?.tuple;
        Ok((tuple.local, tuple.remote))
    }

    /// The address that a socket of any kind is bound to.
    ///
    /// # Errors
    /// If the handle is invalid.
    pub fn local_address(&self, id: SocketId) -> Result<SocketAddr, SocketError> {
        Ok(match self.socket(id)? {
            Socket::Tcp(connection) => connection.tuple.local,
            Socket::Moved(tuple) => tuple.local,
            Socket::Listener(listener) => listener.local,
            Socket::Udp(udp) => udp.local,
        })
    }

    /// Whether peers have acknowledged everything that was sent, and all datagrams have left.
    pub fn is_drained(&self) -> bool {
        let waits = |slot: &super::Slot| match &slot.socket {
            Some(Socket::Tcp(connection)) => connection.is_sending(),
            _ => false,
        };
        !self.slots.iter().any(waits) && self.interfaces.iter().all(|interface| interface.queue.is_empty())
    }

    /// Opens a UDP socket on an address, which may be unspecified; port 0 chooses one.
    ///
    /// # Errors
    /// If another socket has the address.
    pub fn bind(&mut self, mut local: SocketAddr) -> Result<SocketId, SocketError> {
        if local.port() == 0 {
            local.set_port(self.unused_port(|stack, port| stack.datagrams.contains_key(&port))?);
        }
        let same = |&index: &u32| match &self.slots[index as usize].socket {
            Some(Socket::Udp(udp)) => udp.local == local,
            _ => false,
        };
        if self.datagrams.get(&local.port()).is_some_and(|list| list.iter().any(same)) {
            return Err(SocketError::AddressInUse);
        }
        let socket = Socket::Udp(Box::new(UdpSocket::new(local)));
        let id = self.allocate(socket).ok_or(SocketError::TooManySockets)?;
        self.datagrams.entry(local.port()).or_default().push(id.index);
        Ok(id)
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// Without a route, if it is too long, or if the interface's queue is full.
    pub fn send_to(
        &mut self,
        now: u64,
        id: SocketId,
        bytes: &[u8],
        remote: SocketAddr,
    ) -> Result<(), SocketError> {
        self.advance(now);
        let Socket::Udp(udp) = self.socket(id)? else { return Err(SocketError::BadSocket) };
        let mut local = udp.local;
        if local.ip().is_unspecified() {
            local.set_ip(self.source_for(remote.ip())?);
        }
        let packet = super::output::datagram(local, remote, bytes).ok_or(SocketError::MessageTooLong)?;
        self.send_packet(local.ip(), remote.ip(), Protocol::UDP, &packet)?;
        self.statistics.datagrams_out += 1;
        Ok(())
    }

    /// The oldest received datagram and its sender.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there is none; the error that an ICMP message reported.
    pub fn recv_from(&mut self, id: SocketId) -> Result<(Vec<u8>, SocketAddr), SocketError> {
        self.socket(id)?;
        let Some(Socket::Udp(udp)) = &mut self.slots[id.index as usize].socket else {
            return Err(SocketError::BadSocket);
        };
        if core::mem::take(&mut udp.refused) {
            return Err(ConnectionError::Refused.into());
        }
        let (from, bytes) = udp.pop().ok_or(SocketError::WouldBlock)?;
        Ok((bytes, from))
    }
}

/// Removes a socket from the list of its port.
pub(super) fn remove(ports: &mut alloc::collections::BTreeMap<u16, Vec<u32>>, port: u16, index: u32) {
    if let Some(list) = ports.get_mut(&port) {
        list.retain(|other| *other != index);
        if list.is_empty() {
            ports.remove(&port);
        }
    }
}
