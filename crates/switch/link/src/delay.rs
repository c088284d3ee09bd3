//! Propagation delay.

use crate::profile::ProfileError;
use alloc::sync::Arc;
use rand_core::Rng;
use rand_distr::{Distribution, Normal, Pareto};

/// The shape of [`Delay::Pareto`]; its mean is finite above 1, its variance above 2.
const SHAPE: f64 = 3.0;

/// The delay of each frame, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Delay {
    /// Every frame has this delay.
    Constant(u64),
    /// From `delay - jitter` to `delay + jitter`, all equally likely.
    Uniform {
        /// The mean.
        delay: u64,
        /// The largest deviation.
        jitter: u64,
    },
    /// Normally distributed, never negative.
    Normal {
        /// The mean.
        delay: u64,
        /// The standard deviation.
        jitter: u64,
    },
    /// At least `delay`, and beyond it a Pareto distribution of shape 3 that begins at 0.
    Pareto {
        /// The shortest.
        delay: u64,
        /// The mean of the part beyond.
        jitter: u64,
    },
    /// As recorded, again and again.
    Trace(Arc<[u64]>),
}

impl Default for Delay {
    fn default() -> Delay {
        Delay::Constant(0)
    }
}

impl Delay {
    pub(crate) fn check(&self, longest: u64) -> Result<(), ProfileError> {
        let within = match self {
            Delay::Constant(delay) => *delay <= longest,
            Delay::Uniform { delay, jitter }
            | Delay::Normal { delay, jitter }
            | Delay::Pareto { delay, jitter } => *delay <= longest && *jitter <= longest,
            Delay::Trace(trace) if trace.is_empty() => return Err(ProfileError::Trace),
            Delay::Trace(trace) => trace.iter().all(|delay| *delay <= longest),
        };
        if within { Ok(()) } else { Err(ProfileError::Delay) }
    }

    /// The mean.
    pub fn mean(&self) -> u64 {
        match self {
            Delay::Constant(delay) | Delay::Uniform { delay, .. } | Delay::Normal { delay, .. } => *delay,
            Delay::Pareto { delay, jitter } => delay + jitter,
            Delay::Trace(trace) => {
                let sum: u128 = trace.iter().map(|delay| u128::from(*delay)).sum();
                (sum / (trace.len().max(1) as u128)) as u64
            }
        }
    }

    /// No frame has less.
    pub(crate) fn least(&self) -> u64 {
        match self {
            Delay::Constant(delay) | Delay::Pareto { delay, .. } => *delay,
            Delay::Uniform { delay, jitter } => delay.saturating_sub(*jitter),
            Delay::Normal { .. } => 0,
            Delay::Trace(trace) => trace.iter().copied().min().unwrap_or(0),
        }
    }
}

/// Draws delays.
#[derive(Debug, Default)]
pub(crate) struct DelayState {
    /// Position in the trace.
    at: usize,
}

impl DelayState {
    /// The next frame's delay.
    #[inline]
    pub fn draw(&mut self, delay: &Delay, random: &mut impl Rng) -> u64 {
        match delay {
            Delay::Constant(delay) => *delay,
            Delay::Uniform { delay, jitter } => {
                let width = u128::from(2 * jitter + 1);
                let offset = ((u128::from(random.next_u64()) * width) >> 64) as u64;
                (delay + offset).saturating_sub(*jitter)
            }
            Delay::Normal { delay, jitter } => {
                let drawn = Normal::new(*delay as f64, *jitter as f64).map(|normal| normal.sample(random));
                drawn.unwrap_or(*delay as f64).max(0.0) as u64
            }
            Delay::Pareto { delay, jitter } => {
                // A Pareto distribution from `scale` on has the mean scale * SHAPE / (SHAPE - 1).
                let scale = *jitter as f64 * (SHAPE - 1.0);
                let drawn = Pareto::new(scale, SHAPE).map(|pareto| pareto.sample(random) - scale);
                delay.saturating_add(drawn.unwrap_or(0.0) as u64)
            }
            Delay::Trace(trace) => {
                let drawn = trace.get(self.at % trace.len().max(1)).copied().unwrap_or(0);
                self.at = (self.at + 1) % trace.len().max(1);
                drawn
            }
        }
    }
}
