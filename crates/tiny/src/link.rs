//! What a role needs of a device.

use ringway_ring::Broken;

/// A device that sends and receives frames.
pub trait Link {
    /// Queues up to `count` frames of `len` bytes, each filled by `fill` with its position in the burst; returns
    /// how many had room.
    fn send(
        &mut self,
        count: u32,
        len: usize,
        fill: &mut dyn FnMut(u32, &mut [u8]),
    ) -> Result<u32, LinkError>;
    /// Takes up to `count` frames; `each` gets the bytes of each.
    fn receive(&mut self, count: u32, each: &mut dyn FnMut(&[u8])) -> Result<u32, LinkError>;
    /// Publishes what was queued and taken; `true` if the other side must be notified.
    fn publish(&mut self) -> bool;
    /// Asks to be woken when there is a frame to receive or, if `room`, when there is room to send. `false`: there is
    /// already.
    fn arm(&mut self, room: bool) -> Result<bool, LinkError>;
}

/// Why a device can't be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// The memory is no ring.
    Layout,
    /// The other side broke the rules of the ring.
    Broken(Broken),
    /// The other side closed the ring.
    Closed,
}

impl core::fmt::Display for LinkError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            LinkError::Layout => out.write_str("the memory is no ring"),
            LinkError::Broken(broken) => broken.fmt(out),
            LinkError::Closed => out.write_str("the ring was closed"),
        }
    }
}

impl From<Broken> for LinkError {
    fn from(broken: Broken) -> LinkError {
        LinkError::Broken(broken)
    }
}
