//! How fast the time stamp counter counts, and what time it is: by KVM's clock, or by the timer and the real-time clock
//! of a PC.

use super::ports::{in8, out8};
use crate::image::ticks;
use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};
use core::cell::UnsafeCell;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// The counter counts so fast; anything else is not a measurement.
const SPEEDS: core::ops::RangeInclusive<u64> = 10_000_000..=100_000_000_000;

/// The timer's frequency, and the ticks of a measurement, 10 ms.
const TIMER_HZ: u64 = 1_193_182;
const TIMER_TICKS: u16 = 11_932;
/// The timer's first channel, and its control.
const CHANNEL_0: u16 = 0x40;
const TIMER_CONTROL: u16 = 0x43;
/// Looks at the timer, of which the shortest counts: the machine may be stopped during one.
const TRIES: u32 = 4;
/// Looks until the timer is taken for missing, and those that find all ones, as without a timer.
const LOOKS: u32 = 100_000;
const ABSENT: u32 = 100;

/// KVM's clock: its registers, its bit among KVM's features.
const WALL_CLOCK: u32 = 0x4b56_4d00;
const SYSTEM_TIME: u32 = 0x4b56_4d01;
const CLOCK: u32 = 1 << 3;

/// A clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Ticks of the counter in a second.
    pub hz: u64,
    /// Nanoseconds since 1970; 0 if nothing tells.
    pub wall: u64,
}

impl Clock {
    /// The machine's clock, with the ticks that the command line has.
    pub fn find(hz: Option<u64>) -> Option<Clock> {
        let kvm = kvm_clock();
        let hz = hz.or(kvm.map(|kvm| kvm.hz)).or_else(measured)?;
        Some(Clock { hz, wall: kvm.map_or_else(real_time, |kvm| kvm.wall) })
    }
}

/// A seed that differs from boot to boot.
pub fn seed() -> u64 {
    const RANDOM: u32 = 1 << 30;
    let mixed = ticks().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if __cpuid(1).ecx & RANDOM == 0 {
        return mixed;
    }
    let (value, valid): (u64, u8);
    // SAFETY: the processor has the instruction.
    unsafe { asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) valid, options(nomem, nostack)) };
    if valid == 1 { value } else { mixed }
}

/// Memory that KVM writes.
#[repr(C, align(64))]
struct Shared(UnsafeCell<[u32; 16]>);

// SAFETY: the guest has a single thread; KVM writes before the register's write has ended.
unsafe impl Sync for Shared {}

static SHARED: [Shared; 2] = [const { Shared(UnsafeCell::new([0; 16])) }; 2];

impl Shared {
    /// Has KVM write, and returns the words.
    fn ask(&self, register: u32, flag: u64) -> [u32; 16] {
        let at = self.0.get();
        let value = at.addr() as u64 | flag;
        // SAFETY: the fault's handler writes the register, by which KVM writes these words at most.
        unsafe {
            asm!(
                "wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32
            );
            at.read_volatile()
        }
    }
}

/// KVM's clock (Linux's Documentation/virt/kvm/x86/msr.rst).
fn kvm_clock() -> Option<Clock> {
    let is_kvm = |base: &u32| {
        let leaf = __cpuid_count(*base, 0);
        [leaf.ebx, leaf.ecx, leaf.edx] == [0x4b4d_564b, 0x564b_4d56, 0x4d] && leaf.eax > *base
    };
    let base = [0x4000_0000, 0x4000_0100].into_iter().find(is_kvm)?;
    if __cpuid(base + 1).eax & CLOCK == 0 {
        return None;
    }
    let words = SHARED[0].ask(SYSTEM_TIME, 1);
    let long = |at: usize| u64::from(words[at]) | u64::from(words[at + 1]) << 32;
    let (then, since, scale, shift) = (long(2), long(4), words[6], words[7] as i8);
    if scale == 0 {
        return None;
    }
    let hz = (SECOND << 32) / u64::from(scale);
    let hz = if shift < 0 { hz << (-shift).min(31) } else { hz >> shift.min(31) };
    // SAFETY: it reads a counter.
    let passed = unsafe { _rdtsc() }.saturating_sub(then);
    let now = since + (u128::from(passed) * u128::from(SECOND) / u128::from(hz.max(1))) as u64;
    let wall = SHARED[1].ask(WALL_CLOCK, 0);
    let start = u64::from(wall[1]) * SECOND + u64::from(wall[2]);
    SPEEDS.contains(&hz).then_some(Clock { hz, wall: start + now })
}

