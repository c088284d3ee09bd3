//! `BandwidthRatedSplitter(RATE, BURST_DURATION, BURST_BYTES)`: sends up to RATE bytes per second to output 0, and
//! all other packets to output 1.
//!
//! Ports: one push input; one or two push outputs.
//!
//! Arguments: as for `BandwidthRatedUnqueue`. Handlers: `rate` (read, write).
use super::splitter::Splitter;
use crate::shape::Measure;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("BandwidthRatedSplitter", || Box::new(Splitter::new(Measure::Bytes)))
    .ports("1/1-2")
    .processing("h")
    .live();
