//! `Shaper(RATE)`: lets so many packets a second be pulled.
//!
//! Ports: one pull input; one pull output, and optionally another, where packets are had while output 0 gives none.
//!
//! Arguments:
//! - `RATE`: packets a second.
//!
//! Handlers: `rate` (read, write), `reset` (write).
use super::gap::Gap;
use crate::shape::Measure;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("Shaper", || Box::new(Gap::new(Measure::Packets))).ports("1/1-2").processing("l").live();
