//! Limits on what a guest sends: messages and lines a second, and the length of texts that come in parts.

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Limit {
    /// Nanoseconds until a token is there again, and until a whole bucket is.
    each: u64,
    whole: u64,
    /// Time at which the bucket is full again.
    full: u64,
}

impl Limit {
    /// `rate` tokens a second, at most `burst` at once.
    pub const fn new(rate: u64, burst: u64) -> Limit {
        let each = SECOND / rate;
        Limit { each, whole: each * burst, full: 0 }
    }

    /// Takes a token at `now`, in nanoseconds.
    ///
    /// # Errors
    /// There is none; the time of the next one.
    pub fn take(&mut self, now: u64) -> Result<(), u64> {
        let full = self.full.max(now).saturating_add(self.each);
        if full - now > self.whole {
            return Err(full - self.whole);
        }
        self.full = full;
        Ok(())
    }
}

/// Lines that a guest prints. Those beyond the limit are counted, and the count is a line of its own, at most once a
/// second.
#[derive(Debug)]
pub(super) struct Lines {
    limit: Limit,
    suppressed: u64,
    /// Time at which the count may be told.
    due: u64,
}

impl Lines {
    pub const fn new(rate: u64, burst: u64) -> Lines {
        Lines { limit: Limit::new(rate, burst), suppressed: 0, due: 0 }
    }

    /// Whether a line may pass at `now`.
    pub fn allows(&mut self, now: u64) -> bool {
        if self.limit.take(now).is_ok() {
            return true;
        }
        if self.suppressed == 0 {
            self.due = now.saturating_add(SECOND);
        }
        self.suppressed += 1;
        false
    }

    /// Time at which there is something to tell, if there is.
    pub fn due(&self) -> Option<u64> {
        (self.suppressed > 0).then_some(self.due)
    }

    /// What is to be told at `now`, once.
    pub fn suppressed(&mut self, now: u64) -> Option<String> {
        (self.suppressed > 0 && now >= self.due)
            .then(|| format!("{} more messages suppressed", std::mem::take(&mut self.suppressed)))
    }
}

/// A text that comes in parts. What is longer than its limit is cut.
#[derive(Debug)]
pub(super) struct Text {
    bytes: Vec<u8>,
    most: usize,
}

impl Text {
    pub const fn new(most: usize) -> Text {
        Text { bytes: Vec::new(), most }
    }

    /// Adds a part; the text, if it was the last one.
    pub fn add(&mut self, part: &[u8], last: bool) -> Option<String> {
        let room = self.most - self.bytes.len();
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
        last.then(|| String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_a_burst_and_a_rate() {
        let mut limit = Limit::new(100, 20);
        let taken = |limit: &mut Limit, now| (0..1000).take_while(|_| limit.take(now).is_ok()).count();
        assert_eq!(taken(&mut limit, 5), 20, "the first burst");
        assert_eq!(limit.take(5), Err(5 + SECOND / 100));
        assert_eq!(taken(&mut limit, 5 + SECOND / 100), 1);
        assert_eq!(taken(&mut limit, 3 * SECOND), 20, "not more after a long time");
        let all: usize = (0..10_000).map(|tick| taken(&mut limit, 4 * SECOND + tick * SECOND / 1000)).sum();
        assert_eq!(all, 20 + 10 * 100 - 1, "ten seconds");
        assert_eq!(Limit::new(1, 1).take(u64::MAX), Ok(()), "time may stand still at its end");
    }

    #[test]
    fn suppressed_lines_are_told_once_a_second() {
        let mut lines = Lines::new(100, 10);
        let (mut passed, mut told) = (0, Vec::new());
        for millisecond in 0..5000 {
            let now = millisecond * SECOND / 1000;
            passed += u64::from(lines.allows(now)) + u64::from(lines.allows(now));
            told.extend(lines.suppressed(now));
        }
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(lines.due(), Some(lines.due));
        told.extend(lines.suppressed(6 * SECOND));
        let counts = told.iter().map(|line| line.split(' ').next().unwrap().parse::<u64>().unwrap());
        assert_eq!((passed + counts.sum::<u64>(), lines.due()), (10_000, None));
        assert!((500..=510).contains(&passed), "{passed}");
    }

    #[test]
    fn a_long_text_is_cut() {
        let mut text = Text::new(10);
        assert_eq!(text.add(b"1234567", false), None);
        assert_eq!(text.add(b"8901234", false), None);
        assert_eq!(text.add(b"567", true), Some("1234567890".into()));
        assert_eq!(text.add(b"\xff", true), Some("\u{fffd}".into()));
    }
}
