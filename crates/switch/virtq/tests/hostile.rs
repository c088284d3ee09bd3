//! Rings with invalid contents: the device returns an error or nothing, never panics, and accesses no byte
//! outside shared memory.

#![allow(clippy::unwrap_used)]

use crate::common::{BASE, Guest, LEN, start};
use proptest::prelude::*;
use ringway_mem::{Direct, DirtyLog, Extent, Extents, Fault, Hint, Region, Span, SpanMut, Translate};
use ringway_virtq::{
    Areas, Cursor, Driver, Fill, INDIRECT, Layout, LayoutError, NEXT, QueueError, Ring, RxDevice, RxHeader,
    Signals, Tracker, TxDevice, Verdict, WRITE, prefetch_translations,
};
use std::sync::Arc;

const SIZE: u16 = 8;

fn layout(packed: bool) -> Layout {
    Layout { packed, size: SIZE, event_idx: true, indirect: true }
}

/// A descriptor's address, length, flags, and its `next` (split) or `id` (packed).
type Raw = (u64, u32, u16, u16);

fn store(guest: &Guest, at: u64, packed: bool, (address, len, flags, other): Raw) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    let (third, fourth) = if packed { (other, flags) } else { (flags, other) };
    bytes[12..14].copy_from_slice(&third.to_le_bytes());
    bytes[14..].copy_from_slice(&fourth.to_le_bytes());
    guest.write(at, &bytes);
}

/// Makes descriptors 0, 1, ... of a new ring available; on a split ring the driver offers the first of them
/// as `head`.
fn offer(guest: &Guest, packed: bool, chain: &[Raw], head: u16, index: u16) {
    for (number, raw) in chain.iter().enumerate() {
        let (address, len, flags, other) = *raw;
        let flags = if packed { flags | 0x80 } else { flags };
        store(guest, BASE + 16 * number as u64, packed, (address, len, flags, other));
    }
    if !packed {
        let available = BASE + 16 * u64::from(SIZE);
        guest.write(available + 4, &head.to_le_bytes());
        guest.write(available + 2, &index.to_le_bytes());
    }
}

fn peek(guest: &Guest, layout: &Layout) -> (usize, Result<(), QueueError>) {
    let ring = guest.ring(layout, BASE);
    let mut device = TxDevice::new(start(layout), start(layout));
    let mut shown = 0;
    let result = device.peek(&ring, &mut guest.direct(&mut Hint::default()), 64, |_: &[Span<'_>]| {
        shown += 1;
        Verdict::Take
    });
    (shown, result)
}

struct Ones;

impl Fill for Ones {
    fn whole(&mut self, _frame: usize, to: SpanMut<'_>) {
        self.part(to);
    }

    fn begin(&mut self, _frame: usize, _buffers: u16) {}

    fn part(&mut self, to: SpanMut<'_>) {
        to.write(&vec![0xff; to.len()]);
    }

    fn lost(&mut self, _frame: usize) {}
}

fn reserve(guest: &Guest, layout: &Layout) -> (usize, Result<(), QueueError>) {
    let ring = guest.ring(layout, BASE);
    let mut device = RxDevice::new(start(layout), start(layout));
    let rx_header = RxHeader { mergeable: true, header: 12 };
    device.reserve(&ring, &mut guest.direct(&mut Hint::default()), rx_header, [60].into_iter())
}

const DATA: u64 = BASE + 0x1000;
const TABLE: u64 = BASE + 0x2000;
const END: u64 = BASE + LEN as u64;

