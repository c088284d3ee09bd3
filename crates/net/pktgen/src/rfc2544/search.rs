//! The searches for a rate, and for a burst.

use crate::rfc2544::{
    BackToBack, FCS, LoadLatency, Options, PARTIAL, Report, SizeReport, Throughput, Trial, Verdict, run_trial,
};
use crate::run::Load;
use crate::{Flows, Generator, Line, LineError, Rate, ShapeError, Sizes};

/// Most trials of a search.
const TRIALS: usize = 60;
/// By how much the first rate exceeds what the device takes, and how often it is raised while trials pass.
const ABOVE: f64 = 1.1;
const RAISED: usize = 6;

/// Why a measurement ended.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The frames are not possible.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The device failed.
    #[error(transparent)]
    Line(#[from] LineError),
    /// It was told to end.
    #[error("the measurement was ended before its result")]
    Ended,
}

/// Measures each size; `after` is told each trial with its size, and may end the measurement by `false`.
pub fn measure(
    line: &mut impl Line,
    flows: &Flows,
    options: &Options,
    mut after: impl FnMut(usize, &Trial) -> bool,
) -> Result<Report, MeasureError> {
    let mut report =
        Report { trial_seconds: options.trial as f64 / 1e9, partial: PARTIAL, sizes: Vec::new() };
    let mut next = 0;
    for &frame in &options.sizes {
        let generator = Generator::new(&Sizes::all(frame.saturating_sub(FCS))?, flows)?;
        let after = &mut |trial: &Trial| after(frame, trial);
        let (trials, top) = (Vec::new(), 0.0);
        let mut bench = Bench { line, generator, flows, options, after, next: &mut next, trials, top };
        report.sizes.push(bench.all(frame)?);
    }
    Ok(report)
}

/// The measurement of one size.
struct Bench<'b, L> {
    line: &'b mut L,
    generator: Generator,
    flows: &'b Flows,
    options: &'b Options,
    after: &'b mut dyn FnMut(&Trial) -> bool,
    /// The number of the next frame: a late frame of another trial is known by its number.
    next: &'b mut u64,
    /// Trials at a rate.
    trials: Vec<Trial>,
    /// The highest rate to try.
    top: f64,
}

impl<L: Line> Bench<'_, L> {
    fn all(&mut self, frame: usize) -> Result<SizeReport, MeasureError> {
        self.top = match self.options.most {
            Some(most) => most,
            None => {
                let first = self.trial(Rate::Most, None)?;
                ABOVE * first.sent_rate
            }
        };
        let (ndr, pdr) = (self.throughput(0.0, frame)?, self.throughput(PARTIAL, frame)?);
        let mut latency = Vec::new();
        for &load in &self.options.loads {
            let rate = load * ndr.at_least;
            if rate >= 1.0 {
                let trial = self.tried(rate)?;
                let is_clean = trial.verdict == Verdict::Clean;
                latency.push(LoadLatency { load, rate, is_clean, latency: trial.received.latency });
            }
        }
        let back_to_back = if self.options.burst == 0 { None } else { Some(self.back_to_back()?) };
        let trials = std::mem::take(&mut self.trials);
        Ok(SizeReport { frame, ndr, pdr, latency, back_to_back, trials })
    }

    fn trial(&mut self, rate: Rate, frames: Option<u64>) -> Result<Trial, MeasureError> {
        let time = if frames.is_some() { None } else { Some(self.options.trial) };
        let load = Load { rate, first: *self.next, frames, time };
        let trial = run_trial(self.line, &self.generator, self.flows, load, self.options.settle)?;
        *self.next += trial.sent.frames;
        self.trials.push(trial.clone());
        if (self.after)(&trial) { Ok(trial) } else { Err(MeasureError::Ended) }
    }

    /// A trial, repeated while the generator misses its rate.
    fn tried(&mut self, rate: f64) -> Result<Trial, MeasureError> {
        let mut tries = 1;
        loop {
            let trial = self.trial(Rate::Frames(rate), None)?;
            if trial.verdict != Verdict::Missed || tries >= self.options.tries {
                return Ok(trial);
            }
            tries += 1;
        }
    }

    /// The highest rate of a passed trial, and the failed trial of the lowest rate above it, of those made so far.
    fn bracket(&self, loss: f64) -> (f64, Option<&Trial>) {
        let paced = || self.trials.iter().filter(|trial| trial.rate > 0.0);
        let passed = paced().filter(|trial| trial.passes(loss)).map(|trial| trial.rate).fold(0.0, f64::max);
        let failed = paced().filter(|trial| !trial.passes(loss) && trial.rate > passed);
        // Of several trials of one rate the last one counts.
        let lowest = failed.fold(None, |lowest: Option<&Trial>, trial| match lowest {
            Some(lowest) if lowest.rate < trial.rate => Some(lowest),
            _ => Some(trial),
        });
        (passed, lowest)
    }

    fn throughput(&mut self, loss: f64, frame: usize) -> Result<Throughput, MeasureError> {
        let mut raised = 0;
        for _ in 0..TRIALS {
            let (passed, failed) = self.bracket(loss);
            let rate = match failed {
                None if passed == 0.0 => self.top,
                None if raised < RAISED && self.options.most.is_none() => {
                    raised += 1;
                    passed * ABOVE
                }
                None => break,
                Some(failed) if failed.rate - passed <= self.options.resolution * failed.rate => break,
                // Below a frame a trial no rate differs from another.
                Some(failed) if failed.rate * self.options.trial as f64 <= 2e9 => break,
                Some(failed) => (passed + failed.rate) / 2.0,
            };
            self.tried(rate)?;
        }
        let (passed, failed) = self.bracket(loss);
        let (rate, why) = match failed.map(|failed| (failed.verdict, failed.rate)) {
            Some((Verdict::Missed, rate)) => {
                (None, format!("the generator missed {rate:.0} frames/s; the device may be faster"))
            }
            Some((Verdict::Refused, rate)) => {
                (Some(passed), format!("the device did not take {rate:.0} frames/s"))
            }
            Some((_, rate)) => (Some(passed), format!("the device lost frames at {rate:.0} frames/s")),
            // The rate that was asked for at most.
            None if self.options.most.is_some() => (Some(passed), "no higher rate was tried".into()),
            None => {
                (None, format!("the device passed {passed:.0} frames/s, the highest rate that was tried"))
            }
        };
        Ok(Throughput { rate, bits: rate.map(|rate| rate * frame as f64 * 8.0), at_least: passed, why })
    }

    fn back_to_back(&mut self) -> Result<BackToBack, MeasureError> {
        let mut searches = Vec::new();
        let (mut frames, mut time) = (0, 0);
        for _ in 0..self.options.repeat.max(1) {
            // The longest that passed, and the shortest that did not.
            let (mut passed, mut failed) = (0, self.options.burst + 1);
            let mut burst = self.options.burst;
            while failed - passed > 1 + passed / 256 {
                let trial = self.trial(Rate::Most, Some(burst))?;
                (frames, time) = (frames + trial.sent.frames, time + trial.sent.time);
                match trial.loss == 0.0 && trial.sent.refused == 0 {
                    true => passed = burst,
                    false => failed = burst,
                }
                burst = passed + (failed - passed) / 2;
            }
            searches.push(passed);
        }
        Ok(BackToBack {
            frames: searches.iter().sum::<u64>() as f64 / searches.len() as f64,
            is_longest: searches.iter().all(|burst| *burst == self.options.burst),
            rate: crate::run::per_second(frames, time),
            searches,
        })
    }
}
