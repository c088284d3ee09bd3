//! Driver against device: frames are transferred unchanged in either format, for any split into descriptors.

#![allow(clippy::unwrap_used)]

use crate::common::{BASE, Guest, LEN, start};
use proptest::prelude::*;
use ringway_mem::{Hint, Span, SpanMut};
use ringway_virtq::{
    Buffer, Driver, Fill, Indirect, Layout, Ring, RxDevice, RxHeader, Signals, TxDevice, Verdict,
};
use std::collections::VecDeque;

/// Address of buffers and tables, after the ring.
const BUFFERS: u64 = BASE + 0x1_0000;

fn layouts() -> impl Strategy<Value = Layout> {
    let sizes = prop_oneof![Just(4u16), Just(8), Just(16), Just(64)];
    let packed = prop_oneof![Just(3u16), Just(5), Just(16), Just(61)];
    let event_idx = any::<bool>();
    prop_oneof![
        (sizes, event_idx).prop_map(|(size, event_idx)| Layout {
            packed: false,
            size,
            event_idx,
            indirect: true
        }),
        (packed, event_idx).prop_map(|(size, event_idx)| Layout {
            packed: true,
            size,
            event_idx,
            indirect: true
        }),
    ]
}

/// Allocates memory cyclically; far less than all of it is in flight.
struct Heap(u64);

impl Heap {
    fn take(&mut self, len: usize) -> u64 {
        let end = BASE + LEN as u64;
        if self.0 + len as u64 > end {
            self.0 = BUFFERS;
        }
        let at = self.0;
        self.0 += len as u64;
        at
    }
}

/// Driver and device of a transmit ring.
fn sides<'g>(guest: &'g Guest, layout: &Layout, in_order: bool) -> (Driver<'g>, TxDevice) {
    let driver = Driver::new(layout, guest.areas(layout, BASE)).unwrap();
    let device = TxDevice::new(start(layout), start(layout)).in_order(in_order);
    (if in_order { driver.in_order() } else { driver }, device)
}

fn bytes_of(parts: &[Span<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        let mut piece = vec![0; part.len()];
        part.read(&mut piece);
        bytes.extend(piece);
    }
    bytes
}

/// Memory for a table; a table doesn't span two regions.
fn table<'g>(guest: &'g Guest, heap: &mut Heap, size: usize) -> Indirect<'g> {
    let half = BASE + (LEN / 2) as u64;
    let mut address = heap.take(size);
    if address < half && address + size as u64 > half {
        address = heap.take(size);
    }
    Indirect { address, table: guest.span(address, size) }
}

