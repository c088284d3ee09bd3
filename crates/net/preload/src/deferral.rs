//! Signals that come while a thread is within the library: their handlers run when it has left, without a system call
//! for each call of the library.
//!
//! When the process joins the shared stack, the kernel's handler of each signal becomes [`entry`], which knows whether
//! the thread is within. If not, it continues as the program's handler, with the kernel's arguments and on the kernel's
//! frame. If so, it blocks the signal in the interrupted context, and sends it to its thread again, with all that came
//! with it; the thread unblocks it when it leaves. So the kernel delivers each signal as if it had been blocked.
//! Signals that end a program are kept from the stack's turn in the same way: a holder of the lock that ends takes the
//! connections of all processes with it.
//!
//! The library blocks all signals in each call, as before it joined, if it can't do this exactly: the program has a
//! handler for a real-time signal, whose instances must stay in order; it has set a handler by other means than the C
//! library's functions, or one that runs once (`SA_RESETHAND`); or it has a controlling terminal, whose signals stop a
//! process at any place. A handler that a program's own system call instruction sets after that is not seen.

use crate::descriptors::is_other_process;
use crate::guard::StateGuard;
use crate::process::owner;
use crate::real::{Real, set_errno, syscall};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::arch::{global_asm, naked_asm};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, compiler_fence};

/// Signals have the numbers from 1 to this one.
const LAST: c_int = 64;
/// The first of the real-time signals that programs use.
const FIRST_REAL_TIME: c_int = 34;
/// The C library's own.
const C_LIBRARY: [c_int; 2] = [32, 33];
const DEFAULT: u64 = libc::SIG_DFL as u64;
const IGNORE: u64 = libc::SIG_IGN as u64;
/// Signals by which the processor reports a fault of the thread.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
/// Signals whose default is to stop the process.
const STOPS: [c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
/// Signals whose default is to be ignored, or to continue.
const HARMLESS: [c_int; 4] = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];

/// Signals are blocked in each call.
const BLOCKING: u32 = 0;
/// They are deferred.
const DEFERRING: u32 = 1;
/// They are blocked in each call, for good.
const NEVER: u32 = 2;
static MODE: AtomicU32 = AtomicU32::new(BLOCKING);

/// Whether signals are deferred.
pub fn is_deferring() -> bool {
    MODE.load(Relaxed) == DEFERRING
}

/// Blocks signals in each call from now on.
pub fn never() {
    MODE.store(NEVER, SeqCst);
}

/// Whether [`entry`] is the kernel's handler. It stays so when signals are no longer deferred: other threads may
/// still be in sections that began before, in which no handler may run, not even one that is set later.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// What a thread's handlers need to know.
#[repr(C)]
struct Thread {
    /// How many sections of the library it is in.
    depth: AtomicU64,
    /// The signals that it has blocked, which came meanwhile.
    deferred: AtomicU64,
}

// In the memory that each thread has from its start: `thread_local!` may allocate memory, which handlers must not.
global_asm!(
    ".pushsection .tbss, \"awT\", @nobits",
    ".balign 8",
    ".hidden ringway_thread",
    ".globl ringway_thread",
    "ringway_thread: .zero 16",
    ".size ringway_thread, 16",
    ".popsection",
);

/// This thread's.
fn thread() -> &'static Thread {
    let at: *const Thread;
    // SAFETY: the words are this thread's, which lives as long as it runs; all zeros is a valid value.
    unsafe {
        std::arch::asm!(
            "mov {at}, qword ptr [rip + ringway_thread@gottpoff]",
            "add {at}, qword ptr fs:[0]",
            at = out(reg) at,
            options(nostack, readonly),
        );
        &*at
    }
}

/// Begins a section in which no handler of the program runs.
pub fn enter() {
    let depth = &thread().depth;
    depth.store(depth.load(Relaxed) + 1, Relaxed);
    compiler_fence(SeqCst);
}

/// Ends a section. The signals that came are delivered.
pub fn leave() {
    compiler_fence(SeqCst);
    let thread = thread();
    let depth = thread.depth.load(Relaxed).saturating_sub(1);
    thread.depth.store(depth, Relaxed);
    compiler_fence(SeqCst);
    if depth == 0 && thread.deferred.load(Relaxed) != 0 {
        unblock();
    }
}

