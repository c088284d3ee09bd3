//! Errors of a ring.

use ringway_host::HostError;
use ringway_ring::{Broken, HandshakeError, LayoutError, PushError};
use std::fmt;
use std::path::PathBuf;

/// Why a ring can't be opened or used. `Debug` is the same sentence as `Display`, since a `main` that returns an error
/// prints it.
#[derive(thiserror::Error)]
pub enum RingError {
    /// No process listens there, or access is denied.
    #[error("{path}: {error}; is the fabric up, and does the port's `mode` permit this user?")]
    Connect {
        /// The port's socket.
        path: PathBuf,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The port can't be reached now.
    #[error("the port can't be reached: {0}")]
    Unreachable(std::io::Error),
    /// Ringway refuses to give a ring, for this reason.
    #[error("the ring was refused: {0}")]
    Refused(String),
    /// The same request will always be refused, for this reason.
    #[error("the ring was refused: {0}; ask for another")]
    Unsuitable(String),
    /// The other side of the socket does not speak this protocol.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// No reply in time.
    #[error(
        "no answer on the ring's socket in time; another program may have the ring: `ringway ps` shows it"
    )]
    TimedOut,
    /// The reply has no ring descriptors.
    #[error("the answer came with {0} descriptors instead of 3")]
    Descriptors(usize),
    /// The memory is not a ring.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The other side can't be woken.
    #[error("the ring's eventfd is {0}")]
    Signal(#[from] ringway_host::SignalError),
    /// The other side violated the ring's rules; reconnect.
    #[error("{0}; connect again")]
    Broken(#[from] Broken),
    /// The ring is closed: the port, or the pipe's other end, is gone. Reconnect, or wait for a pipe's new
    /// end.
    #[error("the ring is closed: the other side is gone")]
    Closed,
    /// The frame needs more slots than a frame, or the ring, can have.
    #[error("a frame of {len} bytes is longer than {most}, which this ring can carry; ask for larger slots")]
    TooLong {
        /// Length of the frame in bytes.
        len: usize,
        /// Largest possible length in bytes.
        most: usize,
    },
    /// The PCI device is another one.
    #[error("the PCI device is {vendor:04x}:{device:04x}, not one of a port of kind ring-pci (1af4:1110)")]
    Device {
        /// Its vendor.
        vendor: u16,
        /// Its number.
        device: u16,
    },
    /// The device's registers have another size, or it made no ring.
    #[error("the PCI device made no ring: is it one of a port of kind ring-pci, and is its port up?")]
    NoRing,
    /// An error of the operating system.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An error of the operating system.
    #[error("the ring's descriptors failed: {0}")]
    System(#[from] std::io::Error),
}

impl fmt::Debug for RingError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl RingError {
    /// Whether the same may work later: the fabric is down, or another program has the ring.
    pub(crate) fn may_pass(&self) -> bool {
        use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, WouldBlock};
        match self {
            RingError::Connect { error, .. } => {
                matches!(error.kind(), NotFound | ConnectionRefused | WouldBlock)
            }
            RingError::System(error) => matches!(error.kind(), BrokenPipe | ConnectionReset),
            RingError::Refused(_) | RingError::Closed => true,
            _ => false,
        }
    }
}

impl From<rustix::io::Errno> for RingError {
    fn from(error: rustix::io::Errno) -> RingError {
        RingError::System(error.into())
    }
}

impl From<PushError> for RingError {
    fn from(error: PushError) -> RingError {
        match error {
            PushError::Broken(broken) => broken.into(),
            PushError::TooLong { len, most } => RingError::TooLong { len, most },
        }
    }
}
