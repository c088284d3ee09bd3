//! What an image with a program in C has besides: the C library's start, its system calls, and memory for its `malloc`.
//!
//! The library is klibc. Each of its system calls loads its number into EAX and jumps to `__syscall_common`, with the
//! arguments where those of a function in C are; a call that fails returns -1, and `errno` says why.

use super::Start;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use ringway_bare::heap::image_end;
use ringway_mem::Region;

// `vfork` has an instruction of its own in klibc, and can't be one of these calls: it fails.
global_asm!(
    r#"
.text
.global __syscall_common
__syscall_common:
  lea r11, [rsp + 8]        // what the caller has on the stack begins behind the return address
  sub rsp, 8                // keeps the stack aligned
  push r11                  // a `Call`: the seventh argument, which is on the stack
  push rax
  call ringway_call
  add rsp, 24
  ret
.global vfork
vfork:
  mov eax, 58
  jmp __syscall_common
"#
);

unsafe extern "C" {
    static mut errno: c_int;
    /// Reads arguments and environment from words like those on the stack of a new process, and calls `main`.
    fn __libc_init(words: *const u64, at_exit: *const c_void) -> !;
}

/// The stack that the entry sets up: what ends before it, and its own end.
pub const STACK: [u64; 2] = [0xa000, 0x9f000];
/// Where images begin.
const IMAGE: u64 = 1 << 20;
/// Part of the memory that is for `malloc`: with the half for buffers of streams, an eighth is left.
const SHARE: [u64; 2] = [3, 8];
const PAGE: u64 = 4096;
/// Largest error number.
const ERRORS: i64 = 4095;

/// What `__syscall_common` adds to the arguments of a call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Call {
    /// Which call.
    pub number: u64,
    /// Where the caller's part of the stack begins: below are the frames of what answers.
    pub stack: u64,
}

/// What answers a system call with its arguments.
type Handler = Box<dyn FnMut(Call, [u64; 6]) -> i64>;

struct Calls(UnsafeCell<Option<Handler>>);

// SAFETY: the guest has one CPU and no interrupts, and so a single thread.
unsafe impl Sync for Calls {}

static CALLS: Calls = Calls(UnsafeCell::new(None));

/// A system call.
#[unsafe(no_mangle)]
extern "C" fn ringway_call(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, call: Call) -> i64 {
    // SAFETY: there is a single thread, and the handler calls nothing of the C program, which alone makes calls: no
    // other reference to it exists.
    let handler = unsafe { &mut *CALLS.0.get() };
    let Some(handler) = handler else { return -1 };
    let answer = handler(call, [a, b, c, d, e, f]);
    if !(-ERRORS..0).contains(&answer) {
        return answer;
    }
    // SAFETY: as above.
    unsafe { errno = -answer as c_int };
    -1
}

/// The memory for `malloc`, whole pages: from where, and up to where.
pub fn heap(start: &Start) -> [u64; 2] {
    let end = start.memory_end.min(start.module_at()) & !(PAGE - 1);
    let begin = (end - end / SHARE[1] * SHARE[0]) & !(PAGE - 1);
    // An image that is so large leaves less.
    let least = image_end().next_multiple_of(PAGE);
    [begin.max(least).min(end), end]
}

/// The memory that a program may name in its calls: its stack, itself and its heap. Whoever answers a call refuses what
/// is in the stack below [`Call::stack`].
pub fn memory(start: &Start) -> Vec<Region> {
    let region = |[from, to]: [u64; 2]| {
        let base = NonNull::new(from as *mut u8)?;
        // SAFETY: the range is mapped as long as the machine runs. It is the C program's: this library has nothing in
        // its heap, and the program has no pointer to this library's variables in the image. Of the stack, what is
        // below `Call::stack` is refused: the frames of the call in progress are there, where a pointer to a local
        // variable of a function that has returned may lead. A program that moves to a stack of its own, by
        // instructions of its own, has to name nothing below its stack pointer. Above the program's frames are those
        // of this library's start, which never goes on.
        Some(unsafe { Region::new(from, from, to.saturating_sub(from), base, Arc::new(())) })
    };
    let all = [STACK, [IMAGE, image_end()], heap(start)];
    all.into_iter().filter_map(region).filter(|region| region.len > 0).collect()
}

/// Starts the C program with what its library expects on the stack, and answers its system calls.
pub fn run(words: &[u64], calls: impl FnMut(Call, [u64; 6]) -> i64 + 'static) -> ! {
    // SAFETY: no call was made yet, so no other reference to the handler exists.
    unsafe { *CALLS.0.get() = Some(Box::new(calls)) };
    // SAFETY: nothing of Rust uses the unit: C's `long double` does, with the control word that processes have.
    unsafe { asm!("fninit", options(nomem, nostack)) };
    // SAFETY: the words stay, since this does not return.
    unsafe { __libc_init(words.as_ptr(), core::ptr::null()) }
}

/// Whether the processor has the instruction for random numbers: 0 is not known yet, 1 no, 2 yes.
static HAS_RANDOM: AtomicU32 = AtomicU32::new(0);
/// Attempts to get a random number, as Intel recommends.
const ATTEMPTS: u32 = 10;

/// Random bits of the processor; `None` if it has no source of them, or that fails.
pub fn random() -> Option<u64> {
    if HAS_RANDOM.load(Ordering::Relaxed) == 0 {
        let has = core::arch::x86_64::__cpuid(1).ecx & (1 << 30) != 0;
        HAS_RANDOM.store(1 + u32::from(has), Ordering::Relaxed);
    }
    if HAS_RANDOM.load(Ordering::Relaxed) == 1 {
        return None;
    }
    for _ in 0..ATTEMPTS {
        let (bits, good): (u64, u8);
        // SAFETY: the processor has the instruction, which changes a register and the flags.
        unsafe { asm!("rdrand {}", "setc {}", out(reg) bits, out(reg_byte) good, options(nomem, nostack)) };
        if good != 0 {
            return Some(bits);
        }
    }
    None
}
