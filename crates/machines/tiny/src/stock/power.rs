//! How a machine is turned off: its sleep state S5, as the tables of its firmware or monitor describe it (ACPI 6.5).

/// Memory with the tables.
pub trait Tables {
    /// A byte at an address; none where the image sees no memory.
    fn byte(&self, address: u64) -> Option<u8>;
}

/// Attack: lengths of tables, which bound how long they are searched.
const ENTRIES: u64 = 256;
const LONGEST: u64 = 1 << 20;
/// Bytes of the header of a table.
const HEADER: u64 = 36;

/// Fields of the Fixed ACPI Description Table (5.2.9), and its bit for machines without the registers of a PC.
const DSDT: u64 = 40;
const PM1_CONTROL: [u64; 2] = [64, 68];
const FLAGS: u64 = 112;
const LONG_DSDT: u64 = 140;
const SLEEP_CONTROL: u64 = 244;
const HARDWARE_REDUCED: u64 = 1 << 20;
/// The address space of I/O ports in an address (5.2.3.2), and the last port that ring 3 may use.
const IO_SPACE: u8 = 1;
const LAST_PORT: u64 = 0xfff;

/// Bits of the sleep control register (4.8.3.7) and of the PM1 control registers (4.8.3.2.1): the type of sleep begins
/// there, and what begins the sleep.
const SLEEP: (u8, u8) = (2, 1 << 5);
const PM1_TYPE: u16 = 10;
const PM1_SLEEP: u16 = 1 << 13;

/// What turns a machine off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// A byte that is written to a port.
    Sleep {
        /// The sleep control register.
        port: u16,
        /// The byte.
        value: u8,
    },
    /// Words that are written to ports, with their other bits as they are.
    Pm1 {
        /// The PM1 control registers; the second is 0 if there is one only.
        ports: [u16; 2],
        /// Bits for each.
        values: [u16; 2],
    },
}

impl PowerOff {
    /// Bits of a PM1 control register that [`PowerOff::Pm1`] sets anew.
    pub const PM1_MASK: u16 = 7 << PM1_TYPE | PM1_SLEEP;

    /// What turns the machine off whose root pointer (5.2.5) is at this address; none if it has no such tables, or
    /// registers that are no I/O ports.
    pub fn find(tables: &impl Tables, root: u64) -> Option<PowerOff> {
        let table = fixed(tables, root)?;
        let field =
            |at: u64, len: u64| (at + len <= table.len).then(|| number(tables, table.at + at, len))?;
        let long = field(LONG_DSDT, 8).filter(|address| *address != 0);
        let types = sleep_types(tables, &Table::read(tables, long.or_else(|| field(DSDT, 4))?, b"DSDT")?)?;
        if field(FLAGS, 4)? & HARDWARE_REDUCED != 0 {
            let is_port = field(SLEEP_CONTROL, 1)? == IO_SPACE.into();
            let port = port(field(SLEEP_CONTROL + 4, 8)?).filter(|_| is_port)?;
            return Some(PowerOff::Sleep { port, value: types[0] << SLEEP.0 | SLEEP.1 });
        }
        let first = port(field(PM1_CONTROL[0], 4)?)?;
        let second = field(PM1_CONTROL[1], 4).and_then(port).unwrap_or(0);
        let values = types.map(|kind| u16::from(kind) << PM1_TYPE | PM1_SLEEP);
        Some(PowerOff::Pm1 { ports: [first, second], values })
    }
}

/// A port that the image may use.
fn port(address: u64) -> Option<u16> {
    u16::try_from(address).ok().filter(|port| *port != 0 && u64::from(*port) < LAST_PORT)
}

/// A little-endian number of up to 8 bytes.
fn number(tables: &impl Tables, at: u64, len: u64) -> Option<u64> {
    (0..len).try_fold(0, |sum, byte| Some(sum | u64::from(tables.byte(at.checked_add(byte)?)?) << (8 * byte)))
}

