//! Where frames come from and go to.

mod pair;
mod ring;
mod tap;

pub use pair::{Pair, pair};
pub use ring::RingDevice;
pub use tap::TapDevice;

use ringway_client::RingError;
use ringway_frame::{Needs, Offload};
use ringway_host::HostError;
use ringway_tcp::Transmit;
use std::os::fd::BorrowedFd;

/// Why a device can't be used any more.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The ring failed or is closed.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A call of the operating system failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The interface was removed.
    #[error("the interface was removed")]
    Removed,
    /// The other stack of a pair was dropped.
    #[error("the other end of the pair is gone")]
    Closed,
}

/// A network device. Frames are sent by [`Transmit::frame`] and [`Device::flush`].
pub trait Device: Transmit + Send {
    /// What it does for the frames it is given; also what received frames may lack.
    fn offloads(&self) -> Needs;

    /// Copies the next received frame to `frame`; its length and metadata.
    ///
    /// # Errors
    /// If the device can't be used any more; the same holds for the other functions.
    fn receive(&mut self, frame: &mut [u8]) -> Result<Option<(usize, Offload)>, DeviceError>;

    /// Publishes the sent frames, and returns the buffers of the received ones.
    fn flush(&mut self) -> Result<(), DeviceError>;

    /// Asks to be notified of received frames, and of room for a frame if `room`, through the descriptors.
    /// `false`: one of them is there already.
    fn arm(&mut self, room: bool) -> Result<bool, DeviceError>;

    /// Cancels [`Device::arm`].
    fn disarm(&mut self);

    /// The descriptors that become readable, to be watched for edges.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// One of the descriptors, by its number, became readable.
    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError>;
}
