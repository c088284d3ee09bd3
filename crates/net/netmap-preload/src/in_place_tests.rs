//! A port whose ring has its buffers in netmap's memory: nothing is copied, and each buffer is in one slot.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::fuzzing::{BOTH, Fabric, IN_PLACE as SIZES, Shared, Step, in_place_port as port};
use crate::port::{Port, Use};
use crate::region::Region;
use crate::rings::{MOREFRAG, Slot};
use crate::transfer::{RX, TX};
use proptest::prelude::*;
use std::sync::Arc;

impl Fabric {
    /// The next frame that the port has sent: the buffers that its slots name, and its bytes.
    fn take(&mut self) -> Option<(Vec<u32>, Vec<u8>)> {
        let slots = self.tx.frame_slots(&self.memory).unwrap()?;
        let named = (0..slots).map(|ahead| self.tx.slot(&self.memory, ahead).buf_idx.into()).collect();
        let mut bytes = vec![0; 4096];
        let got = self.tx.pop(&self.memory, &mut bytes).unwrap().unwrap();
        bytes.truncate(got.len);
        self.tx.publish(&self.memory);
        Some((named, bytes))
    }

    /// Sends a frame to the port; the buffer of its first slot.
    fn give(&mut self, frame: &[u8]) -> u32 {
        self.rx.room(&self.memory, 1).unwrap();
        let first = self.rx.slot(&self.memory, 0).buf_idx;
        assert!(self.rx.push(&self.memory, frame, [0; 10]).unwrap());
        self.rx.publish(&self.memory);
        first.into()
    }

    /// The buffers of the slots of the ring to receive.
    fn buffers(&self) -> Vec<u32> {
        (0..128).map(|slot| self.rx.slot(&self.memory, slot).buf_idx.into()).collect()
    }
}

fn region() -> Arc<Region> {
    Region::new(SIZES, |_| false).unwrap()
}

/// Puts bytes where slot `at` names them, and gives the slots up to it.
fn put(port: &Port, at: u32, bytes: &[u8], flags: u16) -> u32 {
    let slot = port.rings.slot(TX, at);
    port.rings.region.buffer(slot.buf_idx, bytes.len() as u32).unwrap().write(bytes);
    port.rings.set_slot(TX, at, Slot { len: bytes.len() as u16, flags, ..slot });
    let next = (at + 1) % 64;
    port.rings.set_position(TX, (next, next));
    slot.buf_idx
}

/// The frame in a slot to receive: its buffer, length and first byte.
fn got(port: &Port, at: u32) -> (u32, u16, u8) {
    let slot = port.rings.slot(RX, at);
    let first = port.rings.region.buffer(slot.buf_idx, 1).unwrap().as_span().read_array::<1>().unwrap();
    (slot.buf_idx, slot.len, first[0])
}

