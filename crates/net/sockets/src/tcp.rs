//! TCP sockets in the shape of std's.

use crate::socket::{Socket, each};
use crate::waiting::Interest;
use crate::{Host, Network};
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{
    ConnectionError, SocketError, SocketId, SocketOptions, Source, State, TcpInfo, Trace,
};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Connections of a listener that wait to be accepted.
const BACKLOG: usize = 1024;

#[derive(Debug)]
pub(crate) struct Stream {
    pub socket: Socket,
    options: Mutex<SocketOptions>,
    /// The program will not read any more.
    pub read_shut: AtomicBool,
}

/// A TCP connection. Dropping the last clone closes it; what was written is still delivered.
#[derive(Debug)]
pub struct TcpStream(pub(crate) Arc<Stream>);

/// Whether a connection is established.
pub(crate) fn is_connected(host: &mut Host, id: SocketId) -> Result<(), SocketError> {
    if let Some(error) = host.stack().error(id)? {
        return Err(error.into());
    }
    match host.stack().info(id)?.tcpi_state {
        State::SynSent | State::SynReceived => Err(SocketError::WouldBlock),
        State::Closed => Err(ConnectionError::Reset.into()),
        _ => Ok(()),
    }
}

impl TcpStream {
    pub(crate) fn of(network: &Network, id: SocketId) -> TcpStream {
        let (options, read_shut) = Default::default();
        TcpStream(Arc::new(Stream { socket: Socket::new(network, id), options, read_shut }))
    }

    /// Starts a connection, which is not established yet.
    pub(crate) fn begin(network: &Network, address: SocketAddr) -> io::Result<TcpStream> {
        let id = network.attempt(|host| {
            let now = host.now();
            host.stack().connect(now, address)
        })?;
        Ok(TcpStream::of(network, id))
    }

    /// Connects to the first of the addresses that accepts.
    ///
    /// # Errors
    /// The last address's error.
    pub fn connect(network: &Network, addresses: impl ToSocketAddrs) -> io::Result<TcpStream> {
        each(addresses, |address| TcpStream::connected(network, address, None))
    }

    /// Connects within `timeout`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after it.
    pub fn connect_timeout(
        network: &Network,
        address: &SocketAddr,
        timeout: Duration,
    ) -> io::Result<TcpStream> {
        TcpStream::connected(network, *address, Some(timeout))
    }

    fn connected(network: &Network, address: SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
        let stream = TcpStream::begin(network, address)?;
        let id = stream.0.socket.id;
        network.block(Some(id), Interest::Write, timeout, |host| is_connected(host, id))?;
        Ok(stream)
    }

    /// Reads what was received already.
    fn read_received(&self, host: &mut Host, out: &mut [u8]) -> Result<usize, SocketError> {
        if self.0.read_shut.load(Relaxed) {
            return Ok(0);
        }
        let now = host.now();
        host.stack().recv(now, self.0.socket.id, out)
    }

    /// Reads; receives from the device if there is nothing yet.
    pub(crate) fn read_some(&self, host: &mut Host, out: &mut [u8]) -> Result<usize, SocketError> {
        match self.read_received(host, out) {
            Err(SocketError::WouldBlock) => match host.read(self.0.socket.id, out) {
                // What could not go to `out` directly.
                Err(SocketError::WouldBlock) => self.read_received(host, out),
                result => result,
            },
            result => result,
        }
    }

