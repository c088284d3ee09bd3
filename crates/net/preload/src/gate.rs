//! What lets one thread of this process change what the library knows, and keeps signal handlers out meanwhile.

use crate::real::call;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// Signals are kept out until this is dropped, so that a handler finds no lock that its own thread has, and a process
/// that a signal ends does not end within its turn.
#[derive(Debug)]
pub struct Quiet {
    /// The signals that the program keeps out.
    pub program: u64,
}

/// Sets the signals that this thread keeps out; those that it kept out before.
fn set_mask(mask: u64) -> u64 {
    let mut old = 0_u64;
    let (how, len) = (libc::SIG_SETMASK, size_of::<u64>());
    let arguments =
        [how as u64, (&raw const mask).addr() as u64, (&raw mut old).addr() as u64, len as u64, 0, 0];
    // SAFETY: the kernel reads and writes eight bytes each, which live until the call is over.
    unsafe { call(libc::SYS_rt_sigprocmask, arguments) };
    old
}

impl Quiet {
    pub fn begin() -> Quiet {
        Quiet { program: set_mask(u64::MAX) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        set_mask(self.program);
    }
}

/// 0: open; 1: one is inside; 2: and others may wait. No guard, since the gate stays closed over a `fork`.
static STATE: AtomicU32 = AtomicU32::new(0);

/// Enters, after others have left. Signals are kept out by then.
pub fn close() {
    if STATE.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
        return;
    }
    while STATE.swap(2, SeqCst) != 0 {
        futex(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 2);
    }
}

/// Leaves.
pub fn open() {
    if STATE.swap(0, SeqCst) == 2 {
        futex(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
    }
}

fn futex(operation: i32, value: u32) {
    let arguments = [STATE.as_ptr().addr() as u64, operation as u64, value.into(), 0, 0, 0];
    // SAFETY: the word is a static; however the call ends, the caller looks again.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// Within the gate.
#[derive(Debug)]
pub struct Inside {
    /// None if they are kept out longer.
    pub quiet: Option<Quiet>,
}

impl Inside {
    pub fn enter() -> Inside {
        let quiet = Quiet::begin();
        close();
        Inside { quiet: Some(quiet) }
    }

    /// The same for a thread that keeps signals out anyway.
    pub fn enter_with(_quiet: &Quiet) -> Inside {
        close();
        Inside { quiet: None }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        open();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn one_thread_is_inside_at_a_time_without_signals() {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = || {
            for _ in 0..10_000 {
                let _inside = Inside::enter();
                COUNT.store(COUNT.load(SeqCst) + 1, SeqCst);
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|_| _ = scope.spawn(count)));
        assert_eq!(COUNT.load(SeqCst), 30_000);
        let before = Quiet::begin();
        let within = Quiet::begin();
        // The kernel lets nobody keep out SIGKILL and SIGSTOP.
        assert_eq!(within.program, !(1 << 8 | 1 << 18));
        drop(within);
        drop(before);
    }
}
