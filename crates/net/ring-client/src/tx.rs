//! The sending direction.

use crate::RingError;
use crate::link::Link;
use ringway_mem::{Span, SpanMut};
use ringway_ring::{Part, Producer, RingKind, RingMemory, Slot};
use std::ops::Range;
use std::sync::Arc;

/// The shortest part of a frame for which a slot of its own costs less than a copy.
const WORTH: usize = 1024;

/// The buffer that is named in place of copying a part of a frame.
#[inline]
fn lent(memory: &RingMemory, span: Span<'_>) -> Option<u16> {
    if span.len() < WORTH { None } else { memory.lent(span) }
}

/// A buffer that belongs to no slot. It keeps the ring's memory.
#[derive(Debug)]
pub struct Lent {
    link: Arc<Link>,
    buf_idx: u16,
}

impl Lent {
    /// Its number.
    pub fn number(&self) -> u16 {
        self.buf_idx
    }

    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.link.memory.slot_size() as usize
    }

    /// Its bytes. The other side may change them at any time.
    pub fn span(&self) -> Span<'_> {
        let buffer = self.link.memory.buffer(self.buf_idx, self.link.memory.slot_size());
        buffer.map_or(Span::empty(), SpanMut::as_span)
    }

    /// Copies bytes to its begin; how many had room.
    pub fn write(&self, bytes: &[u8]) -> usize {
        let buffer = self.link.memory.buffer(self.buf_idx, self.link.memory.slot_size());
        buffer.map_or(0, |buffer| buffer.write(bytes))
    }
}

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

    /// As [`Tx::push_gathered`], but parts that are in buffers of [`Tx::lend`] from their begin on are not copied. Such
    /// a buffer must not change until [`Tx::consumed`] has passed [`Tx::head`] after the call. All frames must be
    /// pushed so, and [`Tx::set_slot`] is not to be used. On a pipe everything is copied: its other end may exchange
    /// the buffers of slots, so that it is not known which ones are free.
    pub fn push_lent<'p>(
        &mut self,
        parts: impl Iterator<Item = Span<'p>> + Clone,
        offload: [u8; 10],
    ) -> Result<bool, RingError> {
        let memory = &self.link.memory;
        if memory.kind() == RingKind::Pipe {
            return self.push_gathered(parts, offload);
        }
        let parts = parts.map(|span| match lent(memory, span) {
            Some(buf_idx) => Part::Lent { buf_idx, len: span.len() as u16 },
            None => Part::Bytes(span),
        });
        Ok(self.producer.push_parts(memory, parts, offload)?)
    }

    /// The index up to which the other side has emptied slots, a free-running counter as [`Tx::head`].
    pub fn consumed(&mut self) -> Result<u32, RingError> {
        Ok(self.producer.consumed(&self.link.memory)?)
    }

    /// The numbers of the buffers that belong to no slot at first: those of [`crate::RingOptions::extra`].
    pub fn extra(&self) -> Range<u16> {
        self.link.memory.extra()
    }

    /// The number of the buffer of [`Tx::extra`] that [`Tx::push_lent`] names for a part of a frame, if it is not to be
    /// copied.
    #[inline]
    pub fn lent(&self, span: Span<'_>) -> Option<u16> {
        if self.link.memory.kind() == RingKind::Pipe { None } else { lent(&self.link.memory, span) }
    }

    /// A buffer of [`Tx::extra`], to be named by frames; `None`: it is not one of them.
    pub fn lend(&self, buf_idx: u16) -> Option<Lent> {
        self.extra().contains(&buf_idx).then(|| Lent { link: self.link.clone(), buf_idx })
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