#[cold]
fn unblock() {
    let signals = thread().deferred.swap(0, Relaxed);
    mask_signals(libc::SIG_UNBLOCK, signals);
}

fn mask_signals(how: c_int, signals: u64) {
    let arguments = [how as u64, (&raw const signals).addr() as u64, 0, 8, 0, 0];
    // SAFETY: the kernel reads eight bytes.
    unsafe { syscall(libc::SYS_rt_sigprocmask, arguments) };
}

global_asm!(
    ".hidden ringway_sleep, ringway_sleep_call, ringway_sleep_end",
    ".globl ringway_sleep, ringway_sleep_call, ringway_sleep_end",
    "ringway_sleep:",
    "cmp qword ptr [rcx], 0",
    "jne ringway_sleep_end",
    "xor r10d, r10d",
    "mov r8d, 8",
    "mov eax, {ppoll}",
    "ringway_sleep_call:",
    "syscall",
    "ret",
    "ringway_sleep_end:",
    "mov rax, -{interrupted}",
    "ret",
    ppoll = const libc::SYS_ppoll,
    interrupted = const libc::EINTR,
);

unsafe extern "C" {
    /// `ppoll` without a mask, unless the word at `deferred` is not 0. A signal that comes before the kernel's call
    /// lets it end at once, as one that comes within.
    fn ringway_sleep(list: *mut libc::pollfd, count: u64, time: u64, deferred: *mut u64) -> i64;
    static ringway_sleep_call: u8;
    static ringway_sleep_end: u8;
}

/// Waits for descriptors as `ppoll`, within a section; handlers run before it returns.
///
/// # Safety
/// `time` is 0, or the address of a time.
pub unsafe fn sleep(list: &mut [libc::pollfd], time: u64) -> i64 {
    let deferred = thread().deferred.as_ptr();
    // SAFETY: the kernel reads and writes the list, and reads the time; both live until it returns.
    let result = unsafe { ringway_sleep(list.as_mut_ptr(), list.len() as u64, time, deferred) };
    if result == -i64::from(libc::EINTR) {
        let depth = thread().depth.swap(0, Relaxed);
        compiler_fence(SeqCst);
        // A handler may never return (`siglongjmp`): then the section is over.
        unblock();
        compiler_fence(SeqCst);
        thread().depth.store(depth, Relaxed);
    }
    result
}

/// A program's action for a signal.
struct Action {
    handler: AtomicU64,
    flags: AtomicU64,
    mask: AtomicU64,
    /// The handler that was set last by a function of the C library.
    seen: AtomicU64,
}

static ACTIONS: [Action; LAST as usize + 1] = [const {
    Action {
        handler: AtomicU64::new(DEFAULT),
        flags: AtomicU64::new(0),
        mask: AtomicU64::new(0),
        seen: AtomicU64::new(DEFAULT),
    }
}; LAST as usize + 1];

/// The signals after which `signal` lets calls end (`siginterrupt`).
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn entry_address() -> u64 {
    entry as *const () as usize as u64
}

/// The handler of all signals: it continues as the program's, if [`decide`] says so, as if the kernel had called that.
#[unsafe(naked)]
unsafe extern "C" fn entry(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    naked_asm!(
        "push rdi", "push rsi", "push rdx",
        "call {decide}",
        "pop rdx", "pop rsi", "pop rdi",
        "test rax, rax", "jz 2f",
        "jmp rax",
        "2: ret",
        decide = sym decide,
    )
}

/// The kernel's action for a signal becomes the default.
fn set_default(signal: c_int) {
    let action = KernelAction::default();
    let arguments = [signal as u64, (&raw const action).addr() as u64, 0, 8, 0, 0];
    // SAFETY: the kernel reads an action of this form.
    unsafe { syscall(libc::SYS_rt_sigaction, arguments) };
}

/// Sends a signal to this thread again.
fn send_again(signal: c_int, info: *const siginfo_t) {
    // SAFETY: the calls take numbers.
    let [process, thread] =
        unsafe { [syscall(libc::SYS_getpid, [0; 6]) as u64, syscall(libc::SYS_gettid, [0; 6]) as u64] };
    let arguments = [process, thread, signal as u64, info.addr() as u64, 0, 0];
    // SAFETY: the kernel reads what it wrote itself.
    if unsafe { syscall(libc::SYS_rt_tgsigqueueinfo, arguments) } < 0 {
        // The limit of pending signals is reached.
        // SAFETY: the call takes numbers.
        unsafe { syscall(libc::SYS_tgkill, [process, thread, signal as u64, 0, 0, 0]) };
    }
}

