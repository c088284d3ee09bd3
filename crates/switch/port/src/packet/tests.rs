//! Blocks as the kernel writes them, and as it never does.

use super::tx::PacketTx;
use super::{Open, Ring, Shared, block};
use crate::{InterfacePage, InterfaceState, Silent};
use ringway_frame::{Burst, CountersRef, Needs, Offload, Reason, Storage, TxQueue};
use ringway_host::{Mapping, PACKET_RINGS, RX_BLOCK, RX_BLOCKS};
use ringway_mem::{Memory, Published, Reader};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const FIRST: u32 = 56;
const DISTANCE: u32 = 512;
const FRAME: u32 = 96;

struct Rig {
    shared: Shared,
    tx: PacketTx,
    counters: CountersRef,
}

/// A ring in private memory, which a test fills in place of the kernel.
fn ring() -> Ring {
    let memory = Memory::new(vec![Mapping::private(PACKET_RINGS).unwrap().region()]).unwrap();
    let socket = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    Ring { memory, socket: Arc::new(socket), first: 0 }
}

fn put(ring: &Ring, at: usize, bytes: &[u8]) {
    ring.span(at, bytes.len()).unwrap().write(bytes);
}

fn word(ring: &Ring, at: usize, value: u32) {
    put(ring, at, &value.to_le_bytes());
}

/// Writes a frame of 60 bytes that begin with `number`.
fn frame(ring: &Ring, block: usize, place: u32, number: u8, tag: Option<u16>) {
    let at = block * RX_BLOCK + (FIRST + place * DISTANCE) as usize;
    word(ring, at, DISTANCE);
    word(ring, at + 12, 60);
    word(ring, at + 16, 60);
    word(ring, at + 20, if tag.is_some() { 1 | 1 << 4 } else { 1 });
    word(ring, at + 24, FRAME);
    word(ring, at + 32, tag.unwrap_or(0).into());
    put(ring, at + FRAME as usize - 10, &Offload::checksum(34, 16).to_bytes());
    put(ring, at + FRAME as usize, &[number; 60]);
}

fn hand_over(ring: &Ring, index: usize, frames: u32, sequence: u32) {
    let at = index * RX_BLOCK;
    word(ring, at + block::FRAMES, frames);
    word(ring, at + block::FIRST, FIRST);
    word(ring, at + block::SEQUENCE, sequence);
    word(ring, at + block::STATUS, block::OURS);
}

fn rig(mut ring: Ring) -> Rig {
    ring.first = ring.oldest();
    let state = InterfaceState { mtu: 1500, has_carrier: true, ..InterfaceState::default() };
    let (page, _file) = InterfacePage::create(&state).unwrap();
    let counters = CountersRef::private();
    let open = Open { ring: Some((ring, page)), number: 1 };
    let open = Arc::new(Published::new(Arc::new(open)));
    let shared = Shared { open, doorbell: Arc::new(Silent), counters: counters.clone() };
    Rig { tx: PacketTx::new(shared.clone()).unwrap(), shared, counters }
}

impl Rig {
    /// The frames that are there: first byte, length, offload.
    fn take(&mut self) -> Vec<(u8, u32, Offload)> {
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(1);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        self.tx.take(&turn, &mut burst);
        let of = |index| (burst.head(index)[0], burst.meta(index).len, burst.meta(index).offload);
        (0..burst.len()).map(of).collect()
    }

    fn release(&mut self, frames: usize) {
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(1);
        self.tx.release(&turn, frames);
    }

    fn is_kernels(&self, index: usize) -> bool {
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(1);
        !self.shared.ring(&turn).unwrap().0.is_ours(index)
    }

    fn drops(&self, reason: Reason) -> u64 {
        self.counters.tx_drops[reason as usize].load(Ordering::Relaxed)
    }
}

