//! `Meter(RATE, ...)`: sends packets to an output chosen by the rate at which they arrive.
//!
//! Ports: one push input; push outputs, one more than there are rates.
//!
//! Arguments: rates in packets per second, also with the units of bandwidths, in ascending order. Below the first,
//! packets go to output 0; from the first on, to output 1, and so forth. The rate is a moving average. All packets go
//! to one output at a time; `RatedSplitter` divides them.
//!
//! Handlers: `rate`, `meters` (read).
use super::metering::Metering;
use crate::shape::Measure;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Meter", || Box::new(Metering::new(Measure::Packets))).ports("1/2-").processing("h");
