//! The sending direction.

use crate::RingError;
use crate::shared::Shared;
use ringway_mem::{Span, SpanMut};
use ringway_ring::{Part, Producer, RingKind, RingMemory, Slot};
use std::ops::Range;
use std::sync::Arc;

/// The shortest part of a frame for which a slot of its own costs less than a copy.
const WORTH: usize = 1024;

/// The buffer that is named in place of copying a part of a frame, and where in it the part begins. A port's slots name
/// buffers from their begin on.
#[inline]
fn lent(memory: &RingMemory, span: Span<'_>) -> Option<(u16, u16)> {
    let lent = if span.len() < WORTH { None } else { memory.lent(span) };
    lent.filter(|(_, offset)| *offset == 0 || memory.kind() == RingKind::Pipe)
}

/// A buffer that belongs to no slot. It keeps the ring's memory.
#[derive(Debug)]
pub struct Lent {
    shared: Arc<Shared>,
    buf_idx: u16,
}

impl Lent {
    /// Its number.
    pub fn number(&self) -> u16 {
        self.buf_idx
    }

    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.shared.memory.slot_size() as usize
    }

    /// Its bytes. The other side may change them at any time.
    pub fn span(&self) -> Span<'_> {
        let buffer = self.shared.memory.buffer(self.buf_idx, self.shared.memory.slot_size());
        buffer.map_or(Span::empty(), SpanMut::as_span)
    }

    /// Copies bytes to its begin; how many had room.
    pub fn write(&self, bytes: &[u8]) -> usize {
        let buffer = self.shared.memory.buffer(self.buf_idx, self.shared.memory.slot_size());
        buffer.map_or(0, |buffer| buffer.write(bytes))
    }
}

/// The transmit ring. The other side sees frames after [`Tx::sync`].
#[derive(Debug)]
pub struct Tx {
    shared: Arc<Shared>,
    producer: Producer,
    /// The other side leaves each buffer in its slot, so that it is known which ones are free.
    fixed: bool,
}

impl Tx {
    pub(crate) fn new(shared: Arc<Shared>, ring: usize) -> Tx {
        let producer = Producer::new(&shared.memory, ring);
        let fixed = shared.memory.kind() != RingKind::Pipe;
        Tx { shared, producer, fixed }
    }

    /// Number of free slots, at least `wanted` if the ring has as many.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> Result<u32, RingError> {
        Ok(self.producer.room(&self.shared.memory, wanted)?)
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
        Ok(self.producer.push(&self.shared.memory, frame, offload)?)
    }

    /// As [`Tx::push_with`], for a frame that consists of `parts`.
    pub fn push_gathered<'p>(
        &mut self,
        parts: impl Iterator<Item = Span<'p>> + Clone,
        offload: [u8; 10],
    ) -> Result<bool, RingError> {
        Ok(self.producer.push_gathered(&self.shared.memory, parts, offload)?)
    }

    /// As [`Tx::push_gathered`], but the parts behind the first one that are in buffers of [`Tx::lend`], to a port from
    /// their begin on, are not copied. Such a buffer must not change until [`Tx::consumed`] has passed [`Tx::head`]
    /// after the call. All frames must be pushed so, and [`Tx::set_slot`] is not to be used. Everything is copied
    /// unless [`Tx::can_lend`].
    pub fn push_lent<'p>(
        &mut self,
        parts: impl Iterator<Item = Span<'p>> + Clone,
        offload: [u8; 10],
    ) -> Result<bool, RingError> {
        if !self.fixed {
            return self.push_gathered(parts, offload);
        }
        let memory = &self.shared.memory;
        let parts = parts.scan(false, |is_behind, span| {
            let lent = if *is_behind { lent(memory, span) } else { None };
            *is_behind |= !span.is_empty();
            Some(match lent {
                Some((buf_idx, offset)) => Part::Lent { buf_idx, offset, len: span.len() as u16 },
                None => Part::Bytes(span),
            })
        });
        Ok(self.producer.push_parts(memory, parts, offload)?)
    }

    /// Whether the other side leaves each buffer in its slot: a port does, and the other end of a pipe if it says so
    /// ([`crate::Rx::fix_buffers`]). Attack: it exchanges buffers nevertheless, or changes them; then it gets wrong
    /// frames itself, and nobody else does.
    pub fn can_lend(&mut self) -> bool {
        // Once only: buffers that were named must not be taken for those of slots later.
        self.fixed = self.fixed || self.producer.has_fixed_buffers(&self.shared.memory);
        self.fixed
    }

    /// The index up to which the other side has emptied slots, a free-running counter as [`Tx::head`].
    pub fn consumed(&mut self) -> Result<u32, RingError> {
        Ok(self.producer.consumed(&self.shared.memory)?)
    }

    /// The numbers of the buffers that belong to no slot at first: those of [`crate::RingOptions::extra`]. The two ends
    /// of a pipe have the same ones.
    pub fn extra(&self) -> Range<u16> {
        self.shared.memory.extra()
    }

    /// The number of the buffer of [`Tx::extra`] that [`Tx::push_lent`] names for a part of a frame, if it is not to be
    /// copied.
    #[inline]
    pub fn lent(&self, span: Span<'_>) -> Option<u16> {
        if self.fixed { lent(&self.shared.memory, span).map(|(number, _)| number) } else { None }
    }

    /// A buffer of [`Tx::extra`], to be named by frames; `None`: it is not one of them.
    pub fn lend(&self, buf_idx: u16) -> Option<Lent> {
        self.extra().contains(&buf_idx).then(|| Lent { shared: self.shared.clone(), buf_idx })
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
        self.producer.slot(&self.shared.memory, ahead)
    }

    /// Writes the slot `ahead` of the next one, `ahead` being less than [`Tx::room`]. It may name a different
    /// buffer than before, so that no copy is needed.
    #[inline]
    pub fn set_slot(&mut self, ahead: u32, slot: Slot) {
        self.producer.write(&self.shared.memory, ahead, slot);
    }

    /// The first `len` bytes of a buffer; `None` if the buffer does not exist or is shorter.
    #[inline]
    pub fn buffer(&self, buf_idx: u16, len: u32) -> Option<SpanMut<'_>> {
        self.shared.memory.buffer(buf_idx, len)
    }

    /// Advances over the next `slots` slots.
    #[inline]
    pub fn advance(&mut self, slots: u32) {
        self.producer.advance(slots);
    }

    /// Publishes the filled slots, and notifies the other side if it asked for that.
    #[inline]
    pub fn sync(&mut self) -> Result<(), RingError> {
        if self.producer.publish(&self.shared.memory) {
            self.shared.kick();
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
        Ok(self.producer.arm(&self.shared.memory, slots)?)
    }

    pub(crate) fn disarm(&mut self) {
        self.producer.disarm(&self.shared.memory);
    }
}
