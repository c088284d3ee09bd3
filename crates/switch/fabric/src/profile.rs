//! Where a worker's time goes, while somebody asks for it.
//!
//! How long a worker sleeps, moves frames and runs functions is measured in each turn, by the clock that it reads
//! anyway. How long each stage of a burst takes is measured in some turns only, in ticks, so that the other turns cost
//! nothing more; the time in which frames moved is divided in the proportion of these ticks.

use crate::proto::StageCount;
use ringway_frame::add;
use ringway_host::{ticks, time_signals, timed_signals};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a worker does in a turn in which frames move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Takes a burst from a port.
    Take,
    /// Finds the destination of each frame.
    LookUp,
    /// Sorts frames by destination, locks those, and reserves room.
    Reserve,
    /// Computes checksums and segments that a destination lacks.
    Complete,
    /// Copies frames.
    Copy,
    /// Gives buffers back to the source.
    Release,
    /// Shows frames to their destinations.
    Publish,
    /// Signals peers.
    Notify,
    /// Polls queues that are empty, looks for kicks, keeps account.
    Rest,
    /// Runs functions; measured apart.
    Functions,
}

/// Names of the stages that share the time of turns in which frames moved.
pub const STAGES: [&str; 9] =
    ["take", "look up", "reserve", "complete", "copy", "release", "publish", "notify", "rest"];
const ALL: usize = STAGES.len() + 1;

/// Turns between two that are measured, on average.
const EVERY: u32 = 32;

/// What is measured of a worker. Only the worker writes all but `until`.
#[derive(Debug, Default)]
pub struct ProfileGauges {
    /// Until when stages are measured, in nanoseconds of the clock.
    pub until: AtomicU64,
    /// Nanoseconds that the worker slept.
    pub slept: AtomicU64,
    /// Since when it sleeps; 0: it does not.
    pub asleep: AtomicU64,
    /// Nanoseconds of functions in turns in which frames moved, and in other turns.
    pub functions: [AtomicU64; 2],
    /// Of each stage: ticks, bursts, frames.
    stages: [[AtomicU64; 3]; ALL],
}

impl ProfileGauges {
    /// The counts of each stage.
    pub fn stages(&self) -> Vec<StageCount> {
        let count = |(name, gauges): (&&str, &[AtomicU64; 3])| {
            let [ticks, bursts, frames] = gauges.each_ref().map(|gauge| gauge.load(Relaxed));
            StageCount { stage: name.to_string(), ticks, bursts, frames }
        };
        STAGES.iter().zip(&self.stages).map(count).collect()
    }

    /// Nanoseconds slept until `now`.
    pub fn slept(&self, now: u64) -> u64 {
        let since = match self.asleep.load(Relaxed) {
            0 => 0,
            since => now.saturating_sub(since),
        };
        self.slept.load(Relaxed) + since
    }
}

/// Measures the stages of a worker's turns.
#[derive(Default)]
pub struct Stopwatch {
    /// Whether this turn is measured.
    runs: Cell<bool>,
    /// Turns until the next one that is.
    left: Cell<u32>,
    /// Distances vary, so that no pattern of turns is always hit or missed.
    seed: Cell<u32>,
    stage: Cell<usize>,
    since: Cell<u64>,
    counts: RefCell<[[u64; 3]; ALL]>,
}

impl Stopwatch {
    /// Ends the turn before, in which frames `moved` or not, and begins one at `now`.
    #[inline]
    pub fn turn_begins(&self, gauges: &ProfileGauges, now: u64, moved: bool) {
        if self.runs.get() {
            self.end(gauges, moved);
        }
        if gauges.until.load(Relaxed) > now {
            self.may_begin();
        }
    }

    #[cold]
    fn may_begin(&self) {
        match self.left.get() {
            0 => {
                // A linear congruential generator modulo 2^32 (Knuth, 3.3.4).
                let seed = self.seed.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                self.seed.set(seed);
                self.left.set(EVERY / 2 + (seed >> 16) % EVERY);
                time_signals(true);
                self.runs.set(true);
                self.stage.set(Stage::Rest as usize);
                self.since.set(ticks());
            }
            left => self.left.set(left - 1),
        }
    }

    /// Goes on to a stage with a burst of `frames` frames; 0: it goes on with the one that it had.
    #[inline]
    pub fn enter(&self, stage: Stage, frames: usize) {
        if self.runs.get() {
            self.switch(stage, frames);
        }
    }

