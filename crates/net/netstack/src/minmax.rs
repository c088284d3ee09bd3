//! The minimum or maximum of a value over a sliding window, in constant space (Kathleen Nichols' algorithm, as
//! in Linux's `win_minmax`): the best value, and the best of two later parts of the window.

use crate::codec::{Bound, Field, Reader};
use alloc::vec::Vec;

/// A value and when it was measured, in the unit of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    at: u64,
    value: u64,
}

/// A windowed minimum or maximum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MinMax([Sample; 3]);

impl MinMax {
    /// Forgets all values but this one.
    pub(crate) fn reset(&mut self, at: u64, value: u64) -> u64 {
        self.0 = [Sample { at, value }; 3];
        value
    }

    /// The current value.
    pub(crate) fn get(&self) -> u64 {
        self.0[0].value
    }

    /// Adds a value; returns the maximum of the last `window`.
    pub(crate) fn max(&mut self, window: u64, at: u64, value: u64) -> u64 {
        self.add(window, at, value, |new, old| new >= old)
    }

    /// Adds a value; returns the minimum of the last `window`.
    pub(crate) fn min(&mut self, window: u64, at: u64, value: u64) -> u64 {
        self.add(window, at, value, |new, old| new <= old)
    }

    fn add(&mut self, window: u64, at: u64, value: u64, better: fn(u64, u64) -> bool) -> u64 {
        let new = Sample { at, value };
        if better(value, self.0[0].value) || at.saturating_sub(self.0[2].at) > window {
            return self.reset(at, value);
        }
        if better(value, self.0[1].value) {
            (self.0[1], self.0[2]) = (new, new);
        } else if better(value, self.0[2].value) {
            self.0[2] = new;
        }
        let age = at.saturating_sub(self.0[0].at);
        if age > window {
            self.0 = [self.0[1], self.0[2], new];
            if at.saturating_sub(self.0[0].at) > window {
                self.0 = [self.0[1], self.0[2], new];
            }
        } else if self.0[1].at == self.0[0].at && age > window / 4 {
            (self.0[1], self.0[2]) = (new, new);
        } else if self.0[2].at == self.0[1].at && age > window / 2 {
            self.0[2] = new;
        }
        self.get()
    }
}

/// The bound is that of the values.
impl Field for MinMax {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.map(|Sample { at, value }| (at, value)).put(to);
    }

    fn take(from: &mut Reader<'_>, bound: Bound) -> Option<MinMax> {
        let mut samples = [Sample::default(); 3];
        for sample in &mut samples {
            *sample = Sample { at: u64::take(from, Bound::Any)?, value: u64::take(from, bound)? };
        }
        Some(MinMax(samples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_value_is_forgotten_after_its_window() {
        let mut max = MinMax::default();
        max.reset(0, 100);
        for at in 1..=10 {
            assert_eq!(max.max(10, at, 50), 100, "at {at}");
        }
        assert_eq!(max.max(10, 11, 50), 50);
        assert_eq!(max.max(10, 12, 60), 60);
        let mut min = MinMax::default();
        min.reset(0, 5);
        assert_eq!((min.min(10, 3, 7), min.min(10, 4, 2), min.min(10, 20, 9)), (5, 2, 9));
    }
}
