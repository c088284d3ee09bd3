//! A lock of threads of several processes, in memory that they share. It outlives its holder.
//!
//! The word has the holder's thread number, as in futex(2), "Priority-inheritance futexes". The kernel knows whether
//! that thread lives, so that no list of held locks has to be kept in the memory. Attack: whoever shares the memory
//! writes any number there. Then a thread waits for a while and gets an error, or two have the lock and both read what
//! is checked.

use crate::Result;
use crate::real::syscall;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_UNLOCK_PI: u64 = 7;
/// Seconds after which a thread gives up.
const LOCK_TIMEOUT: i64 = 5;

/// The lock is held until this is dropped.
#[derive(Debug)]
pub struct Guard<'l> {
    word: &'l AtomicU32,
    own: u32,
}

/// Takes the lock.
///
/// # Errors
/// EBUSY: this thread has it, as in a signal's handler, or it is not released; EIO: the word is no lock.
pub fn lock(word: &AtomicU32) -> Result<Guard<'_>> {
    // SAFETY: the call takes nothing.
    let own = unsafe { libc::gettid() } as u32;
    if word.compare_exchange(0, own, SeqCst, Relaxed).is_err() {
        wait(word, own)?;
    }
    Ok(Guard { word, own })
}

#[cold]
fn wait(word: &AtomicU32, own: u32) -> Result<()> {
    let mut end = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut end) };
    end.tv_sec += LOCK_TIMEOUT;
    // Attack: a word that changes all the time.
    for _ in 0..1000 {
        let seen = word.load(SeqCst);
        let arguments = [word.as_ptr().addr() as u64, FUTEX_LOCK_PI, 0, (&raw const end).addr() as u64, 0, 0];
        // SAFETY: the word and the time live.
        match unsafe { syscall(libc::SYS_futex, arguments) } {
            0 => return Ok(()),
            error => match -error as i32 {
                // The holder has ended.
                libc::ESRCH if word.compare_exchange(seen, own, SeqCst, Relaxed).is_ok() => return Ok(()),
                libc::ESRCH | libc::EAGAIN | libc::EINTR => {}
                libc::EDEADLK | libc::ETIMEDOUT => return Err(libc::EBUSY),
                _ => return Err(libc::EIO),
            },
        }
    }
    Err(libc::EBUSY)
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.word.compare_exchange(self.own, 0, SeqCst, Relaxed).is_err() {
            // Others wait.
            let arguments = [self.word.as_ptr().addr() as u64, FUTEX_UNLOCK_PI, 0, 0, 0, 0];
            // SAFETY: the word lives.
            unsafe { syscall(libc::SYS_futex, arguments) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_has_it_at_a_time() {
        let (word, number) = (AtomicU32::new(0), AtomicU32::new(0));
        let count = || {
            for _ in 0..5000 {
                let _guard = lock(&word).unwrap();
                // Not atomic as a whole.
                number.store(number.load(Relaxed) + 1, Relaxed);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(count)));
        assert_eq!((number.into_inner(), word.load(Relaxed)), (20_000, 0));
    }

    #[test]
    fn it_outlives_its_holder_and_knows_itself() {
        let word = AtomicU32::new(0);
        let end = || std::mem::forget(lock(&word));
        for _ in 0..3 {
            std::thread::scope(|scope| scope.spawn(end).join()).unwrap();
            assert_ne!(word.load(Relaxed), 0);
            let guard = lock(&word).unwrap();
            assert_eq!(lock(&word).err(), Some(libc::EBUSY));
            drop(guard);
        }
        assert_eq!(word.load(Relaxed), 0);
    }

    #[test]
    fn any_word_is_an_error_or_a_lock() {
        // No thread has such a number.
        for wrong in [u32::MAX, 1 << 30, 0x3fff_ffff, 1 << 31] {
            let word = AtomicU32::new(wrong);
            assert!(lock(&word).is_ok() || word.load(Relaxed) & 0x3fff_ffff != 0, "{wrong:#x}");
        }
    }
}
