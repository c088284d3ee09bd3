//! `Meter(RATE, ...)`: sends packets to the output that belongs to the rate at which they arrive.
//!
//! Ports: one push input; push outputs, one more than there are rates.
//!
//! Arguments: rates in packets a second, each above the one before it. Below the first rate packets go to
//! output 0, from it on to output 1, and so forth. The rate is a moving average; all packets go where it
//! points. `RatedSplitter` shares them out instead.
//!
//! Handlers: `rate`, `meters` (read).
use super::metering::Metering;
use crate::shape::Measure;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("Meter", || Box::new(Metering::new(Measure::Packets))).ports("1/2-").processing("h");
