//! Token buckets, with the units of Click's shaping elements: milliseconds, and 2^-32 of a full bucket.
use ringway_click::SECOND;

/// Ticks per second.
const FREQUENCY: u64 = 1000;
/// Nanoseconds per tick.
const TICK: u64 = SECOND / FREQUENCY;
/// A full bucket.
const FULL: u64 = u32::MAX as u64;

/// A bucket that fills over time.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Fixed-point fractions of a token.
    scale: u64,
    a_tick: u64,
    parts: u64,
    filled: u64,
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self::new(0, 1)
    }
}

impl TokenBucket {
    /// A full bucket that gets `rate` tokens per second, with a capacity of `capacity` tokens.
    pub fn new(rate: u32, capacity: u32) -> Self {
        let least = if rate == 0 { 1 } else { (u64::from(rate) - 1) / FREQUENCY + 1 };
        let scale = FULL / u64::from(capacity).max(least).max(1);
        let a_tick = if rate == 0 { 0 } else { (u64::from(rate) * scale / FREQUENCY).max(1) };
        Self { scale, a_tick, parts: FULL, filled: 0 }
    }

    /// Sets the number of tokens.
    pub fn set(&mut self, tokens: u32) {
        self.parts = (u64::from(tokens) * self.scale).min(FULL);
    }

    /// Adds tokens for the time up to `now`, in nanoseconds.
    pub fn refill(&mut self, now: u64) {
        let tick = now / TICK;
        let parts = tick.saturating_sub(self.filled).saturating_mul(self.a_tick);
        self.parts = self.parts.saturating_add(parts).min(FULL);
        self.filled = tick;
    }

    /// Whether this many tokens are available.
    pub fn contains(&self, tokens: u32) -> bool {
        u64::from(tokens) * self.scale <= self.parts
    }

    /// Removes tokens, as far as available.
    pub fn remove(&mut self, tokens: u32) {
        self.parts = self.parts.saturating_sub(u64::from(tokens) * self.scale);
    }

    /// Removes tokens if all of them are available.
    pub fn remove_if(&mut self, tokens: u32) -> bool {
        let there = self.contains(tokens);
        if there {
            self.remove(tokens);
        }
        there
    }

    /// Nanoseconds until this many tokens are available; `None` if they never are.
    pub fn time_until(&self, tokens: u32) -> Option<u64> {
        let wanted = (u64::from(tokens) * self.scale).min(FULL).saturating_sub(self.parts);
        match self.a_tick {
            0 if wanted > 0 => None,
            0 => Some(0),
            a_tick => Some(wanted.div_ceil(a_tick) * TICK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_at_its_rate() {
        let mut bucket = TokenBucket::new(100, 10);
        bucket.refill(SECOND);
        assert!((0..10).all(|_| bucket.remove_if(1)));
        assert!(!bucket.remove_if(1));
        let wait = bucket.time_until(1).unwrap();
        assert!((10 * TICK..=11 * TICK).contains(&wait));
        bucket.refill(SECOND + wait);
        assert!(bucket.remove_if(1) && !bucket.remove_if(1));
    }

    #[test]
    fn an_idle_bucket_stays_empty() {
        let mut bucket = TokenBucket::new(0, 1);
        bucket.set(0);
        bucket.refill(u64::MAX);
        assert!(!bucket.contains(1));
        assert_eq!(bucket.time_until(1), None);
    }
}
