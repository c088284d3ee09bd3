//! Command queues: commands and replies are transferred unchanged; invalid commands are refused.

#![allow(clippy::unwrap_used)] // Helpers of tests fail the test.

use crate::common::{BASE, Guest, LEN, start};
use proptest::prelude::*;
use ringway_mem::Hint;
use ringway_virtq::{Buffer, CommandDevice, Driver, Indirect, Layout, QueueError};

const RING: u64 = BASE;
const TABLE: u64 = BASE + 0x4000;
const READ: u64 = BASE + 0x8000;
const WRITE: u64 = BASE + 0x9000;
const HALF: u64 = BASE + LEN as u64 / 2;

fn layout(packed: bool) -> Layout {
    Layout { packed, size: 64, event_idx: true, indirect: true }
}

fn buffer(address: u64, len: u32, write: bool) -> Buffer {
    Buffer { address, len, write }
}

/// Processes one chain as the device.
fn ask(
    packed: bool,
    indirect: bool,
    buffers: &[Buffer],
    guest: &Guest,
) -> Result<(Option<u64>, [u8; 4]), QueueError> {
    let layout = layout(packed);
    let mut driver = Driver::new(&layout, guest.areas(&layout, RING)).unwrap();
    let table = Indirect { address: TABLE, table: guest.span(TABLE, 16 * buffers.len()) };
    driver.add(buffers, indirect.then_some(table)).unwrap();
    driver.publish();
    let ring = guest.ring(&layout, RING);
    let mut device = CommandDevice::new(start(&layout), start(&layout));
    let (mut hint, mut command) = (Hint::default(), [0xee; 4]);
    // Taking without answering changes nothing.
    device.take(&ring, &mut guest.direct(&mut hint), &mut command)?;
    let len = device.take(&ring, &mut guest.direct(&mut hint), &mut command)?;
    assert!(driver.take_used().unwrap().is_none());
    device.answer(&ring, &mut guest.direct(&mut hint), &[7])?;
    let room = u32::from(buffers.iter().any(|buffer| buffer.write));
    assert_eq!(driver.take_used().unwrap().map(|used| used.1), Some(room));
    assert_eq!(device.take(&ring, &mut guest.direct(&mut hint), &mut [0; 4]), Ok(None));
    Ok((len, command))
}

fn every_kind(mut check: impl FnMut(bool, bool)) {
    for (packed, indirect) in [(false, false), (false, true), (true, false), (true, true)] {
        check(packed, indirect);
    }
}

#[test]
fn a_split_command_is_reassembled_and_answered() {
    every_kind(|packed, indirect| {
        let guest = Guest::new();
        guest.write(READ, &[4, 0]);
        // Its data spans two memory regions.
        guest.write(HALF - 1, &[2, 9]);
        let parts = [buffer(READ, 2, false), buffer(HALF - 1, 2, false), buffer(WRITE, 1, true)];
        assert_eq!(ask(packed, indirect, &parts, &guest), Ok((Some(4), [4, 0, 2, 9])));
        assert_eq!(guest.read(WRITE, 2), [7, 0]);
    });
}

#[test]
fn a_command_without_a_reply_buffer_is_still_used() {
    every_kind(|packed, indirect| {
        let guest = Guest::new();
        let parts = [buffer(READ, 2, false)];
        assert_eq!(ask(packed, indirect, &parts, &guest), Ok((Some(2), [0, 0, 0xee, 0xee])));
        let parts = [buffer(WRITE, 1, true)];
        assert_eq!(ask(packed, indirect, &parts, &Guest::new()), Ok((Some(0), [0xee; 4])));
    });
}

#[test]
fn a_long_command_is_truncated() {
    every_kind(|packed, indirect| {
        let guest = Guest::new();
        guest.write(READ, &[1, 2, 3, 4, 5, 6]);
        let parts = [buffer(READ, 3, false), buffer(READ + 3, 0x4_0000, false), buffer(WRITE, 9, true)];
        assert_eq!(ask(packed, indirect, &parts, &guest), Ok((Some(0x4_0003), [1, 2, 3, 4])));
    });
}