/// Decides what happens to a signal: returns the program's handler if it is to run now.
///
/// # Safety
/// The pointers are the kernel's.
unsafe extern "C" fn decide(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) -> u64 {
    let action = &ACTIONS[signal as usize];
    // SAFETY: the kernel's; its mask is the first eight bytes of the C library's.
    let mask = unsafe { &raw mut (*context).uc_sigmask }.cast::<u64>();
    // SAFETY: as above.
    let code = unsafe { (*info).si_code };
    let thread = thread();
    if thread.depth.load(Relaxed) == 0 {
        // A handler that never returned may have left them.
        let deferred = thread.deferred.swap(0, Relaxed);
        // SAFETY: as above.
        unsafe { *mask &= !deferred };
        return deliver(signal, action, info);
    }
    if FAULTS.contains(&signal) && code > 0 {
        // As with blocked signals, it ends the process.
        set_default(signal);
        send_again(signal, info);
        return 0;
    }
    // With `SA_NODEFER` it is not blocked yet.
    mask_signals(libc::SIG_BLOCK, bit(signal));
    // SAFETY: as above.
    unsafe { *mask |= bit(signal) };
    thread.deferred.fetch_or(bit(signal), Relaxed);
    send_again(signal, info);
    let begin = ringway_sleep as *const () as usize as i64;
    let (call, end) = (&raw const ringway_sleep_call, &raw const ringway_sleep_end);
    // SAFETY: as above.
    let at = unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize] };
    if (begin..=call.addr() as i64).contains(at) {
        *at = end.addr() as i64;
    }
    0
}

/// The handler for a signal that comes outside of the library.
fn deliver(signal: c_int, action: &Action, info: *const siginfo_t) -> u64 {
    let is_once = action.flags.load(SeqCst) & libc::SA_RESETHAND as u64 != 0;
    let handler = if is_once { action.handler.swap(DEFAULT, SeqCst) } else { action.handler.load(SeqCst) };
    match handler {
        IGNORE => 0,
        DEFAULT => {
            set_default(signal);
            send_again(signal, info);
            0
        }
        handler => {
            if is_once {
                set_default(signal);
            }
            handler
        }
    }
}

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct KernelAction {
    pub handler: u64,
    pub flags: u64,
    restorer: u64,
    mask: u64,
}

/// The program's action for a signal: what the kernel has, without this library.
pub fn program_action(signal: c_int) -> KernelAction {
    let mut action = KernelAction::default();
    let arguments = [signal as u64, 0, (&raw mut action).addr() as u64, 8, 0, 0];
    // SAFETY: the kernel writes an action of this form.
    unsafe { syscall(libc::SYS_rt_sigaction, arguments) };
    if action.handler == entry_address() {
        let own = &ACTIONS[signal as usize];
        action.handler = own.handler.load(SeqCst);
        action.flags = own.flags.load(SeqCst);
        action.mask = own.mask.load(SeqCst);
    }
    action
}

/// Whether a signal's default ends the process, for another reason than a fault.
fn ends_by_default(signal: c_int) -> bool {
    !FAULTS.contains(&signal) && !STOPS.contains(&signal) && !HARMLESS.contains(&signal)
}

/// Whether signals can be deferred if a signal has this action.
fn is_deferrable(signal: c_int, handler: u64, flags: u64) -> bool {
    let is_once = flags & libc::SA_RESETHAND as u64 != 0;
    // Programs set handlers that run once for faults, and end in them.
    let may_be_once = FAULTS.contains(&signal) || signal == libc::SIGABRT;
    handler <= IGNORE || signal < FIRST_REAL_TIME && (may_be_once || !is_once)
}

