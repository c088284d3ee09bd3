//! What a driver finds before it starts: configuration space, registers by name, EEPROM, PHY, resets.

use crate::common::*;
use ringway_nic::e1000::{Area, Effects, Host, Model, registers as reg};
use ringway_nic::{Techniques, i82540em, i82574l};
use std::fmt::Write;
use std::path::Path;

const MODELS: &[&Model] = &[&i82540em::MODEL, &i82574l::MODEL];

/// The register table, with values after a reset.
fn table(model: &'static Model) -> String {
    let mut machine = Machine::new(model, Techniques::default());
    let mut text = String::new();
    for row in model.tables.iter().flat_map(|rows| rows.iter()) {
        let value = if row.offset == reg::RA { u32::from_le_bytes([0x52, 0x54, 0, 0x12]) } else { row.reset };
        let read = machine.read(row.offset);
        if row.access != ringway_nic::e1000::Access::WriteOnly && row.offset != reg::EECD {
            assert_eq!(read & !2, value & !2, "{} after a reset", row.name);
        }
        let mapped = if row.is_mapped() { " mapped" } else { "" };
        let line = writeln!(
            text,
            "{:#06x} x{:<3} {:<9} {:?}{mapped} {read:#010x}",
            row.offset, row.count, row.name, row.access
        );
        line.expect("a line");
    }
    text
}

#[test]
fn register_tables_are_as_agreed() {
    for model in MODELS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/registers/{}.txt", model.name));
        let found = table(model);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &found).expect("writable");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "{} differs; BLESS=1 writes it:\n{found}", path.display());
    }
}

#[test]
fn registers_keep_only_the_bits_that_they_have() {
    for model in MODELS {
        let mut machine = Machine::new(model, Techniques::default());
        let some = model.tables.iter().flat_map(|rows| rows.iter()).filter(|row| row.bits != u32::MAX);
        for (offset, bits) in some.map(|row| (row.offset, row.bits)).chain([(reg::RA + 12, 0x8003_ffff)]) {
            machine.write(offset, u32::MAX);
            assert_eq!(machine.read(offset), bits, "{offset:#x}");
        }
        machine.write(reg::RDLEN, 4096 + 5);
        assert_eq!(machine.read(reg::RDLEN), 4096);
    }
}

#[test]
fn a_driver_finds_the_device_its_address_and_its_phy() {
    let mut machine = Machine::new(&i82540em::MODEL, Techniques::default());
    assert_eq!((machine.config_read(0), machine.config_read(8) >> 8), (0x100e_8086, 0x02_0000));
    machine.config_write(0x10, &[0xff; 8]);
    assert_eq!((machine.config_read(0x10), machine.config_read(0x14)), (0xfffe_0000, 0xffff_ffc1));
    assert_eq!(machine.nic.len(Area::Bar(0)), 0x2_0000);
    machine.reset();
    // The EEPROM's checksum, through its pins.
    let sum = (0..64).fold(0u16, |sum, word| sum.wrapping_add(eeprom(&mut machine, word)));
    assert_eq!((sum, eeprom(&mut machine, 0)), (0xbaba, 0x5452));
    assert_eq!(machine.read(reg::RA).to_le_bytes()[..], MAC[..4]);
    for (register, value) in [(2, 0x0141), (3, 0x0c20), (1, 0x796d)] {
        machine.write(reg::MDIC, 2 << 26 | 1 << 21 | register << 16);
        assert_eq!(machine.read(reg::MDIC) & 0x5000_ffff, 1 << 28 | value);
    }
    // Negotiation ends at once, and interrupts.
    machine.write(reg::IMS, 4);
    machine.write(reg::MDIC, 1 << 26 | 1 << 21 | 0x1200);
    assert_eq!((machine.interrupts, machine.read(reg::ICR)), (1, 4));
}

/// Reads a word bit by bit, as the driver does.
fn eeprom(machine: &mut Machine, word: u32) -> u16 {
    let clock = |machine: &mut Machine, data: u32| {
        let pins = 0x40 | 2 | data << 2;
        machine.write(reg::EECD, pins);
        machine.write(reg::EECD, pins | 1);
        let out = machine.read(reg::EECD) >> 3 & 1;
        machine.write(reg::EECD, pins);
        out
    };
    machine.write(reg::EECD, 0x40);
    assert!(machine.read(reg::EECD) & 0x180 == 0x180, "granted, present");
    for bit in (0..9).rev() {
        clock(machine, (6 << 6 | word) >> bit & 1);
    }
    let value = (0..16).fold(0, |value, _| value << 1 | clock(machine, 0) as u16);
    machine.write(reg::EECD, 0);
    value
}

