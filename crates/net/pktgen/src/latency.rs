//! Latencies of frames.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies in nanoseconds; the smallest and the largest are exact, the others to a thousandth.
#[derive(Clone, Debug)]
pub struct Latency {
    all: Histogram<u64>,
    /// The last one, and how often it came in a row: frames of a burst have one time.
    run: (u64, u64),
    /// The smallest and the largest.
    ends: (u64, u64),
}

/// Percentiles in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// Frames measured.
    pub frames: u64,
    /// The smallest.
    pub min: u64,
    /// The mean.
    pub mean: u64,
    /// The median.
    pub p50: u64,
    /// 90% are not larger.
    pub p90: u64,
    /// 99% are not larger.
    pub p99: u64,
    /// 99.9% are not larger.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

/// The largest latency that is told from a larger one: 2^39 ns, half the time after which times of frames repeat.
const MOST: u64 = 1 << 39;

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl Latency {
    /// No latencies.
    pub fn new() -> Latency {
        // Fails only for bounds and digits that are out of range.
        let all = Histogram::new_with_bounds(1, MOST, 3).or_else(|_| Histogram::new(3));
        match all {
            Ok(all) => Latency { all, run: (0, 0), ends: (u64::MAX, 0) },
            Err(_) => unreachable!("three digits are in range"),
        }
    }

    /// Adds one, unless it is so large that the sender's clock is another one.
    #[inline]
    pub fn add(&mut self, nanoseconds: u64) {
        if nanoseconds != self.run.0 {
            self.end_run();
            self.run.0 = nanoseconds;
        }
        self.run.1 += u64::from(nanoseconds < MOST);
    }

    fn end_run(&mut self) {
        if self.run.1 > 0 {
            let (least, most) = self.ends;
            self.ends = (least.min(self.run.0), most.max(self.run.0));
            self.all.saturating_record_n(self.run.0.max(1), self.run.1);
            self.run.1 = 0;
        }
    }

    /// What was added.
    pub fn summary(&mut self) -> LatencySummary {
        self.end_run();
        if self.all.is_empty() {
            return LatencySummary::default();
        }
        let at = |share| self.all.value_at_quantile(share);
        LatencySummary {
            frames: self.all.len(),
            min: self.ends.0,
            mean: self.all.mean() as u64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.ends.1,
        }
    }

    /// Each latency that occurred, rounded, with its number of frames, in order.
    pub fn buckets(&mut self) -> Vec<(u64, u64)> {
        self.end_run();
        self.all.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_frames() {
        let mut latency = Latency::new();
        assert_eq!(latency.summary(), LatencySummary::default());
        for time in (1..=1000).flat_map(|time| [time, time]) {
            latency.add(time);
        }
        latency.add(1 << 40);
        let LatencySummary { frames, min, mean, p50, p90, p99, p999, max } = latency.summary();
        assert_eq!((frames, min, mean, p50, p90, p99, p999, max), (2000, 1, 500, 500, 900, 990, 999, 1000));
        assert_eq!(latency.buckets().iter().map(|(_, frames)| frames).sum::<u64>(), 2000);
    }
}
