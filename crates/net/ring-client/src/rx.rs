//! The receiving direction.

use crate::RingError;
use crate::link::Link;
use arrayvec::ArrayVec;
use ringway_mem::{Span, SpanMut};
use ringway_ring::{Broken, Consumer, FRAGMENTS, Received, Slot};
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
    link: Arc<Link>,
    consumer: Consumer,
}

impl Rx {
    pub(crate) fn new(link: Arc<Link>, ring: usize) -> Rx {
        let consumer = Consumer::new(&link.memory, ring);
        Rx { link, consumer }
    }

    /// Number of filled slots, at least `wanted` if the ring has as many.
    #[inline]
    pub fn available(&mut self, wanted: u32) -> Result<u32, RingError> {
        Ok(self.consumer.available(&self.link.memory, wanted)?)
    }

    /// Copies the next frame into `out` and advances; `None` if there is none. A frame longer than `out` is
    /// truncated, as [`Received::whole`] shows.
    #[inline]
    pub fn pop(&mut self, out: &mut [u8]) -> Result<Option<Received>, RingError> {
        Ok(self.consumer.pop(&self.link.memory, out)?)
    }

    /// Bytes of the next frame; `None` if there is none.
    #[inline]
    pub fn frame_len(&mut self) -> Result<Option<usize>, RingError> {
        Ok(self.consumer.frame_len(&self.link.memory)?)
    }

    /// Advances over the next frame, and lends its memory: its slots are returned by the next [`Rx::sync`]. Its bytes
    /// may change at any time until then.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Taken<'_>>, RingError> {
        let memory = &self.link.memory;
        let available = self.consumer.available(memory, FRAGMENTS as u32)?;
        if available == 0 {
            return Ok(None);
        }
        let mut slot = self.consumer.slot(memory, 0);
        let (offload, mut pieces) = (slot.offload, ArrayVec::<Span<'_>, FRAGMENTS>::new());
        loop {
            let buffer = memory.buffer(slot.buf_idx, u32::from(slot.len)).ok_or(Broken::Buffer)?;
            pieces.push(buffer.as_span());
            if !slot.has_more() {
                break;
            }
            // Attack: an endless frame. The other side publishes only whole frames.
            if pieces.len() as u32 >= available.min(FRAGMENTS as u32) {
                return Err(Broken::Index.into());
            }
            slot = self.consumer.slot(memory, pieces.len() as u32);
        }
        self.consumer.advance(pieces.len() as u32);
        Ok(Some(Taken { pieces, offload }))
    }

    /// The slot `ahead` of the next one, `ahead` being less than [`Rx::available`].
    #[inline]
    pub fn slot(&self, ahead: u32) -> Slot {
        self.consumer.slot(&self.link.memory, ahead)
    }

    /// Leaves buffer `buf_idx` in the slot `ahead` of the next one, in exchange for the one there; returns that slot.
    #[inline]
    pub fn swap(&mut self, ahead: u32, buf_idx: u16) -> Slot {
        self.consumer.swap(&self.link.memory, ahead, buf_idx)
    }

    /// The first `len` bytes of a buffer; `None` if the buffer does not exist or is shorter.
    #[inline]
    pub fn buffer(&self, buf_idx: u16, len: u32) -> Option<SpanMut<'_>> {
        self.link.memory.buffer(buf_idx, len)
    }

    /// Passes over the next `slots` slots.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        self.consumer.advance(slots);
    }

    /// Releases the consumed slots, and notifies the other side if it asked for that.
    #[inline]
    pub fn sync(&mut self) -> Result<(), RingError> {
        if self.consumer.publish(&self.link.memory) {
            self.link.kick();
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
        Ok(self.consumer.arm(&self.link.memory, slots)?)
    }

    pub(crate) fn disarm(&mut self) {
        self.consumer.disarm(&self.link.memory);
    }
}
