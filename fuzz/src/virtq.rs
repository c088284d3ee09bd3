//! Virtqueues, with a driver that writes arbitrary data anywhere in shared memory at any time.

use ringway_host::{Mapping, memfd};
use ringway_mem::{Direct, Hint, Memory, Span, SpanMut};
use ringway_virtq::{Areas, Cursor, Fill, Layout, Ring, RxDevice, RxHeader, TxDevice, Verdict};
use std::sync::Arc;

/// One byte for the operation, followed by an offset and a word to write there.
const STEP: usize = 12;
/// Guest-physical addresses of the two regions, which are not adjacent.
const REGIONS: [u64; 2] = [0, 0x4000];
/// Bytes of each region.
const LEN: u64 = 0x2000;
/// Offsets of the rings: a transmit and a receive ring.
const RINGS: [u64; 2] = [0, 0x800];

thread_local! {
    static MEMORY: Option<Memory> = memory();
}

fn memory() -> Option<Memory> {
    let file = memfd("fuzz", 2 * LEN as usize).ok()?;
    let region = |number: usize| {
        let mapping = Mapping::shared(&file, number as u64 * LEN, LEN as usize).ok()?;
        Some(Arc::new(mapping).region_at(REGIONS[number], REGIONS[number]))
    };
    Memory::new(vec![region(0)?, region(1)?]).ok()
}

fn layout(what: u8) -> Layout {
    let packed = what & 1 != 0;
    let size = [8, 16, if packed { 5 } else { 4 }, 32][usize::from(what >> 3 & 3)];
    Layout { packed, size, event_idx: what & 2 != 0, indirect: what & 4 != 0 }
}

/// A ring with consecutive areas from `at`.
fn ring<'t>(memory: &'t Memory, layout: &Layout, at: u64) -> Option<Ring<'t>> {
    let lengths = layout.lengths().ok()?;
    let driver = at + u64::from(lengths.descriptors);
    let device = (driver + u64::from(lengths.driver)).next_multiple_of(4);
    let span = |at, len| memory.span_mut(at, len, &mut Hint::default());
    let areas = Areas {
        descriptors: span(at, lengths.descriptors)?,
        driver: span(driver, lengths.driver)?,
        device: span(device, lengths.device)?,
    };
    Ring::new(layout, areas).ok()
}

/// Fills buffers, and counts the calls.
#[derive(Default)]
struct Ones(usize);

impl Fill for Ones {
    fn whole(&mut self, frame: usize, to: SpanMut<'_>) {
        self.begin(frame, 1);
        self.part(to);
    }

    fn begin(&mut self, _frame: usize, _buffers: u16) {
        self.0 = 0;
    }

    fn part(&mut self, to: SpanMut<'_>) {
        self.0 += to.write(&vec![0xff; to.len()]);
        assert!(self.0 <= 1 << 16, "a frame is filled with more than was asked for");
    }

    fn lost(&mut self, _frame: usize) {}
}

/// Runs both device sides while `data` is written to the memory.
pub fn run(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else { return };
    MEMORY.with(|memory| {
        let Some(memory) = memory else { panic!("no memory for rings: is memfd allowed?") };
        let zeros = vec![0; LEN as usize];
        for region in REGIONS {
            let _ = memory.span_mut(region, LEN as u32, &mut Hint::default()).map(|span| span.write(&zeros));
        }
        steps(memory, &layout(first), first & 0x20 != 0, data);
    });
}

