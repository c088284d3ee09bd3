//! A limit on how often a session wakes the session thread without a message.

/// Nanoseconds between two refills.
pub const TICK: u64 = 1_000_000;
/// Wake-ups without a message that each refill permits.
pub const EACH: u32 = 16;
/// Wake-ups that can be saved up.
pub const MOST: u32 = 256;

/// The wake-ups without a message that a session may still cause.
///
/// Attack: a loop of signals, in which each signal of ours makes a descriptor readable that the session thread waits
/// for: one eventfd for an interrupt and for its unmasking, or those of several ports in a circle. It costs its peer
/// nothing. Descriptors are not compared, since copies of one, or other processes between them, can't be recognized.
/// Messages are not limited: the peer has to send each of them.
#[derive(Debug)]
pub struct SessionLimit {
    tokens: u32,
    /// The last refill, in ticks.
    tick: u64,
}

impl Default for SessionLimit {
    fn default() -> SessionLimit {
        SessionLimit { tokens: MOST, tick: 0 }
    }
}

impl SessionLimit {
    /// Counts a wake-up without a message at `now`. Returns whether the session pauses now.
    pub fn spend(&mut self, now: u64) -> bool {
        let tick = now / TICK;
        let new = u32::try_from(tick.saturating_sub(self.tick)).unwrap_or(u32::MAX).saturating_mul(EACH);
        (self.tokens, self.tick) = (self.tokens.saturating_add(new).min(MOST), tick.max(self.tick));
        self.tokens = self.tokens.saturating_sub(1);
        self.tokens == 0
    }

    /// When the pause of the session ends; `None` if it has none at `now`.
    pub fn opens_at(&self, now: u64) -> Option<u64> {
        (self.tokens == 0 && now / TICK <= self.tick).then(|| (self.tick + 1) * TICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_without_messages_are_bounded_and_permitted_again() {
        let (mut limit, mut now, mut woken, mut pauses) = (SessionLimit::default(), 7 * TICK, 0_u32, 0);
        let end = now + 100 * TICK;
        // A loop that takes 10 us.
        while now < end {
            match limit.opens_at(now) {
                Some(opens) => {
                    assert!(opens > now && opens <= now + TICK);
                    now = opens;
                }
                None => {
                    woken += 1;
                    pauses += u32::from(limit.spend(now));
                    now += 10_000;
                }
            }
        }
        assert!((1600..=MOST + 101 * EACH).contains(&woken), "{woken} wake-ups in 100 ms");
        assert!((50..=101).contains(&pauses), "{pauses}");
        // A session that is woken at a permitted rate never pauses.
        for number in 0..10_000 {
            now += TICK / u64::from(EACH);
            assert!(!limit.spend(now) && limit.opens_at(now).is_none(), "wake-up {number}");
        }
    }
}
