//! Whether a blocking call is restarted after a signal's handler.

use crate::deferral::program_action;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// What a program's handlers have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handlers {
    /// A call goes on after each of them (`SA_RESTART`), or there are none.
    Restart,
    /// A call ends with EINTR after each of them.
    Interrupt,
    /// Whether a call goes on depends on the signal: only the kernel knows which came.
    Mixed,
}

/// The result of `inspect`; 0: the handlers may have changed since.
static CACHED: AtomicU32 = AtomicU32::new(0);

/// Forgets the result: the program may have changed a handler.
pub fn invalidate() {
    CACHED.store(0, SeqCst);
}

/// What all handlers have in common; reads them if they may have changed.
pub fn handlers() -> Handlers {
    let known = CACHED.load(SeqCst);
    let bits = if known != 0 { known } else { inspect() };
    match bits & 3 {
        3 => Handlers::Mixed,
        2 => Handlers::Interrupt,
        _ => Handlers::Restart,
    }
}

fn inspect() -> u32 {
    let mut bits = 4;
    // Without the C library's own signals.
    for signal in (1..=64).filter(|signal| ![32, 33].contains(signal)) {
        let action = program_action(signal);
        // 0 and 1 are no handlers.
        if action.handler > 1 {
            bits |= if action.flags & libc::SA_RESTART as u64 != 0 { 1 } else { 2 };
        }
    }
    CACHED.store(bits, SeqCst);
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn nothing(_: libc::c_int) {}

    fn handle(signal: libc::c_int, flags: libc::c_int) {
        // SAFETY: all zeros is a valid action without flags; the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = flags;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
        invalidate();
    }

    #[test]
    fn handlers_are_told_apart_by_what_calls_do_after_them() {
        // The standard library has handlers of its own.
        let before = handlers();
        handle(libc::SIGUSR1, libc::SA_RESTART);
        handle(libc::SIGUSR2, 0);
        assert_eq!(handlers(), Handlers::Mixed);
        handle(libc::SIGUSR2, libc::SA_RESTART);
        assert_eq!(handlers() == Handlers::Mixed, before == Handlers::Interrupt || before == Handlers::Mixed);
    }
}
