//! Sockets with tokio's traits. They need no I/O driver of the runtime: the network wakes their tasks.

use crate::socket::each;
use crate::waiting::Interest;
use crate::{Network, tcp, udp};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TCP connection; [`tcp::TcpStream`] without blocking.
#[derive(Debug)]
pub struct TcpStream(tcp::TcpStream);

impl TcpStream {
    /// Connects to the first of the addresses that accepts.
    ///
    /// # Errors
    /// The last address's error.
    pub async fn connect(network: &Network, addresses: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address was given");
        for address in addresses.to_socket_addrs()? {
            let stream = tcp::TcpStream::begin(network, address)?;
            let socket = &stream.0.socket;
            let connected = |cx: &mut Context<'_>| {
                socket.poll(cx, Interest::Write, |host| tcp::is_connected(host, socket.id))
            };
            match poll_fn(connected).await {
                Ok(()) => return Ok(TcpStream(stream)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The connection's blocking socket, for calls that block or set options.
    pub fn get_ref(&self) -> &tcp::TcpStream {
        &self.0
    }

    /// The connection, to be used by calls that block.
    pub fn into_std(self) -> tcp::TcpStream {
        self.0
    }
}

impl From<tcp::TcpStream> for TcpStream {
    fn from(stream: tcp::TcpStream) -> TcpStream {
        TcpStream(stream)
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let rest = out.initialize_unfilled();
        let count = ready!(self.0.0.socket.poll(cx, Interest::Read, |host| self.0.read_some(host, rest)))?;
        out.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.0.socket.poll(cx, Interest::Write, |host| self.0.write_some(host, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.shutdown(Shutdown::Write))
    }
}

/// A listening TCP socket. One task at a time accepts.
#[derive(Debug)]
pub struct TcpListener(tcp::TcpListener);

impl TcpListener {
    /// Listens on the first of the addresses that is free; port 0 chooses one.
    ///
    /// # Errors
    /// The last address's error.
    pub fn bind(network: &Network, addresses: impl ToSocketAddrs) -> io::Result<TcpListener> {
        tcp::TcpListener::bind(network, addresses).map(TcpListener)
    }

    /// The next connection and its peer.
    ///
    /// # Errors
    /// If the device failed.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let socket = &self.0.0;
        let accept = |cx: &mut Context<'_>| socket.poll(cx, Interest::Read, |host| self.0.accept_one(host));
        let (id, peer) = poll_fn(accept).await?;
        Ok((TcpStream(tcp::TcpStream::of(&socket.network, id)), peer))
    }

    /// Its address.
    ///
    /// # Errors
    /// If the device failed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A UDP socket. One task at a time receives.
#[derive(Debug)]
pub struct UdpSocket(udp::UdpSocket);

impl UdpSocket {
    /// Opens a socket on the first of the addresses that is free; port 0 chooses one.
    ///
    /// # Errors
    /// The last address's error.
    pub fn bind(network: &Network, addresses: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        udp::UdpSocket::bind(network, addresses).map(UdpSocket)
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// There is no route, or the datagram is too long.
    pub async fn send_to(&self, bytes: &[u8], addresses: impl ToSocketAddrs) -> io::Result<usize> {
        let address = each(addresses, Ok)?;
        let socket = &self.0.socket;
        poll_fn(|cx| socket.poll(cx, Interest::Progress, |host| self.0.send_one(host, bytes, address))).await
    }

    /// The next datagram and its sender; bytes that don't fit are lost.
    ///
    /// # Errors
    /// What an ICMP message reported.
    pub async fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let socket = &self.0.socket;
        poll_fn(|cx| socket.poll(cx, Interest::Read, |host| self.0.receive_one(host, out))).await
    }

    /// Its address.
    ///
    /// # Errors
    /// If the device failed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
