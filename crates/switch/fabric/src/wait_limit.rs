//! How long senders wait for a destination that is full.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// One destination may delay frames for others for at most 1/SHARE of the time.
const SHARE: u64 = 16;

/// The time for which senders still wait for one destination. They wait up to their `hold` each, until that
/// was once not enough; then no sender waits until the destination accepts everything offered and some time
/// has passed.
///
/// Attack: a destination that frees one buffer now and then, shortly before its senders give up. Each of its
/// frames would block all frames behind it in their rings. So the time for which frames for other
/// destinations waited is added up, and decreases no faster than by a [`SHARE`]th of the elapsed time.
///
/// Several workers may write concurrently; a lost update is a few microseconds.
#[derive(Debug, Default)]
pub struct WaitLimit {
    is_over: AtomicBool,
    /// Nanoseconds that frames for other destinations waited, as of `at`.
    waited: AtomicU64,
    at: AtomicU64,
}

impl WaitLimit {
    /// Whether senders no longer wait for this destination.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn waited(&self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.at.load(Relaxed));
        self.waited.load(Relaxed).saturating_sub(passed / SHARE)
    }

    fn set(&self, now: u64, waited: u64) {
        self.waited.store(waited, Relaxed);
        self.at.store(now, Relaxed);
    }

    /// Frames for others waited for another `time` nanoseconds; their sender tolerates `hold` of them.
    pub fn charge(&self, now: u64, time: u64, hold: u64) {
        let waited = self.waited(now).saturating_add(time);
        if waited >= hold {
            self.end(now, hold);
        } else {
            self.set(now, waited);
        }
    }

    /// Frames for this destination waited for `hold` nanoseconds: senders no longer wait for it.
    pub fn end(&self, now: u64, hold: u64) {
        self.is_over.store(true, Relaxed);
        self.set(now, hold.saturating_mul(2));
    }

    /// The destination had room for everything offered: senders wait for it again, unless they gave up only a short
    /// while ago.
    #[cold]
    pub fn renew(&self, now: u64, hold: u64) {
        if self.waited(now) < hold {
            self.is_over.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_used_up_by_waiting_and_recovers_over_time() {
        let wait_limit = WaitLimit::default();
        wait_limit.charge(1000, 60, 100);
        assert!(!wait_limit.is_over());
        wait_limit.charge(1000 + 30 * SHARE, 60, 100);
        assert!(!wait_limit.is_over(), "30 of the 60 are forgotten");
        wait_limit.charge(1000 + 30 * SHARE, 10, 100);
        assert!(wait_limit.is_over());
        let end = 1000 + 30 * SHARE;
        wait_limit.renew(end + 100 * SHARE, 100);
        assert!(wait_limit.is_over());
        wait_limit.renew(end + 101 * SHARE, 100);
        assert!(!wait_limit.is_over());
    }
}
