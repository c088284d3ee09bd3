//! `BandwidthRatedUnqueue(RATE, BURST_DURATION, BURST_BYTES)`: pulls packets and pushes them on at a limited rate.
//!
//! Ports: one pull input, one push output.
//!
//! Arguments:
//! - `RATE`: bytes per second.
//! - `BURST_DURATION`: maximum burst, as a duration at RATE; 20 ms by default.
//! - `BURST_BYTES`: maximum burst, instead.
//!
//! Handlers: `rate`, `active` (read, write); `calls` (read); those of its task.
use super::rated_pull::RatedPull;
use crate::shape::Measure;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("BandwidthRatedUnqueue", || Box::new(RatedPull::new(Measure::Bytes)))
    .ports("1/1")
    .processing("l/h")
    .live();
