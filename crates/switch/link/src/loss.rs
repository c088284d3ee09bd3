//! Which frames are lost on the wire.

use crate::profile::{ProfileError, probability};
use alloc::sync::Arc;
use rand_core::Rng;

/// Which frames are lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No frames are lost.
    #[default]
    None,
    /// Each with this probability.
    Random(f64),
    /// Gilbert's and Elliott's model: a good and a bad state, each with its own probability of loss (E. O. Elliott,
    /// Estimates of Error Rates for Codes on Burst-Noise Channels, 1963).
    GilbertElliott {
        /// Probability of going from the good to the bad state, a frame.
        worse: f64,
        /// Probability of going from the bad to the good state, a frame: a burst has 1/`better` frames on average.
        better: f64,
        /// Probability of loss in the good state.
        good: f64,
        /// Probability of loss in the bad state.
        bad: f64,
    },
    /// As recorded, again and again: `true` for a lost frame.
    Trace(Arc<[bool]>),
}

impl Loss {
    /// The share of frames that is lost in the long run.
    pub fn mean(&self) -> f64 {
        match self {
            Loss::None => 0.0,
            Loss::Random(share) => *share,
            Loss::GilbertElliott { worse, better, good, .. } if *worse + *better == 0.0 => *good,
            Loss::GilbertElliott { worse, better, good, bad } => {
                (better * good + worse * bad) / (worse + better)
            }
            Loss::Trace(trace) => {
                trace.iter().filter(|lost| **lost).count() as f64 / trace.len().max(1) as f64
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        match self {
            Loss::None => Ok(()),
            Loss::Random(share) => probability(*share),
            Loss::GilbertElliott { worse, better, good, bad } => {
                [*worse, *better, *good, *bad].into_iter().try_for_each(probability)
            }
            Loss::Trace(trace) if trace.is_empty() => Err(ProfileError::Trace),
            Loss::Trace(_) => Ok(()),
        }
    }
}

/// The model's state.
#[derive(Debug, Default)]
pub(crate) struct LossState {
    is_bad: bool,
    /// Position in the trace.
    at: usize,
}

impl LossState {
    /// Whether the next frame is lost.
    #[inline]
    pub fn loses(&mut self, loss: &Loss, random: &mut impl Rng) -> bool {
        match loss {
            Loss::None => false,
            Loss::Random(share) => happens(*share, random),
            Loss::GilbertElliott { worse, better, good, bad } => {
                let change = if self.is_bad { *better } else { *worse };
                self.is_bad ^= happens(change, random);
                happens(if self.is_bad { *bad } else { *good }, random)
            }
            Loss::Trace(trace) => {
                let lost = trace.get(self.at % trace.len().max(1)).copied().unwrap_or(false);
                self.at = (self.at + 1) % trace.len().max(1);
                lost
            }
        }
    }
}

/// Whether an event of this probability happens.
#[inline]
pub(crate) fn happens(probability: f64, random: &mut impl Rng) -> bool {
    // 53 bits, exactly the numbers of a double from 0 to 1.
    probability > 0.0 && ((random.next_u64() >> 11) as f64) < probability * (1_u64 << 53) as f64
}
