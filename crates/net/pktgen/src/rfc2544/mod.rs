//! Measurements by RFC 2544 (Benchmarking Methodology for Network Interconnect Devices): throughput (26.1), latency
//! (26.2) and back-to-back frames (26.4), for each size of frames.
//!
//! Read `search.rs` first. A rate is no result if the generator did not reach it: then the trial is
//! [`Verdict::Missed`], and a search that a missed trial ended has no result.

mod report;
mod search;
mod svg;
mod trial;

pub use report::{BackToBack, LoadLatency, Report, SizeReport, Throughput};
pub use search::{MeasureError, measure};
pub use svg::svg;
pub use trial::{Trial, Verdict, run_trial};

/// Sizes of RFC 2544, 9.1, for Ethernet, with FCS.
pub const SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// Bytes of FCS.
pub const FCS: usize = 4;
/// The share of lost frames with which a rate is a partial drop rate's.
pub const PARTIAL: f64 = 0.005;

/// How to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Sizes of frames in bytes, with FCS.
    pub sizes: Vec<usize>,
    /// Length of a trial in nanoseconds.
    pub trial: u64,
    /// How long frames are waited for after the last one was sent, in nanoseconds.
    pub settle: u64,
    /// Least difference of two rates, as a share of the rate.
    pub resolution: f64,
    /// Highest rate in frames a second; `None`: a bit more than the device takes without pacing.
    pub most: Option<f64>,
    /// How often a trial is repeated that the generator missed.
    pub tries: u32,
    /// Loads at which the latency is measured, as shares of the throughput.
    pub loads: Vec<f64>,
    /// Longest burst of back-to-back frames; 0: they are not measured.
    pub burst: u64,
    /// How often the longest burst is searched for.
    pub repeat: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sizes: SIZES.into(),
            trial: 1_000_000_000,
            settle: 200_000_000,
            resolution: 0.005,
            most: None,
            tries: 3,
            loads: vec![0.1, 0.5, 0.9],
            burst: 1 << 20,
            repeat: 3,
        }
    }
}