/// All buffers that the slots of these ports have, each once.
fn assert_each_once(ports: &[(&Port, &Fabric)]) {
    let mut all = Vec::new();
    for (port, fabric) in ports {
        for (dir, slots) in [(TX, 64), (RX, 100)] {
            all.extend((0..slots).map(|slot| port.rings.slot(dir, slot).buf_idx));
        }
        all.extend(fabric.buffers());
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a buffer is in two slots");
}

#[test]
fn frames_are_sent_and_received_where_they_are() {
    let (mut port, mut fabric) = port(&region());
    for turn in 0..300_u32 {
        let [at, fill] = [turn % 64, turn % 251];
        let sent = put(&port, at, &[fill as u8; 60], 0);
        assert_eq!(port.sync(TX), Ok(true));
        // A slot is the port's until the fabric has the frame.
        assert_eq!(port.positions(TX).tail, (at + 63) % 64);
        assert_eq!(fabric.take(), Some((vec![sent], vec![fill as u8; 60])));
        assert_eq!((port.sync(TX), port.positions(TX).tail), (Ok(true), at));
        assert_eq!(port.rings.slot(TX, at).buf_idx, sent);
        let at = turn % 100;
        let buffer = fabric.give(&[fill as u8; 70]);
        let before = port.rings.slot(RX, at).buf_idx;
        assert_eq!(port.sync(RX), Ok(true));
        assert_eq!(got(&port, at), (buffer, 70, fill as u8));
        // The ring has the slot's buffer for it, at once.
        assert_eq!(fabric.buffers()[127], before);
        port.rings.set_position(RX, ((at + 1) % 100, (at + 1) % 100));
    }
    assert_each_once(&[(&port, &fabric)]);
}

#[test]
fn a_frame_of_several_slots_is_not_copied_either() {
    let (mut port, mut fabric) = port(&region());
    let named = [put(&port, 0, &[1; 2048], MOREFRAG), put(&port, 1, &[2; 100], 0)];
    assert_eq!(port.sync(TX), Ok(true));
    let (buffers, bytes) = fabric.take().unwrap();
    assert_eq!((buffers, bytes.len(), bytes[2047], bytes[2048]), (named.to_vec(), 2148, 1, 2));
    let first = fabric.give(&[3; 2500]);
    assert_eq!((port.sync(RX), port.positions(RX).tail), (Ok(true), 2));
    assert_eq!((got(&port, 0), got(&port, 1).1), ((first, 2048, 3), 452));
    assert_eq!([0, 1].map(|at| port.rings.slot(RX, at).flags), [0x220, 0x200]);
    assert_each_once(&[(&port, &fabric)]);
}

/// As netmap's `bridge` does: what one port has received the other sends, and no byte moves.
#[test]
fn two_ports_exchange_buffers_by_their_numbers() {
    let region = region();
    let ((mut one, mut from), (mut two, mut to)) = (port(&region), port(&region));
    for turn in 0..1000_u32 {
        let buffer = from.give(&[turn as u8; 90]);
        assert_eq!(one.sync(RX), Ok(true));
        let (rx, tx) = (turn % 100, turn % 64);
        let (received, spare) = (one.rings.slot(RX, rx), two.rings.slot(TX, tx));
        one.rings.set_slot(RX, rx, Slot { buf_idx: spare.buf_idx, ..received });
        two.rings.set_slot(TX, tx, Slot { buf_idx: received.buf_idx, len: received.len, flags: 1 });
        one.rings.set_position(RX, ((rx + 1) % 100, (rx + 1) % 100));
        two.rings.set_position(TX, ((tx + 1) % 64, (tx + 1) % 64));
        assert_eq!(two.sync(TX), Ok(true));
        assert_eq!(to.take(), Some((vec![buffer], vec![turn as u8; 90])));
        assert_eq!(two.rings.slot(TX, tx).flags, 0);
    }
    assert_each_once(&[(&one, &from), (&two, &to)]);
    // Their room is not given to others while they have buffers of each other.
    assert!(!one.rings.has_own_buffers() && !two.rings.has_own_buffers());
}

#[test]
fn programs_wait_until_half_of_what_they_sent_is_taken() {
    let (mut port, mut fabric) = port(&region());
    for at in 0..63 {
        put(&port, at, &[1; 60], 0);
    }
    assert_eq!(port.poll(BOTH, libc::POLLOUT), 0);
    assert!(port.arm(BOTH, libc::POLLOUT));
    let mut woken = 0;
    while woken < 63 && !port_is_woken(&mut fabric) {
        woken += 1;
    }
    assert_eq!(woken, 30, "the port wakes the program when 31 frames are taken");
    assert_eq!(port.poll(BOTH, libc::POLLOUT), libc::POLLOUT);
}

/// `NR_NO_TX_POLL` and `NR_DO_RX_POLL`: a poll that asks for one direction syncs the other one, or not.
#[test]
fn a_poll_syncs_the_other_direction_if_its_handle_wants_that() {
    for (sends, receives) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut port, mut fabric) = port(&region());
        let own = Use { sends, receives, ..BOTH };
        put(&port, 0, &[1; 60], 0);
        assert_eq!(port.poll(own, libc::POLLIN), 0);
        assert_eq!(fabric.take().is_some(), sends);
        fabric.give(&[2; 70]);
        assert_eq!(port.poll(own, libc::POLLOUT), libc::POLLOUT);
        assert_eq!(port.positions(RX).tail, u32::from(receives));
        assert_eq!(fabric.take().is_some(), !sends);
    }
}