/// Whether the memory has these bytes.
fn has(tables: &impl Tables, at: u64, bytes: &[u8]) -> bool {
    (0..)
        .zip(bytes)
        .all(|(offset, byte)| at.checked_add(offset).and_then(|at| tables.byte(at)) == Some(*byte))
}

/// A table and its bytes, header included.
#[derive(Debug)]
struct Table {
    at: u64,
    len: u64,
}

impl Table {
    /// The table at this address, if it is one of this kind.
    fn read(tables: &impl Tables, at: u64, kind: &[u8; 4]) -> Option<Table> {
        // Attack: a table at the end of all addresses. What follows it has addresses, too.
        at.checked_add(2 * LONGEST)?;
        let len = number(tables, at + 4, 4)?;
        (has(tables, at, kind) && (HEADER..=LONGEST).contains(&len)).then_some(Table { at, len })
    }
}

/// The Fixed ACPI Description Table.
fn fixed(tables: &impl Tables, root: u64) -> Option<Table> {
    if !has(tables, root, b"RSD PTR ") {
        return None;
    }
    let revision = number(tables, root.checked_add(15)?, 1)?;
    let (list, width) = if revision >= 2 {
        (Table::read(tables, number(tables, root.checked_add(24)?, 8)?, b"XSDT")?, 8)
    } else {
        (Table::read(tables, number(tables, root.checked_add(16)?, 4)?, b"RSDT")?, 4)
    };
    let entries = ((list.len - HEADER) / width).min(ENTRIES);
    let entry = |index| number(tables, list.at + HEADER + index * width, width);
    (0..entries).filter_map(entry).find_map(|at| Table::read(tables, at, b"FACP"))
}

