//! Click's IP summary dumps: packets as lines of selected fields, or as binary records. The format is described in the
//! documentation of Click's ToIPSummaryDump.
//!
//! A [`Reader`] parses lines or binary records into packets; a [`Writer`] formats packets as records. This module does
//! no I/O.
mod field;
mod ip_options;
mod make;
pub(crate) mod names;
mod parse;
mod read;
mod scan;
mod tcp_options;
mod view;
mod write;

pub use field::Field;
pub use read::{Flow, Item, Make, Reader, RecordLength, record_length};
pub use write::Writer;

use core::fmt;

/// The version written.
pub const BANNER: &str = "!IPSummaryDump 1.3";

/// Nanoseconds, possibly negative, formatted as dumps print times: with six digits if that is exact, else nine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, size) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let (seconds, rest) = (size / 1_000_000_000, size % 1_000_000_000);
        if rest % 1000 == 0 {
            write!(f, "{sign}{seconds}.{:06}", rest / 1000)
        } else {
            write!(f, "{sign}{seconds}.{rest:09}")
        }
    }
}

#[cfg(test)]
mod tests;
