//! I/O ports, and the configuration space of PCI behind two of them.

use crate::stock::{ConfigSpace, Function};
use core::arch::asm;

/// Address and data of the configuration space.
const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;
const ENABLE: u32 = 1 << 31;

/// Writes a byte.
pub fn out8(port: u16, value: u8) {
    // SAFETY: no device of the machine changes memory by it.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) };
}

/// Reads a byte.
pub fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: as above.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

/// Writes two bytes.
pub fn out16(port: u16, value: u16) {
    // SAFETY: as above.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nomem, nostack)) };
}

/// Reads two bytes.
pub fn in16(port: u16) -> u16 {
    let value: u16;
    // SAFETY: as above.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nomem, nostack)) };
    value
}

fn out32(port: u16, value: u32) {
    // SAFETY: PCI devices are set up to use only the memory of their queues.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack)) };
}

fn in32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: as for bytes.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack)) };
    value
}

/// PCI by configuration mechanism 1.
pub struct Pci;

impl Pci {
    /// PCI, if the machine has it.
    pub fn find() -> Option<Pci> {
        out32(ADDRESS, ENABLE);
        (in32(ADDRESS) == ENABLE).then_some(Pci)
    }

    fn select(&self, Function(bus, device, function): Function, offset: u8) {
        let place = u32::from(bus) << 16 | u32::from(device & 31) << 11 | u32::from(function & 7) << 8;
        out32(ADDRESS, ENABLE | place | u32::from(offset & 0xfc));
    }
}

impl ConfigSpace for Pci {
    fn read(&self, function: Function, offset: u8) -> u32 {
        self.select(function, offset);
        in32(DATA)
    }

    fn write(&self, function: Function, offset: u8, value: u32) {
        self.select(function, offset);
        out32(DATA, value);
    }
}
