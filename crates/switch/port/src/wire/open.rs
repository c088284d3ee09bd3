//! Opening the sockets: the side of `control`.

use super::{Encapsulation, Settings};
use ringway_host::{
    HostError, SenderSettings, open_datagram_receiver, open_datagram_sender, prepare_stream, within_namespace,
};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Why the sockets can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// A system call failed.
    #[error("{0}")]
    Host(#[from] HostError),
    /// A TCP socket.
    #[error("{what} {address}: {error}")]
    Stream {
        /// The attempted operation.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
}

/// Opens the sockets of UDP, in the order in which a port needs them. Blocks only in the kernel.
///
/// # Errors
/// The system refused: the address is not this host's, the port is taken, or there is no route to the peer.
pub fn datagrams(settings: &Settings) -> Result<Vec<OwnedFd>, WireError> {
    within_namespace(settings.namespace.as_deref(), || {
        let Settings { local, peer, checksum, ttl, .. } = *settings;
        let zero = !checksum;
        let strangers = open_datagram_receiver(local, None, zero)?;
        let receiver = open_datagram_receiver(local, Some(peer.ip()), zero)?;
        let mut sockets = vec![receiver, strangers];
        // The kernel cuts only buffers whose datagrams have checksums: without them, there is a second set.
        let sets: &[bool] = if checksum { &[true] } else { &[true, false] };
        for &checksum in sets {
            for _ in 0..settings.source_ports {
                let sender = SenderSettings { local: local.ip(), peer, checksum, ttl };
                sockets.push(open_datagram_sender(&sender)?);
            }
        }
        Ok(sockets)
    })
}

/// Listens for a TCP peer.
///
/// # Errors
/// The system refused.
pub fn listen(settings: &Settings) -> Result<TcpListener, WireError> {
    debug_assert_eq!(settings.encapsulation, Encapsulation::Tcp);
    let address = settings.local;
    let fail = |error| WireError::Stream { what: "listening on", address, error };
    let listener =
        within_namespace(settings.namespace.as_deref(), || TcpListener::bind(address).map_err(fail))?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(listener)
}

/// Connects to the TCP peer. Blocks for some seconds at most.
///
/// # Errors
/// The system refused, or the peer does not answer.
pub fn connect(settings: &Settings) -> Result<OwnedFd, WireError> {
    let address = settings.peer;
    let fail = |error| WireError::Stream { what: "connecting to", address, error };
    let stream = within_namespace(settings.namespace.as_deref(), || {
        TcpStream::connect_timeout(&address, CONNECT).map_err(fail)
    })?;
    accept(stream)
}

/// Prepares a connected stream for a port.
///
/// # Errors
/// The system refused.
pub fn accept(stream: TcpStream) -> Result<OwnedFd, WireError> {
    let stream = OwnedFd::from(stream);
    prepare_stream(&stream)?;
    Ok(stream)
}