/// What the port takes after the program has looked, and before it sleeps, wakes nobody: it does not sleep.
#[test]
fn programs_do_not_sleep_when_all_is_taken_before_they_do() {
    for (before, after) in [(0, 63), (53, 10), (62, 1), (30, 20)] {
        let (mut port, mut fabric) = port(&region());
        for at in 0..63 {
            put(&port, at, &[1; 60], 0);
        }
        assert_eq!(port.sync(TX), Ok(true));
        (0..before).for_each(|_| assert!(!port_is_woken(&mut fabric)));
        assert_eq!(port.sync(TX), Ok(true));
        // The program waits for more than it has.
        let tail = port.positions(TX).tail;
        port.rings.set_position(TX, (63, tail));
        assert_eq!(port.poll(BOTH, libc::POLLOUT), 0);
        (0..after).for_each(|_| assert!(!port_is_woken(&mut fabric), "nobody waits yet"));
        assert!(!port.arm(BOTH, libc::POLLOUT), "{before} before, {after} after");
        assert_eq!(port.poll(BOTH, libc::POLLOUT), libc::POLLOUT, "{before} before, {after} after");
    }
    // Who has all slots and waits for more is not told to look again and again.
    let (mut port, _fabric) = port(&region());
    port.rings.set_position(TX, (0, 63));
    assert_eq!(port.poll(BOTH, libc::POLLOUT), 0);
    assert!(port.arm(BOTH, libc::POLLOUT));
}

/// The fabric writes to the buffers of a port until it has closed the ring: nobody else has them before.
#[test]
fn room_is_given_again_when_the_fabric_has_closed_the_ring() {
    let region = region();
    let (one, fabric) = port(&region);
    let place = one.rings.place;
    drop(one);
    let (two, other) = port(&region);
    assert!(two.rings.place.first >= place.first + SIZES.buffers(), "{:?}", two.rings.place);
    fabric.memory.close();
    let (three, _) = port(&region);
    assert_eq!(three.rings.place, place);
    let place = two.rings.place;
    other.memory.close();
    drop(two);
    assert_eq!(port(&region).0.rings.place, place);
}

/// Takes a frame; whether the program wants to be woken.
fn port_is_woken(fabric: &mut Fabric) -> bool {
    assert_eq!(fabric.tx.frame_slots(&fabric.memory).unwrap(), Some(1));
    fabric.tx.advance(1);
    fabric.tx.publish(&fabric.memory)
}

#[test]
fn what_a_program_writes_wrongly_leaves_each_buffer_in_one_slot() {
    let (mut port, mut fabric) = port(&region());
    for turn in 0..64 {
        fabric.give(&[turn; 60]);
    }
    assert_eq!(port.sync(RX), Ok(true));
    for at in [0, 5, 6] {
        let slot = port.rings.slot(RX, at);
        port.rings.set_slot(RX, at, Slot { buf_idx: [u32::MAX, 0, 1 << 20][at as usize % 3], ..slot });
    }
    port.rings.set_position(RX, (64, 64));
    for turn in 0..90 {
        fabric.give(&[turn; 60]);
        let _ = port.sync(RX);
        let tail = port.positions(RX).tail;
        port.rings.set_position(RX, (tail, tail));
    }
    assert_each_once(&[(&port, &fabric)]);
    // A wrong frame to send is a slot without bytes, which the fabric drops.
    let slot = port.rings.slot(TX, 0);
    port.rings.set_slot(TX, 0, Slot { buf_idx: 1, len: 60, flags: 0 });
    port.rings.set_position(TX, (1, 1));
    assert_eq!(port.sync(TX), Ok(false));
    assert_eq!(fabric.take().map(|(_, bytes)| bytes), Some(vec![]));
    assert_eq!(port.rings.slot(TX, 0).buf_idx, slot.buf_idx);
    put(&port, 1, &[7; 60], 0);
    assert_eq!(port.sync(TX), Ok(true));
    assert_eq!(fabric.take().map(|(_, bytes)| bytes), Some(vec![7; 60]));
    // One of several slots is one frame without bytes.
    for at in 2..4 {
        put(&port, at, &[8; 60], MOREFRAG);
    }
    port.rings.set_slot(TX, 4, Slot { buf_idx: 1, len: 60, flags: 0 });
    port.rings.set_position(TX, (5, 5));
    assert_eq!(port.sync(TX), Ok(false));
    assert_eq!(fabric.take().map(|(named, bytes)| (named.len(), bytes)), Some((3, vec![])));
    assert_eq!(fabric.take(), None);
    assert_each_once(&[(&port, &fabric)]);
}

