//! Tests of both sides of a ring against a queue, and against a hostile other side.

use super::memory::{Side, Word};
use super::*;

use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use proptest::prelude::*;
use ringway_mem::{Region, Span};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::sync::Arc;

struct Pages(NonNull<u8>, Layout);

// SAFETY: the pages are accessed through spans and atomics only.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), self.1) };
    }
}

fn region(bytes: u64) -> Region {
    let layout = Layout::from_size_align(bytes as usize, 4096).unwrap();
    // SAFETY: the size is not zero.
    let pointer = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
    // SAFETY: the allocation has this size and lives in the keeper.
    unsafe { Region::new(0, 0, bytes, pointer, Arc::new(Pages(pointer, layout))) }
}

fn ring(geometry: Geometry) -> RingMemory {
    RingMemory::create(region(geometry.header().unwrap().bytes), &geometry).unwrap()
}

fn small() -> Geometry {
    Geometry { slots: [64, 64], slot_size: 128, extra: 8, ..Geometry::default() }
}

#[test]
fn an_attached_ring_equals_the_created_one() {
    let geometry = Geometry { features: 0x1f, largest: 1518, kind: RingKind::Pipe, ..small() };
    let made = ring(geometry);
    let found = RingMemory::attach(made.region().clone()).unwrap();
    assert_eq!(found.header(), made.header());
    assert_eq!(found.kind(), RingKind::Pipe);
    assert_eq!(found.read_slot(RX, 3).buf_idx, 67);
    assert_eq!(found.read_slot(RX, 64 + 3).buf_idx, 67);
    assert!(!found.is_closed());
    made.close();
    assert!(found.is_closed());
}

#[test]
fn invalid_ring_parameters_are_refused() {
    let refused = |geometry: Geometry| geometry.header().unwrap_err();
    assert_eq!(refused(Geometry { slots: [32, 64], ..small() }), LayoutError::Slots(32));
    assert_eq!(refused(Geometry { slots: [64, 96], ..small() }), LayoutError::Slots(96));
    assert_eq!(refused(Geometry { slots: [64, 8192], ..small() }), LayoutError::Slots(8192));
    assert_eq!(refused(Geometry { slot_size: 100, ..small() }), LayoutError::SlotSize(100));
    assert_eq!(refused(Geometry { slot_size: 65_536, ..small() }), LayoutError::SlotSize(65_536));
    assert_eq!(refused(Geometry { extra: u32::MAX, ..small() }), LayoutError::Buffers(u32::MAX));
    let large = Geometry { extra: 65_000, slot_size: 32_768, ..small() };
    assert_eq!(refused(large), LayoutError::Bytes(2_138_292_224));
    assert_eq!(refused(Geometry { features: 0x20, ..small() }), LayoutError::Features(0x20));
}

fn pooled(first: u32) -> Geometry {
    let pool = BufferPool { at: 8192, buffers: 400, first };
    Geometry { extra: 0, pool: Some(pool), ..small() }
}

/// Two rings of a program with one pool: a buffer that one ring's slot names is sent by the other without a copy.
#[test]
fn rings_share_the_buffers_of_a_pool() {
    let pool = region(8192 + 400 * 128);
    let made = |first| {
        let geometry = pooled(first);
        let memory = region(geometry.header().unwrap().bytes);
        RingMemory::create_with(memory, Some(pool.clone()), &geometry).unwrap()
    };
    let (one, two) = (made(2), made(130));
    assert!(one.has_pool() && one.extra().is_empty());
    assert_eq!((one.read_slot(TX, 0).buf_idx, one.read_slot(RX, 63).buf_idx), (2, 129));
    assert_eq!((two.read_slot(TX, 1).buf_idx, two.read_slot(RX, 0).buf_idx), (131, 194));
    let (mut fabric, mut program) = (Producer::new(&one, RX), Consumer::new(&one, RX));
    assert_eq!(fabric.push(&one, b"a frame", [0; 10]), Ok(true));
    fabric.publish(&one);
    assert_eq!(program.frame_slots(&one), Ok(Some(1)));
    let slot = program.slot(&one, 0);
    program.write(&one, 0, Slot { buf_idx: 399, ..Slot::default() });
    program.advance(1);
    program.publish(&one);
    let (mut program, mut fabric) = (Producer::new(&two, TX), Consumer::new(&two, TX));
    assert!(program.room(&two, 1).unwrap() > 0);
    program.write(&two, 0, slot);
    program.advance(1);
    program.publish(&two);
    let mut out = [0; 16];
    assert_eq!(fabric.pop(&two, &mut out).unwrap().map(|frame| frame.len), Some(7));
    assert_eq!((&out[..7], one.read_slot(RX, 0).buf_idx), (&b"a frame"[..], 399));
    let found = RingMemory::attach_with(two.region().clone(), Some(pool.clone())).unwrap();
    assert_eq!(found.header(), two.header());
    assert_eq!(RingMemory::attach(two.region().clone()).unwrap_err(), LayoutError::Pool);
}