#[test]
fn breaches_are_reported_in_either_format() {
    use QueueError::*;
    let loops: Vec<Raw> = (0..SIZE).map(|next| (DATA, 1, NEXT, (next + 1) % SIZE)).collect();
    let cases: Vec<(&[Raw], QueueError)> = vec![
        (&[(DATA, 0, 0, 0)], Zero),
        (&[(DATA, 64, WRITE, 0)], Direction),
        (&[(DATA, 64, NEXT, 1), (DATA, 64, WRITE, 1)], Direction),
        (&[(DATA, 64, NEXT, 1), (DATA, 0, 0, 1)], Zero),
        (&[(END, 1, 0, 0)], Address),
        (&[(END - 1, 2, 0, 0)], Address),
        (&[(BASE - 1, 2, 0, 0)], Address),
        (&[(u64::MAX, u32::MAX, 0, 0)], Address),
        (&[(DATA, 64, NEXT, 1), (END, 64, 0, 1)], Address),
        (&[(DATA, 64, NEXT, 1), (TABLE, 16, INDIRECT, 1)], Indirect),
        (&[(TABLE, 16, INDIRECT | NEXT, 1), (DATA, 64, 0, 1)], Indirect),
        (&[(TABLE, 0, INDIRECT, 0)], Indirect),
        (&[(TABLE, 17, INDIRECT, 0)], Indirect),
        (&[(TABLE, 16 * (SIZE as u32 + 1), INDIRECT, 0)], Indirect),
        (&[(END, 16, INDIRECT, 0)], Address),
        (&[(END - 8, 16, INDIRECT, 0)], Address),
        (&loops, Chain),
    ];
    for packed in [false, true] {
        for (chain, expected) in &cases {
            let guest = Guest::new();
            offer(&guest, packed, chain, 0, 1);
            let (shown, result) = peek(&guest, &layout(packed));
            assert_eq!((shown, result), (0, Err(*expected)), "packed {packed}: {chain:?}");
        }
    }
}

/// Counts reads of tables and buffers, limited to a descriptor's length each.
struct Piecemeal<'t, 'h>(Direct<'t, 'h>, usize);

impl<'t> Translate<'t> for Piecemeal<'t, '_> {
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        self.1 += 1;
        self.0.read(address, len.min(16))
    }

    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        self.0.write(address, len)
    }
}

#[test]
fn descriptors_beyond_a_chains_limit_are_not_read() {
    for packed in [false, true] {
        let (guest, count) = (Guest::new(), 4096);
        let layout = Layout { size: count, ..layout(packed) };
        let table = BASE + 0x8_0000;
        for number in 0..count {
            let raw = (DATA, 1, if number + 1 < count { NEXT } else { 0 }, number + 1);
            store(&guest, table + 16 * u64::from(number), packed, raw);
        }
        let head = (table, 16 * u32::from(count), INDIRECT | if packed { 0x80 } else { 0 }, 0);
        store(&guest, BASE, packed, head);
        guest.write(BASE + 16 * u64::from(count) + 2, &u16::from(!packed).to_le_bytes());
        let mut device = TxDevice::new(start(&layout), start(&layout));
        let mut hint = Hint::default();
        let mut translate = Piecemeal(guest.direct(&mut hint), 0);
        let mut shown = Vec::new();
        let each = |parts: &[Span<'_>]| {
            shown.push(parts.len());
            Verdict::Take
        };
        device.peek(&guest.ring(&layout, BASE), &mut translate, 64, each).unwrap();
        assert_eq!(shown, [0], "the chain is skipped");
        assert!(translate.1 < 200, "packed {packed}: {} reads", translate.1);
    }
}

/// Memory in which every page is a range of its own; writable only. Counts lookups.
struct Pages<'t, 'h>(Direct<'t, 'h>, usize);

impl<'t> Translate<'t> for Pages<'t, '_> {
    fn read(&mut self, _address: u64, _len: u32) -> Result<Span<'t>, Fault> {
        self.1 += 1;
        Err(Fault::Miss)
    }

    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        self.1 += 1;
        let offset = (address % 4096) as u32;
        self.0.write(DATA + u64::from(offset), len.min(4096 - offset))
    }

    fn record_misses(&mut self, _address: u64, len: u32, _write: bool) {
        self.1 += len.div_ceil(4096) as usize;
    }

    fn check(&mut self, _address: u64, len: u32, _write: bool) -> Result<(), Fault> {
        self.1 += len.div_ceil(4096) as usize;
        Ok(())
    }
}

