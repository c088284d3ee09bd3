//! A socket as C programs know it: what it is comes about by calls. No call here waits.

use super::abi::{Errno, event};
use crate::socket::is_connected;
use crate::{Error, Network, TcpListener, TcpStream, UdpSocket};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::task::Waker;
use core::time::Duration;
use ringway_netstack::{ConnectionError, SocketError, SocketId, SocketOptions, Stack};

pub(super) struct Socket {
    network: Network,
    pub is_v6: bool,
    pub only_v6: bool,
    kind: Kind,
    pub options: SocketOptions,
    /// How long reading and writing wait; `None`: for ever.
    pub waits: [Option<Duration>; 2],
    /// Whether closing resets the connection (`SO_LINGER` with no time).
    pub resets: bool,
    /// Whether reading and writing were shut down.
    ended: [bool; 2],
}

enum Kind {
    /// A stream socket without a connection; what it is bound to.
    Unused(Option<SocketAddr>),
    Listener(TcpListener),
    Stream(Stream),
    Datagrams(Datagrams),
}

struct Stream {
    inner: TcpStream,
    established: bool,
    /// The program knows the error.
    told: bool,
}

#[derive(Default)]
struct Datagrams {
    inner: Option<UdpSocket>,
    peer: Option<SocketAddr>,
    /// A datagram that was looked at, and is still to be received.
    held: Option<(Vec<u8>, SocketAddr)>,
}

/// What was received.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Bytes that were copied, and those that there were.
    pub count: usize,
    pub whole: usize,
    /// The sender of a datagram.
    pub from: Option<SocketAddr>,
}

impl From<SocketError> for Errno {
    fn from(error: SocketError) -> Errno {
        match error {
            SocketError::BadSocket => Errno::NotConnected,
            SocketError::AddressInUse => Errno::AddressInUse,
            SocketError::AddressNotAvailable => Errno::AddressNotAvailable,
            SocketError::Unreachable => Errno::Unreachable,
            SocketError::WouldBlock => Errno::Again,
            SocketError::MessageTooLong => Errno::MessageTooLong,
            SocketError::TooManySockets => Errno::NoBuffers,
            SocketError::BrokenPipe => Errno::BrokenPipe,
            SocketError::Connection(ConnectionError::Refused) => Errno::Refused,
            SocketError::Connection(ConnectionError::Reset) => Errno::Reset,
            SocketError::Connection(ConnectionError::TimedOut) => Errno::TimedOut,
            SocketError::Connection(ConnectionError::Unreachable) => Errno::NoRoute,
            SocketError::Connection(ConnectionError::SourceLost) => Errno::Io,
            SocketError::Connection(ConnectionError::NetworkDown) => Errno::NetworkDown,
        }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::Socket(error) => error.into(),
            _ => Errno::Io,
        }
    }
}

impl Stream {
    fn with<T>(&self, call: impl FnOnce(&mut Stack, u64, SocketId) -> T) -> T {
        let socket = &self.inner.socket;
        socket.network.with(|network, now| call(&mut network.stack, now, socket.id))
    }

    fn error(&self) -> Option<ConnectionError> {
        self.with(|stack, _, id| stack.error(id)).ok().flatten()
    }

    /// Whether it is established, which is looked for until it is.
    fn is_established(&mut self) -> Result<(), SocketError> {
        if !self.established {
            self.with(|stack, _, id| is_connected(stack, id))?;
            self.established = true;
        }
        Ok(())
    }

    fn receive(&self, out: &mut [u8], peeks: bool) -> Result<usize, SocketError> {
        self.with(|stack, now, id| {
            let looked = if peeks { stack.peek(id, out)? } else { 0 };
            // If there is nothing, it says whether more comes.
            if looked > 0 { Ok(looked) } else { stack.recv(now, id, out) }
        })
    }

