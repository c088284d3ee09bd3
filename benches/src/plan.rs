//! How long to measure, and how often to change sides.

use crate::Failure;
use crate::entry::Slices;
use std::time::Duration;

/// How long a benchmark measures.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seconds for a key.
    pub seconds: f64,
}

impl Plan {
    /// A plan of about this many seconds a key.
    pub fn new(seconds: f64) -> Plan {
        Plan { seconds: if seconds.is_finite() { seconds.clamp(0.1, 600.0) } else { 4.0 } }
    }

    /// A part of the time.
    pub fn part(&self, part: f64) -> Plan {
        Plan { seconds: self.seconds * part }
    }

    /// Number of slices of length `slice`, at least three.
    pub fn slices(&self, slice: Duration) -> usize {
        ((self.seconds / slice.as_secs_f64()).round() as usize).max(3)
    }

    /// Alternating slices of ours and of the peer: machines change their speed within seconds, which affects
    /// both.
    pub fn pairs(
        &self,
        slice: Duration,
        mut ours: impl FnMut(Duration) -> Result<f64, Failure>,
        mut peer: impl FnMut(Duration) -> Result<f64, Failure>,
    ) -> Result<Slices, Failure> {
        let mut slices = Slices::default();
        for _ in 0..self.slices(2 * slice) {
            slices.ours.push(ours(slice)?);
            slices.peer.push(peer(slice)?);
        }
        Ok(slices)
    }

    /// Slices of ours alone.
    pub fn alone(
        &self,
        slice: Duration,
        mut ours: impl FnMut(Duration) -> Result<f64, Failure>,
    ) -> Result<Slices, Failure> {
        let mut slices = Slices::default();
        for _ in 0..self.slices(slice) {
            slices.ours.push(ours(slice)?);
        }
        Ok(slices)
    }
}
