//! Errors as `std::io` has them.

use ringway_netstack::{ConnectionError, SocketError};
use std::io::{Error, ErrorKind};

/// The kind that std's sockets report.
pub(crate) fn io(error: SocketError) -> Error {
    let kind = match error {
        SocketError::BadSocket => ErrorKind::NotConnected,
        SocketError::AddressInUse => ErrorKind::AddrInUse,
        SocketError::AddressNotAvailable => ErrorKind::AddrNotAvailable,
        SocketError::Unreachable => ErrorKind::NetworkUnreachable,
        SocketError::WouldBlock => ErrorKind::WouldBlock,
        SocketError::MessageTooLong => ErrorKind::InvalidInput,
        SocketError::TooManySockets => ErrorKind::QuotaExceeded,
        SocketError::BrokenPipe => ErrorKind::BrokenPipe,
        SocketError::Connection(ConnectionError::Refused) => ErrorKind::ConnectionRefused,
        SocketError::Connection(ConnectionError::Reset) => ErrorKind::ConnectionReset,
        SocketError::Connection(ConnectionError::TimedOut) => ErrorKind::TimedOut,
        SocketError::Connection(ConnectionError::Unreachable) => ErrorKind::HostUnreachable,
        SocketError::Connection(ConnectionError::SourceLost) => ErrorKind::InvalidData,
        SocketError::Connection(ConnectionError::NetworkDown) => ErrorKind::NetworkDown,
    };
    Error::new(kind, error)
}
