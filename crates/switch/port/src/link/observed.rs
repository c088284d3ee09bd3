//! What frames of a link experience, beside what its settings say.

use ringway_link::{Frame, Link, Reason};

/// A frame that leaves later than this after its due time is late, in nanoseconds: the worker had no core, or too
/// much else to do. Timers and other ports of the worker take some tens of microseconds.
pub const LATE: u64 = 1_000_000;

/// Delays, losses and lateness since the link's settings changed.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Largest delay of a frame beyond its due time.
    pub latest: u64,
    /// Frames that were late.
    pub late: u64,
    /// When the last of them left; 0 if none was.
    pub last_late: u64,
    /// When the settings changed; frames that were under way then have the delays of the former ones.
    since: u64,
    frames: u64,
    mean: f64,
    /// Sum of the squared differences from the mean (Welford's algorithm).
    squares: f64,
    /// Frames carried and lost until the settings changed.
    before: (u64, u64),
}

impl Observed {
    /// A frame that entered the link at `arrived` and was due at `due` leaves it at `left`.
    #[inline]
    pub fn see(&mut self, arrived: u64, due: u64, left: u64) {
        if arrived < self.since {
            return;
        }
        let beyond = left.saturating_sub(due);
        self.latest = self.latest.max(beyond);
        if beyond > LATE {
            self.late += 1;
            self.last_late = left;
        }
        self.frames += 1;
        let delay = left.saturating_sub(arrived) as f64;
        let difference = delay - self.mean;
        self.mean += difference / self.frames as f64;
        self.squares += difference * (delay - self.mean);
    }

    /// Begins again, since the settings changed at `since`.
    pub fn renew<F: Frame>(&mut self, link: &Link<F>, since: u64) {
        *self = Observed { since, before: carried(link), ..Observed::default() };
    }

    /// Mean delay in nanoseconds, of the queue and of late frames included; 0 without frames.
    pub fn mean(&self) -> u64 {
        self.mean as u64
    }

    /// Standard deviation of the delay in nanoseconds.
    pub fn deviation(&self) -> u64 {
        (self.squares / self.frames.max(1) as f64).max(0.0).sqrt() as u64
    }

    /// Frames that were sent on the wire, and how many of them were lost there.
    pub fn carried<F: Frame>(&self, link: &Link<F>) -> (u64, u64) {
        let (carried, lost) = carried(link);
        (carried.saturating_sub(self.before.0), lost.saturating_sub(self.before.1))
    }
}

/// Frames that were sent on the wire since the link began, and how many of them were lost there.
fn carried<F: Frame>(link: &Link<F>) -> (u64, u64) {
    let counters = link.counters();
    let lost = counters.drops[Reason::Lost as usize];
    let before: u64 = counters.drops.iter().sum::<u64>() - lost + link.backlog().0 as u64;
    (counters.sent.saturating_sub(before), lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_have_a_mean_and_a_deviation_and_late_frames_are_counted() {
        let mut observed = Observed::default();
        for (arrived, left) in [(0, 10_000_000), (5_000_000, 25_000_000), (30_000_000, 60_000_000)] {
            observed.see(arrived, left - 500, left);
        }
        observed.see(100_000_000, 120_000_000 - LATE - 1, 120_000_000);
        observed.see(100_000_000, 120_000_000, 120_000_001);
        assert_eq!((observed.late, observed.latest, observed.last_late), (1, LATE + 1, 120_000_000));
        assert_eq!(observed.mean(), 20_000_000);
        // The square root of (10^2 + 0 + 10^2 + 0 + 0) / 5, in milliseconds.
        assert_eq!(observed.deviation(), 6_324_555);
    }
}
