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

/// A part of a frame to send.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Bytes to copy.
    Bytes(Span<'a>),
    /// Bytes of a buffer that is in no slot; see [`RingMemory::lent`].
    Lent {
        /// Index of the buffer.
        buf_idx: u16,
        /// Where in it they begin. Other than 0 only behind other bytes of the frame, and only on a pipe.
        offset: u16,
        /// Their number.
        len: u16,
    },
}

/// Frames between the one that is copied and the one whose first cache line is fetched meanwhile. That line is in the
/// cache of the other side's core, and the copy of the frame would wait for it.
const AHEAD: u32 = 8;

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

    /// Number of slots of the next frame; `None` if there is none.
    #[inline]
    pub fn frame_slots(&mut self, memory: &RingMemory) -> Result<Option<u32>, Broken> {
        if self.available(memory, 1)? == 0 {
            return Ok(None);
        }
        let mut slots = 1;
        while self.slot(memory, slots - 1).has_more() {
            // Attack: an endless frame. The other side publishes only whole frames.
            if slots >= self.available(memory, slots + 1)?.min(FRAGMENTS as u32) {
                return Err(Broken::Index);
            }
            slots += 1;
        }
        Ok(Some(slots))
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
            return self.pop_pieces(memory, out);
        }
        if self.known() > AHEAD {
            memory.prefetch_frame(self.slot(memory, AHEAD).buf_idx);
        }
        let buffer = memory.buffer(slot.buf_idx, u32::from(slot.len)).ok_or(Broken::Buffer)?;
        let len = buffer.as_span().read(out);
        self.advance(1);
        Ok(Some(Received { len, whole: buffer.len(), offload: slot.offload }))
    }

    #[cold]
    fn pop_pieces(&mut self, memory: &RingMemory, out: &mut [u8]) -> Result<Option<Received>, Broken> {
        let (mut len, mut whole) = (0, 0);
        let frame = self.pieces(memory, |piece| {
            len += piece.read(out.get_mut(len..).unwrap_or_default());
            whole += piece.len();
        })?;
        let Some((offload, slots)) = frame else { return Ok(None) };
        self.advance(slots);
        Ok(Some(Received { len, whole, offload }))
    }

    /// Passes the pieces of the next frame to `each`; returns its offload metadata and the number of its slots, which
    /// stay until [`Consumer::advance`]. `None`: there is no frame. After an error the pieces are to be discarded.
    #[inline]
    pub fn pieces<'m>(
        &mut self,
        memory: &'m RingMemory,
        mut each: impl FnMut(Span<'m>),
    ) -> Result<Option<([u8; 10], u32)>, Broken> {
        if self.available(memory, 1)? == 0 {
            return Ok(None);
        }
        let mut slot = self.slot(memory, 0);
        let (offload, mut slots) = (slot.offload, 0);
        loop {
            let offset = if slots == 0 { 0 } else { slot.offset() };
            let end = u32::from(offset) + u32::from(slot.len);
            let buffer = memory.buffer(slot.buf_idx, end).ok_or(Broken::Buffer)?;
            each(buffer.as_span().split(offset.into()).1);
            slots += 1;
            if !slot.has_more() {
                return Ok(Some((offload, slots)));
            }
            // Attack: an endless frame. The other side publishes only whole frames.
            if slots >= self.available(memory, slots + 1)?.min(FRAGMENTS as u32) {
                return Err(Broken::Index);
            }
            slot = self.slot(memory, slots);
        }
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

    /// As [`Producer::push`], for a frame of which some parts are in buffers that belong to no slot: its slots name
    /// them, so that they are not copied. They must stay as they are until [`Producer::consumed`] has passed the frame.
    /// Only for a producer that never swaps the buffers of its slots, and pushes all frames so.
    pub fn push_parts<'p>(
        &mut self,
        memory: &RingMemory,
        parts: impl Iterator<Item = Part<'p>> + Clone,
        offload: [u8; 10],
    ) -> Result<bool, PushError> {
        let size = memory.slot_size() as usize;
        let (len, slots) = measure(parts.clone(), size);
        let most = FRAGMENTS.min(self.slots() as usize);
        if slots > most {
            return Err(PushError::TooLong { len, most: most * size });
        }
        if (self.room(memory, slots as u32)? as usize) < slots {
            return Ok(false);
        }
        let mut slot = Slot { flags: MOREFRAG, offload, ..Slot::default() };
        let (mut ahead, mut filled) = (0, 0);
        let mut end = |buf_idx: u16, offset: u16, len: u16| {
            let flags = if ahead + 1 < slots as u32 { MOREFRAG } else { 0 };
            self.write(memory, ahead, Slot { buf_idx, len, flags, ..slot }.at(offset));
            slot.offload = [0; 10];
            ahead += 1;
            ahead
        };
        let mut own = self.own_buffer(memory, 0);
        for part in parts {
            match part {
                Part::Lent { buf_idx, offset, len } => {
                    if filled > 0 {
                        end(own, 0, filled as u16);
                    }
                    (own, filled) = (self.own_buffer(memory, end(buf_idx, offset, len)), 0);
                }
                Part::Bytes(mut bytes) => {
                    while !bytes.is_empty() {
                        let buffer = memory.buffer(own, size as u32).ok_or(Broken::Buffer)?;
                        let written = copy(bytes, buffer.split(filled).1);
                        (bytes, filled) = (bytes.split(written).1, filled + written);
                        if filled == size {
                            (own, filled) = (self.own_buffer(memory, end(own, 0, size as u16)), 0);
                        }
                    }
                }
            }
        }
        if filled > 0 {
            end(own, 0, filled as u16);
        }
        self.advance(slots as u32);
        Ok(true)
    }

    /// The buffer that the slot `ahead` of the next one had at first.
    fn own_buffer(&self, memory: &RingMemory, ahead: u32) -> u16 {
        memory.own_buffer(self.ring(), self.next().wrapping_add(ahead))
    }
}

/// The length of a frame, and its slots: bytes to copy share slots until a lent buffer follows.
fn measure<'p>(parts: impl Iterator<Item = Part<'p>>, size: usize) -> (usize, usize) {
    let (mut len, mut slots, mut filled) = (0, 0, 0);
    for part in parts {
        match part {
            Part::Lent { len: count, .. } => {
                len += usize::from(count);
                slots += 1 + usize::from(filled > 0);
                filled = 0;
            }
            Part::Bytes(bytes) => {
                len += bytes.len();
                filled += bytes.len();
                slots += filled / size;
                filled %= size;
            }
        }
    }
    (len, slots + usize::from(filled > 0))
}
