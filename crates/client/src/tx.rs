//! The sending direction.

use crate::RingError;
use crate::link::Link;
use ringway_mem::{Span, SpanMut};
use ringway_ring::{Producer, Slot};
use std::sync::Arc;

/// The transmit ring. The other side sees frames after [`Tx::sync`].
#[derive(Debug)]
pub struct Tx {
    link: Arc<Link>,
    producer: Producer,
}

impl Tx {
    pub(crate) fn new(link: Arc<Link>, ring: usize) -> Tx {
        let producer = Producer::new(&link.memory, ring);
        Tx { link, producer }
    }

    /// Number of free slots, at least `wanted` if the ring has as many.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> Result<u32, RingError> {
        Ok(self.producer.room(&self.link.memory, wanted)?)
    }

    /// Copies `frame` into the next slots. `false`: there is no room now.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> Result<bool, RingError> {
        self.push_with(frame, [0; 10])
    }

    /// As `push`, with the first ten bytes of `virtio_net_hdr` (virtio 1.3, 5.1.6): a checksum or a
    /// segmentation that is left to the receiver.
    #[inline]
    pub fn push_with(&mut self, frame: &[u8], offload: [u8; 10]) -> Result<bool, RingError> {
        Ok(self.producer.push(&self.link.memory, frame, offload)?)
    }

    /// As [`Tx::push_with`], for a frame that consists of `parts`.
    pub fn push_gathered<'p>(
        &mut self,
        parts: impl Iterator<Item = Span<'p>> + Clone,
        offload: [u8; 10],
    ) -> Result<bool, RingError> {
        Ok(self.producer.push_gathered(&self.link.memory, parts, offload)?)
    }

    /// Copies as many of `frames` as fit and publishes them; returns their number.
    pub fn send(&mut self, frames: &[&[u8]]) -> Result<usize, RingError> {
        let mut sent = 0;
        for frame in frames {
            if !self.push(frame)? {
                break;
            }
            sent += 1;
        }
        self.sync()?;
        Ok(sent)
    }

    /// The slot `ahead` of the next one, which names the buffer to fill.
    #[inline]
    pub fn slot(&self, ahead: u32) -> Slot {
        self.producer.slot(&self.link.memory, ahead)
    }

    /// Writes the slot `ahead` of the next one, `ahead` being less than [`Tx::room`]. It may name a different
    /// buffer than before, so that no copy is needed.
    #[inline]
    pub fn set_slot(&mut self, ahead: u32, slot: Slot) {
        self.producer.write(&self.link.memory, ahead, slot);
    }

    /// The first `len` bytes of a buffer; `None` if the buffer does not exist or is shorter.
    #[inline]
    pub fn buffer(&self, buf_idx: u16, len: u32) -> Option<SpanMut<'_>> {
        self.link.memory.buffer(buf_idx, len)
    }

    /// Advances over the next `slots` slots.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        self.producer.advance(slots);
    }

    /// Publishes the filled slots, and notifies the other side if it asked for that.
    #[inline]
    pub fn sync(&mut self) -> Result<(), RingError> {
        if self.producer.publish(&self.link.memory) {
            self.link.kick();
        }
        Ok(())
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        self.producer.slots()
    }

    /// netmap's `head`: index of the next slot to fill, a free-running 32-bit counter.
    pub fn head(&self) -> u32 {
        self.producer.next()
    }

    pub(crate) fn arm(&mut self, slots: u32) -> Result<bool, RingError> {
        Ok(self.producer.arm(&self.link.memory, slots)?)
    }

    pub(crate) fn disarm(&mut self) {
        self.producer.disarm(&self.link.memory);
    }
}
