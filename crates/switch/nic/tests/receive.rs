//! What the fabric delivers reaches the driver's buffers, with checksum status and tags in the descriptors.

use crate::common::*;
use ringway_frame::{Needs, Offload, Reason};
use ringway_nic::e1000::{Bus, registers as reg};
use ringway_nic::i82540em::MODEL;
use ringway_nic::{Doorbells, Techniques, i82574l};
use std::sync::atomic::Ordering;

const IXSM: u16 = 4;
const VP: u16 = 8;
const TCPCS: u16 = 0x20;

fn up() -> Machine {
    Machine::up(&MODEL, Techniques::default())
}

fn drops(machine: &Machine, reason: Reason) -> u64 {
    machine.rx_counters.rx_drops[reason as usize].load(Ordering::Relaxed)
}

fn to(address: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame = frame(len);
    frame[..6].copy_from_slice(&address);
    frame
}

#[test]
fn frames_arrive_with_one_interrupt_a_burst() {
    let mut machine = up();
    let (first, second) = (frame(60), frame(1514));
    let before = machine.interrupts;
    let both = [(&first[..], Offload::default()), (&second[..], Offload::default())];
    assert_eq!(machine.deliver(&both), (2, 0));
    assert_eq!((machine.interrupts, machine.read(reg::RDH)), (before + 1, 2));
    let got = machine.poll();
    assert_eq!(got.iter().map(|(bytes, ..)| bytes.len()).collect::<Vec<_>>(), [64, 1518], "with a CRC");
    assert_eq!((&got[0].0[..60], &got[1].0[..1514]), (&first[..], &second[..]));
    assert!(got.iter().all(|(_, status, tag)| (*status, *tag) == (7, 0)));
    assert_eq!(machine.read(reg::ICR) & 0x80, 0x80);
    assert_eq!([reg::GPRC, reg::GORCL, reg::PRC64].map(|at| machine.read(at)), [2, 64 + 1518, 1]);
    for round in 0..40 {
        machine.receive(&frame(100 + round));
        assert_eq!(machine.poll()[0].0.len(), 104 + round, "the ring wraps");
    }
}

#[test]
fn only_descriptors_and_buffers_are_written() {
    let mut machine = up();
    machine.write(reg::RCTL, RCTL | 1 << 5 | 3 << 16);
    for index in 0..RING {
        machine.poke(machine.rx_buffer(index), &[0xee; 0x2000]);
    }
    let before = (machine.peek(BASE + 0x2000, 0x8_e000 - 0x2000), machine.peek(TX_RING, 0x1000));
    machine.receive(&frame(700));
    machine.receive(&frame(14));
    let after = (machine.peek(BASE + 0x2000, 0x8_e000 - 0x2000), machine.peek(TX_RING, 0x1000));
    assert!(before == after);
    let edges = [0, 1, 2, 3, 4].map(|index| {
        let bytes = machine.peek(machine.rx_buffer(index), 0x2000);
        0x2000 - bytes.iter().rev().take_while(|&&byte| byte == 0xee).count()
    });
    assert_eq!(
        edges,
        [256, 256, 188, 60, 0],
        "704 bytes, the last four are a CRC that is not written; padding"
    );
    let got = machine.poll();
    assert_eq!((got[0].0[..700].to_vec(), got[1].0.len()), (frame(700), 64));
    assert_eq!((&got[1].0[..14], &got[1].0[14..60]), (&frame(14)[..], &[0; 46][..]));
}

#[test]
fn long_frames_need_permission() {
    let mut machine = up();
    let long = frame(9000);
    let bus = |machine: &Machine| (machine.shared.clone(), machine.memory.clone(), machine.now);
    let largest = |machine: &Machine| {
        let (shared, memory, now) = bus(machine);
        machine
            .rx
            .caps(&Bus { shared: &shared, memory: &memory, now })
            .map(|caps| (caps.largest, caps.offloads))
    };
    assert_eq!(largest(&machine), Some((1518, Needs::NONE)));
    assert_eq!(machine.receive(&long), (1, 1));
    assert_eq!((drops(&machine, Reason::Long), machine.read(reg::ROC)), (1, 1));
    // Strip the CRC, too.
    machine.write(reg::RCTL, RCTL | 1 << 5 | 1 << 26);
    assert_eq!(largest(&machine), Some((16_380, Needs::NONE)));
    assert_eq!(machine.receive(&long), (1, 0));
    assert_eq!(machine.read(reg::RDH), 5, "five buffers");
    assert_eq!(machine.poll()[0].0, long);
    machine.write(reg::RCTL, 0);
    assert_eq!((largest(&machine), machine.receive(&long).0), (None, 0));
}