    #[cold]
    fn switch(&self, stage: Stage, frames: usize) {
        let now = ticks();
        let (signalled, signals) = timed_signals();
        let took = now.saturating_sub(self.since.get());
        self.count(stage, frames);
        let counts = &mut *self.counts.borrow_mut();
        counts[self.stage.get()][0] += took.saturating_sub(signalled);
        let notify = &mut counts[Stage::Notify as usize];
        (notify[0], notify[1]) = (notify[0] + signalled.min(took), notify[1] + signals);
        self.stage.set(stage as usize);
        self.since.set(now);
    }

    /// Counts a burst of `frames` frames as taken.
    #[inline]
    pub fn took(&self, frames: usize) {
        if self.runs.get() {
            self.count(Stage::Take, frames);
        }
    }

    #[cold]
    fn count(&self, stage: Stage, frames: usize) {
        let [_, bursts, all] = &mut self.counts.borrow_mut()[stage as usize];
        (*bursts, *all) = (*bursts + u64::from(frames > 0), *all + frames as u64);
    }

    /// The stage that began last was no part of a burst: the queue was empty.
    #[inline]
    pub fn was_empty(&self) {
        if self.runs.get() {
            self.stage.set(Stage::Rest as usize);
        }
    }

    #[cold]
    fn end(&self, gauges: &ProfileGauges, moved: bool) {
        self.switch(Stage::Rest, 0);
        self.runs.set(false);
        time_signals(false);
        let counts = self.counts.take();
        if moved {
            for (gauges, counts) in gauges.stages.iter().zip(&counts) {
                gauges.iter().zip(counts).for_each(|(gauge, count)| add(gauge, *count));
            }
        }
    }
}

/// Time and turns of a function on a worker. Only the worker writes them.
#[derive(Debug, Default)]
pub struct FunctionGauges {
    /// Nanoseconds.
    pub time: AtomicU64,
    /// Turns.
    pub turns: AtomicU64,
}

/// The gauges of a function, which its worker and the fabric have.
pub type SharedFunctionGauges = Arc<FunctionGauges>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_turns_are_measured_and_only_while_somebody_asks() {
        let (gauges, watch) = (ProfileGauges::default(), Stopwatch::default());
        let turn = |now: u64| {
            watch.turn_begins(&gauges, now, true);
            watch.enter(Stage::Take, 0);
            watch.was_empty();
            watch.enter(Stage::Take, 0);
            watch.took(64);
            watch.enter(Stage::Copy, 64);
            watch.enter(Stage::Functions, 0);
        };
        (0..1000).for_each(turn);
        assert!(gauges.stages().iter().all(|stage| stage.ticks + stage.bursts == 0));
        gauges.until.store(1 << 40, Relaxed);
        (0..10_000).for_each(turn);
        gauges.until.store(0, Relaxed);
        (0..10).for_each(turn);
        let stages = gauges.stages();
        let of = |name: &str| stages.iter().find(|stage| stage.stage == name).unwrap();
        let (take, copy) = (of("take"), of("copy"));
        assert_eq!((take.bursts, take.frames), (copy.bursts, copy.frames));
        assert!((10_000 / 48..=10_000 / 15).contains(&(take.bursts as usize)), "{take:?}");
        assert_eq!(take.frames, 64 * take.bursts);
        assert!(take.ticks > 0 && of("rest").ticks > 0 && of("rest").bursts == 0);
        assert_eq!((of("complete").ticks, of("notify").ticks), (0, 0));
    }

    #[test]
    fn turns_in_which_no_frame_moved_do_not_count() {
        let (gauges, watch) = (ProfileGauges::default(), Stopwatch::default());
        gauges.until.store(u64::MAX, Relaxed);
        for _ in 0..1000 {
            watch.turn_begins(&gauges, 0, false);
            watch.enter(Stage::Take, 1);
        }
        assert!(gauges.stages().iter().all(|stage| stage.ticks == 0));
    }

    #[test]
    fn a_worker_that_sleeps_has_slept_until_now() {
        let gauges = ProfileGauges::default();
        gauges.slept.store(5, Relaxed);
        assert_eq!(gauges.slept(100), 5);
        gauges.asleep.store(90, Relaxed);
        assert_eq!(gauges.slept(100), 15);
    }
}
