//! Formatting of packets' times, as in Click.
use core::fmt;
use ringway_click::SECOND;

/// Seconds, a point, and six digits, or nine if necessary; from nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp(pub(crate) u64);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.0 / SECOND, self.0 % SECOND);
        match rest % 1000 {
            0 => write!(f, "{seconds}.{:06}", rest / 1000),
            _ => write!(f, "{seconds}.{rest:09}"),
        }
    }
}
