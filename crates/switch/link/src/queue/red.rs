//! Random Early Detection (S. Floyd, V. Jacobson: Random Early Detection Gateways for Congestion Avoidance, 1993).

use super::{Fifo, Limit, Waiting};
use crate::Frame;
use crate::link::{Counters, Reason};
use crate::profile::Profile;
use rand_core::Rng;

/// Weight of the queue's length at an arrival in the average.
const WEIGHT: f64 = 0.002;
/// Bytes of a typical frame: its time to serialize is the unit of idle time.
const TYPICAL: usize = 1000;

#[derive(Debug)]
pub(super) struct Red<F> {
    pub fifo: Fifo<F>,
    min: f64,
    max: f64,
    probability: f64,
    ecn: bool,
    /// Nanoseconds to serialize a typical frame.
    unit: u64,
    /// Average length in bytes.
    average: f64,
    /// Frames since the last drop or mark, while the average is between the thresholds.
    count: Option<u32>,
    /// Since when the queue is empty.
    idle: Option<u64>,
}

impl<F: Frame> Red<F> {
    pub fn new(min: usize, max: usize, probability: f64, ecn: bool, profile: &Profile) -> Red<F> {
        let (min, max, fifo) = (min as f64, max as f64, Fifo::new());
        let mut red =
            Red { fifo, min, max, probability, ecn, unit: 1, average: 0.0, count: None, idle: Some(0) };
        red.adapt(profile);
        red
    }

    /// Takes the rate of another profile.
    pub fn adapt(&mut self, profile: &Profile) {
        self.unit = profile.serialization(TYPICAL, 0).0.max(1);
    }

    fn update(&mut self, now: u64) {
        if let Some(since) = self.idle.take() {
            let idle = now.saturating_sub(since) / self.unit;
            self.average *= power(1.0 - WEIGHT, idle);
        }
        self.average += WEIGHT * (self.fifo.bytes as f64 - self.average);
    }

    pub fn enqueue(
        &mut self,
        mut waiting: Waiting<F>,
        limit: Limit,
        random: &mut impl Rng,
        counters: &mut Counters,
    ) {
        self.update(waiting.arrived);
        let Red { min, max, probability, ecn, .. } = *self;
        if self.average >= max {
            self.count = Some(0);
            self.leave_idle(waiting.arrived);
            return counters.drop(Reason::Early);
        }
        if self.average < min {
            self.count = None;
        } else {
            let count = self.count.map_or(0, |count| count.saturating_add(1));
            self.count = Some(count);
            let share = probability * (self.average - min) / (max - min);
            // Makes the distances between drops uniform.
            let share = share / (1.0 - f64::from(count) * share).max(share);
            if crate::loss::happens(share.min(1.0), random) {
                self.count = Some(0);
                if !(ecn && waiting.frame.mark()) {
                    self.leave_idle(waiting.arrived);
                    return counters.drop(Reason::Early);
                }
                counters.marked += 1;
            }
        }
        if limit.has_room(self.fifo.len(), self.fifo.bytes, waiting.frame.len()) {
            self.fifo.push(waiting);
        } else {
            self.count = Some(0);
            counters.drop(Reason::Full);
        }
    }

    fn leave_idle(&mut self, now: u64) {
        if self.fifo.len() == 0 {
            self.idle = Some(now);
        }
    }

    pub fn dequeue(&mut self, now: u64) -> Option<Waiting<F>> {
        let waiting = self.fifo.pop();
        self.leave_idle(now);
        waiting
    }
}

/// `base` to the power of `exponent`.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}
