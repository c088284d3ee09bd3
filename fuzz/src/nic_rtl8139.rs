//! An RTL8139C+ whose guest writes registers and memory as it likes.

use ringway_frame::{Burst, CountersRef, Offload, Storage};
use ringway_host::{Mapping, memfd};
use ringway_mem::{Hint, Memory, Span};
use ringway_nic::rtl8139::{MODEL, Nic, registers as reg};
use ringway_nic::{Area, Bus, Chip, Host, Receive, Settings, Techniques, Transmit};
use std::sync::Arc;

/// One byte for the operation, one for its count, an offset, and a word to write there.
const STEP: usize = 14;
/// The guest's memory.
const BASE: u64 = 0x1000;
const LEN: usize = 0x8000;

thread_local! {
    static MEMORY: Option<Memory> = memory();
}

fn memory() -> Option<Memory> {
    let file = memfd("fuzz", LEN).ok()?;
    let region = Arc::new(Mapping::shared(&file, 0, LEN).ok()?).region_at(BASE, BASE);
    Memory::new(vec![region]).ok()
}

/// Runs the model and its engines while `data` is written to its registers and memory.
pub fn run(data: &[u8]) {
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
        if let Some(span) = memory.span_mut(BASE, LEN as u32, &mut Hint::default()) {
            span.write(&[0; LEN]);
        }
        let mac = [2, 0, 0, 0, 0, 1];
        let settings = Settings { model: &MODEL, mac, techniques, link: true, pages: None };
        let Ok(nic) = Nic::new(settings) else { panic!("there is memory for headers") };
        steps(nic, memory, data);
    });
}

fn steps(mut nic: Nic, memory: &Memory, data: &[u8]) {
    let (mut tx, mut rx) = Nic::engines(&CountersRef::private());
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
        match what % 8 {
            0 => drop(nic.write(Area::Bar(1), (offset % 0x110).into(), &value[..1 + count % 8], &mut host)),
            1 => drop(nic.write(Area::Config, offset.into(), value, &mut host)),
            2 => nic.read(Area::Bar(what / 8 % 6), (offset % 0x110).into(), &mut vec![0; count]),
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
            5 => drop(nic.set_link(count & 1 != 0, now)),
            // The client unmaps its memory, or maps it again.
            6 => is_mapped = !is_mapped,
            _ => {
                let frame = vec![0xff; 14 + usize::from(*o0) * 33];
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

/// A driver that starts both rings, sends a frame and receives some; the same with a checksum, and with segmentation.
pub fn seeds() -> Vec<Vec<u8>> {
    let step = |what: u8, count: u8, offset: u32, value: u64| {
        let mut step = vec![what, count];
        step.extend_from_slice(&offset.to_le_bytes());
        step.extend_from_slice(&value.to_le_bytes());
        step
    };
    // So many bytes, less one.
    let write = |offset: u32, more: u8, value: u64| step(0, more, offset, value);
    let memory = |at: u64, value: u64| step(3, 0, (at - BASE) as u32, value);
    let (tx, rx, buffer) = (BASE, BASE + 0x400, BASE + 0x1000);
    let receive = (0..4).flat_map(|number| {
        let (at, end) = (rx + 16 * number, if number == 3 { 1 << 30 } else { 0 });
        [memory(at, 1 << 31 | end | 0x600), memory(at + 8, buffer + 0x800 * number)]
    });
    let start = [
        vec![step(1, 0, 4, 7), write(reg::CPCR, 1, 0x6b)],
        vec![write(reg::RDSAR, 7, rx), write(reg::TNPDS, 7, tx)],
        receive.collect(),
        vec![write(reg::CR, 0, 0x0c), write(reg::RCR, 3, 0xf), write(reg::IMR, 1, 0xffff)],
        vec![memory(buffer, 0x0002_0100_0000_0002), memory(buffer + 8, 0x0045_0008_0100_0000)],
        vec![memory(buffer + 16, 0x0640_0040_0000_0000), memory(buffer + 40, 0x1050_0000_0000_0000)],
    ];
    let start = start.concat().concat();
    let dump = write(reg::DTCCR, 7, BASE | 8);
    let serve = [write(reg::TPPOLL, 0, 0x40), step(4, 9, 0, 0), step(7, 3, 20, 0), dump].concat();
    let seed = |bits: u8, first: u64, second: u64| {
        let frame = [memory(tx + 8, buffer), memory(tx + 24, buffer + 0x100)];
        let words = [memory(tx + 16, second), memory(tx, first)];
        [&[bits][..], &start, &frame.concat(), &words.concat(), &serve, &step(6, 0, 0, 0), &serve].concat()
    };
    let (own, first, last) = (1 << 31, 1 << 29, 1 << 28);
    vec![
        seed(4, own | first | last | 60, own | 1 << 30),
        seed(0, own | first | 7 << 16 | 100, own | last | 1 << 30 | 400),
        seed(15, own | first | 1 << 27 | 500 << 16 | 800 | 1 << 49, own | last | 1 << 30 | 900),
    ]
}
