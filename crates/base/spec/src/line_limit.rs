//! Rate limit of lines that others cause to be logged.

use std::time::{Duration, Instant};

/// A limit on lines within a window of time; suppressed lines are counted.
#[derive(Clone, Debug)]
pub struct LineLimit {
    lines: u32,
    window: Duration,
    since: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl LineLimit {
    /// A limit of `lines` within each `window`.
    pub fn new(lines: u32, window: Duration) -> LineLimit {
        LineLimit { lines, window, since: None, logged: 0, suppressed: 0 }
    }

    /// Whether a line may be logged at `now`. If so, returns the number of lines suppressed in the previous window,
    /// to be logged first.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        let mut before = 0;
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= self.window) {
            before = self.suppressed();
            (self.since, self.logged) = (Some(now), 0);
        }
        if self.logged == self.lines {
            self.suppressed += 1;
            return None;
        }
        self.logged += 1;
        Some(before)
    }

    /// Lines that were suppressed and not yet reported; they count as reported then.
    pub fn suppressed(&mut self) -> u64 {
        std::mem::take(&mut self.suppressed)
    }
}
