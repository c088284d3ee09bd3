//! What the targets of network cards have in common: a guest that accesses registers and memory as it likes.

use ringway_frame::{Burst, CountersRef, Offload, Storage};
use ringway_host::{Mapping, memfd};
use ringway_mem::{Hint, Memory, Region, Span};
use ringway_nic::{Area, Bus, Chip, Host, Model, Receive, Settings, Techniques, Transmit};
use std::sync::Arc;

/// One byte for the operation, one for its count, an offset, and a word to write there.
const STEP: usize = 14;
/// The guest's memory.
pub(crate) const BASE: u64 = 0x1000;
pub(crate) const LEN: usize = 0x8000;

/// Memory of this length, at an address of the guest.
pub(crate) fn region(guest: u64, len: usize) -> Option<Region> {
    let file = memfd("fuzz", len).ok()?;
    Some(Arc::new(Mapping::shared(&file, 0, len).ok()?).region_at(guest, guest))
}

/// Fills the guest's memory with zeros.
pub(crate) fn clear(memory: &Memory) {
    if let Some(span) = memory.span_mut(BASE, LEN as u32, &mut Hint::default()) {
        span.write(&[0; LEN]);
    }
}

/// A step of a target's input.
pub(crate) fn step(what: u8, count: u8, offset: u32, value: u64) -> Vec<u8> {
    [&[what, count][..], &offset.to_le_bytes(), &value.to_le_bytes()].concat()
}

/// What differs between cards.
pub(crate) struct Walk<N> {
    /// The area and the offset of an access to a register, from the operation and an offset.
    pub register: fn(u8, u32) -> (Area, u64),
    /// Bytes of a write, from its count.
    pub bytes: fn(usize) -> usize,
    /// Frames that the guest gets are multiples of this, and headers.
    pub unit: usize,
    /// An operation of its own, from the count, the offset, the word and the time.
    pub own: fn(&mut N, &Memory, usize, u32, &[u8], u64),
}

thread_local! {
    static MEMORY: Option<Memory> = region(BASE, LEN).and_then(|region| Memory::new(vec![region]).ok());
}

impl<N: Chip<Model = &'static Model>> Walk<N> {
    /// Runs a model without registers to map, with the techniques that the first byte of `data` selects.
    pub fn run_unmapped(&self, model: &'static Model, data: &[u8]) {
        let [bits, data @ ..] = data else { return };
        let on = |bit: u8| bits >> bit & 1 != 0;
        let techniques = Techniques {
            moderate: if on(0) { 50_000 } else { 0 },
            combine: if on(1) { 10_000 } else { 0 },
            batch: on(2),
            cached: on(3),
            ..Techniques::default()
        };
        MEMORY.with(|memory| {
            let Some(memory) = memory else { panic!("no memory: is memfd allowed?") };
            clear(memory);
            let settings = Settings { model, mac: [2, 0, 0, 0, 0, 1], techniques, link: true, pages: None };
            let Ok(nic) = N::new(settings) else { panic!("there is memory for headers") };
            self.run(nic, memory, &Memory::default(), data);
        });
    }
}

impl<N: Chip> Walk<N> {
    /// Runs the model and its engines while `data` is written to its registers and to `memory`; `pages`: registers that
    /// are mapped.
    pub fn run(&self, mut nic: N, memory: &Memory, pages: &Memory, data: &[u8]) {
        let (mut tx, mut rx) = N::engines(&CountersRef::private());
        let shared = nic.shared().clone();
        let none = Memory::default();
        let (mut now, mut is_mapped) = (1, true);
        for step in data.as_chunks::<STEP>().0 {
            let [what, count, o0, o1, o2, o3, value @ ..] = step;
            let offset = u32::from_le_bytes([*o0, *o1, *o2, *o3]);
            let count = usize::from(*count);
            let bus = Bus { shared: &*shared, memory: if is_mapped { memory } else { &none }, now };
            let mut storage = Storage::default();
            let mut burst = Burst::begin(&mut storage);
            let mut host = Host { now, quiesce: &mut || {}, memory: bus.memory };
            let (area, at) = (self.register)(*what, offset);
            match what % 8 {
                0 => drop(nic.write(area, at, &value[..(self.bytes)(count)], &mut host)),
                1 => drop(nic.write(Area::Config, offset.into(), value, &mut host)),
                2 => nic.read(Area::Bar(what / 8 % 6), at, &mut vec![0; count]),
                3 => {
                    let at = BASE + u64::from(offset) % LEN as u64;
                    let _ = memory.span_mut(at, 8, &mut Hint::default()).map(|span| span.write(value));
                }
                4 => {
                    let _ = tx.take(&bus, &mut burst);
                    let taken = burst.len();
                    for frame in 0..taken {
                        let len = burst.meta(frame).len as usize;
                        assert_eq!(burst.read(frame, 0, &mut vec![0; len]), len);
                    }
                    let _ = tx.release(&bus, taken.min(count));
                    let _ = tx.arm(&bus);
                }
                5 => (self.own)(&mut nic, pages, count, offset, value, now),
                // The client unmaps its memory, or maps it again.
                6 => is_mapped = !is_mapped,
                _ => {
                    let frame = vec![0xff; 14 + usize::from(*o0) * self.unit];
                    let which: Vec<u16> = (0..count as u16 % 65).collect();
                    for _ in &which {
                        let _ = burst.push(Offload::default(), Span::of(&frame));
                    }
                    let (room, _) = rx.reserve(&bus, &burst, &which[..burst.len()]);
                    assert!(room <= burst.len());
                    let _ = rx.put(&bus, &burst, &which[..room]);
                    let _ = rx.publish(&bus);
                    let _ = rx.end_turn(&bus);
                }
            }
            now += u64::from(*o1) << (what / 32);
        }
    }
}