/// Attack: a pool that is shorter than it says, or whose numbers are those of other buffers.
#[test]
fn invalid_pools_are_refused() {
    let create = |geometry: Geometry, bytes| {
        let memory = region(1 << 20);
        RingMemory::create_with(memory, Some(region(bytes)), &geometry).map(drop)
    };
    assert_eq!(create(pooled(2), 8192 + 400 * 128), Ok(()));
    assert_eq!(create(pooled(2), 8192 + 400 * 128 - 1), Err(LayoutError::Pool));
    assert_eq!(create(pooled(272), 1 << 20), Ok(()));
    for first in [0, 273, u32::MAX] {
        assert_eq!(create(pooled(first), 1 << 20), Err(LayoutError::Pool), "{first}");
    }
    let pool = pooled(2).pool.unwrap();
    let with = |pool| Geometry { pool: Some(pool), ..pooled(2) };
    assert_eq!(create(with(BufferPool { at: 100, ..pool }), 1 << 20), Err(LayoutError::Pool));
    let far = BufferPool { at: u64::MAX - 4095, ..pool };
    assert_eq!(create(with(far), 1 << 20), Err(LayoutError::Bytes(u64::MAX)));
    let many = BufferPool { buffers: 65_537, ..pool };
    assert_eq!(create(with(many), 1 << 20), Err(LayoutError::Buffers(65_537)));
    let pipe = Geometry { kind: RingKind::Pipe, ..pooled(2) };
    assert_eq!(create(pipe, 1 << 20), Err(LayoutError::Pool));
    assert_eq!(create(Geometry { extra: 1, ..pooled(2) }, 1 << 20), Err(LayoutError::Pool));
}

#[test]
fn memory_shorter_than_a_ring_is_refused() {
    let made = ring(small());
    let mut short = made.region().clone();
    short.len -= 4096;
    assert_eq!(RingMemory::attach(short).unwrap_err(), LayoutError::Size);
    let mut none = made.region().clone();
    none.len = 8;
    assert_eq!(RingMemory::attach(none).unwrap_err(), LayoutError::Size);
    assert_eq!(RingMemory::attach(region(8192)).unwrap_err(), LayoutError::Magic);
}

#[test]
fn buffers_have_their_own_bytes_and_bounds() {
    let made = ring(small());
    assert!(made.buffer(135, 128).is_some());
    assert!(made.buffer(136, 1).is_none());
    assert!(made.buffer(0, 129).is_none());
    let (a, b) = (made.buffer(0, 128).unwrap(), made.buffer(1, 128).unwrap());
    a.write(&[1; 128]);
    b.write(&[2; 128]);
    let mut out = [0; 128];
    a.as_span().read(&mut out);
    assert_eq!(out, [1; 128]);
}

#[test]
fn slots_round_trip() {
    let made = ring(small());
    let slot =
        Slot { buf_idx: 0xabcd, len: 0x1234, flags: MOREFRAG, offload: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] };
    made.write_slot(TX, 9, slot);
    assert_eq!(made.read_slot(TX, 9), slot);
}

#[test]
fn an_armed_side_wants_exactly_one_notification() {
    let made = ring(small());
    let (mut producer, mut consumer) = (Producer::new(&made, TX), Consumer::new(&made, TX));
    let fill = |producer: &mut Producer, count| {
        assert!(producer.room(&made, count).unwrap() >= count);
        producer.advance(count);
        producer.publish(&made)
    };
    assert!(!fill(&mut producer, 1), "no notification is requested");
    assert_eq!(consumer.arm(&made, 1), Ok(false), "one slot is filled already");
    assert_eq!(consumer.arm(&made, 4), Ok(true));
    assert!(!fill(&mut producer, 2), "one slot is missing");
    assert!(fill(&mut producer, 5), "the fourth slot is filled");
    assert!(!fill(&mut producer, 5), "notified once");
    consumer.disarm(&made);
    assert!(!fill(&mut producer, 51));
    assert_eq!(producer.room(&made, 1), Ok(0));
    assert_eq!(producer.arm(&made, 10), Ok(true));
    assert_eq!(consumer.available(&made, 64), Ok(64));
    consumer.advance(9);
    assert!(!consumer.publish(&made));
    consumer.advance(1);
    assert!(consumer.publish(&made));
    assert_eq!(producer.arm(&made, 10), Ok(false));
}