/// The types of sleep of S5, for the two PM1 control registers: the object `_S5_` in the definition block, a package
/// of numbers (7.4.2.6, 20.2.5).
fn sleep_types(tables: &impl Tables, block: &Table) -> Option<[u8; 2]> {
    let package = |at: u64| {
        let lead = number(tables, at + 5, 1)?;
        // The package's length has up to three more bytes; a byte with the number of its elements follows.
        let mut next = at + 6 + (lead >> 6) + 1;
        let mut element = || {
            let (value, len) = match number(tables, next, 1)? {
                0 => (0, 1),
                1 => (1, 1),
                0x0a => (number(tables, next + 1, 1)?, 2),
                _ => return None,
            };
            next += len;
            u8::try_from(value).ok().filter(|kind| *kind < 8)
        };
        let first = element()?;
        Some([first, element().unwrap_or(first)])
    };
    // Its name, and the beginning of a package.
    let (begin, end) = (block.at + HEADER, block.at + block.len);
    (begin..end.saturating_sub(5)).filter(|at| has(tables, *at, b"_S5_\x12")).find_map(package)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Memory from an address on.
    struct Memory(u64, Vec<u8>);

    impl Tables for Memory {
        fn byte(&self, address: u64) -> Option<u8> {
            self.1.get(usize::try_from(address.checked_sub(self.0)?).ok()?).copied()
        }
    }

    impl Memory {
        /// Adds a table; its address.
        fn add(&mut self, kind: &[u8; 4], body: &[u8]) -> u64 {
            let at = self.0 + self.1.len() as u64;
            self.1.extend(kind);
            self.1.extend((HEADER as u32 + body.len() as u32).to_le_bytes());
            self.1.extend([0; HEADER as usize - 8]);
            self.1.extend(body);
            at
        }

        fn set(&mut self, at: u64, bytes: &[u8]) {
            let at = (at - self.0) as usize;
            self.1[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    const BASE: u64 = 0xa_0000;
    const S5: &[u8] = b"\x10\x05xxxx\x08_S5_\x12\x06\x04\x0a\x05\x0a\x06\0\0";

    /// Tables with this definition block, and their fixed table.
    fn tables(revision: u8, block: &[u8]) -> (Memory, u64) {
        let mut memory = Memory(BASE, alloc::vec![0; 36]);
        memory.set(BASE, b"RSD PTR ");
        memory.set(BASE + 15, &[revision]);
        let block = memory.add(b"DSDT", block);
        let fixed = memory.add(b"FACP", &[0; 240]);
        memory.set(fixed + DSDT, &(block as u32).to_le_bytes());
        let other = memory.add(b"APIC", &[0; 8]);
        if revision < 2 {
            let list =
                memory.add(b"RSDT", &[(other as u32).to_le_bytes(), (fixed as u32).to_le_bytes()].concat());
            memory.set(BASE + 16, &(list as u32).to_le_bytes());
        } else {
            let list = memory.add(b"XSDT", &[other.to_le_bytes(), fixed.to_le_bytes()].concat());
            memory.set(BASE + 24, &list.to_le_bytes());
        }
        (memory, fixed)
    }

    #[test]
    fn a_reduced_machine_is_turned_off_by_its_sleep_control_register() {
        let (mut memory, fixed) = tables(2, S5);
        memory.set(fixed + FLAGS, &(HARDWARE_REDUCED as u32).to_le_bytes());
        assert_eq!(PowerOff::find(&memory, BASE), None, "it has no register");
        memory.set(fixed + SLEEP_CONTROL, &[1, 8, 0, 1, 0, 6]);
        assert_eq!(PowerOff::find(&memory, BASE), Some(PowerOff::Sleep { port: 0x600, value: 0x34 }));
        memory.set(fixed + SLEEP_CONTROL, &[0]);
        assert_eq!(PowerOff::find(&memory, BASE), None, "its register is in memory");
        memory.set(fixed + SLEEP_CONTROL, &[1, 8, 0, 1, 0, 0x60]);
        assert_eq!(PowerOff::find(&memory, BASE), None, "ring 3 may not use its port");
    }

    #[test]
    fn a_pc_is_turned_off_by_its_pm1_control_registers() {
        for revision in [0, 2] {
            let (mut memory, fixed) = tables(revision, S5);
            memory.set(fixed + PM1_CONTROL[0], &[4, 6]);
            let found = |ports, values| Some(PowerOff::Pm1 { ports, values });
            assert_eq!(PowerOff::find(&memory, BASE), found([0x604, 0], [0x3400, 0x3800]));
            memory.set(fixed + PM1_CONTROL[1], &[0, 7]);
            assert_eq!(PowerOff::find(&memory, BASE), found([0x604, 0x700], [0x3400, 0x3800]));
            // The long address goes before the short one.
            let other = memory.add(b"DSDT", b"_S5_\x12\x40\x00\x04\x00\x01");
            memory.set(fixed + LONG_DSDT, &other.to_le_bytes());
            assert_eq!(PowerOff::find(&memory, BASE), found([0x604, 0x700], [0x2000, 0x2400]));
        }
    }

    #[test]
    fn tables_that_are_none_turn_nothing_off() {
        let (mut memory, fixed) = tables(2, S5);
        memory.set(fixed + PM1_CONTROL[0], &[4, 6]);
        for at in [0, 1, BASE + 1, u64::MAX, u64::MAX - 8, BASE + memory.1.len() as u64] {
            assert_eq!(PowerOff::find(&memory, at), None, "{at:#x}");
        }
        for len in 0..memory.1.len() {
            // The list is the last table.
            assert_eq!(PowerOff::find(&Memory(BASE, memory.1[..len].into()), BASE), None, "{len}");
        }
        for block in
            ["", "_S5_", "_S5_\x12\x06\x04\x0c\x05", "_S5_\x12\x06\x04\x0a\x08", "_S5_\x08\x06\x04\x01\x01"]
        {
            let (mut memory, fixed) = tables(2, block.as_bytes());
            memory.set(fixed + PM1_CONTROL[0], &[4, 6]);
            assert_eq!(PowerOff::find(&memory, BASE), None, "{block:?}");
        }
        memory.set(fixed + 4, &[0xff; 4]);
        assert_eq!(PowerOff::find(&memory, BASE), None, "a length without an end");
    }
}
