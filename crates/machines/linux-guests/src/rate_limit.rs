//! A limit on the rate at which a guest's output is read.

use std::io::{self, Read};
use std::time::{Duration, Instant};

/// Bytes of a guest's output that are read in each period.
///
/// Attack: a guest that writes as fast as it can would keep a processor busy with reading. It has to wait instead.
const BYTES: usize = 256 << 10;
const PERIOD: Duration = Duration::from_millis(100);

/// A source that is read at a limited rate.
pub struct RateLimited<R> {
    from: R,
    most: (usize, Duration),
    /// Bytes left in this period, and its begin.
    left: usize,
    since: Instant,
}

impl<R: Read> RateLimited<R> {
    pub fn new(from: R) -> RateLimited<R> {
        RateLimited::of(from, (BYTES, PERIOD))
    }

    fn of(from: R, most: (usize, Duration)) -> RateLimited<R> {
        RateLimited { from, most, left: most.0, since: Instant::now() }
    }
}

impl<R> RateLimited<R> {
    /// What is read.
    pub fn source(&mut self) -> &mut R {
        &mut self.from
    }

    /// Waits until there may be more; the part of a buffer that may be filled.
    pub fn part<'b>(&mut self, buffer: &'b mut [u8]) -> &'b mut [u8] {
        if self.left == 0 {
            std::thread::sleep(self.most.1.saturating_sub(self.since.elapsed()));
            (self.left, self.since) = (self.most.0, Instant::now());
        }
        let most = buffer.len().min(self.left);
        buffer.get_mut(..most).unwrap_or_default()
    }

    /// So many bytes were read from the source.
    pub fn count(&mut self, length: usize) {
        self.left = self.left.saturating_sub(length);
    }
}

impl<R: Read> Read for RateLimited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let part = self.part(buffer);
        let length = self.from.read(part)?;
        self.count(length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_floods_its_console_is_read_at_a_limited_rate() {
        let period = Duration::from_millis(5);
        let mut paced = RateLimited::of(io::repeat(b'x'), (1000, period));
        let (began, mut buffer) = (Instant::now(), [0; 300]);
        let lengths: Vec<usize> = (0..16).map(|_| paced.read(&mut buffer).unwrap()).collect();
        assert_eq!(lengths, [300, 300, 300, 100].repeat(4));
        assert!(began.elapsed() >= 3 * period);
    }
}
