//! `Shaper(RATE)`: limits the rate at which packets are pulled.
//!
//! Ports: one pull input; one pull output, and optionally another from which packets can be pulled while output 0 is
//! limited.
//!
//! Arguments:
//! - `RATE`: packets per second.
//!
//! Handlers: `rate` (read, write), `reset` (write).
use super::gap::Gap;
use crate::shape::Measure;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Shaper", || Box::new(Gap::new(Measure::Packets))).ports("1/1-2").processing("l").live();
