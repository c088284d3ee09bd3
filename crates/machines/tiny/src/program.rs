//! A ring port as the device of a role.

use crate::link::{Link, LinkError, copy_in, copy_out};
use crate::settings::LONGEST;
use crate::slot_ring::SlotRing;
use ringway_mem::Region;
use ringway_ring::{Broken, Slot};

/// Slots ahead of the one in use whose buffers are prefetched: another core had them.
const AHEAD: u32 = 8;

/// The program's side of a ring port, or an end of a pipe.
#[derive(Debug)]
pub struct ProgramRing {
    ring: SlotRing,
    buffer: [u8; LONGEST],
}

impl ProgramRing {
    /// Attaches to the memory; `end` is 1 for a pipe's second end. A write to `doorbell` notifies the other side.
    pub fn new(region: Region, end: u64, doorbell: Region) -> Result<ProgramRing, LinkError> {
        Ok(ProgramRing { ring: SlotRing::new(region, end == 1, doorbell)?, buffer: [0; LONGEST] })
    }
}

impl Link for ProgramRing {
    fn send(
        &mut self,
        count: u32,
        len: usize,
        fill: &mut dyn FnMut(u32, &mut [u8]),
    ) -> Result<u32, LinkError> {
        let ProgramRing { ring: SlotRing { memory, tx, .. }, buffer } = self;
        // A frame longer than a slot is cut to the slot's size; one longer than the buffer is not sent.
        let Some(frame) = buffer.get_mut(..len.min(memory.slot_size() as usize)) else { return Ok(0) };
        let count = tx.room(memory, count)?.min(count);
        for position in 0..count {
            if position + AHEAD < count {
                memory.prefetch_buffer(tx.slot(memory, AHEAD).buf_idx);
            }
            fill(position, frame);
            let Slot { buf_idx, .. } = tx.slot(memory, 0);
            copy_in(frame, memory.buffer(buf_idx, frame.len() as u32).ok_or(Broken::Buffer)?);
            tx.renew(memory, 0, Slot { buf_idx, len: frame.len() as u16, ..Slot::default() });
            tx.advance(1);
        }
        Ok(count)
    }

    fn receive(&mut self, count: u32, each: &mut dyn FnMut(&[u8])) -> Result<u32, LinkError> {
        let ProgramRing { ring: SlotRing { memory, rx, .. }, buffer } = self;
        let count = rx.available(memory, count)?.min(count);
        for position in 0..count {
            if position + AHEAD < count {
                memory.prefetch_frame(rx.slot(memory, AHEAD).buf_idx);
            }
            let slot = rx.slot(memory, 0);
            let span = memory.buffer(slot.buf_idx, slot.len.into()).ok_or(Broken::Buffer)?;
            let len = copy_out(span.as_span(), buffer);
            each(buffer.get(..len).unwrap_or_default());
            rx.advance(1);
        }
        if memory.is_closed() {
            return Err(LinkError::Closed);
        }
        Ok(count)
    }

    fn publish(&mut self) -> u32 {
        self.ring.publish().into()
    }

    fn pending(&mut self) -> Result<u32, LinkError> {
        let SlotRing { memory, tx, .. } = &mut self.ring;
        let slots = tx.slots();
        Ok(slots - tx.room(memory, slots)?)
    }

    fn arm(&mut self, room: bool) -> Result<bool, LinkError> {
        let SlotRing { memory, tx, rx, .. } = &mut self.ring;
        if room && !tx.arm(memory, tx.slots() / 2)? {
            return Ok(false);
        }
        let armed = rx.arm(memory, 1)?;
        if !armed {
            tx.disarm(memory);
        }
        Ok(armed)
    }
}
