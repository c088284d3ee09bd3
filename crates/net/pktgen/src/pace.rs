//! When frames are due.

/// How fast frames are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As fast as the device takes them.
    Most,
    /// Frames a second.
    Frames(f64),
    /// Bits a second, of frames without FCS, preamble and gap, as tc(8) counts.
    Bits(f64),
}

/// Frames of a burst at most.
pub const BURST: u64 = 64;
/// For how long frames that were not sent in time are sent later, in nanoseconds; then they are given up.
const CATCH_UP: f64 = 1e6;
const SECOND: f64 = 1e9;

/// Counts what is due. A sender that was kept from sending for longer than a millisecond does not send all of what it
/// missed at once, which the device would not have seen from a sender in time; it is `skipped`.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    rate: Rate,
    began: u64,
    /// Frames, or bits, that were sent or skipped.
    done: f64,
    /// Frames, or bits, that were skipped.
    skipped: f64,
}

impl Pacer {
    /// A pacer that begins at `now`.
    pub fn new(rate: Rate, now: u64) -> Pacer {
        Pacer { rate, began: now, done: 0.0, skipped: 0.0 }
    }

    /// Units a second, and the units of a frame of `bytes`.
    #[inline]
    fn units(&self, bytes: usize) -> Option<(f64, f64)> {
        match self.rate {
            Rate::Most => None,
            Rate::Frames(rate) => Some((rate, 1.0)),
            Rate::Bits(rate) => Some((rate, bytes as f64 * 8.0)),
        }
    }

    /// How many frames are due at `now`, of `bytes` each, a burst at most.
    #[inline]
    pub fn due(&mut self, now: u64, bytes: usize) -> u64 {
        let Some((rate, unit)) = self.units(bytes) else { return BURST };
        let passed = now.saturating_sub(self.began) as f64;
        let mut due = passed * rate / SECOND - self.done;
        let most = (CATCH_UP * rate / SECOND).max(2.0 * BURST as f64 * unit);
        if due > most {
            self.skipped += due - most;
            self.done += due - most;
            due = most;
        }
        // The first frame is due at once, the next one a frame's time later.
        if due < 0.0 { 0 } else { (due / unit) as u64 + 1 }.min(BURST)
    }

    /// Notes that a frame of `bytes` was sent.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        if let Some((_, unit)) = self.units(bytes) {
            self.done += unit;
        }
    }

    /// When the next frame is due.
    #[inline]
    pub fn next(&self) -> u64 {
        let rate = match self.rate {
            Rate::Most => return 0,
            Rate::Frames(rate) | Rate::Bits(rate) => rate,
        };
        self.began.saturating_add((self.done * SECOND / rate).ceil() as u64)
    }

    /// Frames that were given up, if they have `bytes` on average.
    pub fn skipped(&self, bytes: f64) -> u64 {
        match self.rate {
            Rate::Most => 0,
            Rate::Frames(_) => self.skipped as u64,
            Rate::Bits(_) => (self.skipped / (bytes * 8.0)) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames sent in a second, by a sender that is called every `step` nanoseconds.
    fn sent(rate: Rate, bytes: usize, step: u64) -> (u64, Pacer) {
        let (mut pacer, mut sent) = (Pacer::new(rate, 7), 0);
        let mut now = 7;
        while now < 1_000_000_007 {
            for _ in 0..pacer.due(now, bytes) {
                pacer.sent(bytes);
                sent += 1;
            }
            now = (now + step).max(pacer.next());
        }
        (sent, pacer)
    }

    #[test]
    fn as_many_frames_are_due_as_the_rate_says() {
        for rate in [1.0, 3.0, 1000.0, 333_333.0, 2e6] {
            let (frames, pacer) = sent(Rate::Frames(rate), 60, 1000);
            assert!((frames as f64 - rate).abs() <= 1.0, "{frames} of {rate}");
            assert_eq!(pacer.skipped(60.0), 0);
        }
        let (frames, _) = sent(Rate::Bits(1e9), 1000, 1000);
        assert!((frames as f64 - 125_000.0).abs() <= 1.0, "{frames}");
        assert_eq!(Pacer::new(Rate::Most, 0).due(0, 60), BURST);
    }

    #[test]
    fn what_is_due_too_long_is_skipped() {
        let mut pacer = Pacer::new(Rate::Frames(1e6), 0);
        assert_eq!(pacer.due(0, 60), 1);
        // A break of 10 ms: of 10,000 frames, those of the last millisecond are sent.
        let mut caught_up = 0;
        loop {
            let due = pacer.due(10_000_000, 60);
            if due == 0 {
                break;
            }
            (0..due).for_each(|_| pacer.sent(60));
            caught_up += due;
        }
        assert_eq!((caught_up, pacer.skipped(60.0)), (1001, 9000));
    }
}
