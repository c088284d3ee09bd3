//! What a driver transmits reaches the fabric whole, with its offloads as metadata.

use crate::common::*;
use ringway_frame::{Gso, Offload, Reason};
use ringway_nic::e1000::{Bus, registers as reg};
use ringway_nic::i82540em::MODEL;
use ringway_nic::{Doorbells, Techniques, i82574l};
use std::sync::atomic::Ordering;

fn up() -> Machine {
    Machine::up(&MODEL, Techniques::default())
}

fn drops(machine: &Machine, reason: Reason) -> u64 {
    machine.tx_counters.tx_drops[reason as usize].load(Ordering::Relaxed)
}

/// TCP over IPv4 or IPv6 as Linux prepares it for segmentation: lengths are left out. Returns the offset of TCP.
fn tcp(len: usize, v6: bool) -> (Vec<u8>, usize) {
    let mut frame = frame(len);
    let at = if v6 { 54 } else { 34 };
    if v6 {
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, 6, 64]);
    } else {
        frame[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    frame[at + 12..at + 20].copy_from_slice(&[0x50, 0x10, 1, 0, 0x12, 0x34, 0, 0]);
    (frame, at)
}

#[test]
fn frames_arrive_in_order_and_are_reported_done() {
    let mut machine = up();
    machine.send(&frame(60));
    machine.data(&frame(3000), 1000, 0, machine.txd);
    machine.ring();
    assert_eq!(machine.kicks, 3, "when the ring started, and for two doorbells");
    let before = machine.interrupts;
    let sent = machine.take();
    assert_eq!(sent.iter().map(|sent| sent.bytes.clone()).collect::<Vec<_>>(), [frame(60), frame(3000)]);
    assert_eq!((machine.read(reg::TDH), machine.interrupts), (4, before + 1));
    let done = (0..4).map(|index| machine.word(TX_RING + 16 * index + 8) >> 32 & 1).collect::<Vec<_>>();
    assert_eq!(done, [1, 0, 0, 1], "where the status was asked for");
    assert_eq!(machine.read(reg::ICR) & 3, 3);
    assert_eq!(machine.take(), []);
    assert_eq!([reg::GPTC, reg::GOTCL, reg::PTC64].map(|at| machine.read(at)), [2, 3068, 1]);
    for round in 0..40 {
        machine.send(&frame(100 + round));
        assert_eq!(machine.take()[0].bytes.len(), 100 + round, "the ring wraps");
    }
}

#[test]
fn unreleased_frames_are_taken_again() {
    let mut machine = up();
    machine.context(14, 34, 50, None);
    machine.data(&frame(100), 100, TXSM, machine.txd);
    machine.data(&frame(101), 101, TXSM, machine.txd);
    machine.ring();
    assert_eq!(machine.take_some(0).len(), 2);
    assert_eq!(machine.read(reg::TDH), 0);
    assert_eq!(machine.take_some(1).len(), 2);
    assert_eq!(machine.read(reg::TDH), 2);
    let rest = machine.take();
    assert_eq!((rest.len(), rest[0].bytes.len()), (1, 101));
    assert_eq!(rest[0].offload, Offload::checksum(34, 16), "with the context of the frame before");
}

#[test]
fn checksums_become_metadata() {
    let mut machine = up();
    let (plain, _) = tcp(100, false);
    machine.context(14, 34, 50, None);
    machine.data(&plain, 60, TXSM, machine.txd);
    // A legacy descriptor: the sum starts at 34, and is stored at 50.
    machine.data(&plain, 100, 0, machine.txd);
    let legacy = TX_RING + 16 * u64::from(machine.tdt - 1) + 8;
    machine.poke(legacy, &(EOP | RS | 1 << 26 | 50 << 16 | 34 << 40 | 100).to_le_bytes());
    // The IP header's checksum is stored by the device itself.
    machine.data(&plain, 100, TXSM | IXSM, machine.txd);
    machine.ring();
    let sent = machine.take();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|sent| sent.offload == Offload::checksum(34, 16)));
    assert_eq!((&sent[0].bytes, &sent[1].bytes), (&plain, &plain));
    assert_eq!(ringway_wire::checksum::checksum(&sent[2].bytes[14..34]), 0);
    assert_eq!(sent[2].bytes[34..], plain[34..]);
}

