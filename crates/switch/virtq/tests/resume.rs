//! The position of a packed ring whose device crashed, as its descriptors show it.

use crate::common::{BASE, Guest, start};
use ringway_mem::{Hint, Span};
use ringway_virtq::{Areas, Buffer, Cursor, Driver, Layout, PackedRing, TxDevice, Verdict};

fn resumed(areas: &Areas<'_>, size: u16) -> Cursor {
    PackedRing::resume(size, &|index| {
        let bytes = areas.descriptors.as_span().split(usize::from(index) * 16 + 12).1.read_array::<4>();
        let [id, more, flags, last] = bytes.unwrap();
        (u16::from_le_bytes([id, more]), u16::from_le_bytes([flags, last]))
    })
}

/// A device uses `used` of the `pending` buffers, of `parts` descriptors each, and crashes after it wrote the next
/// used entries, before or after it made them visible.
fn crash_everywhere(size: u16, parts: usize, pending: usize, used: usize, from: usize) {
    let layout = Layout { packed: true, size, event_idx: true, indirect: false };
    let guest = Guest::new();
    let (ring, areas) = (guest.ring(&layout, BASE), guest.areas(&layout, BASE));
    let mut driver = Driver::new(&layout, guest.areas(&layout, BASE)).unwrap();
    let mut device = TxDevice::new(start(&layout), start(&layout));
    assert_eq!(resumed(&areas, size), start(&layout), "a new ring");
    let buffers = vec![Buffer { address: BASE + 0x1_0000, len: 1, write: false }; parts];
    let (mut waiting, mut hint) = (0, Hint::default());
    for round in 0..usize::from(size) * 4 {
        while waiting < pending && driver.add(&buffers, None).is_some() {
            waiting += 1;
        }
        driver.publish();
        let visible = device.position().1;
        let what =
            || format!("{size} descriptors, {parts} each, {pending} pending, {used} used, round {round}");
        if round >= from {
            assert_eq!(resumed(&areas, size), visible, "{}", what());
        }
        let look = |_: &[Span<'_>]| Verdict::Take;
        device.peek(&ring, &mut guest.direct(&mut hint), used, look).unwrap();
        waiting -= device.release(&ring, used);
        if round >= from && parts == 1 && used + 1 < usize::from(size) {
            assert_eq!(resumed(&areas, size), visible, "not published: {}", what());
        }
        device.publish(&ring);
        if round >= from {
            assert_eq!(resumed(&areas, size), device.position().1, "published: {}", what());
        }
        while driver.take_used().unwrap().is_some() {}
    }
}

#[test]
fn buffers_of_one_descriptor_show_the_position_at_every_index_and_wrap() {
    for size in [5, 8, 16] {
        for pending in 1..=usize::from(size) {
            (1..=pending.min(4)).for_each(|used| crash_everywhere(size, 1, pending, used, 0));
        }
    }
}

#[test]
fn chains_show_the_position_once_several_were_used() {
    for (size, parts, pending) in [(16, 2, 1), (16, 2, 3), (17, 2, 2), (32, 3, 2), (32, 3, 4)] {
        crash_everywhere(size, parts, pending, 1, 3);
    }
}

/// Attack: any flags and ids. The position is one of the ring.
#[test]
fn hostile_descriptors_show_a_position_in_the_ring() {
    let mut seed = 1u32;
    for size in (1..=64).chain([32_768]) {
        for _ in 0..20 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let read = |index: u16| {
                let word = (seed ^ u32::from(index)).wrapping_mul(0x9e37_79b1);
                ((word >> 8) as u16 & 3, (word >> 16) as u16)
            };
            assert!(PackedRing::resume(size, &read).index < size);
        }
    }
}