#[test]
fn a_misplaced_or_invalid_reply_buffer_is_a_breach() {
    every_kind(|packed, indirect| {
        let end = BASE + LEN as u64;
        let cases: [(&[Buffer], QueueError); 5] = [
            (&[buffer(WRITE, 1, true), buffer(READ, 2, false)], QueueError::Direction),
            (
                &[buffer(READ, 2, false), buffer(WRITE, 1, true), buffer(READ, 2, false)],
                QueueError::Direction,
            ),
            (&[buffer(READ, 2, false), buffer(WRITE, 0, true)], QueueError::Zero),
            (&[buffer(READ, 2, false), buffer(end, 1, true)], QueueError::Address),
            (&[buffer(end - 1, 2, false), buffer(WRITE, 1, true)], QueueError::Address),
        ];
        for (parts, error) in cases {
            let guest = Guest::new();
            assert_eq!(ask(packed, indirect, parts, &guest), Err(error), "{parts:?}");
            assert!(guest.guards_hold());
        }
    });
}

#[test]
fn an_out_of_range_or_looping_next_is_a_breach() {
    let split = layout(false);
    for (next, expected) in
        [(64, QueueError::Descriptor), (u16::MAX, QueueError::Descriptor), (0, QueueError::Chain)]
    {
        let guest = Guest::new();
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&READ.to_le_bytes());
        (descriptor[8], descriptor[12]) = (1, 1);
        descriptor[14..].copy_from_slice(&u16::to_le_bytes(next));
        guest.write(RING, &descriptor);
        // One chain, beginning at descriptor 0, is available.
        guest.write(RING + 16 * 64 + 2, &1_u16.to_le_bytes());
        let mut device = CommandDevice::new(start(&split), start(&split));
        let ring = guest.ring(&split, RING);
        let result = device.take(&ring, &mut guest.direct(&mut Hint::default()), &mut [0; 4]);
        assert_eq!(result, Err(expected));
    }
}

#[test]
fn a_command_with_too_many_descriptors_is_a_breach() {
    for packed in [false, true] {
        let layout = Layout { size: 1024, ..layout(packed) };
        let guest = Guest::new();
        let mut driver = Driver::new(&layout, guest.areas(&layout, RING)).unwrap();
        let chain: Vec<Buffer> = (0..1000).map(|_| buffer(BASE + 0x2_0000, 1, false)).collect();
        driver.add(&chain, None).unwrap();
        driver.publish();
        let mut device = CommandDevice::new(start(&layout), start(&layout));
        let ring = guest.ring(&layout, RING);
        let result = device.take(&ring, &mut guest.direct(&mut Hint::default()), &mut [0; 4]);
        assert_eq!(result, Err(QueueError::Chain));
    }
}

proptest! {
    #[test]
    fn no_command_makes_the_device_write_outside_memory(
        packed in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 16 * 64),
        near in proptest::collection::vec((0usize..64, 0u64..0x20, any::<bool>()), 0..64),
    ) {
        let (layout, guest) = (layout(packed), Guest::new());
        guest.write(RING, &bytes);
        for (index, offset, begin) in near {
            let edge = if begin { BASE } else { BASE + LEN as u64 };
            guest.write(RING + 16 * index as u64, &(edge - 0x10 + offset).to_le_bytes());
        }
        guest.write(RING + 16 * 64 + 2, &32_u16.to_le_bytes());
        let mut device = CommandDevice::new(start(&layout), start(&layout));
        let (ring, mut hint) = (guest.ring(&layout, RING), Hint::default());
        for _ in 0..64 {
            let taken = device.take(&ring, &mut guest.direct(&mut hint), &mut [0; 8]);
            let mut answer = || device.answer(&ring, &mut guest.direct(&mut hint), &[1]);
            if !matches!(taken, Ok(Some(_))) || answer().is_err() {
                break;
            }
        }
        prop_assert!(guest.guards_hold());
    }
}