#[test]
fn segmentation_becomes_metadata_with_lengths_filled_in() {
    for v6 in [false, true] {
        let mut machine = up();
        let (plain, at) = tcp(9000, v6);
        let flags = if v6 { 1 << 24 } else { 3 << 24 };
        machine.context(14, at, at + 16, Some((at + 20, 1448, flags)));
        let options = TSE | TXSM | if v6 { 0 } else { IXSM };
        machine.data(&plain, 4096, options, machine.txd | TSE);
        machine.ring();
        let sent = machine.take();
        let Offload { gso_size, hdr_len, csum_start, .. } = sent[0].offload;
        assert_eq!(sent[0].offload.gso(), Ok(Some(if v6 { Gso::Tcp6 } else { Gso::Tcp4 })));
        assert_eq!((gso_size, usize::from(hdr_len), usize::from(csum_start)), (1448, at + 20, at));
        let bytes = &sent[0].bytes;
        let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        if v6 {
            assert_eq!(word(18), 9000 - 54);
        } else {
            assert_eq!((word(16), ringway_wire::checksum::checksum(&bytes[14..34])), (9000 - 14, 0));
        }
        assert_eq!(word(at + 16), 0x1234 + 9000 - at, "the pseudo header has the length now");
        assert_eq!(bytes[at + 20..], plain[at + 20..]);
        assert_eq!(machine.read(reg::TSCTC), 1);
    }
}

#[test]
fn vlan_tags_are_inserted() {
    let mut machine = up();
    machine.send(&frame(100));
    machine.write(reg::CTRL, 1 << 30);
    machine.context(14, 34, 50, None);
    machine.data(&frame(100), 10, TXSM, machine.txd | VLE | 0x2123 << 48);
    machine.ring();
    let sent = machine.take();
    let (bytes, plain) = (&sent[1].bytes, frame(100));
    assert_eq!((sent[0].bytes.len(), bytes.len()), (100, 104));
    assert_eq!(
        (&bytes[..12], &bytes[12..16], &bytes[16..]),
        (&plain[..12], &[0x81, 0, 0x21, 0x23][..], &plain[12..])
    );
    assert_eq!(sent[1].offload.csum_start, 38);
}

#[test]
fn frames_that_lie_are_dropped_and_counted() {
    let (v4, _) = tcp(9000, false);
    let mut bad_version = v4.clone();
    bad_version[14] = 0x55;
    let tso = |header: usize, mss: usize| Some((header, mss, 3 << 24));
    // Frame, where TCP and its checksum are, segmentation.
    type Lie = (Vec<u8>, (usize, usize), Option<(usize, usize, u64)>);
    let lies: [Lie; 8] = [
        (v4.clone(), (34, 52), tso(54, 1448)),
        (v4.clone(), (38, 54), tso(58, 1448)),
        (bad_version, (34, 50), tso(54, 1448)),
        (v4.clone(), (34, 50), tso(54, 0)),
        (v4.clone(), (34, 50), tso(40, 1448)),
        (v4[..50].to_vec(), (34, 50), tso(54, 1448)),
        (v4[..51].to_vec(), (34, 50), None),
        (v4.clone(), (34, 20), None),
    ];
    for (number, (bytes, (upper, field), tso)) in lies.into_iter().enumerate() {
        let mut machine = up();
        machine.context(14, upper, field, tso);
        let segment = if tso.is_some() { TSE | IXSM } else { 0 };
        machine.data(&bytes, 4096, TXSM | segment, machine.txd);
        machine.send(&frame(77));
        let sent = machine.take();
        assert_eq!(sent.iter().map(|sent| sent.bytes.len()).collect::<Vec<_>>(), [77], "lie {number}");
        assert_eq!(drops(&machine, Reason::BadOffload), 1, "lie {number}");
    }
}

#[test]
fn descriptors_without_an_end_are_bounded() {
    let mut machine = up();
    for _ in 0..5 {
        machine.descriptor(TX_BUFFERS, DATA | 20);
    }
    machine.ring();
    assert_eq!((machine.take(), machine.read(reg::TDH)), (vec![], 0), "the rest may follow");
    machine.descriptor(TX_BUFFERS, DATA | machine.txd | 20);
    machine.ring();
    assert_eq!(machine.take()[0].bytes.len(), 120);
    // Lengths beyond any frame: the descriptors are consumed without one.
    for _ in 0..3 {
        machine.descriptor(TX_BUFFERS, DATA | 0xffff);
    }
    machine.ring();
    assert_eq!((machine.take(), machine.read(reg::TDH)), (vec![], 9));
    assert_eq!(drops(&machine, Reason::Long), 1);
    machine.descriptor(0xdead_0000, DATA | machine.txd | 100);
    machine.descriptor(TX_BUFFERS, DATA | machine.txd | 13);
    machine.descriptor(TX_BUFFERS, machine.txd | DEXT | 7 << 20 | 100);
    machine.ring();
    assert_eq!((machine.take(), machine.read(reg::TDH)), (vec![], 12));
    let reasons = [Reason::BadAddress, Reason::Short, Reason::BadDescriptor];
    assert_eq!(reasons.map(|reason| drops(&machine, reason)), [1, 1, 1]);
}