#[test]
fn at_most_a_frames_bytes_of_a_buffer_are_looked_up() {
    let (whole, part) = ((DATA, u32::MAX, 0, 0), (DATA, u32::MAX, NEXT, 1));
    let chains: [&[Raw]; 2] = [&[whole], &[part, (DATA, u32::MAX, NEXT, 2), (DATA, u32::MAX, 0, 1)]];
    for packed in [false, true] {
        for chain in chains {
            for flags in [0, WRITE] {
                let guest = Guest::new();
                let raws: Vec<Raw> = chain
                    .iter()
                    .map(|raw| (raw.0, raw.1, raw.2 | flags, if packed { 0 } else { raw.3 }))
                    .collect();
                offer(&guest, packed, &raws, 0, 1);
                let (layout, mut hint) = (layout(packed), Hint::default());
                let (ring, at) = (guest.ring(&layout, BASE), start(&layout));
                let mut pages = Pages(guest.direct(&mut hint), 0);
                if flags == WRITE {
                    let rx_header = RxHeader { mergeable: true, header: 12 };
                    let mut device = RxDevice::new(at, at);
                    let found = device.reserve(&ring, &mut pages, rx_header, [65_557, 100].into_iter());
                    assert_eq!(found, (1, Ok(())), "the looked-up part holds the largest frame");
                } else {
                    let look = |_: &[Span<'_>]| Verdict::Take;
                    let found = TxDevice::new(at, at).peek(&ring, &mut pages, 64, look);
                    assert_eq!(found, Err(QueueError::Miss));
                }
                assert!(pages.1 <= 64, "packed {packed}, {} descriptors: {} pages", chain.len(), pages.1);
                pages.1 = 0;
                prefetch_translations(&ring, at, flags == WRITE, 64, &mut pages);
                assert!(
                    pages.1 <= 64,
                    "packed {packed}, {} descriptors: {} pages prefetched",
                    chain.len(),
                    pages.1
                );
            }
        }
    }
}

#[test]
fn prefetched_translations_are_bounded() {
    for packed in [false, true] {
        let layout = Layout { size: 128, ..layout(packed) };
        let guest = Guest::new();
        // Each entry refers to a table with as many descriptors as the ring.
        for number in 0..128 {
            let raw = (DATA, 1, if number < 127 { WRITE | NEXT } else { WRITE }, number + 1);
            store(&guest, TABLE + 16 * u64::from(number), packed, raw);
            let flags = INDIRECT | if packed { 0x80 } else { 0 };
            store(&guest, BASE + 16 * u64::from(number), packed, (TABLE, 16 * 128, flags, 0));
        }
        guest.write(BASE + 16 * 128 + 2, &(if packed { 0u16 } else { 128 }).to_le_bytes());
        let mut hint = Hint::default();
        let mut pages = Readable(Pages(guest.direct(&mut hint), 0));
        let at = prefetch_translations(&guest.ring(&layout, BASE), start(&layout), true, 64, &mut pages);
        assert!((256..512).contains(&pages.0.1), "packed {packed}: {} pages", pages.0.1);
        assert_ne!(at, start(&layout), "the next call continues there");
    }
}

/// As [`Pages`], with all memory readable.
struct Readable<'t, 'h>(Pages<'t, 'h>);

impl<'t> Translate<'t> for Readable<'t, '_> {
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        self.0.0.read(address, len)
    }

    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        self.0.write(address, len)
    }

    fn record_misses(&mut self, address: u64, len: u32, write: bool) {
        self.0.record_misses(address, len, write);
    }
}

/// Memory without any mapping; records requested ranges.
struct Nothing(Vec<(u64, bool)>);

impl<'t> Translate<'t> for Nothing {
    fn read(&mut self, _address: u64, _len: u32) -> Result<Span<'t>, Fault> {
        Err(Fault::Miss)
    }

    fn write(&mut self, _address: u64, _len: u32) -> Result<SpanMut<'t>, Fault> {
        Err(Fault::Miss)
    }

    fn record_misses(&mut self, address: u64, _len: u32, write: bool) {
        self.0.push((address, write));
    }
}