    fn events(&mut self, ended: [bool; 2]) -> u16 {
        let is_open = self.is_established().is_ok();
        let (unread, finished, room) = self.with(|stack, _, id| {
            let has = |result: Result<usize, SocketError>| result.is_ok_and(|count| count > 0);
            (has(stack.unread(id)), stack.is_finished(id).unwrap_or(true), has(stack.send_room(id)))
        });
        let error = self.error().is_some();
        let mut events = 0;
        let mut set = |condition: bool, event: u16| events |= if condition { event } else { 0 };
        set(unread || finished || error || ended[0], event::IN | event::RDNORM);
        set((is_open && (room || ended[1])) || error, event::OUT | event::WRNORM);
        set(finished || ended[0], event::RDHUP);
        set(error || (finished && ended[1]), event::HUP);
        set(error && !self.told, event::ERR);
        events
    }
}

impl Datagrams {
    fn ids(&self) -> impl Iterator<Item = SocketId> {
        self.inner.iter().flat_map(|inner| inner.1.0.iter().map(|socket| socket.id))
    }

    /// The next datagram, of the peer if there is one.
    fn next(&mut self, network: &Network) -> Result<(Vec<u8>, SocketAddr), SocketError> {
        if let Some(held) = self.held.take() {
            return Ok(held);
        }
        for id in self.ids() {
            loop {
                match network.with(|network, _| network.stack.recv_from(id)) {
                    Ok((_, from)) if self.peer.is_some_and(|peer| peer != from) => {}
                    // A socket without a peer is not told what one of many has refused.
                    Err(SocketError::Connection(_)) if self.peer.is_none() => {}
                    Err(SocketError::WouldBlock) => break,
                    result => return result,
                }
            }
        }
        Err(SocketError::WouldBlock)
    }
}

impl Socket {
    pub fn new(network: &Network, is_v6: bool, is_stream: bool) -> Socket {
        let kind = if is_stream { Kind::Unused(None) } else { Kind::Datagrams(Datagrams::default()) };
        Socket::of(network, is_v6, kind)
    }

    fn of(network: &Network, is_v6: bool, kind: Kind) -> Socket {
        Socket {
            network: network.clone(),
            is_v6,
            only_v6: false,
            kind,
            options: SocketOptions::default(),
            waits: [None; 2],
            resets: false,
            ended: [false; 2],
        }
    }

    pub fn is_stream(&self) -> bool {
        !matches!(self.kind, Kind::Datagrams(_))
    }

    pub fn is_listener(&self) -> bool {
        matches!(self.kind, Kind::Listener(_))
    }

    fn unspecified(&self) -> SocketAddr {
        let ip: IpAddr = if self.is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        (ip, 0).into()
    }

    /// Whether an address stands for IPv4 and IPv6.
    fn is_for_both(&self, address: SocketAddr) -> bool {
        self.is_v6 && !self.only_v6 && address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    }

    /// Binds it. A stream's port is taken when it listens or connects.
    pub fn bind(&mut self, address: SocketAddr) -> Result<(), Errno> {
        let both = self.is_for_both(address);
        match &mut self.kind {
            Kind::Unused(local @ None) => *local = Some(address),
            Kind::Datagrams(Datagrams { inner: inner @ None, .. }) => {
                let bound = match both {
                    true => self.network.bind(address.port()),
                    false => self.network.bind_on(address),
                };
                *inner = Some(bound?);
            }
            _ => return Err(Errno::Invalid),
        }
        Ok(())
    }

    /// Listens.
    pub fn listen(&mut self) -> Result<(), Errno> {
        let local = match &self.kind {
            Kind::Unused(local) => local.unwrap_or(self.unspecified()),
            Kind::Listener(_) => return Ok(()),
            Kind::Stream(_) => return Err(Errno::Invalid),
            Kind::Datagrams(_) => return Err(Errno::NotSupported),
        };
        let listener = match self.is_for_both(local) {
            true => self.network.listen(local.port())?,
            false => self.network.listen_on(local)?,
        };
        self.kind = Kind::Listener(listener);
        self.apply()
    }

    /// The next connection, which has the listener's options.
    pub fn accept(&mut self) -> Result<(Socket, SocketAddr), Errno> {
        let inner = match &self.kind {
            Kind::Listener(listener) => listener.try_accept()?,
            Kind::Datagrams(_) => return Err(Errno::NotSupported),
            _ => return Err(Errno::Invalid),
        };
        let peer = inner.peer;
        let stream = Stream { inner, established: true, told: false };
        let mut socket = Socket::of(&self.network, self.is_v6, Kind::Stream(stream));
        (socket.options, socket.resets) = (self.options, self.resets);
        Ok((socket, peer))
    }

