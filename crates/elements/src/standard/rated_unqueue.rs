//! `RatedUnqueue(RATE, BURST_DURATION, BURST_SIZE)`: pulls packets and pushes them on at a rate.
//!
//! Ports: one pull input, one push output.
//!
//! Arguments:
//! - `RATE`: packets a second.
//! - `BURST_DURATION`: for how long it may save up; 20 ms by default.
//! - `BURST_SIZE`: how much it may save up instead.
//!
//! Handlers: `rate`, `active` (read, write); `calls` (read); those of its task.
use super::rated_pull::RatedPull;
use crate::shape::Measure;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class = Class::new("RatedUnqueue", || Box::new(RatedPull::new(Measure::Packets)))
    .ports("1/1")
    .processing("l/h")
    .live();