#[test]
fn a_miss_requests_the_rest_of_its_burst_only() {
    const RING: u16 = 256;
    let place = |number: u16| DATA + 0x1000 * u64::from(number);
    for packed in [false, true] {
        // A full burst; a smaller one; and bursts whose 20th or 128th buffer is invalid.
        for (max, zero, expected) in
            [(64, RING, 64), (10, RING, 10), (1000, RING, 64), (64, 20, 20), (64, 128, 64)]
        {
            for write in [false, true] {
                let (guest, layout) = (Guest::new(), Layout { size: RING, ..layout(packed) });
                for number in 0..RING {
                    let flags = if write { WRITE } else { 0 } | if packed { 0x80 } else { 0 };
                    let raw = (place(number), if number == zero { 0 } else { 2048 }, flags, number);
                    store(&guest, BASE + 16 * u64::from(number), packed, raw);
                }
                let available = BASE + 16 * u64::from(RING);
                let entries = (0..RING).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
                if !packed {
                    guest.write(available + 4, &entries);
                    guest.write(available + 2, &RING.to_le_bytes());
                }
                let (ring, at) = (guest.ring(&layout, BASE), start(&layout));
                let mut nothing = Nothing(Vec::new());
                let expected = if write {
                    let rx_header = RxHeader { mergeable: true, header: 12 };
                    let lens = vec![60; max.min(200)];
                    let mut device = RxDevice::new(at, at);
                    let found = device.reserve(&ring, &mut nothing, rx_header, lens.into_iter());
                    assert_eq!(found, (0, Err(QueueError::Miss)));
                    assert_eq!(device.position(), (at, at), "nothing is taken off the ring");
                    // More frames are likely to follow: translations for a full burst of buffers are
                    // requested.
                    usize::from(zero).min(64)
                } else {
                    let mut device = TxDevice::new(at, at);
                    let found = device.peek(&ring, &mut nothing, max, |_: &[Span<'_>]| Verdict::Take);
                    assert_eq!(found, Err(QueueError::Miss));
                    assert_eq!(device.position(), (at, at), "nothing is taken off the ring");
                    expected
                };
                let wanted: Vec<_> = (0..expected as u16).map(|number| (place(number), write)).collect();
                assert_eq!(nothing.0, wanted, "packed {packed}, {max} of {RING}, bad one {zero}");
            }
        }
    }
}

#[test]
fn nested_and_looping_tables_are_refused() {
    let tables: [(&[Raw], [Option<QueueError>; 2]); 4] = [
        (&[(TABLE, 16, INDIRECT, 0)], [Some(QueueError::Indirect); 2]),
        (&[(DATA, 1, NEXT, 1), (DATA, 1, NEXT, 0)], [Some(QueueError::Chain), None]),
        (&[(DATA, 1, NEXT, 2), (DATA, 1, 0, 0)], [Some(QueueError::Descriptor), None]),
        (&[(DATA, 0, 0, 0)], [Some(QueueError::Zero); 2]),
    ];
    for (table, expected) in tables {
        for packed in [false, true] {
            let guest = Guest::new();
            for (number, raw) in table.iter().enumerate() {
                store(&guest, TABLE + 16 * number as u64, packed, *raw);
            }
            offer(&guest, packed, &[(TABLE, 16 * table.len() as u32, INDIRECT, 0)], 0, 1);
            let result = peek(&guest, &layout(packed)).1;
            assert_eq!(result.err(), expected[usize::from(packed)], "packed {packed}: {table:?}");
            let none = Layout { indirect: false, ..layout(packed) };
            assert_eq!(peek(&guest, &none).1, Err(QueueError::Indirect));
        }
    }
}

#[test]
fn jumping_indices_and_invalid_descriptor_numbers_are_reported() {
    for (head, index, expected) in [
        (0, SIZE + 1, QueueError::Index),
        (0, u16::MAX, QueueError::Index),
        (SIZE, 1, QueueError::Descriptor),
        (u16::MAX, 1, QueueError::Descriptor),
    ] {
        let guest = Guest::new();
        offer(&guest, false, &[(DATA, 64, 0, 0)], head, index);
        assert_eq!(peek(&guest, &layout(false)), (0, Err(expected)));
    }
    let guest = Guest::new();
    offer(&guest, false, &[(DATA, 64, NEXT, SIZE)], 0, 1);
    assert_eq!(peek(&guest, &layout(false)), (0, Err(QueueError::Descriptor)));
    let guest = Guest::new();
    offer(&guest, true, &[(DATA, 64, NEXT, 0)], 0, 0);
    assert_eq!(peek(&guest, &layout(true)), (0, Err(QueueError::Unfinished)));
}

/// Makes every descriptor of a packed ring available for its next round while the last of them is looked up.
struct Again<'t, 'h> {
    direct: Direct<'t, 'h>,
    guest: &'t Guest,
    looked: u16,
    rounds: u16,
}

impl<'t> Translate<'t> for Again<'t, '_> {
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        self.direct.read(address, len)
    }

    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        self.looked += 1;
        if self.looked.is_multiple_of(4) && self.looked / 4 < self.rounds {
            let available = if (self.looked / 4).is_multiple_of(2) { 1 << 7 } else { 1 << 15 };
            for number in 0..4 {
                store(
                    self.guest,
                    BASE + 16 * u64::from(number),
                    true,
                    (DATA, 100, WRITE | available, number),
                );
            }
        }
        self.direct.write(address, len)
    }
}

