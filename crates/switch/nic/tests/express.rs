//! What distinguishes the 82574L: MSI-X, extended receive descriptors, EERD, semaphores; as Linux's e1000e uses it.

use crate::common::*;
use ringway_frame::Offload;
use ringway_nic::e1000::{Area, registers as reg};
use ringway_nic::i82574l::MODEL;
use ringway_nic::{Doorbells, Techniques};

const RXQ0: u32 = 1 << 20;
const TXQ0: u32 = 1 << 22;
const OTHER: u32 = 1 << 24;
const LSC: u32 = 4;

/// A driver with three vectors: receive, transmit, other causes.
fn up(techniques: Techniques) -> Machine {
    let mut machine = Machine::up(&MODEL, techniques);
    machine.write(reg::IMC, u32::MAX);
    machine.config_write(0xa3, &[0x80]);
    machine.write(reg::IVAR, 1 << 31 | 0xa_09_08);
    machine.write(reg::CTRL_EXT, 1 << 31);
    machine.write(reg::EIAC, RXQ0 | TXQ0);
    machine.read(reg::ICR);
    machine.write(reg::IMS, RXQ0 | TXQ0 | OTHER | LSC);
    machine
}

/// The vectors that an access or a worker's step sent.
fn vectors(machine: &mut Machine, step: impl FnOnce(&mut Machine)) -> Vec<u16> {
    machine.vectors.clear();
    step(machine);
    machine.vectors.clone()
}

#[test]
fn a_driver_finds_the_device() {
    let mut machine = Machine::new(&MODEL, Techniques::default());
    assert_eq!((machine.config_read(0), machine.nic.len(Area::Config)), (0x10d3_8086, 4096));
    machine.config_write(0x10, &[0xff; 16]);
    let bars = [0x10, 0x14, 0x18, 0x1c].map(|at| machine.config_read(at));
    assert_eq!(bars, [0xfffe_0000, 0xfffe_0000, 0xffff_ffe1, 0xffff_c000]);
    machine.reset();
    assert_eq!(machine.read(reg::EECD) & 0x200, 0x200, "the EEPROM was read");
    let mut word = |at: u32| {
        machine.write(reg::EERD, at << 2 | 1);
        let value = machine.read(reg::EERD);
        assert_eq!(value & 2, 2);
        (value >> 16) as u16
    };
    assert_eq!((0..64).map(&mut word).fold(0u16, u16::wrapping_add), 0xbaba);
    assert_eq!(word(15) & 0x6000, 0, "there is no management firmware");
    machine.write(reg::EXTCNF_CTRL, 0x20);
    assert_eq!(machine.read(reg::EXTCNF_CTRL) & 0x20, 0x20, "the semaphore is ours");
    assert_eq!(machine.read(reg::SWSM) & 1, 0);
    for (register, value) in [(2, 0x0141), (3, 0x0cb1)] {
        machine.write(reg::MDIC, 2 << 26 | 1 << 21 | register << 16);
        assert_eq!(machine.read(reg::MDIC) & 0xffff, value);
    }
    // The flash is empty; the MSI-X table is memory.
    let mut out = [0; 6];
    machine.nic.read(Area::Bar(1), 0x1001, &mut out);
    assert_eq!(out, [0xff; 6]);
    machine.access(Area::Bar(3), 2, &[1, 2, 3]);
    machine.nic.read(Area::Bar(3), 0, &mut out);
    assert_eq!(out, [0, 0, 1, 2, 3, 0]);
}

#[test]
fn each_queue_has_its_vector_which_masks_itself() {
    let mut machine = up(Techniques::default());
    let receive = |machine: &mut Machine| assert_eq!(machine.receive(&frame(60)), (1, 0));
    assert_eq!(vectors(&mut machine, receive), [0]);
    assert_eq!(vectors(&mut machine, receive), [], "masked until the driver has polled");
    assert_eq!(machine.poll().len(), 2);
    assert_eq!(
        vectors(&mut machine, |machine| {
            machine.write(reg::IMS, RXQ0);
        }),
        [0],
        "one came meanwhile"
    );
    machine.write(reg::IMS, RXQ0);
    let transmit = |machine: &mut Machine| {
        machine.send(&frame(60));
        assert_eq!(machine.take().len(), 1);
    };
    assert_eq!(vectors(&mut machine, transmit), [1]);
    let down = |machine: &mut Machine| {
        let effects = machine.nic.set_link(false, machine.now);
        machine.note(effects);
    };
    assert_eq!(vectors(&mut machine, down), [2]);
    assert_eq!(machine.read(reg::ICR) & (OTHER | LSC), OTHER | LSC);
}

#[test]
fn vectors_have_intervals_of_their_own() {
    let mut machine = up(Techniques::default());
    machine.write(reg::EITR, 400);
    let one = |machine: &mut Machine| {
        machine.receive(&frame(60));
        machine.write(reg::IMS, RXQ0);
    };
    assert_eq!(vectors(&mut machine, one), [0]);
    assert_eq!(vectors(&mut machine, one), []);
    assert_eq!(vectors(&mut machine, |machine| machine.pass(400 * 256)), [0]);
    assert_eq!(machine.poll().len(), 2);
}

