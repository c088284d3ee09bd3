//! `TimedUnqueue(INTERVAL, BURST)`: pulls several packets at intervals and pushes them on.
//!
//! Ports: one pull input, one push output.
//!
//! Arguments:
//! - `INTERVAL`: in seconds unless it has a unit; at least one microsecond.
//! - `BURST`: maximum number of packets each time; 1 by default.
//!
//! Handlers: `interval`, `burst` (read, write); those of its task.
use super::timed_pull::TimedPull;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("TimedUnqueue", || Box::new(TimedPull::new(1))).ports("1/1").processing("l/h");