#[test]
fn a_ring_refilled_during_a_read_keeps_a_valid_position() {
    // A driver can't have more buffers in flight than the ring has descriptors.
    for frames in 1..30u16 {
        let (guest, layout) = (Guest::new(), Layout { size: 4, ..layout(true) });
        let chain: Vec<Raw> = (0..4).map(|number| (DATA, 100, WRITE, number)).collect();
        offer(&guest, true, &chain, 0, 0);
        let (ring, at, mut hint) = (guest.ring(&layout, BASE), start(&layout), Hint::default());
        let mut again = Again { direct: guest.direct(&mut hint), guest: &guest, looked: 0, rounds: 10 };
        let mut device = RxDevice::new(at, at);
        let rx_header = RxHeader { mergeable: false, header: 12 };
        let lens = vec![60; usize::from(frames)];
        let (count, _) = device.reserve(&ring, &mut again, rx_header, lens.into_iter());
        assert_eq!(count, usize::from(frames));
        again.rounds = 0;
        assert_eq!(device.put(&ring, &mut again, count, &mut Ones), (count, Ok(())));
        let place = Cursor { index: frames % 4, wrap: at.wrap ^ (frames / 4 % 2 == 1) };
        assert_eq!(device.position(), (place, place), "after {frames}");
        assert!(device.publish(&ring) || frames % 8 == 0);
        device.wants_interrupt(&ring);
    }
}

#[test]
fn chains_before_a_breach_are_shown_and_can_be_released() {
    for packed in [false, true] {
        let guest = Guest::new();
        let layout = layout(packed);
        let mut driver = Driver::new(&layout, guest.areas(&layout, BASE)).unwrap();
        let good = ringway_virtq::Buffer { address: DATA, len: 64, write: false };
        driver.add(&[good], None).unwrap();
        driver.add(&[ringway_virtq::Buffer { address: END, ..good }], None).unwrap();
        driver.publish();
        let ring = guest.ring(&layout, BASE);
        let mut device = TxDevice::new(start(&layout), start(&layout));
        let look = |device: &mut TxDevice| {
            let mut shown = 0;
            let mut hint = Hint::default();
            let result = device.peek(&ring, &mut guest.direct(&mut hint), 64, |_: &[Span<'_>]| {
                shown += 1;
                Verdict::Take
            });
            (shown, result)
        };
        assert_eq!(look(&mut device), (1, Err(QueueError::Address)));
        assert_eq!(device.release(&ring, 1), 1);
        device.publish(&ring);
        assert_eq!(driver.take_used(), Ok(Some((0, 0))));
        assert_eq!(look(&mut device), (0, Err(QueueError::Address)));
        assert_eq!(device.release(&ring, 5), 0);
    }
}

#[test]
fn receive_buffers_must_be_writable_and_within_memory() {
    use QueueError::*;
    let cases: [(&[Raw], QueueError); 4] = [
        (&[(DATA, 2048, 0, 0)], Direction),
        (&[(DATA, 10, WRITE | NEXT, 1), (DATA, 2048, 0, 1)], Direction),
        (&[(END, 2048, WRITE, 0)], Address),
        (&[(DATA, 0, WRITE, 0)], Zero),
    ];
    for packed in [false, true] {
        for (chain, expected) in cases {
            let guest = Guest::new();
            offer(&guest, packed, chain, 0, 1);
            assert_eq!(reserve(&guest, &layout(packed)), (0, Err(expected)), "packed {packed}: {chain:?}");
        }
    }
}