#[test]
fn without_msix_a_driver_with_msi_reads_causes_that_mask_themselves() {
    let mut machine = Machine::up(&MODEL, Techniques::default());
    machine.config_write(0xd2, &[1]);
    machine.write(reg::IAM, u32::MAX);
    machine.write(reg::CTRL_EXT, 1 << 27);
    machine.write(reg::ICR, u32::MAX);
    machine.write(reg::IMS, IMS);
    assert_eq!(
        vectors(&mut machine, |machine| {
            machine.receive(&frame(60));
        }),
        [0]
    );
    assert_eq!(machine.read(reg::ICR) & 0x8000_0080, 0x8000_0080);
    assert_eq!(machine.read(reg::IMS), 0);
    machine.receive(&frame(60));
    assert_eq!(
        vectors(&mut machine, |machine| {
            machine.write(reg::IMS, IMS);
        }),
        [0]
    );
}

#[test]
fn extended_descriptors_carry_status_length_and_tag() {
    let mut machine = up(Techniques::default());
    let mut tagged = frame(104);
    tagged[12..16].copy_from_slice(&[0x81, 0, 0x61, 0x23]);
    machine.write(reg::CTRL, 1 << 30);
    machine.write(reg::RCTL, RCTL | 1 << 5 | 1 << 26);
    let long = frame(5000);
    machine.deliver(&[(&tagged, Offload { flags: 2, ..Offload::default() }), (&long, Offload::default())]);
    assert_eq!(machine.word(RX_RING), 0, "the address was overwritten");
    let got = machine.poll();
    assert_eq!((got[0].0.len(), got[0].1, got[0].2), (100, 0x2b, 0x6123));
    assert_eq!((&got[1].0, got[1].1, got[1].2), (&long, 7, 0));
    for round in 0..40 {
        machine.receive(&frame(100 + round));
        assert_eq!(machine.poll()[0].0, frame(100 + round), "the ring wraps");
    }
    machine.poke(RX_RING + 16 * u64::from(machine.next_rx), &u64::MAX.to_le_bytes());
    assert_eq!(machine.receive(&frame(60)), (1, 1));
    assert_eq!(machine.word(RX_RING + 16 * u64::from(machine.next_rx) + 8) as u32, 0x8000_0007);
}

#[test]
fn descriptors_with_several_buffers_are_filled_in_order() {
    let mut machine = up(Techniques::default());
    machine.write(reg::RCTL, 0);
    // 128 bytes, twice 1 KB, none; eight descriptors of 32 bytes.
    machine.write(reg::PSRCTL, 1 | 1 << 8 | 1 << 16);
    for index in 0..8 {
        let buffer = machine.rx_buffer(index);
        for (number, word) in (0..).zip([buffer, buffer + 0x800, buffer + 0x1000, u64::MAX]) {
            machine.poke(RX_RING + 32 * u64::from(index) + 8 * number, &word.to_le_bytes());
        }
    }
    machine.write(reg::RDH, 0);
    // Head and tail count 16 bytes.
    machine.write(reg::RDT, 14);
    machine.write(reg::RCTL, RCTL | 1 << 5 | 1 << 10 | 1 << 26);
    let long = frame(3000);
    assert_eq!(machine.receive(&long), (1, 0));
    assert_eq!(machine.receive(&frame(100)), (1, 0));
    let words = |index: u64| [0, 8, 16].map(|at| machine.word(RX_RING + 32 * index + at));
    assert_eq!(words(0), [0, 128 << 32 | 5, 1024 << 32 | 1024 << 16]);
    assert_eq!(words(1), [0, 128 << 32 | 7, 696 << 16]);
    assert_eq!(words(2), [0, 100 << 32 | 7, 0]);
    let parts = [(0, 0, 128), (0, 0x800, 1024), (0, 0x1000, 1024), (1, 0, 128), (1, 0x800, 696)];
    let bytes = parts.map(|(index, at, len)| machine.peek(machine.rx_buffer(index) + at, len)).concat();
    assert_eq!(bytes, long);
    assert_eq!(machine.read(reg::RDH), 6);
    machine.write(reg::PSRCTL, 0);
    assert_eq!(machine.receive(&frame(100)), (1, 1), "buffers without bytes");
}

#[test]
fn mapped_doorbells_work_as_on_the_other_model() {
    let mut machine = up(Techniques { doorbells: Doorbells::Mapped, ..Techniques::default() });
    let kicks = machine.kicks;
    for round in 0..40 {
        machine.send(&frame(60 + round));
        assert_eq!(machine.take()[0].bytes, frame(60 + round));
        assert_eq!(machine.receive(&frame(60)), (1, 0));
        assert_eq!(machine.poll().len(), 1);
    }
    assert_eq!(machine.kicks, kicks);
}
