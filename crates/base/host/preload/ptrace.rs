//! A preloaded library with a `ptrace` that accepts a truncated extended processor state from a tracer.
//! `build.rs` compiles it separately, since it runs in another program's process.
//!
//! User-Mode Linux 6.1 stores 2,696 bytes per process, up to AVX-512. On processors with more state (AMX),
//! the host refuses the truncated state with EFAULT (Linux, arch/x86/kernel/fpu/regset.c, `xstateregs_set`),
//! and the first process never runs.
#![no_std]

use core::arch::x86_64::__cpuid_count;
use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use core::ptr::{copy_nonoverlapping, write_bytes};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SYS_PTRACE: c_long = 101;
const PEEK: core::ops::RangeInclusive<c_uint> = 1..=3;
const GETREGSET: c_uint = 0x4204;
const SETREGSET: c_uint = 0x4205;
const NT_X86_XSTATE: u32 = 0x202;
const EFAULT: c_int = 14;
/// The legacy part and the header.
const HEADERS: usize = 512 + 64;
/// More than any processor has; the largest state of x86-64 is 11,008 bytes.
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

/// Whether this host requires more state than the tracer writes.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// Buffers for complete states. Not on the stack, since User-Mode Linux's stacks are small.
static mut AREAS: [Area; 4] = [Area::EMPTY; 4];
/// Which buffers are in use: by a thread, and by a signal handler that interrupted it.
static ARE_USED: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];

/// As the C library's, except for what is described above.
///
/// # Safety
/// As for `ptrace(2)`: `data` must match `request`. An invalid `iovec` is not detected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(request: c_uint, pid: c_int, addr: c_ulong, data: *mut c_void) -> c_long {
    // The kernel uses 32 bits of a regset's number.
    let is_state = request == SETREGSET && addr as u32 == NT_X86_XSTATE;
    // SAFETY: `errno` is this thread's.
    let before = unsafe { *__errno_location() };
    if !(is_state && IS_SHORT.load(Ordering::Relaxed)) {
        // SAFETY: the caller's promise is passed on.
        let (result, error) = unsafe { call(request, pid, addr, data) };
        // SAFETY: the caller's promise.
        if !(is_state && result == -1 && error == EFAULT && unsafe { is_a_beginning(data) }) {
            return result;
        }
        IS_SHORT.store(true, Ordering::Relaxed);
    }
    let free = ARE_USED.iter().position(|used| !used.swap(true, Ordering::Acquire));
    let Some(number) = free else {
        // SAFETY: the caller's promise is passed on.
        return unsafe { call(request, pid, addr, data) }.0;
    };
    // SAFETY: `data` points to an `iovec`, as SETREGSET wants, and the area was free and is now ours alone.
    let (result, error) = unsafe { set_whole(pid, data.cast(), (&raw mut AREAS).cast::<Area>().add(number)) };
    ARE_USED[number].store(false, Ordering::Release);
    // SAFETY: `errno` is this thread's.
    unsafe { *__errno_location() = if result == 0 { before } else { error } };
    result
}

/// Whether the buffer includes the component bitmap and consists of whole words.
///
/// # Safety
/// `data` points to an `iovec`, or is null.
unsafe fn is_a_beginning(data: *mut c_void) -> bool {
    // SAFETY: it isn't null, and the caller's promise.
    !data.is_null() && {
        let len = unsafe { data.cast::<IoVec>().read_unaligned() }.len;
        len >= HEADERS && len.is_multiple_of(8)
    }
}

/// The system call, with result and `errno` as the C library returns them.
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

/// Writes the state that starts with `given`, with the remaining components in their initial state. Data that
/// is not a truncated state is passed to the kernel unchanged.
///
/// # Safety
/// `given` is an `iovec` of readable memory, or null, and no other code uses `area`.
unsafe fn set_whole(pid: c_int, given: *mut IoVec, area: *mut Area) -> (c_long, c_int) {
    let mut whole = IoVec { base: area.cast(), len: LARGEST };
    let iovec = (&raw mut whole).cast();
    // SAFETY: the area has `LARGEST` bytes; the kernel says in `len` how many it wants, which are no more, and of
    // those as many are copied as `given` has.
    unsafe {
        if !is_a_beginning(given.cast()) {
            return call(SETREGSET, pid, c_ulong::from(NT_X86_XSTATE), given.cast());
        }
        let read = call(GETREGSET, pid, c_ulong::from(NT_X86_XSTATE), iovec);
        if read.0 != 0 {
            return read;
        }
        let IoVec { base, len } = given.read_unaligned();
        let len = len.min(whole.len);
        copy_nonoverlapping(base, whole.base, len);
        write_bytes(whole.base.add(len), 0, whole.len - len);
        (*area).present &= components(len);
        let written = call(SETREGSET, pid, c_ulong::from(NT_X86_XSTATE), iovec);
        if written.0 == 0 {
            given.write_unaligned(IoVec { base, len });
        }
        written
    }
}

/// The components that end within `len` bytes, as bits of `XSTATE_BV` (CPUID leaf 0DH).
fn components(len: usize) -> u64 {
    /// End offset of each component; 0 if unknown. All threads compute the same values.
    static ENDS: [AtomicUsize; 63] = [const { AtomicUsize::new(0) }; 63];
    let bits = ENDS.iter().enumerate().skip(2).map(|(component, known)| {
        let mut end = known.load(Ordering::Relaxed);
        if end == 0 {
            // CPUID exits from a virtual machine, which takes microseconds.
            let leaf = __cpuid_count(0xd, component as u32);
            let is_there = leaf.eax > 0 && leaf.ebx > 0;
            end = if is_there { leaf.eax as usize + leaf.ebx as usize } else { usize::MAX };
            known.store(end, Ordering::Relaxed);
        }
        u64::from(end <= len) << component
    });
    // x87 and SSE are the legacy part.
    bits.fold(0b11, |all, bit| all | bit)
}