/// A program has moved the buffer of a slot to send to one to receive: a wrong slot does not get it back.
#[test]
fn a_wrong_slot_to_send_gets_no_buffer_that_another_slot_has() {
    let (mut port, mut fabric) = port(&region());
    let [tx, rx] = [TX, RX].map(|dir| port.rings.slot(dir, 0));
    port.rings.set_slot(RX, 0, Slot { buf_idx: tx.buf_idx, ..rx });
    port.rings.set_slot(TX, 0, Slot { buf_idx: u32::MAX, len: 60, flags: 0 });
    // Impossible positions leave the slot as it is.
    port.rings.set_position(TX, (99, 99));
    assert_eq!(port.sync(TX), Ok(false));
    port.rings.set_position(TX, (1, 1));
    assert_eq!(port.sync(TX), Ok(false));
    assert_eq!(port.rings.slot(TX, 0).buf_idx, rx.buf_idx);
    assert_eq!(fabric.take().map(|(_, bytes)| bytes), Some(vec![]));
    assert_each_once(&[(&port, &fabric)]);
}

/// A process that is killed after it has exchanged some slots of a frame.
#[test]
fn another_process_goes_on_within_a_frame_of_several_slots() {
    for exchanged in 0..=3 {
        let (port, mut fabric) = port(&region());
        let before = fabric.buffers();
        fabric.give(&[4; 6000]);
        let next = fabric.give(&[5; 60]);
        for at in 0..exchanged {
            let (own, arrived) = (port.rings.slot(RX, at), fabric.memory.read_slot(ringway_ring::RX, at));
            port.rings.state.set_moving(own.buf_idx);
            let flags = 0x300 | arrived.flags;
            let buf_idx = arrived.buf_idx.into();
            port.rings.set_slot(RX, at, Slot { buf_idx, len: arrived.len, flags });
            let left = ringway_ring::Slot {
                buf_idx: own.buf_idx as u16,
                flags: arrived.flags,
                ..Default::default()
            };
            fabric.memory.write_slot(ringway_ring::RX, at, left);
        }
        let mut other = Port::adopt(port.store().try_clone_to_owned().unwrap(), |_| None).unwrap();
        assert_eq!((other.sync(RX), other.positions(RX).tail), (Ok(true), 4), "{exchanged}");
        for (at, len) in [2048, 2048, 1904].into_iter().enumerate() {
            assert_eq!(got(&other, at as u32), (before[at], len, 4), "{exchanged}");
        }
        assert_eq!(got(&other, 3), (next, 60, 5));
        assert_eq!([0, 1, 2].map(|at| other.rings.slot(RX, at).flags), [0x320, 0x320, 0x300]);
        assert_each_once(&[(&other, &fabric)]);
    }
}

/// What a process leaves in the ring's slots of a frame whose slots it has exchanged.
#[test]
fn the_slots_of_a_frame_are_as_many_after_the_exchange() {
    let (mut port, mut fabric) = port(&region());
    fabric.give(&[4; 6000]);
    assert_eq!(port.sync(RX), Ok(true));
    let left = [0, 1, 2].map(|at| fabric.memory.read_slot(ringway_ring::RX, at));
    assert_eq!(left.map(|slot| (slot.len, slot.flags)), [(0, MOREFRAG), (0, MOREFRAG), (0, 0)]);
}

/// A process that is killed while it exchanges buffers: before the ring's slot, or before it has published.
#[test]
fn another_process_goes_on_with_an_exchange() {
    for is_whole in [false, true] {
        let (port, mut fabric) = port(&region());
        let expected: Vec<u32> = (0..3).map(|turn| fabric.give(&[turn; 60])).collect();
        let at = port.rings.slot(RX, 0);
        port.rings.state.set_moving(at.buf_idx);
        port.rings.set_slot(RX, 0, Slot { buf_idx: expected[0], len: 60, flags: 0 });
        if is_whole {
            fabric.set_received(0, at.buf_idx);
        }
        let mut next = Port::adopt(port.store().try_clone_to_owned().unwrap(), |_| None).unwrap();
        assert_eq!((next.sync(RX), next.positions(RX).tail), (Ok(true), 3));
        for (at, buffer) in (0..3).zip(expected) {
            assert_eq!(got(&next, at), (buffer, 60, at as u8));
        }
        assert_each_once(&[(&next, &fabric)]);
    }
}

impl Fabric {
    /// What the port leaves in a slot whose frame it has.
    fn set_received(&self, at: u32, buf_idx: u32) {
        let slot = ringway_ring::Slot { buf_idx: buf_idx as u16, ..Default::default() };
        self.memory.write_slot(ringway_ring::RX, at, slot);
    }
}