    /// Begins to connect: [`Errno::InProgress`] for a stream.
    pub fn connect(&mut self, peer: SocketAddr) -> Result<(), Errno> {
        match &mut self.kind {
            Kind::Datagrams(datagrams) => {
                datagrams.peer = Some(peer);
                self.bind_any()
            }
            Kind::Listener(_) => Err(Errno::IsConnected),
            Kind::Stream(stream) => match stream.is_established() {
                Ok(()) => Err(Errno::IsConnected),
                Err(SocketError::WouldBlock) => Err(Errno::Already),
                Err(_) => {
                    self.kind = Kind::Unused(None);
                    self.connect(peer)
                }
            },
            Kind::Unused(local) => {
                let inner = TcpStream::begin(&self.network, peer, *local)?;
                self.kind = Kind::Stream(Stream { inner, established: false, told: false });
                self.apply()?;
                Err(Errno::InProgress)
            }
        }
    }

    /// Whether the connection is established; after an error, the socket has none.
    pub fn connected(&mut self) -> Result<(), Errno> {
        let Kind::Stream(stream) = &mut self.kind else { return Err(Errno::NotConnected) };
        let result = stream.is_established();
        if !matches!(result, Ok(()) | Err(SocketError::WouldBlock)) {
            self.kind = Kind::Unused(None);
        }
        Ok(result?)
    }

    /// Forgets the peer of datagrams.
    pub fn disconnect(&mut self) -> Result<(), Errno> {
        match &mut self.kind {
            Kind::Datagrams(datagrams) => datagrams.peer = None,
            _ => return Err(Errno::NotSupported),
        }
        Ok(())
    }

    /// Binds a socket for datagrams that is not bound yet to any port.
    fn bind_any(&mut self) -> Result<(), Errno> {
        match &self.kind {
            Kind::Datagrams(Datagrams { inner: None, .. }) => self.bind(self.unspecified()),
            _ => Ok(()),
        }
    }

    /// Receives; what `peeks` stays.
    pub fn receive(&mut self, out: &mut [u8], peeks: bool) -> Result<Received, Errno> {
        let Socket { network, kind, ended, .. } = self;
        match kind {
            Kind::Stream(_) if ended[0] => Ok(Received::default()),
            Kind::Stream(stream) => {
                stream.is_established()?;
                let count = stream.receive(out, peeks)?;
                Ok(Received { count, whole: count, from: None })
            }
            Kind::Datagrams(datagrams) => {
                let (bytes, from) = datagrams.next(network)?;
                let count = bytes.len().min(out.len());
                out[..count].copy_from_slice(&bytes[..count]);
                let received = Received { count, whole: bytes.len(), from: Some(from) };
                datagrams.held = peeks.then_some((bytes, from));
                Ok(received)
            }
            Kind::Unused(_) | Kind::Listener(_) => Err(Errno::NotConnected),
        }
    }

    /// Sends: a datagram whole, of a stream as much as there is room for.
    pub fn send(&mut self, bytes: &[u8], to: Option<SocketAddr>) -> Result<usize, Errno> {
        self.bind_any()?;
        match &mut self.kind {
            Kind::Stream(_) if self.ended[1] => Err(Errno::BrokenPipe),
            Kind::Stream(stream) => {
                stream.is_established()?;
                Ok(stream.with(|stack, now, id| stack.send(now, id, bytes))?)
            }
            Kind::Datagrams(Datagrams { inner: Some(inner), peer, .. }) => {
                let to = to.or(*peer).ok_or(Errno::NeedsAddress)?;
                inner.send_to(bytes, to)?;
                Ok(bytes.len())
            }
            Kind::Datagrams(_) | Kind::Unused(_) | Kind::Listener(_) => Err(Errno::NotConnected),
        }
    }

