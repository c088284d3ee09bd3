//! `FlowIPManagerHMP(CAPACITY, RESERVE, TIMEOUT, VERBOSE, CACHE, RECYCLE_INTERVAL, LF)`: the same as FlowIPManager.
//! FastClick's has one table for several threads, and no timeout; here each runs on one thread.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments and handlers: those of `FlowIPManager`; TIMEOUT is 0 by default.
use super::manager::FlowManager;
use ringway_click::prelude::*;

/// Printed without a timeout, as FastClick does.
const WARNING: &str =
    "WARNING: This element does not support timeout ! Flows will stay indefinitely in memory...";

pub static CLASS: Class =
    Class::new("FlowIPManagerHMP", || Box::new(FlowManager::new(0, Some(WARNING)))).ports("1/1");
