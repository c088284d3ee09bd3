//! The shared ring, with a program that writes arbitrary data anywhere in it at any time.

use ringway_host::{Mapping, memfd};
use ringway_mem::{Hint, Memory};
use ringway_ring::{Consumer, Geometry, Hello, Producer, RX, RingMemory, SLOTS_MAX, TX, Welcome};
use std::sync::Arc;

/// One byte for the operation, followed by an offset and a word to write there.
const STEP: usize = 12;

thread_local! {
    static MEMORY: Option<Memory> = memory();
}

fn geometry() -> Geometry {
    Geometry { slots: [64, 64], slot_size: 128, extra: 8, ..Geometry::default() }
}

fn memory() -> Option<Memory> {
    let bytes = geometry().header().ok()?.bytes as usize;
    let mapping = Mapping::shared(memfd("fuzz", bytes).ok()?, 0, bytes).ok()?;
    Memory::new(vec![Arc::new(mapping).region()]).ok()
}

/// Attaches to a ring and uses it while `data` is written to it.
pub fn run(data: &[u8]) {
    if let Some(hello) = data.first_chunk().and_then(|bytes| Hello::from_bytes(bytes).ok()) {
        assert_eq!(Hello::from_bytes(&hello.to_bytes()).as_ref(), Ok(&hello));
    }
    if let Some(welcome) = data.first_chunk().and_then(|bytes| Welcome::from_bytes(bytes).ok()) {
        let _ = welcome.end();
    }
    MEMORY.with(|memory| {
        let Some(memory) = memory else { panic!("no memory for a ring: is /dev/shm allowed?") };
        steps(memory, data);
    });
}

/// Our end of a ring.
struct Ends {
    consumer: Consumer,
    producer: Producer,
}

impl Ends {
    /// Consumes filled slots and reads every byte of them. `None`: the other side violated the rules.
    fn take(&mut self, ring: &RingMemory, count: u32) -> Option<()> {
        let available = self.consumer.available(ring, count).ok()?;
        assert!(available <= self.consumer.slots(), "more slots are filled than exist");
        for ahead in 0..available {
            let slot = self.consumer.slot(ring, ahead);
            let Some(buffer) = ring.buffer(slot.buf_idx, slot.len.into()) else { continue };
            assert!(buffer.len() <= ring.slot_size() as usize);
            buffer.as_span().read(&mut [0; 128]);
        }
        self.consumer.advance(available.min(count));
        self.consumer.publish(ring);
        Some(())
    }

    /// Fills free slots.
    fn put(&mut self, ring: &RingMemory, count: u32) -> Option<()> {
        let room = self.producer.room(ring, count).ok()?;
        assert!(room <= self.producer.slots(), "more slots are free than exist");
        for ahead in 0..room.min(count) {
            let mut slot = self.producer.slot(ring, ahead);
            if let Some(buffer) = ring.buffer(slot.buf_idx, 128) {
                slot.len = buffer.write(&[ahead as u8; 128]) as u16;
            }
            self.producer.write(ring, ahead, slot);
        }
        self.producer.advance(room.min(count));
        self.producer.publish(ring);
        Some(())
    }
}

fn steps(memory: &Memory, data: &[u8]) {
    let mut hint = Hint::default();
    let Some(region) = memory.regions().first() else { return };
    let write = |offset: u64, bytes: &[u8], hint: &mut Hint| {
        if let Some(span) = memory.span_mut(offset % region.len, bytes.len() as u32, hint) {
            span.write(bytes);
        }
    };
    for page in 0..region.len / 4096 {
        write(page * 4096, &[0; 4096], &mut hint);
    }
    let Ok(ring) = RingMemory::create(region.clone(), &geometry()) else { panic!("no ring") };
    let mut ends = Ends { consumer: Consumer::new(&ring, TX), producer: Producer::new(&ring, RX) };
    for step in data.as_chunks::<STEP>().0 {
        let [what, count, o0, o1, value @ ..] = step;
        let (count, offset) = (u32::from(*count) % 80, u16::from_le_bytes([*o0, *o1]));
        let done = match what % 8 {
            0 => ends.take(&ring, count),
            1 => ends.put(&ring, count),
            2 => ends.consumer.arm(&ring, count).ok().map(|_| ()),
            3 => ends.producer.arm(&ring, count).ok().map(|_| ()),
            4 => {
                ends.consumer.disarm(&ring);
                ends.producer.disarm(&ring);
                Some(())
            }
            5 => {
                if let Ok(other) = RingMemory::attach(region.clone()) {
                    assert!(other.slots(TX) <= SLOTS_MAX && other.slots(RX) <= SLOTS_MAX);
                    let last = other.buffer(u16::from_le_bytes([*o0, *o1]), other.slot_size());
                    last.map(|buffer| buffer.as_span().read(&mut [0; 128]));
                }
                Some(())
            }
            _ => {
                write(u64::from(offset) & !7, value, &mut hint);
                Some(())
            }
        };
        if done.is_none() {
            return;
        }
    }
}

/// A program that sends and receives a few frames.
pub fn seeds() -> Vec<Vec<u8>> {
    let step = |what: u8, count: u8, offset: u16, value: u64| {
        let mut step = vec![what, count];
        step.extend_from_slice(&offset.to_le_bytes());
        step.extend_from_slice(&value.to_le_bytes());
        step
    };
    let Ok(header) = geometry().header() else { return Vec::new() };
    let slots = header.slots_at[TX] as u16;
    // The indices are in the first pages; each of their cache lines is set once.
    let indices = (0..8).map(|line| step(7, 0, 128 * line, 3)).collect::<Vec<_>>().concat();
    let frame = step(7, 0, slots, 60 << 16 | 1);
    vec![
        [step(5, 0, 0, 0), step(2, 1, 0, 0), frame, indices, step(0, 16, 0, 0), step(1, 16, 0, 0)].concat(),
        [step(1, 64, 0, 0), step(3, 1, 0, 0), step(4, 0, 0, 0), step(7, 0, 0, 1), step(5, 0, 0, 0)].concat(),
        [step(7, 0, 64, 128), step(5, 1, 7, 0), step(1, 3, 0, 0), step(0, 3, 0, 0)].concat(),
    ]
}
