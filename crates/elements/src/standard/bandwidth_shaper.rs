//! `BandwidthShaper(RATE)`: lets so many bytes a second be pulled.
//!
//! Ports: one pull input; one pull output, and optionally another, where packets are had while output 0 gives none.
//!
//! Arguments:
//! - `RATE`: bytes a second.
//!
//! Handlers: `rate` (read, write), `reset` (write).
use super::gap::Gap;
use crate::shape::Measure;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class = Class::new("BandwidthShaper", || Box::new(Gap::new(Measure::Bytes)))
    .ports("1/1-2")
    .processing("l")
    .live();