/// Begins to defer signals, if that can be done exactly. The process has joined the shared stack.
pub fn begin(_guard: &mut StateGuard) {
    let signals = || {
        (1..=LAST)
            .filter(|signal| !C_LIBRARY.contains(signal) && ![libc::SIGKILL, libc::SIGSTOP].contains(signal))
    };
    let has_terminal = has_terminal();
    let can_defer = signals().all(|signal| {
        let KernelAction { handler, flags, .. } = program_action(signal);
        let is_known = handler <= IGNORE || handler == ACTIONS[signal as usize].seen.load(SeqCst);
        let stops = STOPS.contains(&signal) && handler == DEFAULT && has_terminal;
        is_known && !stops && is_deferrable(signal, handler, flags)
    });
    if !can_defer || MODE.load(SeqCst) != BLOCKING {
        return never();
    }
    for signal in signals() {
        let KernelAction { handler, flags, mask, .. } = program_action(signal);
        let mut mask_of = empty_set();
        // SAFETY: the kernel's set is the first eight bytes of the C library's.
        unsafe { (&raw mut mask_of).cast::<u64>().write(mask) };
        let action = libc::sigaction {
            sa_sigaction: handler as usize,
            sa_mask: mask_of,
            sa_flags: flags as c_int,
            sa_restorer: None,
        };
        let Some(own) = own_action(signal, &action) else { continue };
        call_next(signal, &raw const own, std::ptr::null_mut());
    }
    IS_ENTERED.store(true, SeqCst);
    let _ = MODE.compare_exchange(BLOCKING, DEFERRING, SeqCst, SeqCst);
}

/// Whether the process has a controlling terminal, as far as it can be known.
fn has_terminal() -> bool {
    let (path, mut text) = (c"/proc/self/stat", [0_u8; 512]);
    // SAFETY: the kernel reads the path, and writes to `text`.
    let count = unsafe {
        let path = [path.as_ptr().addr() as u64, (libc::O_RDONLY | libc::O_CLOEXEC) as u64, 0, 0, 0, 0];
        let file = syscall(libc::SYS_open, path);
        let at = text.as_mut_ptr().addr() as u64;
        let count = syscall(libc::SYS_read, [file as u64, at, text.len() as u64, 0, 0, 0]);
        if file >= 0 {
            syscall(libc::SYS_close, [file as u64, 0, 0, 0, 0, 0]);
        }
        count
    };
    terminal_of(&text[..usize::try_from(count).unwrap_or(0)]) != Some(0)
}

/// The number of the terminal in a line of `/proc/PID/stat`.
fn terminal_of(line: &[u8]) -> Option<u64> {
    // The name before has any characters.
    let behind = line.iter().rposition(|byte| *byte == b')')? + 1;
    let field = line[behind..].split(|byte| *byte == b' ').filter(|field| !field.is_empty()).nth(4)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: all zeros is the empty set.
    unsafe { std::mem::zeroed() }
}

/// The C library's `sigaction`.
fn call_next(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    static NEXT: Real = Real::new(c"sigaction");
    type Function = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    // SAFETY: the C library's function has this type, and the pointers are null or the caller's.
    unsafe { std::mem::transmute::<*mut c_void, Function>(NEXT.get())(signal, new, old) }
}

/// Stores a program's action, and returns the one that the kernel is to have; `None`: the same.
fn own_action(signal: c_int, new: &libc::sigaction) -> Option<libc::sigaction> {
    let handler = new.sa_sigaction as u64;
    if handler == IGNORE || handler == DEFAULT && !ends_by_default(signal) {
        return None;
    }
    let own = &ACTIONS[signal as usize];
    // SAFETY: the kernel's set is the first eight bytes of the C library's.
    own.mask.store(unsafe { (&raw const new.sa_mask).cast::<u64>().read_unaligned() }, SeqCst);
    own.flags.store(new.sa_flags as u32 as u64, SeqCst);
    own.handler.store(handler, SeqCst);
    let mut kernel = *new;
    kernel.sa_sigaction = entry_address() as usize;
    kernel.sa_flags = (new.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    if handler == DEFAULT {
        (kernel.sa_flags, kernel.sa_mask) = (libc::SA_SIGINFO | libc::SA_RESTART, empty_set());
    }
    Some(kernel)
}

/// The program's `sigaction`.
///
/// # Safety
/// As the call.
pub unsafe fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if !(1..=LAST).contains(&signal) {
        return call_next(signal, new, old);
    }
    let _guard = StateGuard::lock();
    // SAFETY: the caller's.
    let new = unsafe { new.as_ref() };
    let before = program_action(signal);
    let mut own = None;
    if let Some(new) = new.filter(|_| owner() == 0 || !is_other_process()) {
        if is_deferring() && !is_deferrable(signal, new.sa_sigaction as u64, new.sa_flags as u32 as u64) {
            never();
        }
        if IS_ENTERED.load(SeqCst) {
            own = own_action(signal, new);
        }
        ACTIONS[signal as usize].seen.store(new.sa_sigaction as u64, SeqCst);
    }
    let given = own.as_ref().or(new).map_or(std::ptr::null(), std::ptr::from_ref);
    let result = call_next(signal, given, old);
    // SAFETY: the caller's; the kernel has written it.
    let old = unsafe { old.as_mut() }.filter(|_| result == 0);
    if let Some(old) = old.filter(|old| old.sa_sigaction as u64 == entry_address()) {
        old.sa_sigaction = before.handler as usize;
        old.sa_flags = before.flags as c_int;
        // SAFETY: the kernel's set is the first eight bytes of the C library's.
        unsafe { (&raw mut old.sa_mask).cast::<u64>().write_unaligned(before.mask) };
    }
    crate::signals::invalidate();
    result
}