#[test]
fn accesses_of_any_size_and_alignment_reach_their_bytes() {
    let mut machine = Machine::new(&i82540em::MODEL, Techniques::default());
    let bar = Area::Bar(0);
    machine.write(reg::MTA, 0x0403_0201);
    machine.write(reg::MTA + 4, 0x0807_0605);
    let mut out = [0; 5];
    machine.nic.read(bar, u64::from(reg::MTA) + 1, &mut out);
    assert_eq!(out, [2, 3, 4, 5, 6]);
    machine.access(bar, u64::from(reg::MTA) + 3, &[0xaa, 0xbb]);
    assert_eq!([reg::MTA, reg::MTA + 4].map(|at| machine.read(at)), [0xaa03_0201, 0x0807_06bb]);
    // One byte of a register whose bits act leaves the others alone.
    machine.write(reg::IMS, 0x0100);
    machine.access(bar, u64::from(reg::IMC), &[0xff]);
    assert_eq!(machine.read(reg::IMS), 0x0100);
    // The end of the BAR, and beyond.
    let mut end = [1; 8];
    machine.nic.read(bar, 0x1_fffe, &mut end);
    machine.nic.read(bar, u64::MAX, &mut end);
    machine.nic.read(Area::Bar(5), 0, &mut end);
    assert_eq!(end, [0; 8]);
    machine.access(bar, u64::MAX - 1, &[0xff; 8]);
    machine.access(Area::Bar(200), 0, &[0xff; 8]);
    // Through the I/O ports, at any address.
    machine.access(Area::Bar(1), 0, &u32::MAX.to_le_bytes());
    machine.access(Area::Bar(1), 4, &[1, 2, 3, 4]);
    machine.access(Area::Bar(1), 0, &reg::VET.to_le_bytes());
    let mut port = [0; 4];
    machine.nic.read(Area::Bar(1), 4, &mut port);
    assert_eq!(port, [0, 0x81, 0, 0]);
}

#[test]
fn accesses_are_counted_by_name() {
    let mut machine = Machine::new(&i82540em::MODEL, Techniques::default());
    machine.read(reg::STATUS);
    machine.write(reg::TDT, 0);
    machine.write(reg::MTA + 8, 0);
    machine.read(0x1_0000);
    let counts: Vec<_> = machine
        .nic
        .accesses()
        .into_iter()
        .map(|(name, _, count)| (name, count.reads, count.writes))
        .collect();
    assert_eq!(counts, [("STATUS", 1, 0), ("TDT", 0, 1), ("MTA", 0, 1), ("unknown", 1, 0)]);
}

#[test]
fn a_reset_stops_rings_before_registers_change() {
    let mut machine = Machine::up(&i82540em::MODEL, Techniques::default());
    machine.send(&frame(60));
    assert_eq!(machine.take().len(), 1);
    let seen = std::cell::Cell::new(0);
    let pages = machine.pages.clone();
    let mut quiesce = || {
        let at = u64::from(reg::TDH - 0x2000);
        let span = pages.span(at, 4, &mut ringway_mem::Hint::default()).expect("a register");
        seen.set(u32::from_le_bytes(span.read_array().expect("four bytes")));
    };
    let mut host = Host { now: machine.now, quiesce: &mut quiesce, memory: &machine.memory };
    let effects = machine.nic.write(Area::Bar(0), 0, &(1u32 << 26).to_le_bytes(), &mut host);
    assert_eq!((effects, seen.get()), (Effects::default(), 1), "a worker may still have stored its head");
    assert_eq!([reg::TDH, reg::TDT, reg::IMS, reg::RCTL].map(|at| machine.read(at)), [0; 4]);
    machine.start();
    machine.send(&frame(61));
    assert_eq!(machine.take().len(), 1);
    // The device's reset clears configuration space, too.
    machine.nic.reset(&mut Host { now: 0, quiesce: &mut || {}, memory: &machine.memory });
    assert_eq!((machine.config_read(4) & 7, machine.read(reg::STATUS) & 2), (0, 2));
    machine.config_write(4, &[7, 0]);
    machine.reset();
    machine.start();
    assert_eq!(machine.receive(&frame(60)), (1, 0));
}
