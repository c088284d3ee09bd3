//! `RatedUnqueue(RATE, BURST_DURATION, BURST_SIZE)`: pulls packets and pushes them on at a limited rate.
//!
//! Ports: one pull input, one push output.
//!
//! Arguments:
//! - `RATE`: packets per second.
//! - `BURST_DURATION`: maximum burst, as a duration at RATE; 20 ms by default.
//! - `BURST_SIZE`: maximum burst, instead.
//!
//! Handlers: `rate`, `active` (read, write); `calls` (read); those of its task.
use super::rated_pull::RatedPull;
use crate::shape::Measure;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("RatedUnqueue", || Box::new(RatedPull::new(Measure::Packets)))
    .ports("1/1")
    .processing("l/h")
    .live();