/// A header is the program's; the fabric gets the frame behind it, and the offload that it says.
#[test]
fn a_frame_behind_a_header_is_copied_and_the_programs_buffer_stays() {
    let (mut port, mut fabric) = port(&region());
    for len in [10_u32, 12] {
        port.set_header_len(len).unwrap();
        let mut bytes = vec![0; len as usize];
        bytes[0] = 1;
        bytes.extend([9; 60]);
        let at = port.positions(TX).head;
        let own = put(&port, at, &bytes, 0);
        assert_eq!(port.sync(TX), Ok(true));
        assert_eq!(fabric.tx.frame_slots(&fabric.memory).unwrap(), Some(1));
        assert_eq!(fabric.tx.slot(&fabric.memory, 0).offload[0], 1);
        let (named, frame) = fabric.take().unwrap();
        assert!(named != [own] && frame == [9; 60]);
        let mut kept = vec![0; bytes.len()];
        port.rings.region.buffer(own, kept.len() as u32).unwrap().as_span().read(&mut kept);
        assert_eq!(kept, bytes);
        // One that is shorter than its header.
        put(&port, at + 1, &bytes[..8], 0);
        assert_eq!(port.sync(TX), Ok(false));
        assert_eq!(fabric.take().map(|(_, frame)| frame), Some(vec![]));
        fabric.give(&[5; 60]);
        let tail = port.positions(RX).tail;
        assert_eq!(port.sync(RX), Ok(true));
        let slot = port.rings.slot(RX, tail);
        let mut frame = vec![0; slot.len.into()];
        port.rings.region.buffer(slot.buf_idx, slot.len.into()).unwrap().as_span().read(&mut frame);
        assert_eq!((frame.len(), &frame[len as usize..]), (60 + len as usize, &[5; 60][..]));
    }
    assert_each_once(&[(&port, &fabric)]);
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..400_u32, any::<u32>(), Just(u32::MAX)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..2048_u64, number()).prop_map(|(at, value)| Step::Program(at, value)),
        (0..2000_u64, number()).prop_map(|(at, value)| Step::Other(at, value)),
        (0..2_usize, 0..110_u32, 0..110_u32).prop_map(|(dir, head, cur)| Step::Positions(dir, head, cur)),
        (0..2_usize).prop_map(Step::Sync),
        any::<i16>().prop_map(Step::Poll),
        (1..9000_u16).prop_map(Step::Send),
        Just(Step::Take),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]

    /// Attack: whatever the program and the ring's other side write, no call panics or reads beyond the memory, and
    /// positions are a ring's.
    #[test]
    fn anything_may_be_written_in_place(steps in prop::collection::vec(step(), 1..200)) {
        let mut shared = Shared::in_place();
        for step in steps {
            shared.step(step);
        }
    }

    /// Frames of an honest program arrive in order, whole, whatever the turns of both sides.
    #[test]
    fn frames_arrive_in_order(turns in prop::collection::vec((0..4_u8, 1..70_u32), 1..120)) {
        let (mut port, mut fabric) = port(&region());
        let ([mut sent, mut taken], [mut given, mut received]) = ([0_u32; 2], [0_u32; 2]);
        for (turn, count) in turns {
            for _ in 0..count {
                match turn {
                    0 if port.positions(TX).distance(sent % 64, port.positions(TX).tail) > 0 => {
                        put(&port, sent % 64, &[sent as u8; 60], 0);
                        sent += 1;
                    }
                    1 => {
                        if let Some((_, bytes)) = fabric.take() {
                            prop_assert_eq!(bytes, vec![taken as u8; 60]);
                            taken += 1;
                        }
                    }
                    2 if fabric.rx.room(&fabric.memory, 1).unwrap() > 0 => {
                        fabric.give(&[given as u8; 70]);
                        given += 1;
                    }
                    3 if received % 100 != port.positions(RX).tail => {
                        prop_assert_eq!(got(&port, received % 100).2, received as u8);
                        received += 1;
                        port.rings.set_position(RX, (received % 100, received % 100));
                    }
                    _ => {}
                }
            }
            prop_assert_eq!((port.sync(TX), port.sync(RX)), (Ok(true), Ok(true)));
        }
        assert_each_once(&[(&port, &fabric)]);
    }
}
