//! The machine's state during a measurement: the distance between two cores, and the speed of each.
//!
//! On shared machines both change within seconds, and rates with them.

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The cores that measurements use.
const CORES: [usize; 2] = [0, 1];
/// Chunks of a sample, and round trips of a cache line in each chunk.
const CHUNKS: usize = 9;
const TRIPS: u64 = 64;
/// Steps of the integer loop, each dependent on the previous one.
const STEPS: u64 = 100_000;
/// A sample that takes longer is given up: another thread occupies a core.
const LIMIT: Duration = Duration::from_millis(50);
/// Minimum time between samples.
const APART: Duration = Duration::from_millis(100);

/// Lowest, median and highest of the samples during a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Round trip of a cache line between the two cores, in ns.
    pub line_ns: [f64; 3],
    /// A fixed integer loop on the slower of the two cores, in us.
    pub loop_us: [f64; 3],
    /// Number of samples.
    pub samples: usize,
}

/// One sample: ns of a round trip, us of the loop.
type Sample = [f64; 2];

static SAMPLES: Mutex<(Vec<Sample>, Option<Instant>)> = Mutex::new((Vec::new(), None));

/// Takes a sample for the current measurement, which must be paused, unless the last sample is recent.
pub fn sample() {
    let recent = |last: Instant| last.elapsed() < APART;
    if !SAMPLES.lock().unwrap_or_else(PoisonError::into_inner).1.is_some_and(recent) {
        sample_now();
    }
}

/// Takes a sample.
pub fn sample_now() {
    let sample = measure();
    let mut samples = SAMPLES.lock().unwrap_or_else(PoisonError::into_inner);
    samples.0.extend(sample);
    samples.1 = Some(Instant::now());
}

/// Summary of the samples since the last call; none without samples.
pub fn take() -> Option<Machine> {
    let mut samples = SAMPLES.lock().unwrap_or_else(PoisonError::into_inner);
    samples.1 = None;
    summed(&std::mem::take(&mut samples.0))
}

fn summed(samples: &[Sample]) -> Option<Machine> {
    let of = |which: usize| {
        let mut figures: Vec<f64> = samples.iter().map(|sample| sample[which]).collect();
        figures.sort_by(f64::total_cmp);
        Some([*figures.first()?, crate::entry::median(&figures)?, *figures.last()?])
    };
    Some(Machine { line_ns: of(0)?, loop_us: of(1)?, samples: samples.len() })
}

/// A value alone in its cache line and in the adjacent line, which is prefetched with it.
#[repr(align(128))]
struct Line(AtomicU64);

/// Takes a sample; none if there is only one core, or if a core is occupied.
fn measure() -> Option<Sample> {
    let line = Line(AtomicU64::new(0));
    let end = Instant::now() + LIMIT;
    std::thread::scope(|scope| {
        let line = &line.0;
        let threads = CORES.map(|core| {
            scope.spawn(move || -> Option<[f64; 2]> {
                // This thread inherits the caller's pinning; here it may use any core.
                let mut set = CpuSet::new();
                set.set(core);
                rustix::thread::sched_setaffinity(None, &set).ok()?;
                let trip = round_trips(line, core as u64, end)?;
                Some([trip, integers()])
            })
        });
        let [one, two] = threads.map(|thread| thread.join().ok().flatten());
        let (one, two) = (one?, two?);
        Some([one[0], one[1].max(two[1])])
    })
}

/// Median ns of a round trip: each side waits for numbers of its own parity, and writes the next.
fn round_trips(line: &AtomicU64, parity: u64, end: Instant) -> Option<f64> {
    let mut chunks = [0.0; CHUNKS];
    for (chunk, figure) in chunks.iter_mut().enumerate() {
        let begin = Instant::now();
        for trip in 0..TRIPS {
            let awaited = 2 * (chunk as u64 * TRIPS + trip) + parity;
            let mut polls = 0u32;
            while line.load(Ordering::Acquire) != awaited {
                polls = polls.wrapping_add(1);
                if polls.is_multiple_of(4096) && Instant::now() > end {
                    return None;
                }
            }
            line.store(awaited + 1, Ordering::Release);
        }
        *figure = begin.elapsed().as_nanos() as f64 / TRIPS as f64;
    }
    crate::entry::median(&chunks)
}

/// Microseconds of the fixed loop, the shortest of three.
fn integers() -> f64 {
    let once = || {
        let begin = Instant::now();
        let mut state = std::hint::black_box(1u64);
        for _ in 0..STEPS {
            // The shift prevents the compiler from combining steps.
            state = (state ^ state >> 29).wrapping_mul(0x5851_f42d_4c95_7f2d);
        }
        std::hint::black_box(state);
        begin.elapsed().as_nanos() as f64 / 1e3
    };
    [once(), once(), once()].into_iter().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_a_median() {
        assert_eq!(summed(&[]), None);
        let machine = summed(&[[90.0, 250.0], [400.0, 260.0], [100.0, 240.0]]).unwrap();
        assert_eq!(machine.line_ns, [90.0, 100.0, 400.0]);
        assert_eq!((machine.loop_us, machine.samples), ([240.0, 250.0, 260.0], 3));
    }

    #[test]
    fn an_unanswered_line_times_out() {
        let line = AtomicU64::new(0);
        assert_eq!(round_trips(&line, 0, Instant::now()), None);
        assert_eq!(line.into_inner(), 1);
    }

    #[test]
    fn both_sides_take_turns() {
        let line = AtomicU64::new(0);
        let end = Instant::now() + Duration::from_secs(60);
        let times = std::thread::scope(|scope| {
            let line = &line;
            let sides = [0, 1].map(|parity| scope.spawn(move || round_trips(line, parity, end)));
            sides.map(|side| side.join().unwrap())
        });
        assert!(times.iter().all(|time| time.is_some_and(|ns| ns > 0.0)), "{times:?}");
        assert_eq!(line.into_inner(), 2 * CHUNKS as u64 * TRIPS);
    }
}
