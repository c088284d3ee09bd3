//! `BandwidthMeter(RATE, ...)`: sends packets to an output chosen by the bandwidth at which they arrive.
//!
//! Ports: one push input; push outputs, one more than there are rates.
//!
//! Arguments: bandwidths such as `384kbps`, or bytes per second, in ascending order. Below the first, packets go to
//! output 0; from the first on, to output 1, and so forth. The rate is a moving average.
//!
//! Handlers: `rate` (in bytes per second), `meters` (read).
use super::metering::Metering;
use crate::shape::Measure;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("BandwidthMeter", || Box::new(Metering::new(Measure::Bytes))).ports("1/2-").processing("h");
