//! The sending direction.

use crate::RingError;
use crate::link::Link;
use ringway_mem::SpanMut;
use ringway_ring::{FRAGMENTS, MOREFRAG, Producer, Slot};
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
        let memory = &self.link.memory;
        if frame.len() > memory.slot_size() as usize {
            return self.push_pieces(frame, offload);
        }
        if self.producer.room(memory, 1)? == 0 {
            return Ok(false);
        }
        let old = self.producer.slot(memory, 0);
        let len = frame.len() as u16;
        let buffer = memory.buffer(old.buf_idx, u32::from(len)).ok_or(ringway_ring::Broken::Buffer)?;
        buffer.write(frame);
        self.set_slot(0, Slot { buf_idx: old.buf_idx, len, flags: 0, offload });
        self.producer.advance(1);
        Ok(true)
    }

    #[cold]
    fn push_pieces(&mut self, frame: &[u8], offload: [u8; 10]) -> Result<bool, RingError> {
        self.push_gathered(&[frame], offload)
    }

    /// As [`Tx::push_with`], for a frame that consists of `parts`.
    pub fn push_gathered(&mut self, parts: &[&[u8]], offload: [u8; 10]) -> Result<bool, RingError> {
        let size = self.link.memory.slot_size() as usize;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let slots = len.div_ceil(size);
        let most = FRAGMENTS.min(self.producer.slots() as usize);
        if slots > most {
            return Err(RingError::TooLong { len, most: most * size });
        }
        if (self.room(slots as u32)? as usize) < slots {
            return Ok(false);
        }
        let mut parts = parts.iter().copied();
        let mut part: &[u8] = &[];
        for ahead in 0..slots {
            let buf_idx = self.slot(ahead as u32).buf_idx;
            let len = size.min(len - ahead * size);
            let mut buffer = self.buffer(buf_idx, len as u32).ok_or(ringway_ring::Broken::Buffer)?;
            while !buffer.is_empty() {
                if part.is_empty() {
                    let Some(next) = parts.next() else { break };
                    part = next;
                }
                let written = buffer.write(part);
                (part, buffer) = (&part[written..], buffer.split(written).1);
            }
            let flags = if ahead + 1 < slots { MOREFRAG } else { 0 };
            let offload = if ahead == 0 { offload } else { [0; 10] };
            self.set_slot(ahead as u32, Slot { buf_idx, len: len as u16, flags, offload });
        }
        self.producer.advance(slots as u32);
        Ok(true)
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
