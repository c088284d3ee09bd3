//! Sockets: calls that wait are asynchronous.

use crate::{Error, Network};
use alloc::vec::Vec;
use core::future::poll_fn;
use core::net::SocketAddr;
use core::task::{Context, Poll, Waker};
use ringway_netstack::{Accepted, ConnectionError, SocketError, SocketId, SocketOptions, Stack};

/// A socket's place.
pub(crate) struct Socket {
    pub network: Network,
    pub id: SocketId,
    /// Whether the socket is a stream, which counts.
    streams: bool,
}

impl Socket {
    /// Calls the stack; if that would block, the task is woken when the socket can be read or written.
    fn attempt<T>(
        &self,
        writes: bool,
        cx: &mut Context<'_>,
        call: impl FnOnce(&mut Stack, u64) -> Result<T, SocketError>,
    ) -> Poll<Result<T, Error>> {
        self.network.with(|network, now| match call(&mut network.stack, now) {
            Err(SocketError::WouldBlock) => {
                network.wait(self.id, writes, cx.waker());
                Poll::Pending
            }
            result => Poll::Ready(result.map_err(Error::from)),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.network.with(|network, now| {
            if self.streams {
                return network.close(now, self.id);
            }
            network.forget(self.id);
            // A socket that has ended already is gone.
            let _ = network.stack.close(now, self.id);
        });
    }
}

/// Sockets of one port, for each family of addresses that it serves.
pub(crate) struct Sockets(pub Vec<Socket>);

impl Sockets {
    pub fn new(network: &Network, ids: impl IntoIterator<Item = SocketId>) -> Sockets {
        Sockets(ids.into_iter().map(|id| Socket { network: network.clone(), id, streams: false }).collect())
    }

    /// Adds `others` to these sockets.
    pub fn and(mut self, others: Sockets) -> Sockets {
        self.0.extend(others.0);
        self
    }

    /// The first result of a call that does not block.
    fn attempt<T>(
        &self,
        cx: &mut Context<'_>,
        call: impl Fn(&mut Stack, SocketId) -> Result<T, SocketError>,
    ) -> Poll<Result<T, Error>> {
        for socket in &self.0 {
            let done = socket.attempt(false, cx, |stack, _| call(stack, socket.id));
            if done.is_ready() {
                return done;
            }
        }
        Poll::Pending
    }
}

/// Accepts connections.
pub struct TcpListener(pub(crate) Network, pub(crate) Sockets);

impl TcpListener {
    pub(crate) fn new(network: Network, sockets: Sockets) -> TcpListener {
        TcpListener(network, sockets)
    }

    /// The next connection. Waits also while there are as many streams as the memory permits: peers wait then.
    ///
    /// # Errors
    /// None that a program has to expect.
    pub async fn accept(&mut self) -> Result<TcpStream, Error> {
        poll_fn(|cx| match self.try_accept() {
            Err(Error::Socket(SocketError::WouldBlock)) => {
                self.wait(cx.waker());
                Poll::Pending
            }
            accepted => Poll::Ready(accepted),
        })
        .await
    }

    /// Whether there is a connection that may be accepted.
    pub(crate) fn is_ready(&self) -> bool {
        let TcpListener(network, Sockets(sockets)) = self;
        network.with(|network, _| {
            // Attack: connections without end.
            !network.is_crowded() && sockets.iter().any(|socket| network.stack.has_connections(socket.id))
        })
    }

    /// The next connection that may be accepted.
    pub(crate) fn try_accept(&self) -> Result<TcpStream, Error> {
        let TcpListener(network, Sockets(sockets)) = self;
        if !self.is_ready() {
            return Err(SocketError::WouldBlock.into());
        }
        let accepted = sockets.iter().find_map(|socket| {
            let accepted = network.with(|network, _| network.stack.accept(socket.id));
            Some(accepted).filter(|accepted| *accepted != Err(SocketError::WouldBlock))
        });
        let Accepted { socket, peer } = accepted.unwrap_or(Err(SocketError::WouldBlock))?;
        Ok(TcpStream::counted(network, socket, peer))
    }

    /// Wakes a task when there may be a connection.
    pub(crate) fn wait(&self, waker: &Waker) {
        let TcpListener(network, Sockets(sockets)) = self;
        network.with(|network, _| {
            sockets.iter().for_each(|socket| network.wait(socket.id, false, waker));
            if network.is_crowded() {
                network.wait_for_close(waker);
            }
        });
    }
}

/// A TCP connection. It is closed when it is dropped: what was written is still sent, for 30 s at most, unless bytes
/// came that were not read. While it is, the stream counts among those that the memory permits; if half of them are
/// such, the oldest one is aborted.
pub struct TcpStream {
    pub(crate) socket: Socket,
    pub(crate) peer: SocketAddr,
}

impl TcpStream {
    fn counted(network: &Network, id: SocketId, peer: SocketAddr) -> TcpStream {
        network.with(|network, _| network.open());
        TcpStream { socket: Socket { network: network.clone(), id, streams: true }, peer }
    }

    pub(crate) async fn connect(network: &Network, peer: SocketAddr) -> Result<TcpStream, Error> {
        let stream = TcpStream::begin(network, peer, None)?;
        let id = stream.socket.id;
        poll_fn(|cx| stream.socket.attempt(true, cx, |stack, _| is_connected(stack, id))).await?;
        Ok(stream)
    }

    /// Begins to connect, from an address if one is chosen.
    pub(crate) fn begin(
        network: &Network,
        peer: SocketAddr,
        local: Option<SocketAddr>,
    ) -> Result<TcpStream, SocketError> {
        let id = network.with(|network, now| {
            if network.is_crowded() {
                return Err(SocketError::TooManySockets);
            }
            match local {
                Some(local) => network.stack.connect_from(now, local, peer),
                None => network.stack.connect(now, peer),
            }
        })?;
        Ok(TcpStream::counted(network, id, peer))
    }

    /// The address of the other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Reads bytes that came, and waits for some; 0 at the end of the stream.
    ///
    /// # Errors
    /// The connection ended otherwise.
    pub async fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let id = self.socket.id;
        poll_fn(|cx| self.socket.attempt(false, cx, |stack, now| stack.recv(now, id, out))).await
    }

    /// Fills `out`.
    ///
    /// # Errors
    /// [`Error::Ended`] if the stream ends before.
    pub async fn read_exact(&mut self, out: &mut [u8]) -> Result<(), Error> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read(&mut out[filled..]).await? {
                0 => return Err(Error::Ended),
                count => filled += count,
            }
        }
        Ok(())
    }

    /// Removes bytes that came without copying them, at most so many; returns their number, 0 at the end of the stream.
    ///
    /// # Errors
    /// The connection ended otherwise.
    pub async fn skip(&mut self, most: usize) -> Result<usize, Error> {
        let id = self.socket.id;
        let skip = |stack: &mut Stack, now: u64| {
            let count = stack.received(id)?.iter().map(|piece| piece.len()).sum::<usize>().min(most);
            if count == 0 {
                return stack.recv(now, id, &mut [0]);
            }
            stack.consume(now, id, count)?;
            Ok(count)
        };
        poll_fn(|cx| self.socket.attempt(false, cx, skip)).await
    }

    /// Writes as many bytes as there is room for, and waits for room.
    ///
    /// # Errors
    /// The connection ended.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let id = self.socket.id;
        poll_fn(|cx| self.socket.attempt(true, cx, |stack, now| stack.send(now, id, bytes))).await
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// The connection ended.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let count = self.write(bytes).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Ends the stream to the peer, after what was written; the other direction goes on.
    ///
    /// # Errors
    /// The connection ended.
    pub fn shutdown(&mut self) -> Result<(), Error> {
        let Socket { network, id, .. } = &self.socket;
        Ok(network.with(|network, now| network.stack.shutdown(now, *id))?)
    }

    /// Whether short segments are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// None that a program has to expect.
    pub fn set_nodelay(&mut self, nodelay: bool) -> Result<(), Error> {
        let Socket { network, id, .. } = &self.socket;
        let options = SocketOptions { tcp_nodelay: nodelay, ..SocketOptions::default() };
        Ok(network.with(|network, now| network.stack.set_options(now, *id, options))?)
    }

    /// Gives the connection up: the peer gets a reset.
    pub fn abort(self) {
        let Socket { network, id, .. } = &self.socket;
        // The connection may have ended already.
        let _ = network.with(|network, now| network.stack.abort(now, *id));
    }
}