#[test]
fn frames_of_blocks_are_taken_in_order_and_blocks_are_given_back_when_released() {
    let ring = ring();
    for (block, count) in [(0, 3), (1, 2)] {
        (0..count).for_each(|place| frame(&ring, block, place, (block * 10) as u8 + place as u8, None));
        hand_over(&ring, block, count, block as u32 + 1);
    }
    let mut rig = rig(ring);
    let numbers = |frames: Vec<(u8, u32, Offload)>| frames.iter().map(|frame| frame.0).collect::<Vec<_>>();
    assert_eq!(numbers(rig.take()), [0, 1, 2, 10, 11]);
    assert_eq!(numbers(rig.take()), [0, 1, 2, 10, 11], "they stay until they are released");
    rig.release(2);
    assert!(!rig.is_kernels(0));
    assert_eq!(numbers(rig.take()), [2, 10, 11]);
    rig.release(2);
    assert!(rig.is_kernels(0) && !rig.is_kernels(1));
    rig.release(1);
    assert!(rig.is_kernels(1));
    assert!(rig.take().is_empty());
}

#[test]
fn a_removed_tag_is_put_back_with_the_positions_behind_it() {
    let ring = ring();
    frame(&ring, 0, 0, 7, Some(0x2005));
    hand_over(&ring, 0, 1, 1);
    let mut rig = rig(ring);
    for _ in 0..2 {
        let mut reader = Reader::register().unwrap();
        let turn = reader.turn(1);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        rig.tx.take(&turn, &mut burst);
        let mut bytes = [0; 64];
        assert_eq!(burst.read(0, 0, &mut bytes), 64);
        assert_eq!(bytes[12..16], [0x81, 0, 0x20, 5]);
        assert_eq!((&bytes[..12], &bytes[16..]), (&[7; 12][..], &[7; 48][..]));
        let offload = burst.meta(0).offload;
        assert_eq!((offload.csum_start, offload.needs()), (38, Needs::CSUM));
    }
}

#[test]
fn another_data_process_goes_on_where_the_first_one_released() {
    let ring = ring();
    // The kernel went around the ring: the block that it handed over first is in the middle.
    for (block, sequence) in [(9, 26), (10, 27), (0, 33), (8, 25)] {
        (0..2).for_each(|place| frame(&ring, block, place, (block * 2) as u8 + place as u8, None));
        hand_over(&ring, block, 2, sequence);
    }
    word(&ring, 8 * RX_BLOCK + block::RELEASED, 1);
    let mut rig = rig(ring);
    let numbers: Vec<u8> = rig.take().iter().map(|frame| frame.0).collect();
    assert_eq!(numbers, [17, 18, 19, 20, 21], "block 11 is the kernel's");
    rig.release(1);
    assert!(rig.is_kernels(8));
}

#[test]
fn an_idle_ring_is_read_from_the_block_that_the_kernel_fills() {
    let ring = ring();
    (0..6).for_each(|index| word(&ring, index * RX_BLOCK + block::SEQUENCE, index as u32 + 1));
    assert_eq!(ring.oldest(), 5);
}

#[test]
fn headers_that_lead_out_of_a_block_are_dropped_and_the_block_is_given_back() {
    // A position, a length, a next frame or a first frame out of bounds.
    let changes: [(usize, u32); 5] =
        [(12, RX_BLOCK as u32), (12, u32::MAX), (24, 3), (0, u32::MAX), (16, 100)];
    for (field, value) in changes {
        let ring = ring();
        (0..3).for_each(|place| frame(&ring, 0, place, place as u8, None));
        hand_over(&ring, 0, 3, 1);
        word(&ring, (FIRST + DISTANCE) as usize + field, value);
        let mut rig = rig(ring);
        let taken = rig.take().len();
        assert!((1..3).contains(&taken), "{field}: {taken}");
        rig.release(taken);
        assert!(rig.is_kernels(0), "{field}");
        let all: u64 = [Reason::BadDescriptor, Reason::Long].map(|reason| rig.drops(reason)).iter().sum();
        assert_eq!(all, 3 - taken as u64, "{field}");
    }
    let ring = ring();
    hand_over(&ring, 0, u32::MAX, 1);
    word(&ring, block::FIRST, RX_BLOCK as u32 - 8);
    let mut rig = rig(ring);
    assert!(rig.take().is_empty() && rig.is_kernels(0));
    assert_eq!(rig.drops(Reason::BadDescriptor), RX_BLOCK as u64 / 48);
}

#[test]
fn a_ring_of_blocks_without_frames_ends_a_turn() {
    let ring = ring();
    (0..RX_BLOCKS).for_each(|index| hand_over(&ring, index, 0, index as u32 + 1));
    let mut rig = rig(ring);
    assert!(rig.take().is_empty());
    assert!((0..RX_BLOCKS).all(|index| rig.is_kernels(index)));
}
