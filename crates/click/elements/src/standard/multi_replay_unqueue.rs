//! `MultiReplayUnqueue(STOP, STOP_TIME, LIMIT, BURST, ACTIVE, USE_SIGNAL, VERBOSE)`: ReplayUnqueue for several
//! inputs; each packet is pushed to the output of its input (FastClick).
//!
//! Ports: pull inputs, as many push outputs.
//!
//! Arguments: those of ReplayUnqueue, by keyword only, without `TIMING`.
//!
//! Handlers: those of `ReplayUnqueue`.
use super::replay::Replay;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("MultiReplayUnqueue", || Box::new(Replay::new(true)))
    .ports("1-/=")
    .processing("l/h")
    .flow("#/#");
