//! A ring port, whose memory is a part of the guest's.

use crate::link::{Link, LinkError, copy_in, copy_out, keep};
use crate::settings::LONGEST;
use ringway_mem::{Kept, Region, Words};
use ringway_ring::{Broken, Consumer, Producer, RX, RingMemory, Slot, TX};

/// Slots ahead of the one in use whose buffers are prefetched: another core had them.
const AHEAD: u32 = 8;

/// The program's side of a ring port, or an end of a pipe.
#[derive(Debug)]
pub struct ProgramRing {
    memory: RingMemory,
    tx: Producer,
    rx: Consumer,
    buffer: [u8; LONGEST],
    /// A write to it notifies the other side.
    doorbell: Kept,
}

impl ProgramRing {
    /// Attaches to the memory; `end` is 1 for a pipe's second end. A write to `doorbell` notifies the other side.
    pub fn new(region: Region, end: u64, doorbell: Region) -> Result<ProgramRing, LinkError> {
        let doorbell = keep(doorbell).ok_or(LinkError::Layout)?;
        let memory = RingMemory::attach(region).map_err(|_| LinkError::Layout)?;
        let [tx, rx] = if end == 1 { [RX, TX] } else { [TX, RX] };
        let (tx, rx) = (Producer::new(&memory, tx), Consumer::new(&memory, rx));
        Ok(ProgramRing { memory, tx, rx, buffer: [0; LONGEST], doorbell })
    }
}

impl Link for ProgramRing {
    fn send(
        &mut self,
        count: u32,
        len: usize,
        fill: &mut dyn FnMut(u32, &mut [u8]),
    ) -> Result<u32, LinkError> {
        let ProgramRing { memory, tx, buffer, .. } = self;
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
            tx.write(memory, 0, Slot { buf_idx, len: frame.len() as u16, ..Slot::default() });
            tx.advance(1);
        }
        Ok(count)
    }

    fn receive(&mut self, count: u32, each: &mut dyn FnMut(&[u8])) -> Result<u32, LinkError> {
        let ProgramRing { memory, rx, buffer, .. } = self;
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
        if self.memory.is_closed() {
            return Err(LinkError::Closed);
        }
        Ok(count)
    }

    fn publish(&mut self) -> u32 {
        let sent = self.tx.publish(&self.memory);
        let wanted = self.rx.publish(&self.memory) | sent;
        if wanted && let Some(doorbell) = Words::<u32>::new(self.doorbell.span()) {
            doorbell.store(0, 1);
        }
        wanted.into()
    }

    fn pending(&mut self) -> Result<u32, LinkError> {
        let slots = self.tx.slots();
        Ok(slots - self.tx.room(&self.memory, slots)?)
    }

    fn arm(&mut self, room: bool) -> Result<bool, LinkError> {
        if room && !self.tx.arm(&self.memory, self.tx.slots() / 2)? {
            return Ok(false);
        }
        let armed = self.rx.arm(&self.memory, 1)?;
        if !armed {
            self.tx.disarm(&self.memory);
        }
        Ok(armed)
    }
}
