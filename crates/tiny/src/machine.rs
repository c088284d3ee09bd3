//! The machine as the guest sees it: the clock, and the ports and addresses that the monitor serves.

use alloc::sync::Arc;
use core::arch::asm;
use core::fmt;
use core::ptr::NonNull;
use ringway_mem::Region;
use ringway_tiny::Machine;

/// Port of the console: the first serial port's data register.
const CONSOLE: u16 = 0x3f8;
/// Port whose write ends the machine: QEMU's isa-debug-exit.
const EXIT: u16 = 0xf4;
/// Port whose write sleeps for so many microseconds, or until a device notifies the guest.
const PARK: u16 = 0xf8;

fn out(port: u16, value: u32) {
    // SAFETY: the monitor only acts on the value; no memory is accessed.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack)) };
}

/// Ends the machine.
pub fn exit(code: u32) -> ! {
    loop {
        out(EXIT, code);
    }
}

/// Ticks of the clock.
pub fn ticks() -> u64 {
    // SAFETY: it reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Memory or registers at an address that the monitor named.
pub fn region(address: u64, len: u64) -> Option<Region> {
    let base = NonNull::new(address as *mut u8)?;
    // SAFETY: the monitor serves this range until the guest releases it, at an address where the guest has nothing
    // else; all memory is identity-mapped.
    Some(unsafe { Region::new(0, 0, len, base, Arc::new(())) })
}

/// The guest.
pub struct Guest;

impl fmt::Write for Guest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One exit for the text, not one for each byte.
        let (at, count) = (text.as_ptr(), text.len());
        // SAFETY: the monitor only reads the text.
        unsafe {
            asm!(
                "cld", "rep outsb", in("dx") CONSOLE, inout("rsi") at => _, inout("rcx") count => _,
                options(readonly, nostack)
            );
        }
        Ok(())
    }
}

impl Machine for Guest {
    fn ticks(&self) -> u64 {
        ticks()
    }

    fn park(&mut self, microseconds: u32) {
        out(PARK, microseconds);
    }
}
