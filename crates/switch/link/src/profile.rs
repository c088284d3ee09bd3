//! The properties of a link.

use crate::{Delay, Loss, Queue};

/// Default of [`Profile::memory`].
pub const MEMORY: usize = 64 << 20;
/// Largest delay and jitter, in nanoseconds. Attack: a delay that keeps frames for ever.
const LONGEST: u64 = 600_000_000_000;

/// Why a profile is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// A probability is not from 0 to 1.
    #[error("a probability must be from 0 to 1")]
    Probability,
    /// The rate is 0.
    #[error("a rate must be at least 1 bit/s")]
    Rate,
    /// A delay or its jitter is too long.
    #[error("a delay may have at most ten minutes")]
    Delay,
    /// A trace has no values.
    #[error("a trace needs at least one value")]
    Trace,
    /// A queue can't hold a frame.
    #[error("a queue must hold at least one frame")]
    Queue,
    /// A capacity in units of the bandwidth-delay product without a rate.
    #[error("a queue in units of the bandwidth-delay product needs a rate")]
    NoRate,
    /// RED's thresholds are not in order.
    #[error("RED needs a smaller minimum than maximum threshold")]
    Thresholds,
}

/// The properties of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Bits a second; `None`: as fast as frames are sent.
    pub rate: Option<u64>,
    /// Bytes that each frame takes in addition on the wire: 24 for Ethernet's preamble, frame check sequence and gap.
    pub overhead: u32,
    /// Largest frame without its link header; `None`: any.
    pub mtu: Option<u32>,
    /// The queue before the transmitter.
    pub queue: Queue,
    /// Propagation.
    pub delay: Delay,
    /// Whether frames with less delay overtake others.
    pub reorder: bool,
    /// Lost frames.
    pub loss: Loss,
    /// Probability that a frame is marked Congestion Experienced, if its transport is capable of ECN.
    pub mark: f64,
    /// Probability that one bit of a frame is inverted.
    pub corrupt: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Bytes of frames in the queue and under way, each with [`Profile::FRAME`] bytes more. Attack: a long delay and a
    /// fast sender.
    pub memory: usize,
}

impl Default for Profile {
    /// A link without limits and without delay.
    fn default() -> Profile {
        Profile {
            rate: None,
            overhead: 0,
            mtu: None,
            queue: Queue::default(),
            delay: Delay::default(),
            reorder: false,
            loss: Loss::None,
            mark: 0.0,
            corrupt: 0.0,
            duplicate: 0.0,
            memory: MEMORY,
        }
    }
}

impl Profile {
    /// Bytes that a frame counts beside its own.
    pub const FRAME: usize = 192;

    /// Checks all values.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.rate == Some(0) {
            return Err(ProfileError::Rate);
        }
        [self.mark, self.corrupt, self.duplicate].into_iter().try_for_each(probability)?;
        self.delay.check(LONGEST)?;
        self.loss.check()?;
        self.queue.check(self.rate.is_some())
    }

    /// Nanoseconds that a frame of `bytes` takes to serialize.
    pub fn serialization_time(&self, bytes: usize) -> u64 {
        self.serialization(bytes, 0).0
    }

    /// Nanoseconds that `bytes` take to serialize, and the rest of the division by the rate; `rest` is that of the
    /// frame before, so that rounding does not add up.
    pub(crate) fn serialization(&self, bytes: usize, rest: u64) -> (u64, u64) {
        let Some(rate) = self.rate.map(|rate| u128::from(rate.max(1))) else { return (0, 0) };
        let bits = (bytes as u128 + u128::from(self.overhead)) * 8;
        let total = bits * 1_000_000_000 + u128::from(rest);
        (u64::try_from(total / rate).unwrap_or(u64::MAX), (total % rate) as u64)
    }

    /// The bandwidth-delay product in bytes: a round trip has the delay twice.
    pub(crate) fn bandwidth_delay(&self) -> f64 {
        self.rate.unwrap_or(0) as f64 / 8e9 * 2.0 * self.delay.mean() as f64
    }
}

pub(crate) fn probability(value: f64) -> Result<(), ProfileError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(ProfileError::Probability) }
}
