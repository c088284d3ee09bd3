//! The machine as the guest sees it: the clock, and the ports and addresses that the monitor serves.

use crate::role::{Machine, Resumed};
use alloc::sync::Arc;
use core::arch::asm;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use ringway_mem::Region;

/// Port of the console: the first serial port's data register.
const CONSOLE: u16 = 0x3f8;
/// Port whose write ends the machine: QEMU's isa-debug-exit.
const EXIT: u16 = 0xf4;
/// Port whose write sleeps for so many microseconds, or until a device notifies the guest.
const PARK: u16 = 0xf8;

/// Port whose write lets the monitor take a snapshot; the value is the address of [`CLONE`].
const SNAPSHOT: u16 = 0xfc;

/// What the monitor writes into the memory of a machine that resumes from a snapshot: 1; the ticks since the snapshot;
/// a clone's generation, which no other one has, or 0 for a machine that has moved.
static CLONE: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// What is added to the counter of ticks: a clone's CPU begins to count anew.
static OFFSET: AtomicU64 = AtomicU64::new(0);

/// Writes to an I/O port.
pub fn out(port: u16, value: u32) {
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
    unsafe { core::arch::x86_64::_rdtsc() }.wrapping_add(OFFSET.load(Ordering::Relaxed))
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

    fn snapshot(&mut self) -> Resumed {
        CLONE[0].store(0, Ordering::SeqCst);
        let (before, place) = (ticks(), CLONE.as_ptr().addr() as u32);
        // A clone has lost its vector registers.
        // SAFETY: the monitor writes to the words, which are atomic, before the guest goes on.
        unsafe {
            asm!("out dx, eax", in("dx") SNAPSHOT, in("eax") place, clobber_abi("C"), options(nostack))
        };
        if CLONE[0].load(Ordering::SeqCst) == 0 {
            return Resumed::Same;
        }
        let now = ticks().wrapping_sub(OFFSET.load(Ordering::Relaxed));
        let meant = before.wrapping_add(CLONE[1].load(Ordering::SeqCst));
        OFFSET.store(meant.wrapping_sub(now), Ordering::Relaxed);
        match CLONE[2].load(Ordering::SeqCst) {
            0 => Resumed::Moved,
            generation => Resumed::Clone(generation),
        }
    }
}