#[derive(Clone, Debug)]
enum Step {
    /// A chain of these lengths, with an indirect table or without.
    Send(Vec<usize>, bool),
    /// Examine at most `max` chains, skip some, release some of the rest.
    Serve { max: usize, skip: usize, release: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lens = prop::collection::vec(1usize..300, 1..6);
    let step = prop_oneof![
        3 => (lens, any::<bool>()).prop_map(|(lens, indirect)| Step::Send(lens, indirect)),
        2 => (1usize..70, 2usize..9, 0usize..70)
            .prop_map(|(max, skip, release)| Step::Serve { max, skip, release }),
    ];
    prop::collection::vec(step, 1..400)
}

/// A device that rarely checks the driver's event suppression, like one that moderates interrupts.
#[test]
fn an_interrupt_is_wanted_after_any_number_of_wraps() {
    for (packed, rounds) in
        [true, false].into_iter().flat_map(|packed| (1..6).map(move |rounds| (packed, rounds)))
    {
        let layout = Layout { packed, size: 4, event_idx: true, indirect: false };
        let guest = Guest::new();
        let ring = guest.ring(&layout, BASE);
        let mut driver = Driver::new(&layout, guest.areas(&layout, BASE)).unwrap();
        let mut device = TxDevice::new(start(&layout), start(&layout));
        let mut hint = Hint::default();
        for round in 1..=rounds {
            for _ in 0..4 {
                driver.add(&[Buffer { address: BUFFERS, len: 1, write: false }], None).unwrap();
            }
            driver.publish();
            if round == rounds {
                // The driver waits for the first buffer of this round.
                driver.set_flag(true);
            }
            device.peek(&ring, &mut guest.direct(&mut hint), 4, |_: &[Span<'_>]| Verdict::Take).unwrap();
            assert_eq!(device.release(&ring, 4), 4);
            assert!(device.publish(&ring));
            while round < rounds && driver.take_used().unwrap().is_some() {}
        }
        assert!(device.wants_interrupt(&ring), "packed {packed}, {rounds} rounds");
        assert!(!device.wants_interrupt(&ring), "nothing was used since");
    }
}

/// One used entry completes a batch of buffers, with the id of the last.
fn one_write_stands_for_all(packed: bool) {
    let layout = Layout { packed, size: 8, event_idx: false, indirect: false };
    let guest = Guest::new();
    let ring = guest.ring(&layout, BASE);
    let (mut driver, mut device) = sides(&guest, &layout, true);
    let buffer = Buffer { address: BUFFERS, len: 1, write: false };
    driver.add_run([buffer; 5].into_iter(), |_, _| {});
    driver.publish();
    let mut hint = Hint::default();
    device.peek(&ring, &mut guest.direct(&mut hint), 5, |_: &[Span<'_>]| Verdict::Take).unwrap();
    device.release(&ring, 5);
    device.publish(&ring);
    let areas = guest.areas(&layout, BASE);
    // Ids of used buffers; in a packed ring, from the second entry on, flags of descriptors instead.
    let (area, first, next) =
        if packed { (areas.descriptors, 12, 16 + 14) } else { (areas.device, 4, 4 + 8) };
    let word = |at| area.as_span().split(at).1.read_array().map(u16::from_le_bytes);
    assert_eq!(
        (word(first), word(next)),
        (Some(4), Some(if packed { 1 << 7 } else { 0 })),
        "packed {packed}"
    );
    let mut ids = Vec::new();
    assert_eq!(driver.take_used_run(3, |id, _| ids.push(id)), Ok(3));
    assert!(driver.pending());
    assert_eq!(driver.take_used_run(9, |id, _| ids.push(id)), Ok(2));
    assert_eq!((ids, driver.free(), driver.pending()), (vec![0, 1, 2, 3, 4], 8, false));
}

#[test]
fn buffers_used_in_order_take_one_entry() {
    one_write_stands_for_all(false);
    one_write_stands_for_all(true);
}

/// Runs of buffers in rings of any size are returned completely, in order, with their ids.
#[test]
fn runs_are_returned_as_added() {
    let rings = [(true, 5), (true, 8), (false, 8)];
    for ((packed, size), in_order) in rings.into_iter().flat_map(|ring| [(ring, false), (ring, true)]) {
        let layout = Layout { packed, size, event_idx: false, indirect: false };
        let guest = Guest::new();
        let ring = guest.ring(&layout, BASE);
        let (mut driver, mut device) = sides(&guest, &layout, in_order);
        let mut hint = Hint::default();
        let mut under_way: VecDeque<u16> = VecDeque::new();
        for round in 0..50 {
            let buffer = |len| Buffer { address: BUFFERS, len, write: false };
            let room = driver.free();
            let mut numbers = Vec::new();
            let asked = round % 7;
            let added = driver.add_run((1..=asked as u32).map(buffer), |number, id| {
                numbers.push(number);
                under_way.push_back(id);
            });
            assert_eq!(added, asked.min(room), "packed {packed}");
            assert_eq!(numbers, (0..added).collect::<Vec<_>>());
            driver.publish();
            let mut lens = Vec::new();
            let look = |parts: &[Span<'_>]| {
                lens.push(parts[0].len());
                Verdict::Take
            };
            device.peek(&ring, &mut guest.direct(&mut hint), 3, look).unwrap();
            assert!(lens.iter().all(|&len| (1..7).contains(&len)));
            assert_eq!(device.release(&ring, lens.len()), lens.len());
            assert_eq!(device.publish(&ring), !lens.is_empty());
            let mut came = Vec::new();
            let count = driver.take_used_run(2, |id, len| came.push((id, len))).unwrap();
            assert_eq!(count, came.len());
            assert!(count > 0 || lens.is_empty());
            for used in came {
                assert_eq!(Some(used), under_way.pop_front().map(|id| (id, 0)));
            }
        }
        assert!(under_way.len() <= usize::from(size));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]

    #[test]
    fn chains_are_shown_unchanged_and_returned_in_order(
        layout in layouts(),
        in_order in any::<bool>(),
        steps in steps(),
    ) {
        let guest = Guest::new();
        let ring = guest.ring(&layout, BASE);
        let (mut driver, mut device) = sides(&guest, &layout, in_order);
        let mut hint = Hint::default();
        let mut heap = Heap(BASE + (LEN / 2) as u64 - 200);
        let mut under_way: VecDeque<(u16, Vec<u8>)> = VecDeque::new();
        let mut number = 0u8;
        for step in steps {
            match step {
                Step::Send(lens, indirect) => {
                    let mut bytes = Vec::new();
                    let chain: Vec<Buffer> = lens.iter().map(|&len| {
                        number = number.wrapping_add(1);
                        let address = heap.take(len);
                        guest.write(address, &vec![number; len]);
                        bytes.extend(vec![number; len]);
                        Buffer { address, len: len as u32, write: false }
                    }).collect();
                    let fits = chain.len() <= usize::from(layout.size);
                    let table = indirect.then(|| table(&guest, &mut heap, 16 * chain.len()));
                    if fits && let Some(id) = driver.add(&chain, table) {
                        driver.publish();
                        under_way.push_back((id, bytes));
                    }
                }
                Step::Serve { max, skip, release } => {
                    let (mut seen, mut kept) = (0, 0);
                    let mut wrong = None;
                    let result = device.peek(&ring, &mut guest.direct(&mut hint), max, |parts: &[Span<'_>]| {
                        let bytes = bytes_of(parts);
                        if under_way.get(seen).is_none_or(|(_, sent)| *sent != bytes) {
                            wrong = Some(seen);
                        }
                        seen += 1;
                        if seen % skip == 0 {
                            return Verdict::Skip;
                        }
                        kept += 1;
                        Verdict::Take
                    });
                    prop_assert_eq!(result, Ok(()));
                    prop_assert_eq!(wrong, None);
                    prop_assert_eq!(seen, max.min(64).min(under_way.len()));
                    let first = release.min(kept);
                    let mut released = device.release(&ring, first / 2);
                    released += device.release(&ring, first - first / 2);
                    prop_assert!(released >= first);
                    prop_assert_eq!(driver.take_used(), Ok(None));
                    prop_assert_eq!(device.publish(&ring), released > 0);
                    for _ in 0..released {
                        let (id, _) = under_way.pop_front().unwrap();
                        prop_assert_eq!(driver.take_used(), Ok(Some((id, 0))));
                    }
                    prop_assert_eq!(driver.take_used(), Ok(None));
                    prop_assert_eq!(device.pending(&ring), !under_way.is_empty());
                    // A new device continues where this one stopped.
                    let (at, used) = device.position();
                    device = TxDevice::new(at, used).in_order(in_order);
                }
            }
        }
        prop_assert!(guest.guards_hold());
    }
}

/// Fills each frame with its number, after a header with its number of buffers.
struct Numbers<'a> {
    first: u8,
    lens: &'a [u32],
    buffers: u16,
    frame: usize,
    at: usize,
    lost: Vec<usize>,
}

const HEADER: usize = 2;

impl Numbers<'_> {
    fn bytes(&self) -> Vec<u8> {
        let number = self.first.wrapping_add(self.frame as u8);
        let mut bytes = self.buffers.to_le_bytes().to_vec();
        bytes.resize(HEADER + self.lens[self.frame] as usize, number);
        bytes
    }
}

impl Fill for Numbers<'_> {
    fn whole(&mut self, frame: usize, to: SpanMut<'_>) {
        self.begin(frame, 1);
        assert_eq!(to.len(), self.bytes().len());
        self.part(to);
    }

    fn begin(&mut self, frame: usize, buffers: u16) {
        (self.frame, self.buffers, self.at) = (frame, buffers, 0);
    }

    fn part(&mut self, to: SpanMut<'_>) {
        self.at += to.write(&self.bytes()[self.at..]);
    }

    fn lost(&mut self, frame: usize) {
        self.lost.push(frame);
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// Posts a buffer of these descriptors.
    Post(Vec<usize>, bool),
    /// Reserves buffers for these frames, and writes this many.
    Deliver(Vec<u32>, usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let lens = prop::collection::vec(1usize..120, 1..4);
    let frames = prop::collection::vec(1u32..260, 1..20);
    let act = prop_oneof![
        3 => (lens, any::<bool>()).prop_map(|(lens, indirect)| Act::Post(lens, indirect)),
        1 => (frames, 0usize..24).prop_map(|(frames, put)| Act::Deliver(frames, put)),
    ];
    prop::collection::vec(act, 1..300)
}

/// Posted buffers, in order.
type Posted = VecDeque<(u16, Vec<Buffer>)>;

/// Takes one used buffer off the driver's ring and returns its contents.
fn collect_buffer(guest: &Guest, driver: &mut Driver<'_>, posted: &mut Posted) -> Vec<u8> {
    let (id, len) = driver.take_used().unwrap().expect("a buffer was used");
    let (expected, chain) = posted.pop_front().unwrap();
    assert_eq!(id, expected);
    let mut left = len as usize;
    let mut bytes = Vec::new();
    for buffer in chain {
        let count = left.min(buffer.len as usize);
        bytes.extend(guest.read(buffer.address, count));
        left -= count;
    }
    assert_eq!(left, 0, "more than the buffer holds");
    bytes
}

/// As above, for one frame with its header.
fn collect(guest: &Guest, driver: &mut Driver<'_>, posted: &mut Posted) -> Vec<u8> {
    let mut bytes = collect_buffer(guest, driver, posted);
    for _ in 1..u16::from_le_bytes([bytes[0], bytes[1]]) {
        bytes.extend(collect_buffer(guest, driver, posted));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]

    #[test]
    fn frames_arrive_completely_or_not_at_all(
        layout in layouts(),
        mergeable in any::<bool>(),
        acts in acts(),
    ) {
        let guest = Guest::new();
        let ring = guest.ring(&layout, BASE);
        let mut driver = Driver::new(&layout, guest.areas(&layout, BASE)).unwrap();
        let mut device = RxDevice::new(start(&layout), start(&layout));
        let mut heap = Heap(BASE + (LEN / 2) as u64 - 200);
        let mut posted = Posted::new();
        let mut number = 0u8;
        let rx_header = RxHeader { mergeable, header: HEADER as u32 };
        for act in acts {
            match act {
                Act::Post(lens, indirect) => {
                    post(&guest, &mut driver, &mut heap, &mut posted, &lens, indirect, &layout);
                }
                Act::Deliver(lens, put) => {
                    let header = rx_header;
                    deliver(&guest, &ring, &mut driver, &mut device, &mut posted, header, &lens, put, number);
                    number = number.wrapping_add(lens.len() as u8);
                    let (at, used) = device.position();
                    device = RxDevice::new(at, used);
                }
            }
        }
        prop_assert!(guest.guards_hold());
    }
}

fn post(
    guest: &Guest,
    driver: &mut Driver<'_>,
    heap: &mut Heap,
    posted: &mut Posted,
    lens: &[usize],
    indirect: bool,
    layout: &Layout,
) {
    let chain: Vec<Buffer> = lens
        .iter()
        // The first descriptor has room for at least the header.
        .map(|&len| Buffer { address: heap.take(len + HEADER), len: (len + HEADER) as u32, write: true })
        .collect();
    if chain.len() > usize::from(layout.size) {
        return;
    }
    let size = 16 * chain.len();
    let table = indirect.then(|| {
        let address = heap.take(size + 16).next_multiple_of(16);
        Indirect {
            address,
            table: guest
                .memory
                .span_mut(address, size as u32, &mut Hint::default())
                .unwrap_or(SpanMut::of(&mut [])),
        }
    });
    if table.is_some_and(|table| table.table.is_empty()) {
        return;
    }
    if let Some(id) = driver.add(&chain, table) {
        driver.publish();
        posted.push_back((id, chain));
    }
}

#[allow(clippy::too_many_arguments)]
fn deliver(
    guest: &Guest,
    ring: &Ring<'_>,
    driver: &mut Driver<'_>,
    device: &mut RxDevice,
    posted: &mut Posted,
    rx_header: RxHeader,
    lens: &[u32],
    put: usize,
    first: u8,
) {
    let mut hint = Hint::default();
    let (fits, result) = device.reserve(ring, &mut guest.direct(&mut hint), rx_header, lens.iter().copied());
    assert_eq!(result, Ok(()));
    let mut fill = Numbers { first, lens, buffers: 0, frame: 0, at: 0, lost: Vec::new() };
    let (done, result) = device.put(ring, &mut guest.direct(&mut hint), put, &mut fill);
    assert_eq!((done, result), (put.min(fits), Ok(())));
    assert_eq!(driver.take_used(), Ok(None), "nothing shows before it is published");
    device.publish(ring);
    for frame in (0..done).filter(|frame| !fill.lost.contains(frame)) {
        let bytes = collect(guest, driver, posted);
        let number = first.wrapping_add(frame as u8);
        assert_eq!(bytes.len(), HEADER + lens[frame] as usize);
        assert!(bytes[HEADER..].iter().all(|&byte| byte == number));
    }
    assert_eq!(driver.take_used(), Ok(None));
    if rx_header.mergeable {
        assert!(fill.lost.is_empty());
    }
    // Frames that did not fit have no room in the posted buffers.
    if fits < lens.len() && rx_header.mergeable && done == fits {
        let room: u32 = posted.iter().flat_map(|(_, chain)| chain).map(|buffer| buffer.len).sum();
        assert!(room < lens[fits] + HEADER as u32);
    }
}
