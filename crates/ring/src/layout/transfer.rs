//! Whole frames: copying them into and out of slots.

use super::memory::RingMemory;
use super::slot::{MOREFRAG, Slot};
use super::{Broken, Consumer, FRAGMENTS, Producer};
use ringway_mem::{Span, copy};

/// A received frame, copied to the program's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the frame that were copied.
    pub len: usize,
    /// Length of the frame in bytes.
    pub whole: usize,
    /// The first ten bytes of `virtio_net_hdr` (virtio 1.3, 5.1.6): the offloads left to this program, of
    /// those that it accepted.
    pub offload: [u8; 10],
}

/// Why a frame can't be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The other side violated the ring's rules.
    Broken(Broken),
    /// The frame needs more slots than a frame, or the ring, can have.
    TooLong {
        /// Length of the frame in bytes.
        len: usize,
        /// Largest possible length in bytes.
        most: usize,
    },
}

impl From<Broken> for PushError {
    fn from(broken: Broken) -> PushError {
        PushError::Broken(broken)
    }
}

impl Consumer {
    /// Bytes of the next frame; `None` if there is none.
    #[inline]
    pub fn frame_len(&mut self, memory: &RingMemory) -> Result<Option<usize>, Broken> {
        if self.available(memory, 1)? == 0 {
            return Ok(None);
        }
        let first = self.slot(memory, 0);
        let mut length = usize::from(first.len);
        if first.has_more() {
            let slots = self.available(memory, FRAGMENTS as u32)?.min(FRAGMENTS as u32);
            for ahead in 1..slots {
                let slot = self.slot(memory, ahead);
                length += usize::from(slot.len);
                if !slot.has_more() {
                    break;
                }
            }
        }
        Ok(Some(length))
    }

    /// Copies the next frame into `out` and advances; `None` if there is none. A frame longer than `out` is
    /// truncated, as [`Received::whole`] shows.
    #[inline]
    pub fn pop(&mut self, memory: &RingMemory, out: &mut [u8]) -> Result<Option<Received>, Broken> {
        if self.available(memory, 1)? == 0 {
            return Ok(None);
        }
        let slot = self.slot(memory, 0);
        if slot.has_more() {
            return self.pop_pieces(memory, slot, out);
        }
        let buffer = memory.buffer(slot.buf_idx, u32::from(slot.len)).ok_or(Broken::Buffer)?;
        let len = buffer.as_span().read(out);
        self.advance(1);
        Ok(Some(Received { len, whole: buffer.len(), offload: slot.offload }))
    }

    #[cold]
    fn pop_pieces(
        &mut self,
        memory: &RingMemory,
        first: Slot,
        out: &mut [u8],
    ) -> Result<Option<Received>, Broken> {
        let available = self.available(memory, FRAGMENTS as u32)?;
        let mut received = Received { offload: first.offload, ..Received::default() };
        let (mut slot, mut count) = (first, 0);
        loop {
            let buffer = memory.buffer(slot.buf_idx, u32::from(slot.len)).ok_or(Broken::Buffer)?;
            let rest = out.get_mut(received.len..).unwrap_or_default();
            received.len += buffer.as_span().read(rest);
            received.whole += buffer.len();
            count += 1;
            if !slot.has_more() {
                break;
            }
            // Attack: an endless frame. The other side publishes only whole frames.
            if count >= available.min(FRAGMENTS as u32) {
                return Err(Broken::Index);
            }
            slot = self.slot(memory, count);
        }
        self.advance(count);
        Ok(Some(received))
    }
}

impl Producer {
    /// Copies `frame` into the next slots, with offload metadata. `false`: there is no room now.
    #[inline]
    pub fn push(&mut self, memory: &RingMemory, frame: &[u8], offload: [u8; 10]) -> Result<bool, PushError> {
        if frame.len() > memory.slot_size() as usize {
            return self.push_pieces(memory, frame, offload);
        }
        if self.room(memory, 1)? == 0 {
            return Ok(false);
        }
        let old = self.slot(memory, 0);
        let len = frame.len() as u16;
        let buffer = memory.buffer(old.buf_idx, u32::from(len)).ok_or(Broken::Buffer)?;
        buffer.write(frame);
        self.write(memory, 0, Slot { buf_idx: old.buf_idx, len, flags: 0, offload });
        self.advance(1);
        Ok(true)
    }

    #[cold]
    fn push_pieces(
        &mut self,
        memory: &RingMemory,
        frame: &[u8],
        offload: [u8; 10],
    ) -> Result<bool, PushError> {
        self.push_gathered(memory, core::iter::once(Span::of(frame)), offload)
    }

    /// As [`Producer::push`], for a frame that consists of `parts`.
    pub fn push_gathered<'p>(
        &mut self,
        memory: &RingMemory,
        parts: impl Iterator<Item = Span<'p>> + Clone,
        offload: [u8; 10],
    ) -> Result<bool, PushError> {
        let size = memory.slot_size() as usize;
        let len: usize = parts.clone().map(|part| part.len()).sum();
        let slots = len.div_ceil(size);
        let most = FRAGMENTS.min(self.slots() as usize);
        if slots > most {
            return Err(PushError::TooLong { len, most: most * size });
        }
        if (self.room(memory, slots as u32)? as usize) < slots {
            return Ok(false);
        }
        let mut parts = parts;
        let mut part = Span::empty();
        for ahead in 0..slots {
            let buf_idx = self.slot(memory, ahead as u32).buf_idx;
            let len = size.min(len - ahead * size);
            let mut buffer = memory.buffer(buf_idx, len as u32).ok_or(Broken::Buffer)?;
            while !buffer.is_empty() {
                if part.is_empty() {
                    let Some(next) = parts.next() else { break };
                    part = next;
                }
                let written = copy(part, buffer);
                (part, buffer) = (part.split(written).1, buffer.split(written).1);
            }
            let flags = if ahead + 1 < slots { MOREFRAG } else { 0 };
            let offload = if ahead == 0 { offload } else { [0; 10] };
            self.write(memory, ahead as u32, Slot { buf_idx, len: len as u16, flags, offload });
        }
        self.advance(slots as u32);
        Ok(true)
    }
}
