//! UDP sockets in the shape of std's.

use crate::socket::{Socket, each};
use crate::waiting::Interest;
use crate::{Host, Network};
use ringway_netstack::SocketError;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    pub(crate) socket: Socket,
    peer: Mutex<Option<SocketAddr>>,
}

impl UdpSocket {
    /// Opens a socket on the first of the addresses that is free; port 0 chooses one.
    ///
    /// # Errors
    /// The last address's error.
    pub fn bind(network: &Network, addresses: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        each(addresses, |address| {
            let id = network.attempt(|host| host.stack().bind(address))?;
            Ok(UdpSocket { socket: Socket::new(network, id), peer: Mutex::default() })
        })
    }

    pub(crate) fn send_one(
        &self,
        host: &mut Host,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Result<usize, SocketError> {
        let now = host.now();
        match host.stack().send_to(now, self.socket.id, bytes, to) {
            // Too many wait for the neighbour's address: dropped, as UDP may.
            Err(SocketError::WouldBlock) if !host.is_full() => Ok(bytes.len()),
            sent => sent.map(|()| bytes.len()),
        }
    }

    /// A datagram of the peer, if there is one; others are dropped.
    pub(crate) fn receive_one(
        &self,
        host: &mut Host,
        out: &mut [u8],
    ) -> Result<(usize, SocketAddr), SocketError> {
        let peer = *self.peer();
        loop {
            let (bytes, from) = host.stack().recv_from(self.socket.id)?;
            if peer.is_none_or(|peer| peer == from) {
                let len = bytes.len().min(out.len());
                out[..len].copy_from_slice(&bytes[..len]);
                return Ok((len, from));
            }
        }
    }

    fn peer(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connected(&self) -> io::Result<SocketAddr> {
        self.peer().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Sends a datagram to the first of the addresses.
    ///
    /// # Errors
    /// There is no route, or the datagram is too long.
    pub fn send_to(&self, bytes: &[u8], addresses: impl ToSocketAddrs) -> io::Result<usize> {
        each(addresses, |address| {
            self.socket.call(Interest::Progress, |host| self.send_one(host, bytes, address))
        })
    }

    /// The next datagram and its sender; bytes that don't fit are lost.
    ///
    /// # Errors
    /// What an ICMP message reported.
    pub fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.call(Interest::Read, |host| self.receive_one(host, out))
    }

    /// Sets the address for `send` and `recv`; datagrams of others are dropped.
    ///
    /// # Errors
    /// If no address is given.
    pub fn connect(&self, addresses: impl ToSocketAddrs) -> io::Result<()> {
        each(addresses, |address| {
            *self.peer() = Some(address);
            Ok(())
        })
    }

    /// Sends to the connected address.
    ///
    /// # Errors
    /// As `send_to`.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.send_to(bytes, self.connected()?)
    }

    /// The next datagram of the connected address.
    ///
    /// # Errors
    /// As `recv_from`.
    pub fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.connected()?;
        Ok(self.recv_from(out)?.0)
    }

    /// Its address.
    ///
    /// # Errors
    /// If the device failed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Whether calls return [`io::ErrorKind::WouldBlock`] instead of blocking.
    ///
    /// # Errors
    /// Never; the result is as std's.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Limits how long `recv` and `recv_from` block.
    ///
    /// # Errors
    /// If the timeout is 0.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Interest::Read, timeout)
    }
}