fn steps(memory: &Memory, layout: &Layout, in_order: bool, data: &[u8]) {
    let [Some(tx_ring), Some(rx_ring)] = RINGS.map(|at| ring(memory, layout, at)) else {
        panic!("no rings of {layout:?}");
    };
    let start = Cursor { index: 0, wrap: layout.packed };
    let mut tx = TxDevice::new(start, start).in_order(in_order);
    let mut rx = RxDevice::new(start, start);
    let mut hint = Hint::default();
    for step in data.as_chunks::<STEP>().0 {
        let [what, count, o0, o1, value @ ..] = step;
        let count = usize::from(*count) % 80;
        let broken = match what % 4 {
            0 => {
                let mut shown = 0;
                let result =
                    tx.peek(&tx_ring, &mut Direct::new(memory, &mut hint), count, |parts: &[Span<'_>]| {
                        shown += 1;
                        parts.iter().for_each(|part| {
                            part.read(&mut [0; 256]);
                        });
                        if what & 8 != 0 && shown % 2 == 0 { Verdict::Skip } else { Verdict::Take }
                    });
                assert!(shown <= count);
                tx.release(&tx_ring, shown / (1 + usize::from(what >> 4 & 1)));
                if !tx.may_hold(&tx_ring, shown) {
                    tx.publish(&tx_ring);
                }
                result.is_err()
            }
            1 => {
                let rx_header = RxHeader { mergeable: what & 8 != 0, header: 12 };
                let mut direct = Direct::new(memory, &mut hint);
                let lens = (0..count % 65).map(|frame| [60, 1500, 1, 9000][frame % 4]);
                let (fits, result) = rx.reserve(&rx_ring, &mut direct, rx_header, lens);
                assert!(fits <= count);
                let (put, written) = rx.put(&rx_ring, &mut direct, fits, &mut Ones::default());
                assert!(put <= fits);
                rx.publish(&rx_ring);
                result.is_err() || written.is_err()
            }
            _ => {
                let at = u64::from(u16::from_le_bytes([*o0, *o1]) & 0x7ff8) % 0x6000;
                let _ = memory.span_mut(at, 8, &mut hint).map(|span| span.write(value));
                false
            }
        };
        // A broken queue isn't used until its driver has reset it.
        if broken {
            return;
        }
    }
}

/// A driver that sends a frame and posts a receive buffer, in each format.
pub fn seeds() -> Vec<Vec<u8>> {
    let step = |what: u8, count: u8, at: u64, value: u64| {
        let mut step = vec![what, count];
        step.extend_from_slice(&(at as u16).to_le_bytes());
        step.extend_from_slice(&value.to_le_bytes());
        step
    };
    let seed = |first: u8, steps: &[Vec<u8>]| {
        let mut seed = vec![first];
        seed.extend_from_slice(&steps.concat());
        seed
    };
    let size = 16 * 8;
    let [tx, rx] = RINGS;
    let serve = [step(0, 8, 0, 0), step(1, 2, 0, 0), step(9, 3, 0, 0)].concat();
    // Split: a descriptor of 80 (write: 2048) bytes, and an available ring of flags 0, index 1, entry 0.
    let split = [
        step(2, 0, tx, 0x4000),
        step(2, 0, tx + 8, 80),
        step(2, 0, tx + size, 1 << 16),
        step(2, 0, rx, 0x4800),
        step(2, 0, rx + 8, 2 << 32 | 2048),
        step(2, 0, rx + size, 1 << 16),
        serve.clone(),
    ];
    // Packed: a descriptor with its available flag, bit 7.
    let packed = [
        step(2, 0, tx, 0x4000),
        step(2, 0, tx + 8, 0x80 << 48 | 80),
        step(2, 0, rx, 0x4800),
        step(2, 0, rx + 8, 0x82 << 48 | 2048),
        serve,
    ];
    // An indirect table of one descriptor at 0x4000.
    let indirect = [
        step(2, 0, 0x4000, 0x4100),
        step(2, 0, 0x4008, 80),
        step(2, 0, tx, 0x4000),
        step(2, 0, tx + 8, 4 << 32 | 16),
        step(2, 0, tx + size, 1 << 16),
        step(0, 8, 0, 0),
    ];
    vec![seed(0, &split), seed(6, &split), seed(1, &packed), seed(3, &packed), seed(4, &indirect)]
}