#[test]
fn addresses_are_filtered_and_counted() {
    let mut machine = up();
    let (other, group) = ([2, 0, 0, 0, 0, 9], [1, 0, 0x5e, 0, 0, 1]);
    assert_eq!(machine.receive(&to(other, 60)), (1, 1));
    assert_eq!(machine.receive(&to(group, 60)), (1, 1));
    assert_eq!(drops(&machine, Reason::Filtered), 2);
    assert_eq!(machine.receive(&to([0xff; 6], 60)), (1, 0));
    machine.write(reg::RCTL, RCTL | 1 << 3 | 1 << 4);
    assert_eq!((machine.receive(&to(other, 60)), machine.receive(&to(group, 60))), ((1, 0), (1, 0)));
    assert_eq!(machine.poll().len(), 3);
    assert_eq!([reg::BPRC, reg::MPRC, reg::TPR].map(|at| machine.read(at)), [1, 1, 3]);
}

#[test]
fn tags_are_removed_and_checksums_reported() {
    let mut machine = up();
    let mut tagged = frame(104);
    tagged[12..16].copy_from_slice(&[0x81, 0, 0x61, 0x23]);
    let checked = Offload { flags: 2, ..Offload::default() };
    machine.deliver(&[(&tagged, checked)]);
    machine.write(reg::CTRL, 1 << 30);
    machine.deliver(&[(&tagged, checked), (&frame(60), Offload::default())]);
    let got = machine.poll();
    assert_eq!((got[0].0.len(), got[0].1 & (VP | TCPCS | IXSM), got[0].2), (108, TCPCS, 0));
    assert_eq!((got[1].0.len(), got[1].1 & (VP | TCPCS | IXSM), got[1].2), (104, VP | TCPCS, 0x6123));
    assert_eq!((&got[1].0[..12], &got[1].0[12..100]), (&tagged[..12], &tagged[16..]));
    assert_eq!(got[2].1 & (VP | TCPCS | IXSM), IXSM);
    machine.write(reg::RXCSUM, 0);
    machine.deliver(&[(&tagged, checked)]);
    assert_eq!(machine.poll()[0].1 & (TCPCS | IXSM), IXSM);
}

#[test]
fn frames_wait_while_there_are_no_buffers() {
    let mut machine = up();
    let one = frame(60);
    for _ in 0..RING - 1 {
        assert_eq!(machine.receive(&one), (1, 0));
    }
    let causes = machine.read(reg::ICR);
    assert_eq!(causes & 0x50, 0x10, "few descriptors were left");
    assert_eq!((machine.receive(&one), machine.receive(&one)), ((0, 0), (0, 0)));
    assert_eq!((machine.read(reg::ICR) & 0x40, machine.read(reg::RNBC)), (0x40, 1), "reported once");
    assert_eq!(machine.poll().len(), 15);
    assert_eq!(machine.receive(&one), (1, 0));
    let small = frame(60);
    let three: Vec<_> = (0..20).map(|_| (&small[..], Offload::default())).collect();
    assert_eq!(machine.deliver(&three).0, 14, "as many as have room");
}

#[test]
fn small_frames_interrupt_at_once() {
    let mut machine = up();
    machine.write(reg::RDTR, 100);
    machine.write(reg::RSRPD, 100);
    let before = machine.interrupts;
    machine.receive(&frame(200));
    assert_eq!(machine.interrupts, before);
    machine.receive(&frame(60));
    assert_eq!((machine.interrupts, machine.read(reg::ICR) & 0x1_0080), (before + 1, 0x1_0080));
}