    /// Shuts reading, writing or both down.
    pub fn shutdown(&mut self, how: u64) -> Result<(), Errno> {
        let Kind::Stream(stream) = &mut self.kind else { return Err(Errno::NotConnected) };
        let ends = match how as u32 {
            0 => [true, false],
            1 => [false, true],
            2 => [true, true],
            _ => return Err(Errno::Invalid),
        };
        if ends[1] {
            stream.with(|stack, now, id| stack.shutdown(now, id))?;
        }
        self.ended = [self.ended[0] | ends[0], self.ended[1] | ends[1]];
        Ok(())
    }

    /// Its own address.
    pub fn local(&self) -> SocketAddr {
        let id = match &self.kind {
            Kind::Unused(local) => return local.unwrap_or(self.unspecified()),
            Kind::Listener(listener) => listener.1.0.last().map(|socket| socket.id),
            Kind::Stream(stream) => Some(stream.inner.socket.id),
            Kind::Datagrams(datagrams) => datagrams.ids().last(),
        };
        let local = |id| self.network.with(|network, _| network.stack.local_address(id).ok());
        id.and_then(local).unwrap_or(self.unspecified())
    }

    /// The peer's address.
    pub fn peer(&mut self) -> Result<SocketAddr, Errno> {
        match &mut self.kind {
            Kind::Stream(stream) => {
                stream.is_established().map_err(|_| Errno::NotConnected)?;
                Ok(stream.inner.peer)
            }
            Kind::Datagrams(datagrams) => datagrams.peer.ok_or(Errno::NotConnected),
            Kind::Unused(_) | Kind::Listener(_) => Err(Errno::NotConnected),
        }
    }

    /// The error of the connection that the program does not know yet.
    pub fn take_error(&mut self) -> Option<Errno> {
        let Kind::Stream(stream) = &mut self.kind else { return None };
        let error = stream.error().filter(|_| !stream.told)?;
        stream.told = true;
        Some(SocketError::from(error).into())
    }

    /// How many bytes can be read.
    pub fn unread(&self) -> usize {
        match &self.kind {
            Kind::Stream(stream) => stream.with(|stack, _, id| stack.unread(id)).unwrap_or(0),
            Kind::Datagrams(datagrams) => datagrams.held.as_ref().map_or(0, |(bytes, _)| bytes.len()),
            Kind::Unused(_) | Kind::Listener(_) => 0,
        }
    }

    /// Makes the options those of the connection, or of the listener's connections.
    pub fn apply(&self) -> Result<(), Errno> {
        let set = |id| self.network.with(|network, now| network.stack.set_options(now, id, self.options));
        match &self.kind {
            Kind::Listener(listener) => listener.1.0.iter().try_for_each(|socket| set(socket.id))?,
            Kind::Stream(stream) => set(stream.inner.socket.id)?,
            Kind::Unused(_) | Kind::Datagrams(_) => {}
        }
        Ok(())
    }

    /// The events of `poll` that have come.
    pub fn events(&mut self) -> u16 {
        match &mut self.kind {
            Kind::Unused(_) => event::OUT | event::WRNORM | event::HUP,
            Kind::Listener(listener) if listener.is_ready() => event::IN | event::RDNORM,
            Kind::Listener(_) => 0,
            Kind::Stream(stream) => stream.events(self.ended),
            Kind::Datagrams(datagrams) => {
                let has = |id| self.network.with(|network, _| network.stack.has_datagrams(id));
                let readable = datagrams.held.is_some() || datagrams.ids().any(has);
                let read = if readable { event::IN | event::RDNORM } else { 0 };
                read | event::OUT | event::WRNORM
            }
        }
    }

    /// Wakes a task when one of these events may have come.
    pub fn wait(&self, wanted: u16, waker: &Waker) {
        let wait = |id, writes| self.network.with(|network, _| network.wait(id, writes, waker));
        match &self.kind {
            Kind::Unused(_) => {}
            Kind::Listener(listener) => listener.wait(waker),
            Kind::Stream(stream) => {
                wait(stream.inner.socket.id, false);
                if wanted & (event::OUT | event::WRNORM) != 0 {
                    wait(stream.inner.socket.id, true);
                }
            }
            Kind::Datagrams(datagrams) => datagrams.ids().for_each(|id| wait(id, false)),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Kind::Stream(stream) = &self.kind
            && self.resets
        {
            // The connection may have ended already.
            let _ = stream.with(|stack, now, id| stack.abort(now, id));
        }
    }
}
