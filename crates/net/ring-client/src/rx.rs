//! The receiving direction.

use crate::RingError;
use crate::shared::Shared;
use arrayvec::ArrayVec;
use ringway_mem::{Span, SpanMut};
use ringway_ring::{Consumer, FRAGMENTS, Received, Slot};
use std::sync::Arc;

/// A received frame in the ring's memory.
#[derive(Clone, Debug)]
pub struct Taken<'a> {
    /// Its bytes, in pieces.
    pub pieces: ArrayVec<Span<'a>, FRAGMENTS>,
    /// As [`Received::offload`].
    pub offload: [u8; 10],
}

/// The receive ring. Slots are returned by [`Rx::sync`].
#[derive(Debug)]
pub struct Rx {
    shared: Arc<Shared>,
    consumer: Consumer,
}

impl Rx {
    pub(crate) fn new(shared: Arc<Shared>, ring: usize) -> Rx {
        let consumer = Consumer::new(&shared.memory, ring);
        Rx { shared, consumer }
    }

    /// Number of filled slots, at least `wanted` if the ring has as many.
    #[inline]
    pub fn available(&mut self, wanted: u32) -> Result<u32, RingError> {
        Ok(self.consumer.available(&self.shared.memory, wanted)?)
    }

    /// Copies the next frame into `out` and advances; `None` if there is none. A frame longer than `out` is
    /// truncated, as [`Received::whole`] shows.
    #[inline]
    pub fn pop(&mut self, out: &mut [u8]) -> Result<Option<Received>, RingError> {
        Ok(self.consumer.pop(&self.shared.memory, out)?)
    }

    /// Bytes of the next frame; `None` if there is none.
    #[inline]
    pub fn frame_len(&mut self) -> Result<Option<usize>, RingError> {
        Ok(self.consumer.frame_len(&self.shared.memory)?)
    }

    /// Advances over the next frame, and lends its memory: its slots are returned by the next [`Rx::sync`]. Its bytes
    /// may change at any time until then.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Taken<'_>>, RingError> {
        let mut pieces = ArrayVec::new();
        let frame = self.consumer.pieces(&self.shared.memory, |piece| pieces.push(piece))?;
        let Some((offload, slots)) = frame else { return Ok(None) };
        self.consumer.advance(slots);
        Ok(Some(Taken { pieces, offload }))
    }

    /// The slot `ahead` of the next one, `ahead` being less than [`Rx::available`].
    #[inline]
    pub fn slot(&self, ahead: u32) -> Slot {
        self.consumer.slot(&self.shared.memory, ahead)
    }

    /// Number of slots of the next frame; `None` if there is none.
    #[inline]
    pub fn frame_slots(&mut self) -> Result<Option<u32>, RingError> {
        Ok(self.consumer.frame_slots(&self.shared.memory)?)
    }

    /// Writes the slot `ahead` of the next one, `ahead` being less than [`Rx::available`]. It may name a different
    /// buffer than before, so that the frame's stays this program's.
    #[inline]
    pub fn set_slot(&mut self, ahead: u32, slot: Slot) {
        self.consumer.write(&self.shared.memory, ahead, slot);
    }

    /// Leaves buffer `buf_idx` in the slot `ahead` of the next one, in exchange for the one there; returns that slot.
    #[inline]
    pub fn swap(&mut self, ahead: u32, buf_idx: u16) -> Slot {
        self.consumer.swap(&self.shared.memory, ahead, buf_idx)
    }

    /// Promises the other end of a pipe that this program leaves each buffer in its slot: it has not called
    /// [`Rx::swap`] and will not. The other end can then send from buffers that belong to no slot
    /// ([`Tx::push_lent`]).
    pub fn fix_buffers(&mut self) {
        self.consumer.fix_buffers(&self.shared.memory);
    }

    /// The first `len` bytes of a buffer; `None` if the buffer does not exist or is shorter.
    #[inline]
    pub fn buffer(&self, buf_idx: u16, len: u32) -> Option<SpanMut<'_>> {
        self.shared.memory.buffer(buf_idx, len)
    }

    /// Passes over the next `slots` slots.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        self.consumer.advance(slots);
    }

    /// Releases the consumed slots, and notifies the other side if it asked for that.
    #[inline]
    pub fn sync(&mut self) -> Result<(), RingError> {
        if self.consumer.publish(&self.shared.memory) {
            self.shared.kick();
        }
        Ok(())
    }

    /// Slots of the ring.
    pub fn slots(&self) -> u32 {
        self.consumer.slots()
    }

    /// netmap's `head`: index of the next slot to empty, a free-running 32-bit counter.
    pub fn head(&self) -> u32 {
        self.consumer.next()
    }

    pub(crate) fn arm(&mut self, slots: u32) -> Result<bool, RingError> {
        Ok(self.consumer.arm(&self.shared.memory, slots)?)
    }

    pub(crate) fn disarm(&mut self) {
        self.consumer.disarm(&self.shared.memory);
    }
}
