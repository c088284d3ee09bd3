//! A library to preload: `ptrace` that accepts a processor's extended state from a tracer that knows only the
//! first part of it. `build.rs` compiles it by itself, since it runs in another program's process.
//!
//! User-Mode Linux 6.1 keeps 2,696 bytes a process, up to AVX-512. Where there is more (AMX), the host refuses
//! what it writes back with EFAULT (Linux, arch/x86/kernel/fpu/regset.c, `xstateregs_set`), and its first process
//! never runs.
#![no_std]

use core::arch::x86_64::__cpuid_count;
use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use core::mem::offset_of;
use core::ptr::{copy_nonoverlapping, write_bytes};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SYS_PTRACE: c_long = 101;
const PEEK: core::ops::RangeInclusive<c_uint> = 1..=3;
const GETREGSET: c_uint = 0x4204;
const SETREGSET: c_uint = 0x4205;
const NT_X86_XSTATE: c_ulong = 0x202;
const EFAULT: c_int = 14;
/// More than any processor has; x86-64's largest is 11,008.
const LARGEST: usize = 16 << 10;

#[repr(C)]
struct IoVec {
    base: *mut u8,
    len: usize,
}

/// An XSAVE area in standard format (Intel SDM, volume 1, 13.4).
#[repr(C, align(64))]
struct Area {
    legacy: [u8; 512],
    /// `XSTATE_BV`: the components that are not in their initial state.
    present: u64,
    rest: [u8; LARGEST - 520],
}

impl Area {
    const EMPTY: Area = Area { legacy: [0; 512], present: 0, rest: [0; LARGEST - 520] };
}

#[link(name = "c")]
unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Whether this host wants more than the tracer writes.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// How many calls are under way: a signal's handler may call while the thread it interrupted does. Their areas are
/// not on the stack, since User-Mode Linux's are small.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static mut AREAS: [Area; 2] = [Area::EMPTY; 2];

/// As the C library's, but for what is said above.
///
/// # Safety
/// As of `ptrace(2)`: `data` is what `request` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(request: c_uint, pid: c_int, addr: c_ulong, data: *mut c_void) -> c_long {
    let is_state = request == SETREGSET && addr == NT_X86_XSTATE;
    if !(is_state && IS_SHORT.load(Ordering::Relaxed)) {
        // SAFETY: the caller's promise is passed on.
        let (result, error) = unsafe { call(request, pid, addr, data) };
        if !(is_state && result == -1 && error == EFAULT) {
            return result;
        }
        IS_SHORT.store(true, Ordering::Relaxed);
    }
    let turn = UNDER_WAY.fetch_add(1, Ordering::Relaxed);
    // SAFETY: `data` points to an `iovec`, as SETREGSET wants; the area of this turn is used by no call under
    // way: one thread traces, and of its calls the second can only be a signal handler's.
    let result =
        unsafe { set_whole(pid, &*data.cast::<IoVec>(), (&raw mut AREAS).cast::<Area>().add(turn % 2)) };
    UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    result
}

/// The system call, with the result where the C library has it, and `errno`.
///
/// # Safety
/// As of `ptrace(2)`.
unsafe fn call(request: c_uint, pid: c_int, addr: c_ulong, data: *mut c_void) -> (c_long, c_int) {
    let mut word: c_long = 0;
    let is_peek = PEEK.contains(&request);
    let data = if is_peek { (&raw mut word).cast() } else { data };
    // SAFETY: the caller's promise; the word lives until the call is over, and `errno` is this thread's.
    unsafe {
        let result = syscall(SYS_PTRACE, c_long::from(request), c_long::from(pid), addr, data);
        if is_peek && result >= 0 {
            *__errno_location() = 0;
            return (word, 0);
        }
        (result, *__errno_location())
    }
}

/// Writes the state that `given` begins, with the rest in its initial state.
///
/// # Safety
/// `given` describes readable memory, and `area` is nobody else's.
unsafe fn set_whole(pid: c_int, given: &IoVec, area: *mut Area) -> c_long {
    let mut whole = IoVec { base: area.cast(), len: LARGEST };
    let iovec = (&raw mut whole).cast();
    // SAFETY: the area has `LARGEST` bytes; the kernel says in `len` how many it wants, which are no more, and of
    // those as many are copied as `given` has.
    unsafe {
        let (result, _) = call(GETREGSET, pid, NT_X86_XSTATE, iovec);
        if result != 0 {
            return result;
        }
        let len = given.len.min(whole.len);
        copy_nonoverlapping(given.base, whole.base, len);
        write_bytes(whole.base.add(len), 0, whole.len - len);
        if len >= offset_of!(Area, rest) {
            (*area).present &= components(len);
        }
        call(SETREGSET, pid, NT_X86_XSTATE, iovec).0
    }
}

/// The components that end within `len` bytes, as bits of `XSTATE_BV` (CPUID leaf 0DH).
fn components(len: usize) -> u64 {
    static KNOWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    let [known_len, known] = &KNOWN;
    // CPUID leaves a virtual machine, which takes microseconds.
    if known_len.load(Ordering::Acquire) == len {
        return known.load(Ordering::Relaxed) as u64;
    }
    // x87 and SSE are the legacy part.
    let mut bits = 0b11_u64;
    for component in 2..63 {
        let leaf = __cpuid_count(0xd, component);
        let (size, offset) = (leaf.eax as usize, leaf.ebx as usize);
        if size > 0 && offset > 0 && offset + size <= len {
            bits |= 1 << component;
        }
    }
    known.store(bits as usize, Ordering::Relaxed);
    known_len.store(len, Ordering::Release);
    bits
}