#[derive(Clone, Debug)]
enum Step {
    Fill(Vec<u16>),
    Publish,
    Empty(u32),
    Release,
    Swap,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        prop::collection::vec(1u16..128, 1..40).prop_map(Step::Fill),
        Just(Step::Publish),
        (1u32..50).prop_map(Step::Empty),
        Just(Step::Release),
        Just(Step::Swap),
    ];
    prop::collection::vec(step, 1..200)
}

/// Fills a slot whose buffer begins with `number`.
fn fill(made: &RingMemory, producer: &mut Producer, len: u16, number: u32) {
    let buf_idx = producer.slot(made, 0).buf_idx;
    made.buffer(buf_idx, 128).unwrap().write(&number.to_le_bytes());
    let slot = Slot { buf_idx, len, ..Slot::default() };
    if number.is_multiple_of(2) {
        producer.write(made, 0, slot)
    } else {
        producer.renew(made, 0, slot)
    }
    producer.advance(1);
}

#[test]
fn only_the_begin_of_an_extra_buffer_is_lent() {
    let made = ring(small());
    assert_eq!(made.extra(), 128..136);
    let buffer = |number| made.buffer(number, 128).unwrap().as_span();
    assert_eq!([128, 135].map(|number| made.lent(buffer(number))), [Some((128, 0)), Some((135, 0))]);
    assert_eq!(made.lent(buffer(127)), None, "it is a slot's");
    assert_eq!(made.lent(buffer(130).split(1).1), Some((130, 1)));
    let after = ring(Geometry { slots: [128, 64], ..small() });
    assert_eq!(after.lent(after.buffer(191, 128).unwrap().as_span()), None, "it is a slot's");
    assert_eq!(after.lent(after.buffer(192, 128).unwrap().as_span()), Some((192, 0)));
    assert_eq!(ring(Geometry { extra: 0, ..small() }).lent(buffer(128)), None, "it is another ring's");
    assert_eq!(made.lent(Span::of(&[0; 10])), None);
}

proptest! {
    #[test]
    fn a_frame_of_copied_and_lent_parts_arrives_whole(
        frames in prop::collection::vec(prop::collection::vec((any::<bool>(), 0usize..300), 1..8), 1..60),
        in_rx in any::<bool>(),
    ) {
        let (made, number) = (ring(small()), if in_rx { RX } else { TX });
        let (mut producer, mut consumer) = (Producer::new(&made, number), Consumer::new(&made, number));
        for lent in made.extra() {
            made.buffer(lent, 128).unwrap().write(&[lent as u8; 128]);
        }
        let (stream, mut out) = ((0..300).map(|at| at as u8).collect::<Vec<_>>(), [0; 3000]);
        for parts in frames {
            let (mut pushed, mut expected) = (Vec::new(), Vec::new());
            for (is_lent, len) in parts {
                if is_lent {
                    let (buf_idx, len) = (128 + (len % 8) as u16, (len % 128 + 1) as u16);
                    expected.extend(vec![buf_idx as u8; len.into()]);
                    pushed.push(Part::Lent { buf_idx, offset: 0, len });
                } else {
                    expected.extend_from_slice(&stream[..len]);
                    pushed.push(Part::Bytes(Span::of(&stream[..len])));
                }
            }
            prop_assert_eq!(producer.push_parts(&made, pushed.iter().copied(), [3; 10]), Ok(true));
            producer.publish(&made);
            match consumer.pop(&made, &mut out).unwrap() {
                Some(received) => {
                    prop_assert_eq!(&out[..received.len], &expected[..]);
                    prop_assert_eq!(received.offload, [3; 10]);
                }
                None => prop_assert!(expected.is_empty()),
            }
            prop_assert_eq!(consumer.available(&made, 1), Ok(0));
            consumer.publish(&made);
            prop_assert_eq!(producer.consumed(&made), Ok(producer.next()));
        }
        let full = core::iter::repeat_n(Part::Lent { buf_idx: 128, offset: 0, len: 1 }, 65);
        let too_long = PushError::TooLong { len: 65, most: 8192 };
        prop_assert_eq!(producer.push_parts(&made, full, [0; 10]), Err(too_long));
    }
}

#[test]
fn a_slot_names_bytes_within_a_buffer() {
    let made = ring(small());
    let (mut producer, consumer) = (Producer::new(&made, TX), Consumer::new(&made, TX));
    assert!(!producer.has_fixed_buffers(&made));
    consumer.fix_buffers(&made);
    assert!(producer.has_fixed_buffers(&made) && !Producer::new(&made, RX).has_fixed_buffers(&made));
    let parts = [Part::Bytes(Span::of(&[1; 14])), Part::Lent { buf_idx: 130, offset: 100, len: 28 }];
    assert_eq!(producer.push_parts(&made, parts.into_iter(), [3; 10]), Ok(true));
    let [first, second] = [0, 1].map(|at| made.read_slot(TX, at));
    assert_eq!((first.len, first.offload, first.offset(), first.has_more()), (14, [3; 10], 0, true));
    assert_eq!((second.buf_idx, second.len, second.offset(), second.has_more()), (130, 28, 100, false));
}

