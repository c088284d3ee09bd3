//! The machine's end: by ACPI, or by the keyboard's controller if the command line says so.

use super::ports::{in16, out8, out16};
use crate::stock::{PowerOff, Tables};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The end of what the image sees of the machine's memory.
const MAPPED: u64 = 1 << 32;
/// The keyboard controller's command port, and its command that resets the machine.
const KEYBOARD: u16 = 0x64;
const RESET: u8 = 0xfe;

/// Address of ACPI's root pointer.
static ROOT: AtomicU64 = AtomicU64::new(0);
static RESETS: AtomicBool = AtomicBool::new(false);

/// The machine's memory.
struct Memory;

impl Tables for Memory {
    fn byte(&self, address: u64) -> Option<u8> {
        // SAFETY: all of the first 4 GB is mapped, and the image has no memory at 0; a read changes nothing where the
        // monitor says that tables are.
        (1..MAPPED).contains(&address).then(|| unsafe { (address as *const u8).read_volatile() })
    }
}

/// Notes where the tables are.
pub fn tables(root: u64) {
    ROOT.store(root, Ordering::Relaxed);
}

/// Has the machine reset at its end; some monitors end then.
pub fn reset_at_end() {
    RESETS.store(true, Ordering::Relaxed);
}

/// Turns the machine off if it can be. It needs no heap.
pub fn off() {
    match PowerOff::find(&Memory, ROOT.load(Ordering::Relaxed)) {
        Some(PowerOff::Sleep { port, value }) => out8(port, value),
        Some(PowerOff::Pm1 { ports, values }) => {
            for (port, value) in ports.into_iter().zip(values).filter(|(port, _)| *port != 0) {
                out16(port, in16(port) & !PowerOff::PM1_MASK | value);
            }
        }
        None => {}
    }
    if RESETS.load(Ordering::Relaxed) {
        out8(KEYBOARD, RESET);
    }
}