/// The timer's count, and the ticks at that time.
fn timer() -> (u16, u64) {
    let look = |_| {
        let before = ticks();
        // Keeps the count until it was read.
        out8(TIMER_CONTROL, 0);
        let after = ticks();
        let count = u16::from_le_bytes([in8(CHANNEL_0), in8(CHANNEL_0)]);
        (after.wrapping_sub(before), count, before)
    };
    let shortest = (0..TRIES).map(look).min_by_key(|(passed, ..)| *passed);
    shortest.map_or((0, 0), |(passed, count, before)| (count, before.wrapping_add(passed / 2)))
}

/// Ticks of the counter in a second, by the timer, whose interrupt is masked.
fn measured() -> Option<u64> {
    // Counts down once from 65535.
    out8(TIMER_CONTROL, 0x30);
    out8(CHANNEL_0, 0xff);
    out8(CHANNEL_0, 0xff);
    let (first, begin) = timer();
    let mut absent = 0;
    let mut look = |_| {
        let (count, at) = timer();
        absent = if count == u16::MAX { absent + 1 } else { 0 };
        (absent < ABSENT).then_some((count, at))
    };
    let (last, end) =
        (0..LOOKS).map_while(&mut look).find(|(count, _)| first.wrapping_sub(*count) >= TIMER_TICKS)?;
    let (counted, passed) = (first.wrapping_sub(last), end.wrapping_sub(begin));
    let hz = (u128::from(passed) * u128::from(TIMER_HZ) / u128::from(counted)) as u64;
    Some(hz).filter(|hz| SPEEDS.contains(hz))
}

/// Nanoseconds since 1970 by the real-time clock, whose time is the world's; 0 if there is none.
fn real_time() -> u64 {
    const STATUS_A: u8 = 0x0a;
    const STATUS_B: u8 = 0x0b;
    const CENTURY: u8 = 0x32;
    let read = |register: u8| {
        out8(0x70, register);
        in8(0x71)
    };
    let date = || {
        // No time is read while it changes.
        let _ = (0..1_000_000).any(|_| read(STATUS_A) & 0x80 == 0);
        [0, 2, 4, 7, 8, 9, CENTURY].map(read)
    };
    // Where there is none, all reads are ones.
    if read(STATUS_A) == u8::MAX {
        return 0;
    }
    let mut found = date();
    for _ in 0..10 {
        let again = date();
        if core::mem::replace(&mut found, again) == again {
            break;
        }
    }
    let status = read(STATUS_B);
    let number = |byte: u8| {
        let byte = u64::from(byte);
        if status & 4 != 0 { byte } else { (byte >> 4) * 10 + (byte & 0xf) }
    };
    let [second, minute, hour, day, month, year, century] = found;
    let mut hours = number(hour & 0x7f);
    if status & 2 == 0 {
        hours = hours % 12 + if hour & 0x80 != 0 { 12 } else { 0 };
    }
    let (day, month) = (number(day), number(month));
    let year = number(year) + 100 * Some(number(century)).filter(|c| (19..=99).contains(c)).unwrap_or(20);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year < 1970 {
        return 0;
    }
    // Days since the first of March of the year 0.
    let (year, shifted) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * shifted + 2) / 5 + day - 1;
    let days = days.saturating_sub(719_468);
    (((days * 24 + hours) * 60 + number(minute)) * 60 + number(second)) * SECOND
}