#[test]
fn a_tail_outside_the_ring_and_a_ring_outside_memory_are_empty() {
    let mut machine = up();
    machine.send(&frame(60));
    machine.write(reg::TDT, RING);
    assert_eq!(machine.take(), []);
    machine.write(reg::TDT, 1);
    machine.write(reg::TDBAH, 0xffff_ffff);
    assert_eq!(machine.take(), []);
    machine.take();
    assert_eq!(machine.tx_counters.faults.load(Ordering::Relaxed), 1, "counted once");
    machine.write(reg::TDBAH, 0);
    assert_eq!(machine.take().len(), 1);
}

#[test]
fn nothing_is_taken_without_a_link_or_the_bus() {
    let mut machine = up();
    let effects = machine.nic.set_link(false, machine.now);
    machine.note(effects);
    machine.send(&frame(60));
    assert_eq!(machine.take(), []);
    assert!(machine.nic.set_link(true, machine.now).kick);
    machine.config_write(4, &[3, 0]);
    assert_eq!((machine.take(), machine.quiesced > 0), (vec![], true));
    machine.config_write(4, &[7, 0]);
    assert_eq!(machine.take().len(), 1);
}

#[test]
fn frames_return_while_the_phy_loops_back() {
    for model in [&MODEL, &i82574l::MODEL] {
        let mut machine = Machine::up(model, Techniques::default());
        let control = |machine: &mut Machine, value: u32| {
            machine.write(reg::MDIC, 1 << 26 | 1 << 21 | value);
        };
        let receives = |machine: &Machine| {
            let (shared, memory) = (machine.shared.clone(), machine.memory.clone());
            machine.rx.caps(&Bus { shared: &shared, memory: &memory, now: machine.now }).is_some()
        };
        let lens = |machine: &mut Machine| machine.poll().iter().map(|(bytes, ..)| bytes.len()).collect();
        machine.receive(&frame(70));
        let effects = machine.nic.set_link(false, machine.now);
        machine.note(effects);
        // 1000 Mb/s, full duplex, loopback.
        control(&mut machine, 0x4140);
        [60, 500, 1514].iter().for_each(|len| machine.send(&frame(*len)));
        // A pending checksum needs a port that completes it.
        machine.context(14, 34, 50, None);
        machine.data(&frame(99), 4096, TXSM, EOP | IFCS | RS);
        machine.ring();
        assert_eq!((machine.take(), receives(&machine)), (vec![], false));
        let found: Vec<usize> = lens(&mut machine);
        assert_eq!(found, [74, 64, 504, 1518], "with a CRC each");
        assert_eq!((drops(&machine, Reason::NoOffload), machine.read(reg::TDH)), (1, machine.tdt));
        control(&mut machine, 0x1140);
        let effects = machine.nic.set_link(true, machine.now);
        machine.note(effects);
        machine.send(&frame(61));
        assert_eq!((machine.take().len(), receives(&machine)), (1, true));
        machine.receive(&frame(80));
        let found: Vec<usize> = lens(&mut machine);
        assert_eq!(found, [84], "the ring goes on where it was");
        control(&mut machine, 0x4140);
        let value = machine.read(reg::CTRL) | 1 << 31;
        machine.write(reg::CTRL, value);
        assert!(receives(&machine), "a reset of the PHY ends it");
    }
}

#[test]
fn a_mapped_doorbell_is_found_without_a_message() {
    let techniques = Techniques { doorbells: Doorbells::Mapped, ..Techniques::default() };
    let mut machine = Machine::up(&MODEL, techniques);
    assert_eq!(machine.shared.mappable().collect::<Vec<_>>(), [(0x2000, 0x2000)]);
    let kicks = machine.kicks;
    machine.send(&frame(60));
    assert_eq!((machine.take().len(), machine.kicks), (1, kicks));
    assert_eq!((machine.map_read(reg::TDH), machine.map_read(reg::TDT)), (1, 1));
    let (shared, memory) = (machine.shared.clone(), machine.memory.clone());
    let bus = Bus { shared: &shared, memory: &memory, now: machine.now };
    machine.take();
    assert!(machine.tx.arm(&bus));
    assert_eq!(machine.tx.next_due(), Some(machine.now + techniques.poll));
    machine.send(&frame(61));
    assert!(!machine.tx.arm(&bus), "it came before the worker slept");
    // Attack: the page changes while the ring is in use; only the tail is read from it.
    for register in (0x3800..0x3840).step_by(4) {
        machine.map_write(register, 0xffff_ffff);
    }
    assert_eq!(machine.take(), []);
    machine.map_write(reg::TDT, 2);
    assert_eq!(machine.take().len(), 1);
}

#[test]
fn a_reset_forgets_frames_in_hand() {
    let mut machine = up();
    machine.send(&frame(60));
    assert_eq!(machine.take_some(0).len(), 1);
    machine.reset();
    assert_eq!(machine.take(), []);
    machine.start();
    machine.send(&frame(61));
    assert_eq!(machine.take()[0].bytes.len(), 61);
}
