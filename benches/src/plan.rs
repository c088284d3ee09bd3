//! Measuring times and alternation of sides.

use crate::Failure;
use crate::entry::Slices;
use crate::machine;
use std::time::Duration;

/// Measuring time of a benchmark.
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

    /// Number of slices of length `slice`, at least enough for an interval.
    pub fn slices(&self, slice: Duration) -> usize {
        ((self.seconds / slice.as_secs_f64()).round() as usize).max(6)
    }

    /// Alternating slices of ours and of the peer, so that changes of the machine's speed affect both. If the peer
    /// fails, ours continues alone.
    pub fn pairs(
        &self,
        slice: Duration,
        mut ours: impl FnMut(Duration) -> Result<f64, Failure>,
        mut peer: impl FnMut(Duration) -> Result<f64, Failure>,
    ) -> Result<Slices, Failure> {
        Ok(self.alternate(slice, |time| Ok([ours(time)?]), |time| Ok([peer(time)?]))?.into())
    }

    /// As [`Plan::pairs`], of several figures a slice.
    pub fn alternate<const N: usize>(
        &self,
        slice: Duration,
        mut ours: impl FnMut(Duration) -> Result<[f64; N], Failure>,
        mut peer: impl FnMut(Duration) -> Result<[f64; N], Failure>,
    ) -> Result<[Slices; N], Failure> {
        let mut lost = None;
        let mut all = [const { Slices::NONE }; N];
        for _ in 0..self.slices(2 * slice) {
            machine::sample();
            all.iter_mut().zip(ours(slice)?).for_each(|(slices, figure)| slices.ours.push(figure));
            if lost.is_none() {
                match peer(slice) {
                    Ok(figures) => {
                        all.iter_mut().zip(figures).for_each(|(slices, figure)| slices.peer.push(figure));
                    }
                    Err(error) => lost = Some(error.to_string()),
                }
            }
        }
        all.iter_mut().for_each(|slices| slices.lost.clone_from(&lost));
        Ok(all)
    }

    /// Slices of ours alone.
    pub fn alone(
        &self,
        slice: Duration,
        mut ours: impl FnMut(Duration) -> Result<f64, Failure>,
    ) -> Result<Slices, Failure> {
        Ok(self.figures(slice, |time| Ok([ours(time)?]))?.into())
    }

    /// As [`Plan::alone`], of several figures a slice.
    pub fn figures<const N: usize>(
        &self,
        slice: Duration,
        mut ours: impl FnMut(Duration) -> Result<[f64; N], Failure>,
    ) -> Result<[Slices; N], Failure> {
        let mut all = [const { Slices::NONE }; N];
        for _ in 0..self.slices(slice) {
            machine::sample();
            all.iter_mut().zip(ours(slice)?).for_each(|(slices, figure)| slices.ours.push(figure));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_peer_keeps_our_slices() {
        let plan = Plan::new(0.8);
        let mut peers = 0;
        let slices = plan.pairs(
            Duration::from_millis(50),
            |_| Ok(2.0),
            |_| {
                peers += 1;
                if peers < 3 { Ok(1.0) } else { Err("it hung".into()) }
            },
        );
        let slices = slices.unwrap();
        assert_eq!((slices.ours.len(), slices.peer.len(), peers), (8, 2, 3));
        assert_eq!(slices.lost.as_deref(), Some("it hung"));
    }

    #[test]
    fn short_plans_have_an_interval() {
        let slices = Plan::new(1.0).alone(Duration::from_secs(1), |_| Ok(1.0)).unwrap();
        assert!(crate::entry::interval(&slices.ours).is_some());
    }
}
