//! What can go wrong on a ring.

use ringway_host::HostError;
use ringway_ring::{Broken, HandshakeError, LayoutError};
use std::path::PathBuf;

/// Why a ring can't be had or used.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Nobody listens there, or we may not connect.
    #[error("{path}: {error}; is the fabric up, and does the port's `mode` let this user in?")]
    Connect {
        /// The port's socket.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// Ringway gives no ring; its reason.
    #[error("no ring was given: {0}")]
    Refused(String),
    /// The other side of the socket is something else.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// No answer within the time.
    #[error("no answer on the ring's socket in time")]
    TimedOut,
    /// The answer came without the descriptors of a ring.
    #[error("the answer came with {0} descriptors instead of 3")]
    Descriptors(usize),
    /// The memory is no ring.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The other side can't be woken.
    #[error("the ring's eventfd is {0}")]
    Signal(#[from] ringway_host::SignalError),
    /// The other side broke the ring's rules; connect again.
    #[error("{0}; connect again")]
    Broken(#[from] Broken),
    /// The ring is taken back: the port or the pipe's other end is gone. Connect again, or wait for a pipe's new end.
    #[error("the ring is closed: the other side is gone")]
    Closed,
    /// The frame takes more slots than a frame, or the ring, may have.
    #[error("a frame of {len} bytes is longer than {most}, which this ring can carry; ask for larger slots")]
    TooLong {
        /// Bytes of the frame.
        len: usize,
        /// Bytes of the longest.
        most: usize,
    },
    /// The system refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The system refused.
    #[error("the ring's descriptors failed: {0}")]
    System(#[from] std::io::Error),
}

impl From<rustix::io::Errno> for RingError {
    fn from(error: rustix::io::Errno) -> RingError {
        RingError::System(error.into())
    }
}