    /// As `write`, but more bytes follow soon (`MSG_MORE`): a segment that is not full waits for them, until the peer
    /// acknowledges something or for one retransmission timeout.
    ///
    /// # Errors
    /// As `write`.
    pub fn write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.socket.call(Interest::Write, |host| {
            let now = host.now();
            host.stack().send_more(now, self.0.socket.id, bytes)
        })
    }

    /// Sends a part of a source without a copy to the send buffer, like `sendfile`: its bytes are read, and copied to
    /// the device, each time that they are sent. Returns how many have room now; the source must keep them until they
    /// are acknowledged.
    ///
    /// # Errors
    /// As `write`; [`io::ErrorKind::InvalidData`] if the source lost them.
    pub fn write_shared(&self, source: &Arc<dyn Source>, range: Range<usize>) -> io::Result<usize> {
        self.0.socket.call(Interest::Write, |host| {
            let now = host.now();
            host.stack().send_shared(now, self.0.socket.id, source, range.clone())
        })
    }

    /// Sends a whole source as [`TcpStream::write_shared`] does; returns when all of it has room.
    ///
    /// # Errors
    /// As [`TcpStream::write_shared`].
    pub fn write_source(&self, source: &Arc<dyn Source>) -> io::Result<()> {
        let mut at = 0;
        while at < source.len() {
            at += self.write_shared(source, at..source.len())?;
        }
        Ok(())
    }

    /// Ends a record (`MSG_EOR`): later bytes don't share a segment with those written before.
    ///
    /// # Errors
    /// If the device failed.
    pub fn end_record(&self) -> io::Result<()> {
        self.0.socket.network.attempt(|host| host.stack().end_record(self.0.socket.id))
    }

    pub(crate) fn write_some(&self, host: &mut Host, parts: &[IoSlice<'_>]) -> Result<usize, SocketError> {
        let mut sent = 0;
        for part in parts {
            match host.write(self.0.socket.id, part) {
                Ok(count) => sent += count,
                Err(SocketError::WouldBlock) if sent > 0 => break,
                Err(error) => return Err(error),
            }
            if sent == 0 && !part.is_empty() {
                break;
            }
        }
        Ok(sent)
    }

    /// Reads without removing.
    ///
    /// # Errors
    /// As `read`.
    pub fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.0.socket.call(Interest::Read, |host| {
            let count = host.stack().peek(self.0.socket.id, out)?;
            // Tells an error, the end, or that there is nothing.
            if count == 0 { self.read_received(host, out) } else { Ok(count) }
        })
    }

    /// Calls `use_bytes` with the first of the received bytes in place, in two pieces, and removes as many as it
    /// returns, but none that it was not shown; waits until there are some. The pieces have at least 64 KB if there are
    /// as many, or half of a smaller third value of `tcp_rmem`.
    ///
    /// Returns how many were removed. 0 is the end of the stream if `use_bytes` was not called; otherwise nothing was
    /// removed, and the next call shows the same bytes again at once.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_in_place(&self, mut use_bytes: impl FnMut([&[u8]; 2]) -> usize) -> io::Result<usize> {
        let id = self.0.socket.id;
        self.0.socket.call(Interest::Read, |host| {
            let now = host.now();
            let parts = host.stack().received(id)?;
            if parts[0].is_empty() {
                // A buffer of one byte tells an error, the end, or that there is nothing.
                return self.read_received(host, &mut [0]);
            }
            let count = use_bytes(parts).min(parts[0].len() + parts[1].len());
            host.stack().consume(now, id, count)?;
            Ok(count)
        })
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// If the device failed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.0.read_shut.store(true, Relaxed);
        }
        if how == Shutdown::Read {
            return Ok(());
        }
        self.0.socket.network.attempt(|host| {
            let now = host.now();
            host.stack().shutdown(now, self.0.socket.id)
        })
    }

    /// The peer's address.
    ///
    /// # Errors
    /// If the device failed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let id = self.0.socket.id;
        Ok(self.0.socket.network.attempt(|host| host.stack().addresses(id))?.1)
    }

    /// The local address.
    ///
    /// # Errors
    /// If the device failed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.local_addr()
    }

    /// Another handle of the same connection.
    ///
    /// # Errors
    /// Never; the result is as std's.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        Ok(TcpStream(self.0.clone()))
    }

    /// Whether calls return [`io::ErrorKind::WouldBlock`] instead of blocking.
    ///
    /// # Errors
    /// Never; the result is as std's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.socket.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Limits how long reads block.
    ///
    /// # Errors
    /// If the timeout is 0.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.socket.set_timeout(Interest::Read, timeout)
    }

    /// Limits how long writes block.
    ///
    /// # Errors
    /// If the timeout is 0.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.socket.set_timeout(Interest::Write, timeout)
    }

    /// The timeout of reads.
    ///
    /// # Errors
    /// Never; the result is as std's.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.socket.timeout(Interest::Read))
    }

    /// The timeout of writes.
    ///
    /// # Errors
    /// Never; the result is as std's.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.0.socket.timeout(Interest::Write))
    }

    /// Sends small segments at once (no Nagle).
    ///
    /// # Errors
    /// If the device failed.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set_options(SocketOptions { tcp_nodelay: nodelay, ..self.options() })
    }

    /// Whether small segments are sent at once.
    ///
    /// # Errors
    /// Never; the result is as std's.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options().tcp_nodelay)
    }

    /// All options.
    pub fn options(&self) -> SocketOptions {
        *self.0.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets all options.
    ///
    /// # Errors
    /// If the device failed.
    pub fn set_options(&self, options: SocketOptions) -> io::Result<()> {
        let mut current = self.0.options.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.socket.network.attempt(|host| {
            let now = host.now();
            host.stack().set_options(now, self.0.socket.id, options)
        })?;
        *current = options;
        Ok(())
    }

    /// Changes the congestion controller (`TCP_CONGESTION`).
    ///
    /// # Errors
    /// If the device failed.
    pub fn set_congestion(&self, algorithm: Algorithm) -> io::Result<()> {
        self.0.socket.network.attempt(|host| {
            let now = host.now();
            host.stack().set_congestion(now, self.0.socket.id, algorithm)
        })
    }

    /// `TCP_INFO`.
    ///
    /// # Errors
    /// If the device failed.
    pub fn info(&self) -> io::Result<TcpInfo> {
        self.0.socket.network.attempt(|host| host.stack().info(self.0.socket.id))
    }

    /// Records the state at acknowledgments, timeouts and retransmissions from now on, in at most `points`
    /// points; 0: no more.
    ///
    /// # Errors
    /// If the device failed.
    pub fn set_trace(&self, points: usize) -> io::Result<()> {
        self.0.socket.network.attempt(|host| host.stack().set_trace(self.0.socket.id, points))
    }

    /// A copy of the trace, if the connection has one.
    ///
    /// # Errors
    /// If the device failed.
    pub fn trace(&self) -> io::Result<Option<Trace>> {
        self.0.socket.network.attempt(|host| Ok(host.stack().trace(self.0.socket.id)?.cloned()))
    }

    /// Why the connection ended, if with an error.
    ///
    /// # Errors
    /// If the device failed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let error = self.0.socket.network.attempt(|host| host.stack().error(self.0.socket.id))?;
        Ok(error.map(|error| crate::error::io(error.into())))
    }
}