proptest! {
    #[test]
    fn a_ring_behaves_like_a_queue(steps in steps(), start in any::<u32>()) {
        let made = ring(small());
        for side in [Side::Producer, Side::Consumer] {
            made.cell(RX, side, Word::Index).store(start, Ordering::Relaxed);
        }
        let (mut producer, mut consumer) = (Producer::new(&made, RX), Consumer::new(&made, RX));
        let (mut filled, mut shown) = (VecDeque::new(), VecDeque::new());
        let (mut number, mut held, mut spare) = (0u32, 0, 130);
        for step in steps {
            match step {
                Step::Fill(lens) => for len in lens {
                    let room = producer.room(&made, 1).unwrap() as usize;
                    prop_assert!(room <= 64 - filled.len() - shown.len());
                    if room == 0 { break; }
                    number += 1;
                    fill(&made, &mut producer, len, number);
                    filled.push_back((len, number));
                },
                Step::Publish => { producer.publish(&made); shown.append(&mut filled); }
                Step::Empty(count) => {
                    let available = consumer.available(&made, count).unwrap();
                    prop_assert_eq!(available.min(count) as usize, shown.len().min(count as usize));
                    for _ in 0..count.min(available) {
                        let slot = consumer.slot(&made, 0);
                        let mut bytes = [0; 4];
                        made.buffer(slot.buf_idx, 4).unwrap().as_span().read(&mut bytes);
                        prop_assert_eq!(shown.pop_front(), Some((slot.len, u32::from_le_bytes(bytes))));
                        consumer.advance(1);
                        held += 1;
                    }
                }
                Step::Release => { consumer.publish(&made); held = 0; }
                Step::Swap => if consumer.available(&made, 1).unwrap() > 0 {
                    let slot = consumer.swap(&made, 0, spare);
                    made.buffer(spare, 4).unwrap();
                    let mut bytes = [0; 4];
                    made.buffer(slot.buf_idx, 4).unwrap().as_span().read(&mut bytes);
                    prop_assert_eq!(shown.pop_front(), Some((slot.len, u32::from_le_bytes(bytes))));
                    spare = slot.buf_idx;
                    consumer.advance(1);
                    held += 1;
                },
            }
            prop_assert!(held + filled.len() + shown.len() <= 64);
        }
    }

    #[test]
    fn offsets_stay_inside_the_memory(words in prop::collection::vec((0usize..10, any::<u64>()), 0..4)) {
        let made = ring(small());
        let mut header = made.header().to_words();
        for (at, word) in words {
            header[at] = word;
        }
        let bytes = made.region().len;
        if let Ok(geometry) = Geometry::check(Header::from_words(header), bytes) {
            let header = geometry.header().unwrap();
            prop_assert!(header.bytes <= bytes);
            prop_assert!(header.buffers_at + u64::from(header.buffers) * u64::from(header.stride) <= bytes);
        }
    }

    #[test]
    fn a_hostile_side_gives_an_error_or_bounded_slots(
        writes in prop::collection::vec(
            (0usize..2, any::<bool>(), 0usize..3, any::<u32>(), 0u32..70),
            1..100,
        ),
    ) {
        let made = ring(small());
        let mut producer = Producer::new(&made, RX);
        let mut consumer = Consumer::new(&made, TX);
        for (ring, jump, word, value, near) in writes {
            let word = [Word::Index, Word::Wake, Word::WakeAt][word];
            let side = if ring == TX { Side::Producer } else { Side::Consumer };
            let cell = made.cell(ring, side, word);
            let value = if jump { value } else { cell.load(Ordering::Relaxed).wrapping_add(near) };
            cell.store(value, Ordering::Relaxed);
            made.write_slot(ring, value, Slot::from_words(u64::from(value).wrapping_mul(0x1_0001_0001), 0));
            if let Ok(room) = producer.room(&made, 64) {
                prop_assert!(room <= 64);
                producer.advance(room.min(near));
                producer.publish(&made);
            }
            let _ = producer.arm(&made, near);
            if let Ok(available) = consumer.available(&made, 64) {
                prop_assert!(available <= 64);
                for ahead in 0..available {
                    let slot = consumer.slot(&made, ahead);
                    let span = made.buffer(slot.buf_idx, u32::from(slot.len)).map(|span| span.as_span());
                    let mut bytes = [0; 128];
                    prop_assert!(span.unwrap_or(Span::empty()).read(&mut bytes) <= 128);
                }
                consumer.advance(near);
                consumer.publish(&made);
            }
            let _ = consumer.arm(&made, near);
        }
    }
}
