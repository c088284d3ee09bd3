//! `RatedSplitter(RATE, BURST_DURATION, BURST_SIZE)`: sends up to RATE packets per second to output 0, and all others
//! to output 1.
//!
//! Ports: one push input; one or two push outputs.
//!
//! Arguments: as for `RatedUnqueue`. Handlers: `rate` (read, write).
use super::splitter::Splitter;
use crate::shape::Measure;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("RatedSplitter", || Box::new(Splitter::new(Measure::Packets)))
    .ports("1/1-2")
    .processing("h")
    .live();
