//! Limits of rates: token buckets, whose state is exact to a billionth of a token.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nanoseconds of a second: tokens are counted in such parts, so that a nanosecond at any rate is a whole number.
const PARTS: u64 = 1_000_000_000;

/// A token bucket that the workers of a port share. A worker locks it for a burst, never for the length of a copy:
/// only memory of ours is accessed meanwhile.
#[derive(Debug)]
pub struct RateLimit {
    rate: u64,
    /// In parts of a token.
    capacity: u64,
    bucket: Mutex<Bucket>,
}

/// The state of a limit.
#[derive(Debug)]
pub struct Bucket {
    /// Parts of tokens that are there, as of `at`.
    level: u64,
    at: u64,
}

impl RateLimit {
    /// Most tokens in a bucket.
    pub const MOST: u64 = u64::MAX / PARTS;

    /// A limit of `rate` tokens a second, and of `burst` at once, which are there now.
    pub fn new(rate: u64, burst: u64) -> RateLimit {
        let capacity = burst.min(RateLimit::MOST) * PARTS;
        RateLimit { rate, capacity, bucket: Mutex::new(Bucket { level: capacity, at: 0 }) }
    }

    /// Locks it at a time, in nanoseconds.
    #[inline]
    pub fn at(&self, now: u64) -> Tokens<'_> {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_sub(bucket.at);
        bucket.level = bucket.level.saturating_add(passed.saturating_mul(self.rate)).min(self.capacity);
        // Another worker's time may be later.
        bucket.at = bucket.at.max(now);
        Tokens { bucket, capacity: self.capacity }
    }
}

/// The tokens of a limit that is locked.
#[derive(Debug)]
pub struct Tokens<'l> {
    bucket: MutexGuard<'l, Bucket>,
    capacity: u64,
}

impl Tokens<'_> {
    /// Takes tokens, if so many are there.
    #[inline]
    pub fn take(&mut self, tokens: u64) -> bool {
        match self.bucket.level.checked_sub(tokens.saturating_mul(PARTS)) {
            Some(left) => {
                self.bucket.level = left;
                true
            }
            None => false,
        }
    }

    /// Whether so many tokens are there.
    pub fn has(&self, tokens: u64) -> bool {
        self.bucket.level >= tokens.saturating_mul(PARTS)
    }

    /// Gives tokens back that were taken for a frame which stayed.
    pub fn give_back(&mut self, tokens: u64) {
        let level = self.bucket.level.saturating_add(tokens.saturating_mul(PARTS));
        self.bucket.level = level.min(self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_come_at_the_rate_and_not_a_part_of_one_earlier() {
        let limit = RateLimit::new(3, 10);
        assert!(limit.at(5).take(10) && !limit.at(5).take(1));
        // A third of a second, rounded up.
        assert!(!limit.at(5 + 333_333_333).take(1) && limit.at(5 + 333_333_334).take(1));
        assert!(!limit.at(5 + 1_000_000_000).take(3) && limit.at(5 + 1_000_000_000).take(2));
        assert!(!limit.at(u64::MAX).has(11) && limit.at(0).take(10));
        limit.at(0).give_back(20);
        assert!(limit.at(0).has(10) && !limit.at(0).has(11));
        assert!(RateLimit::new(u64::MAX, u64::MAX).at(u64::MAX).take(RateLimit::MOST));
    }

    proptest! {
        #[test]
        fn what_passes_is_what_a_bucket_of_whole_fractions_lets_pass(
            rate in prop_oneof![1u64..100, 1_000u64..1_000_000_000_000],
            burst in 1u64..1_000_000,
            steps in prop::collection::vec((0u64..5_000_000, 1u64..100_000, any::<bool>()), 1..100),
        ) {
            let limit = RateLimit::new(rate, burst);
            let (parts, capacity) = (u128::from(PARTS), u128::from(burst) * u128::from(PARTS));
            let (mut now, mut level) = (0u64, capacity);
            for (time, tokens, stays) in steps {
                now += time;
                level = capacity.min(level + u128::from(time) * u128::from(rate));
                let passes = level >= u128::from(tokens) * parts;
                prop_assert_eq!(limit.at(now).has(tokens), passes);
                prop_assert_eq!(limit.at(now).take(tokens), passes);
                if passes && stays {
                    limit.at(now).give_back(tokens);
                } else if passes {
                    level -= u128::from(tokens) * parts;
                }
            }
        }
    }
}
