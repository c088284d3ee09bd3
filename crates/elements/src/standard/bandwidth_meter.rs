//! `BandwidthMeter(RATE, ...)`: sends packets to the output that belongs to the bandwidth at which they
//! arrive.
//!
//! Ports: one push input; push outputs, one more than there are rates.
//!
//! Arguments: bandwidths such as `384kbps`, or bytes a second, each above the one before it. Below the
//! first packets go to output 0, from it on to output 1, and so forth. The rate is a moving average.
//!
//! Handlers: `rate` (in bytes a second), `meters` (read).
use super::metering::Metering;
use crate::shape::Measure;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("BandwidthMeter", || Box::new(Metering::new(Measure::Bytes))).ports("1/2-").processing("h");
