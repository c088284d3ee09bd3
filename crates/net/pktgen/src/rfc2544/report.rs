//! The result of a measurement.

use crate::LatencySummary;
use crate::rfc2544::Trial;
use serde::Serialize;

/// The result for all sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Length of a trial in seconds; RFC 2544 asks for 60.
    pub trial_seconds: f64,
    /// The share of lost frames with which a rate is a partial drop rate's.
    pub partial: f64,
    /// The result for each size.
    pub sizes: Vec<SizeReport>,
}

/// The result for frames of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeReport {
    /// Bytes of a frame, with FCS.
    pub frame: usize,
    /// The highest rate without loss (NDR; RFC 1242, 3.17).
    pub ndr: Throughput,
    /// The highest rate with the partial loss (PDR).
    pub pdr: Throughput,
    /// Latencies by load.
    pub latency: Vec<LoadLatency>,
    /// The longest burst without loss, if it was measured.
    pub back_to_back: Option<BackToBack>,
    /// Each trial, in order.
    pub trials: Vec<Trial>,
}

/// A rate that was searched for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    /// Frames a second; none if the generator missed the rates above `at_least`.
    pub rate: Option<f64>,
    /// Bits of frames with FCS a second.
    pub bits: Option<f64>,
    /// The highest rate at which a trial passed, in frames a second.
    pub at_least: f64,
    /// Why there is no rate, or what bounds it.
    pub why: String,
}

/// Latencies at a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadLatency {
    /// The load, as a share of the throughput.
    pub load: f64,
    /// Frames a second.
    pub rate: f64,
    /// Whether the generator reached the rate, and the device lost no frame.
    pub is_clean: bool,
    /// The latencies in nanoseconds.
    pub latency: LatencySummary,
}

/// The longest burst without loss.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackToBack {
    /// Frames, on average of all searches.
    pub frames: f64,
    /// The result of each search.
    pub searches: Vec<u64>,
    /// Whether even the longest burst that was tried passed in each search.
    pub is_longest: bool,
    /// Frames a second at which the bursts were sent, as fast as the generator could.
    pub rate: f64,
}

impl Report {
    /// Why the measurement has no result for some size; `None`: it has all.
    pub fn failure(&self) -> Option<String> {
        let failed = |size: &SizeReport| {
            let which = [("NDR", &size.ndr), ("PDR", &size.pdr)];
            let (name, found) = which.into_iter().find(|(_, found)| found.rate.is_none())?;
            Some(format!("no {name} for frames of {} B: {}", size.frame, found.why))
        };
        self.sizes.iter().find_map(failed)
    }
}