/// Whether a connection is established; [`SocketError::WouldBlock`] while it is not yet.
pub(crate) fn is_connected(stack: &mut Stack, id: SocketId) -> Result<(), SocketError> {
    use ringway_netstack::State;
    if let Some(error) = stack.error(id)? {
        return Err(error.into());
    }
    match stack.info(id)?.tcpi_state {
        State::SynSent | State::SynReceived => Err(SocketError::WouldBlock),
        State::Closed => Err(ConnectionError::Reset.into()),
        _ => Ok(()),
    }
}

/// A UDP socket.
pub struct UdpSocket(pub(crate) Network, pub(crate) Sockets);

impl UdpSocket {
    pub(crate) fn new(network: Network, sockets: Sockets) -> UdpSocket {
        UdpSocket(network, sockets)
    }

    /// The port that it is bound to.
    pub fn port(&self) -> u16 {
        let port = |socket: &Socket| {
            self.0
                .with(|network, _| network.stack.local_address(socket.id).ok())
                .map(|address| address.port())
        };
        self.1.0.iter().find_map(port).unwrap_or_default()
    }

    /// The next datagram, and its sender. What ICMP messages report about datagrams that were sent is ignored: a
    /// server's socket has many peers.
    ///
    /// # Errors
    /// None that a program has to expect.
    pub async fn recv_from(&mut self) -> Result<(Vec<u8>, SocketAddr), Error> {
        poll_fn(|cx| {
            loop {
                let received = self.1.attempt(cx, |stack, id| stack.recv_from(id));
                if !matches!(received, Poll::Ready(Err(Error::Socket(SocketError::Connection(_))))) {
                    return received;
                }
            }
        })
        .await
    }

    /// Sends a datagram, which may be lost.
    ///
    /// # Errors
    /// There is no route, the datagram is too long, or too many wait for the port
    /// ([`SocketError::WouldBlock`]).
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        let UdpSocket(network, Sockets(sockets)) = self;
        Ok(network.with(|network, now| {
            let same = |socket: &&Socket| {
                let local = network.stack.local_address(socket.id);
                local.is_ok_and(|local| local.is_ipv4() == to.is_ipv4())
            };
            let socket = sockets.iter().find(same).ok_or(SocketError::AddressNotAvailable)?;
            network.stack.send_to(now, socket.id, bytes, to)
        })?)
    }
}