#[test]
fn rings_with_invalid_sizes_or_addresses_are_refused() {
    let guest = Guest::new();
    let size = |packed, size| Layout { packed, size, event_idx: false, indirect: false }.lengths().is_ok();
    assert_eq!(
        [0, 1, 3, 256, 32_768, 32_769].map(|n| size(false, n)),
        [false, true, false, true, true, false]
    );
    assert_eq!([0, 1, 3, 256, 32_768, 32_769].map(|n| size(true, n)), [false, true, true, true, true, false]);
    for packed in [false, true] {
        let layout = layout(packed);
        let areas = guest.areas(&layout, BASE);
        let short = |span: SpanMut<'_>| span.split(span.len() - 1).0.len();
        let cut = |span| SpanMut::split(span, short(span)).0;
        let refused = |areas| Ring::new(&layout, areas).err();
        assert_eq!(refused(areas), None);
        assert_eq!(refused(Areas { descriptors: cut(areas.descriptors), ..areas }), Some(LayoutError::Short));
        assert_eq!(refused(Areas { driver: cut(areas.driver), ..areas }), Some(LayoutError::Short));
        assert_eq!(refused(Areas { device: cut(areas.device), ..areas }), Some(LayoutError::Short));
        let odd = guest.span(BASE + 0x8001, 0x1000);
        assert_eq!(refused(Areas { descriptors: odd, ..areas }), Some(LayoutError::Alignment));
        assert_eq!(refused(Areas { driver: odd, ..areas }), Some(LayoutError::Alignment));
        assert_eq!(refused(Areas { device: odd, ..areas }), Some(LayoutError::Alignment));
    }
}

/// All operations of a device, on a ring with arbitrary contents.
fn use_ring(guest: &Guest, ring: Ring<'_>, (at, used): (Cursor, Cursor), mergeable: bool, lens: &[u32]) {
    let mut hint = Hint::default();
    let mut tx = TxDevice::new(at, used).in_order(mergeable);
    let mut number = 0;
    for _ in 0..4 {
        let result = tx.peek(&ring, &mut guest.direct(&mut hint), 64, |parts: &[Span<'_>]| {
            number += 1;
            let mut bytes = [0; 64];
            parts.iter().for_each(|part| {
                part.read(&mut bytes);
            });
            [Verdict::Take, Verdict::Skip, Verdict::Take, Verdict::Take][number % 4]
        });
        let released = tx.release(&ring, number / 2);
        tx.publish(&ring);
        tx.wants_interrupt(&ring);
        tx.set_flag(&ring, tx.pending(&ring));
        if result.is_err() && released == 0 {
            break;
        }
    }
    let mut rx = RxDevice::new(at, used);
    for _ in 0..4 {
        let rx_header = RxHeader { mergeable, header: 12 };
        let (count, _) = rx.reserve(&ring, &mut guest.direct(&mut hint), rx_header, lens.iter().copied());
        let (put, result) = rx.put(&ring, &mut guest.direct(&mut hint), count / 2 + 1, &mut Ones);
        assert!(put <= count && (result.is_err() || put == count.min(count / 2 + 1)));
        rx.publish(&ring);
        rx.wants_interrupt(&ring);
        rx.set_flag(&ring, rx.pending(&ring));
    }
}

/// A log in the last shared page, for ring areas at arbitrary addresses.
fn tracker(guest: &Guest, [descriptors, device, log_address]: [u64; 3]) -> Tracker {
    let half = guest.memory.regions()[1].clone();
    // SAFETY: the region's last page, whose keeper it shares, accessed only by the log and through spans.
    let bits = unsafe {
        let host = half.base().add(half.len as usize - 4096);
        Region::new(0, 0, 4096, host, half.keeper().clone())
    };
    let extents = |guest: u64| {
        let second = Extent { guest: guest.wrapping_mul(3), len: 1 << 40 };
        Extents::new(vec![Extent { guest, len: 64 }, second])
    };
    let (descriptors, device) = (extents(descriptors), extents(device));
    Tracker { log: Arc::new(DirtyLog::new(bits)), descriptors, device, log_address: Some(log_address) }
}

