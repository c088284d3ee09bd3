//! `MixedQueue(CAPACITY)`: stores packets; packets of input 0 are appended and packets of input 1 are prepended. If it
//! is full, the last packet is dropped for one of input 1.
//!
//! Ports: two push inputs; one pull output, and optionally a push output for dropped packets.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("MixedQueue", || Box::new(Queue::of(Mode { says_full: false, ..Mode::FULL_NOTE })))
        .ports("2/1-2")
        .processing("h/lh")
        .live();
