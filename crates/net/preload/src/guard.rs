//! The lock of this process's tables. Signals are blocked while a thread has it.

use crate::real::syscall;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// Signals are blocked until this is dropped, so that a handler finds no lock that its own thread has, and a process
/// that a signal ends does not end within its turn.
#[derive(Debug)]
pub struct SignalsBlocked {
    /// The signal mask of the program.
    pub mask: u64,
}

/// Sets this thread's signal mask; returns the former one.
fn set_mask(mask: u64) -> u64 {
    let mut old = 0_u64;
    let (how, len) = (libc::SIG_SETMASK, size_of::<u64>());
    let arguments =
        [how as u64, (&raw const mask).addr() as u64, (&raw mut old).addr() as u64, len as u64, 0, 0];
    // SAFETY: the kernel reads and writes eight bytes each, which live until the call is over.
    unsafe { syscall(libc::SYS_rt_sigprocmask, arguments) };
    old
}

impl SignalsBlocked {
    pub fn block() -> SignalsBlocked {
        SignalsBlocked { mask: set_mask(u64::MAX) }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_mask(self.mask);
    }
}

/// 0: free; 1: locked; 2: locked, and others may wait. A plain word, since the lock is held over a `fork`.
static STATE: AtomicU32 = AtomicU32::new(0);

/// Takes the lock. The caller has blocked signals.
pub fn acquire() {
    if STATE.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
        return;
    }
    while STATE.swap(2, SeqCst) != 0 {
        futex(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 2);
    }
}

/// Releases the lock.
pub fn release() {
    if STATE.swap(0, SeqCst) == 2 {
        futex(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
    }
}

fn futex(operation: i32, value: u32) {
    let arguments = [STATE.as_ptr().addr() as u64, operation as u64, value.into(), 0, 0, 0];
    // SAFETY: the word is a static; however the call ends, the caller looks again.
    unsafe { syscall(libc::SYS_futex, arguments) };
}

/// The lock, while a thread has it.
#[derive(Debug)]
pub struct StateGuard {
    /// `None` if the caller keeps them blocked longer.
    pub signals: Option<SignalsBlocked>,
}

impl StateGuard {
    pub fn lock() -> StateGuard {
        let signals = SignalsBlocked::block();
        acquire();
        StateGuard { signals: Some(signals) }
    }

    /// As [`StateGuard::lock`], for a thread that has blocked signals already.
    pub fn lock_with(_signals: &SignalsBlocked) -> StateGuard {
        acquire();
        StateGuard { signals: None }
    }
}

impl Drop for StateGuard {
    fn drop(&mut self) {
        release();
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
                let _guard = StateGuard::lock();
                COUNT.store(COUNT.load(SeqCst) + 1, SeqCst);
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|_| _ = scope.spawn(count)));
        assert_eq!(COUNT.load(SeqCst), 30_000);
        let before = SignalsBlocked::block();
        let within = SignalsBlocked::block();
        // The kernel lets nobody block SIGKILL and SIGSTOP.
        assert_eq!(within.mask, !(1 << 8 | 1 << 18));
        drop(within);
        drop(before);
    }
}