#[test]
fn buffers_outside_memory_lose_their_frame_alone() {
    let mut machine = up();
    machine.poke(RX_RING + 16, &u64::MAX.to_le_bytes());
    // A buffer that crosses from one region into the next, which touches it.
    machine.poke(RX_RING + 32, &(BASE + LEN - 30).to_le_bytes());
    let (one, plain) = (frame(60), Offload::default());
    assert_eq!(machine.deliver(&[(&one, plain), (&one, plain), (&one, plain)]), (3, 1));
    assert_eq!(drops(&machine, Reason::BadAddress), 1);
    let status = [0, 1, 2].map(|index| machine.word(RX_RING + 16 * index + 8) >> 32 & 0xffff);
    assert_eq!(status, [7, 0x8007, 7], "the driver discards the second");
    assert_eq!(machine.peek(BASE + LEN - 30, 60), one);
}

#[test]
fn a_hostile_tail_or_ring_receives_nothing() {
    let mut machine = up();
    machine.write(reg::RDT, 0xffff);
    assert_eq!(machine.receive(&frame(60)), (0, 0));
    machine.write(reg::RDT, 15);
    machine.write(reg::RDBAH, 0x8000_0000);
    assert_eq!(machine.receive(&frame(60)), (1, 1));
    assert_eq!(machine.rx_counters.faults.load(Ordering::Relaxed), 1);
    machine.write(reg::RDBAH, 0);
    machine.write(reg::RDLEN, 0);
    assert_eq!(machine.receive(&frame(60)), (0, 0));
    machine.write(reg::RDLEN, 128);
    machine.write(reg::RDT, 7);
    assert_eq!(machine.receive(&frame(60)), (1, 0));
    machine.write(reg::RCTL, RCTL | 1 << 10);
    assert_eq!(
        (machine.receive(&frame(60)), drops(&machine, Reason::BadDescriptor)),
        ((1, 1), 1),
        "packet split"
    );
}

#[test]
fn each_frame_is_published_alone_without_batches() {
    let mut machine = Machine::up(&MODEL, Techniques { batch: false, ..Techniques::default() });
    let one = frame(60);
    let before = machine.interrupts;
    machine.deliver(&[(&one[..], Offload::default()); 3]);
    assert_eq!((machine.read(reg::RDH), machine.poll().len()), (3, 3));
    assert_eq!(machine.interrupts, before + 1, "the driver was told of the first");
    for _ in 0..10 {
        machine.deliver(&[(&one[..], Offload::default()); 3]);
        assert!(machine.poll().iter().all(|(bytes, ..)| bytes[..60] == one));
    }
}

#[test]
fn a_mapped_tail_is_read_from_the_page() {
    let techniques = Techniques { doorbells: Doorbells::Mapped, in_place: true, ..Techniques::default() };
    let mut machine = Machine::up(&MODEL, techniques);
    assert_eq!(machine.shared.mappable().collect::<Vec<_>>(), [(0x2000, 0x2000), (0x5000, 0x1000)]);
    for _ in 0..40 {
        assert_eq!(machine.receive(&frame(60)), (1, 0));
        assert_eq!(machine.poll().len(), 1);
    }
    assert_eq!(machine.map_read(reg::RDH), 40 % RING);
    // The filters are memory of the guest's, too: accept group addresses by the table.
    machine.map_write(reg::MTA, u32::MAX);
    let group = to([1, 0, 0x5e, 0, 0, 0], 60);
    assert_eq!(machine.receive(&group), (1, 0));
    assert!(machine.nic.is_mapped(reg::MTA) && !machine.nic.is_mapped(reg::GPRC));
}

#[test]
fn a_ring_that_is_enabled_before_it_is_placed_is_taken_over_when_it_is_enabled_again() {
    let techniques = Techniques { doorbells: Doorbells::Mapped, ..Techniques::default() };
    for model in [&MODEL, &i82574l::MODEL] {
        let mut machine = Machine::new(model, techniques);
        machine.config_write(4, &[0x07, 0]);
        machine.reset();
        machine.write(reg::RCTL, RCTL);
        machine.start();
        assert_eq!((machine.receive(&frame(60)), machine.poll().len()), ((1, 0), 1));
        // Writing RCTL's current value changes nothing.
        let quiesced = machine.quiesced;
        machine.write(reg::RCTL, RCTL);
        assert_eq!((machine.receive(&frame(60)), machine.poll().len()), ((1, 0), 1));
        assert_eq!(machine.quiesced, quiesced);
    }
}