/// The program's `signal`.
///
/// # Safety
/// As the call.
pub unsafe fn signal(signal: c_int, handler: *mut c_void) -> *mut c_void {
    let failed = std::ptr::without_provenance_mut(libc::SIG_ERR);
    if !(1..=LAST).contains(&signal) || handler == failed {
        set_errno(libc::EINVAL);
        return failed;
    }
    let interrupts = INTERRUPTING.load(SeqCst) & bit(signal) != 0;
    let mut mask = empty_set();
    // SAFETY: the kernel's set is the first eight bytes of the C library's.
    unsafe { (&raw mut mask).cast::<u64>().write(bit(signal)) };
    let new = libc::sigaction {
        sa_sigaction: handler.expose_provenance(),
        sa_mask: mask,
        sa_flags: if interrupts { 0 } else { libc::SA_RESTART },
        sa_restorer: None,
    };
    let mut old = new;
    // SAFETY: the caller's handler.
    if unsafe { sigaction(signal, &raw const new, &raw mut old) } != 0 {
        return failed;
    }
    std::ptr::with_exposed_provenance_mut(old.sa_sigaction)
}

/// The program's `siginterrupt`.
pub fn siginterrupt(signal: c_int, interrupts: bool) -> c_int {
    if !(1..=LAST).contains(&signal) {
        set_errno(libc::EINVAL);
        return -1;
    }
    let mut action =
        libc::sigaction { sa_sigaction: 0, sa_mask: empty_set(), sa_flags: 0, sa_restorer: None };
    // SAFETY: memory of this function.
    if unsafe { sigaction(signal, std::ptr::null(), &raw mut action) } != 0 {
        return -1;
    }
    if interrupts {
        INTERRUPTING.fetch_or(bit(signal), SeqCst);
        action.sa_flags &= !libc::SA_RESTART;
    } else {
        INTERRUPTING.fetch_and(!bit(signal), SeqCst);
        action.sa_flags |= libc::SA_RESTART;
    }
    // SAFETY: the program's own handler.
    unsafe { sigaction(signal, &raw const action, std::ptr::null_mut()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_is_found_behind_any_name() {
        assert_eq!(terminal_of(b"7 (a) b) (c) S 1 7 7 34816 7 4194560 1 0"), Some(34816));
        assert_eq!(terminal_of(b"7 (redis) S 1 7 7 0 -1 4194560 1 0"), Some(0));
        assert_eq!(terminal_of(b""), None);
        assert_eq!(terminal_of(b"7 (redis) S 1"), None);
    }

    #[test]
    fn what_can_be_deferred() {
        let (handler, once) = (4096, libc::SA_RESETHAND as u64);
        assert!(is_deferrable(libc::SIGTERM, handler, 0) && !is_deferrable(libc::SIGTERM, handler, once));
        assert!(is_deferrable(libc::SIGSEGV, handler, once) && !is_deferrable(40, handler, 0));
        assert!(is_deferrable(40, IGNORE, 0) && is_deferrable(40, DEFAULT, 0));
        assert!(ends_by_default(libc::SIGTERM) && ends_by_default(40) && !ends_by_default(libc::SIGCHLD));
    }
}