/// Pages covered by the log, just outside it, and far outside.
fn places() -> impl Strategy<Value = [u64; 3]> {
    let end = 4096 * 8 * 4096u64;
    let place = prop_oneof![0..end, end - 8192..end + 8192, Just(u64::MAX - 100), any::<u64>()];
    [place.clone(), place.clone(), place]
}

fn raws() -> impl Strategy<Value = Vec<(Raw, bool)>> {
    let address = prop_oneof![
        4 => BASE..END,
        1 => Just(END - 1),
        1 => Just(BASE + LEN as u64 / 2 - 8),
        2 => BASE + 0x100..BASE + 0x400,
        1 => any::<u64>(),
    ];
    let len =
        prop_oneof![4 => 1u32..4096, 1 => Just(0), 2 => (1u32..12).prop_map(|n| 16 * n), 1 => any::<u32>()];
    let flags = prop_oneof![4 => 0u16..8, 1 => any::<u16>()];
    let other = prop_oneof![4 => 0u16..SIZE, 1 => any::<u16>()];
    prop::collection::vec(((address, len, flags, other), any::<bool>()), 0..64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 400 }))]

    #[test]
    fn no_ring_makes_a_device_access_other_memory(
        packed in any::<bool>(),
        event_idx in any::<bool>(),
        mergeable in any::<bool>(),
        raws in raws(),
        available in prop::collection::vec(any::<u16>(), 0..12),
        base in any::<u16>(),
        lens in prop::collection::vec(prop_oneof![1u32..2000, any::<u32>()], 0..70),
        places in places(),
    ) {
        let guest = Guest::new();
        let layout = Layout { event_idx, ..layout(packed) };
        for (number, ((address, len, flags, other), here)) in raws.iter().enumerate() {
            let flags = if packed && *here { flags & !0x8000 | 0x80 } else { *flags };
            store(&guest, BASE + 16 * number as u64, packed, (*address, *len, flags, *other));
        }
        for (number, word) in available.iter().enumerate() {
            let word = if number > 1 { word % (SIZE + 1) } else { base.wrapping_add(word % (SIZE + 2)) };
            guest.write(BASE + 16 * u64::from(SIZE) + 2 * number as u64, &word.to_le_bytes());
        }
        let at = Cursor::from_base(if packed { (base % SIZE) | 0x8000 } else { base }, packed, SIZE);
        use_ring(&guest, guest.ring(&layout, BASE), (at, at), mergeable, &lens);
        let tracker = tracker(&guest, places);
        use_ring(&guest, guest.ring(&layout, BASE).logged(&tracker), (at, at), mergeable, &lens);
        tracker.mark_all();
        prop_assert!(guest.guards_hold());
    }

    #[test]
    fn a_ring_of_random_bytes_is_harmless(
        packed in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..512),
        base in any::<u16>(),
        places in places(),
    ) {
        let guest = Guest::new();
        guest.write(BASE, &bytes);
        let at = Cursor::from_base(base, packed, SIZE);
        let tracker = tracker(&guest, places);
        use_ring(&guest, guest.ring(&layout(packed), BASE), (at, at), true, &[60; 64]);
        use_ring(&guest, guest.ring(&layout(packed), BASE).logged(&tracker), (at, at), true, &[60; 64]);
        prop_assert!(guest.guards_hold());
    }

    #[test]
    fn a_driver_survives_any_device(
        packed in any::<bool>(),
        in_order in any::<bool>(),
        rounds in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..20),
    ) {
        let guest = Guest::new();
        let layout = layout(packed);
        let driver = Driver::new(&layout, guest.areas(&layout, BASE)).unwrap();
        let mut driver = if in_order { driver.in_order() } else { driver };
        for bytes in rounds {
            let buffer = ringway_virtq::Buffer { address: DATA, len: 64, write: false };
            while driver.add(&[buffer, buffer], None).is_some() {}
            driver.publish();
            driver.wants_kick();
            guest.write(BASE, &bytes);
            for _ in 0..20 {
                if !matches!(driver.take_used(), Ok(Some(_))) {
                    break;
                }
            }
            prop_assert!(driver.free() <= usize::from(SIZE));
        }
        prop_assert!(guest.guards_hold());
    }
}
