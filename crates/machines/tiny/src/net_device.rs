//! What a role needs of a device.

use alloc::sync::Arc;
use alloc::vec;
use ringway_mem::{Memory, OwnedSpan, Region, Span, SpanMut};
use ringway_ring::Broken;
use ringway_virtq::QueueError;

/// A device that sends and receives frames.
pub trait NetDevice {
    /// Queues up to `count` frames of `len` bytes, each filled by `fill` with its position in the burst; returns
    /// how many had room.
    fn send(
        &mut self,
        count: u32,
        len: usize,
        fill: &mut dyn FnMut(u32, &mut [u8]),
    ) -> Result<u32, NetDeviceError>;
    /// Takes up to `count` frames; `each` gets the bytes of each.
    fn receive(&mut self, count: u32, each: &mut dyn FnMut(&[u8])) -> Result<u32, NetDeviceError>;
    /// Publishes what was queued and taken, and notifies the other side if it must; returns how often it did.
    fn publish(&mut self) -> u32;
    /// Number of frames that were queued and that the other side has not taken.
    fn pending(&mut self) -> Result<u32, NetDeviceError>;
    /// Asks to be woken when there is a frame to receive or, if `room`, when there is room to send. `false`: there is
    /// already.
    fn arm(&mut self, room: bool) -> Result<bool, NetDeviceError>;
}

/// Why a device can't be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetDeviceError {
    /// The memory is not a ring.
    Layout,
    /// The other side broke the rules of the ring.
    Broken(Broken),
    /// The other side closed the ring.
    Closed,
    /// The card does not leave its reset.
    Reset,
    /// A virtqueue's device broke its rules.
    Queue(QueueError),
    /// A virtio device reports a frame of a length that its buffer does not have.
    Length,
}

/// Copies in blocks of 64 bytes, then the rest: the length of a short frame decides only how often.
pub(crate) fn copy_in(bytes: &[u8], mut to: SpanMut<'_>) {
    let (blocks, rest) = bytes.as_chunks::<64>();
    if blocks.len() > BLOCKS {
        to.write(bytes);
        return;
    }
    for block in blocks {
        if !to.write_64(block) {
            to.write(block);
            return;
        }
        to = to.split(64).1;
    }
    to.write(rest);
}

/// Copies all of a span that fits; returns the number of bytes.
pub(crate) fn copy_out(mut from: Span<'_>, bytes: &mut [u8]) -> usize {
    let len = from.len().min(bytes.len());
    let (blocks, rest) = bytes[..len].as_chunks_mut::<64>();
    if blocks.len() > BLOCKS {
        return from.read(bytes);
    }
    for block in blocks {
        from.read_64(block);
        from = from.split(64).1;
    }
    from.read(rest);
    len
}

/// Most blocks that are copied one by one.
const BLOCKS: usize = 8;

/// All of a region, for as long as the device is used.
pub(crate) fn keep(region: Region) -> Option<OwnedSpan> {
    let (user, len) = (region.user, u32::try_from(region.len).ok()?);
    Arc::new(Memory::new(vec![region]).ok()?).keep_user(user, len)
}

impl core::fmt::Display for NetDeviceError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            NetDeviceError::Layout => out.write_str("the memory is no ring"),
            NetDeviceError::Broken(broken) => broken.fmt(out),
            NetDeviceError::Closed => out.write_str("the ring was closed"),
            NetDeviceError::Reset => out.write_str("the card does not leave its reset"),
            NetDeviceError::Queue(error) => error.fmt(out),
            NetDeviceError::Length => out.write_str("the device reports a frame that its buffer can't have"),
        }
    }
}

impl From<Broken> for NetDeviceError {
    fn from(broken: Broken) -> NetDeviceError {
        NetDeviceError::Broken(broken)
    }
}

impl From<QueueError> for NetDeviceError {
    fn from(error: QueueError) -> NetDeviceError {
        NetDeviceError::Queue(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_length_are_whole_and_end_where_the_shorter_one_does() {
        for len in (0..200_usize).chain([511, 512, 575, 576, 577, 1500]) {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8 | 1).collect();
            for room in [len, len + 1, len.saturating_sub(1), len / 2] {
                let (mut copied, mut back) = (vec![0; room], vec![0; len]);
                copy_in(&bytes, SpanMut::of(&mut copied));
                let whole = len.min(room);
                assert_eq!(copied[..whole], bytes[..whole], "{len} {room}");
                assert_eq!(copy_out(Span::of(&copied), &mut back), whole);
                assert_eq!(back[..whole], bytes[..whole], "{len} {room}");
            }
        }
    }
}
