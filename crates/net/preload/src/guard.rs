//! The lock of this process's tables. No handler of the program runs on the thread that has it.

use crate::deferral;
use crate::real::syscall;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// No handler runs on this thread until this is dropped, so that a handler finds no lock that its own thread has, and a
/// process that a signal ends does not end within its turn.
#[derive(Debug)]
pub struct SignalsHeld {
    /// The signal mask of the program while signals are blocked; `None`: they are deferred (`deferral.rs`).
    pub mask: Option<u64>,
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

impl SignalsHeld {
    /// Holds them by the kernel's mask.
    pub fn block() -> SignalsHeld {
        SignalsHeld { mask: Some(set_mask(u64::MAX)) }
    }

    /// Holds them without a system call if that is possible.
    pub fn hold() -> SignalsHeld {
        if !deferral::is_deferring() {
            return SignalsHeld::block();
        }
        deferral::enter();
        SignalsHeld { mask: None }
    }

    /// As [`SignalsHeld::hold`], for a wait with a mask of its own.
    pub fn hold_for(mask: Option<u64>) -> SignalsHeld {
        if mask.is_some() { SignalsHeld::block() } else { SignalsHeld::hold() }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        match self.mask {
            Some(mask) => _ = set_mask(mask),
            None => deferral::leave(),
        }
    }
}

/// 0: free; 1: locked; 2: locked, and others may wait. A plain word, since the lock is held over a `fork`.
static STATE: AtomicU32 = AtomicU32::new(0);

/// Takes the lock. The caller holds signals.
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
    /// `None` if the caller holds them longer.
    pub signals: Option<SignalsHeld>,
}

impl StateGuard {
    /// With blocked signals, which interrupt no call of the kernel or the agent.
    pub fn lock() -> StateGuard {
        let signals = SignalsHeld::block();
        acquire();
        StateGuard { signals: Some(signals) }
    }

    /// As [`StateGuard::lock`], for what seldom needs the agent, and tries again then.
    pub fn lock_briefly() -> StateGuard {
        let signals = SignalsHeld::hold();
        acquire();
        StateGuard { signals: Some(signals) }
    }

    /// As [`StateGuard::lock`], for a thread that holds signals already.
    pub fn lock_with(_signals: &SignalsHeld) -> StateGuard {
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
        let before = SignalsHeld::block();
        let within = SignalsHeld::block();
        // The kernel lets nobody block SIGKILL and SIGSTOP.
        assert_eq!(within.mask, Some(!(1 << 8 | 1 << 18)));
        drop(within);
        drop(before);
    }
}
