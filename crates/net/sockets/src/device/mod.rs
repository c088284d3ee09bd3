//! Where frames come from and go to.

mod lending;
mod pair;
mod ring;
mod tap;
#[cfg(test)]
mod tests;

pub use pair::{Pair, pair};
pub use ring::{RingDevice, RingRequest};
pub use tap::TapDevice;

use arrayvec::ArrayVec;
use ringway_frame::{Needs, Offload};
use ringway_host::HostError;
use ringway_mem::{Region, Span};
use ringway_netstack::{Source, Transmit};
use ringway_ring_client::{FRAGMENTS, RingError};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Longest headers of a TCP segment that is received in place: Ethernet's, IPv6's and TCP's with options.
pub(crate) const HEADERS: usize = 14 + 40 + 60;

/// Why a device can't be used any more. `Debug` is the same sentence as `Display`, since a `main` that returns an error
/// prints it.
#[derive(thiserror::Error)]
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

impl fmt::Debug for DeviceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A received frame.
#[derive(Debug)]
pub struct Received<'a> {
    /// Its first bytes, with all headers of TCP segments, in this program's memory.
    pub head: &'a [u8],
    /// The bytes that follow, where others may change them.
    pub rest: Spans<'a>,
    /// The frame's metadata.
    pub offload: Offload,
}

/// Pieces of a frame.
pub type Spans<'a> = ArrayVec<Span<'a>, FRAGMENTS>;

impl<'a> Received<'a> {
    /// A frame that is in this program's memory.
    pub fn whole(head: &'a [u8], offload: Offload) -> Received<'a> {
        Received { head, rest: Spans::new(), offload }
    }

    /// Copies the whole frame; its length.
    pub fn read(&self, out: &mut [u8]) -> usize {
        let pieces = std::iter::once(Span::of(self.head)).chain(self.rest.iter().copied());
        pieces.fold(0, |len, piece| len + piece.read(out.get_mut(len..).unwrap_or_default()))
    }
}

/// The ring of a device, for processes that use it in place of the device.
#[derive(Debug)]
pub struct LentRing {
    /// The file of its memory, which can't shrink.
    pub file: OwnedFd,
    /// Its memory in this process.
    pub region: Region,
    /// Notifies the port.
    pub kick: OwnedFd,
    /// The port notifies by it.
    pub call: OwnedFd,
    /// It hangs up when the ring is closed.
    pub socket: OwnedFd,
}

/// Bytes in a device's memory, and how many there are.
pub type StoredBytes = (Arc<dyn Source>, usize);

/// A network device. Frames are sent by [`Transmit::frame`] and [`Device::flush`].
pub trait Device: Transmit + Send {
    /// What it does for the frames it is given; also what received frames may lack.
    fn offloads(&self) -> Needs;

    /// The next received frame. Its buffers stay until [`Device::flush`].
    ///
    /// # Errors
    /// If the device can't be used any more; the same holds for the other functions.
    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError>;

    /// Copies the first of a program's bytes to memory from which frames are sent without a copy, and how many; `None`:
    /// there is no such memory, or none is free.
    fn store(&mut self, _bytes: &[u8]) -> Option<StoredBytes> {
        None
    }

    /// Bytes of streams that it has copied, for which headers don't count. Those that the kernel copies do.
    fn copied(&self) -> u64 {
        0
    }

    /// Publishes the sent frames, and returns the buffers of the received ones.
    fn flush(&mut self) -> Result<(), DeviceError>;

    /// Asks to be notified of received frames, and of room for a frame if `room`, through the descriptors. `false`:
    /// frames or room are available already.
    fn arm(&mut self, room: bool) -> Result<bool, DeviceError>;

    /// Cancels [`Device::arm`].
    fn disarm(&mut self);

    /// The descriptors that become readable, to be watched for edges.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Counts changes of the descriptors, and of [`Device::away`].
    fn epoch(&self) -> u64 {
        0
    }

    /// Why the device is away, so that frames are lost, until it comes back by itself; `None` if it can be used.
    fn away(&self) -> Option<&str> {
        None
    }

    /// Until when, in nanoseconds of [`ringway_host::Clock`], [`Device::come_back`] must be called.
    fn next_attempt(&self) -> Option<u64> {
        None
    }

    /// Tries to come back, if it is time, without blocking.
    fn come_back(&mut self, _now: u64) {}

    /// One of the descriptors, by its number, became readable.
    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError>;

    /// The ring of a port, if the device has one that nobody has used yet. From now on, frames pass through it alone:
    /// [`Device::take_back`] comes before the other functions.
    fn lend(&mut self) -> Option<LentRing> {
        None
    }

    /// Gives the lent ring up, since it is closed, or in an unknown state. The device asks for another one.
    ///
    /// # Errors
    /// It can't be asked for.
    fn take_back(&mut self) -> Result<(), DeviceError> {
        Err(DeviceError::Removed)
    }
}
