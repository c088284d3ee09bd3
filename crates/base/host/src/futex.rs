//! Waiting for words that several processes share.

use rustix::event::Timespec;
use rustix::thread::futex::{Flags, wait, wake};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps until [`wake_word`], for `most`, or until a signal; not at all if the word has another value than `expected`.
pub fn wait_word(word: &AtomicU32, expected: u32, most: Option<Duration>) {
    let most = most.map(|most| Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(most.subsec_nanos()),
    });
    // However it ends, the caller looks again.
    let _ = wait(word, Flags::empty(), expected, most.as_ref());
}

/// Wakes at most so many that sleep; how many there were.
pub fn wake_word(word: &AtomicU32, most: u32) -> usize {
    // Linux wakes one for a 0.
    if most == 0 { 0 } else { wake(word, Flags::empty(), most.min(i32::MAX as u32)).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn who_sleeps_is_woken() {
        let word = AtomicU32::new(1);
        wait_word(&word, 0, None);
        wait_word(&word, 1, Some(Duration::ZERO));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                while word.load(Ordering::SeqCst) == 1 {
                    wait_word(&word, 1, None);
                }
            });
            word.store(2, Ordering::SeqCst);
            wake_word(&word, u32::MAX);
            sleeper.join().unwrap();
        });
        assert_eq!((wake_word(&word, 1), wake_word(&word, 0)), (0, 0));
    }
}
