//! Rate limit of log lines per source.

use ringway_spec::LineLimit;
use std::time::{Duration, Instant};

/// Largest number of log lines about one port in a [`PERIOD`]: about its peers' faults, and others. They are
/// limited separately.
///
/// Attack: a front-end or program that connects, is refused, or changes its rings ten thousand times a
/// second, to hide its next fault.
const FAULTS: u32 = 20;
const OTHERS: u32 = 40;
const PERIOD: Duration = Duration::from_secs(60);

/// A limit on log lines about a port.
#[derive(Clone, Debug)]
pub struct LogLimit(LineLimit);

impl LogLimit {
    /// A limit of `lines` within each `window`.
    pub fn new(lines: u32, window: Duration) -> LogLimit {
        LogLimit(LineLimit::new(lines, window))
    }

    /// The limit of a port, except for lines about faults.
    pub fn of_port() -> LogLimit {
        LogLimit::new(OTHERS, PERIOD)
    }

    /// The limit of lines about faults of a port's peers.
    pub fn of_faults() -> LogLimit {
        LogLimit::new(FAULTS, PERIOD)
    }

    /// As [`LineLimit::take`].
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        self.0.take(now)
    }

    /// As [`LineLimit::suppressed`].
    pub fn suppressed(&mut self) -> u64 {
        self.0.suppressed()
    }

    /// Whether a line about `port` may be logged now. Logs how many were suppressed before.
    pub fn allows(&mut self, port: &str) -> bool {
        let taken = self.take(Instant::now());
        if let Some(suppressed @ 1..) = taken {
            tracing::warn!(port, "{suppressed} more messages suppressed");
        }
        taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_log_lines_is_limited_and_counted() {
        let mut limit = LogLimit::of_port();
        let begin = Instant::now();
        let mut lines = Vec::new();
        for millisecond in 0..120_000 {
            lines.extend(limit.take(begin + Duration::from_millis(millisecond)));
        }
        assert_eq!(lines.len(), 2 * OTHERS as usize);
        assert_eq!(lines.iter().filter(|before| **before > 0).collect::<Vec<_>>(), [&59_960]);
        assert_eq!((limit.suppressed(), limit.suppressed()), (59_960, 0));
    }
}