impl Read for &TcpStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.socket.call(Interest::Read, |host| self.read_some(host, out))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.socket.call(Interest::Write, |host| self.write_some(host, parts))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listening TCP socket.
#[derive(Debug)]
pub struct TcpListener(pub(crate) Socket);

impl TcpListener {
    /// Listens on the first of the addresses that is free; port 0 chooses one.
    ///
    /// # Errors
    /// The last address's error.
    pub fn bind(network: &Network, addresses: impl ToSocketAddrs) -> io::Result<TcpListener> {
        each(addresses, |address| {
            let id = network.attempt(|host| host.stack().listen(address, BACKLOG))?;
            Ok(TcpListener(Socket::new(network, id)))
        })
    }

    pub(crate) fn accept_one(&self, host: &mut Host) -> Result<(SocketId, SocketAddr), SocketError> {
        let accepted = host.stack().accept(self.0.id)?;
        Ok((accepted.socket, accepted.peer))
    }

    /// The next connection and its peer.
    ///
    /// # Errors
    /// If the device failed.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (id, peer) = self.0.call(Interest::Read, |host| self.accept_one(host))?;
        Ok((TcpStream::of(&self.0.network, id), peer))
    }

    /// The connections, without an end.
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<TcpStream>> {
        std::iter::repeat_with(|| self.accept().map(|(stream, _)| stream))
    }

    /// Its address.
    ///
    /// # Errors
    /// If the device failed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Whether `accept` returns [`io::ErrorKind::WouldBlock`] instead of blocking.
    ///
    /// # Errors
    /// Never; the result is as std's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.set_nonblocking(nonblocking);
        Ok(())
    }
}
