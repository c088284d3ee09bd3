//! The time: the host's clock at the start, advanced by a monotonic clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: u64,
    since: Instant,
}

impl Default for Clock {
    fn default() -> Clock {
        let began =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as u64);
        Clock { began, since: Instant::now() }
    }
}

impl Clock {
    /// Milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.began + self.since.elapsed().as_millis() as u64
    }
}
