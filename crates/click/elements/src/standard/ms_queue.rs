//! `MSQueue(CAPACITY)`: stores packets, first in, first out; the same as `NotifierQueue`, as a router has one thread.
//!
//! Ports: one push input; one pull output, and optionally a push output for dropped packets.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("MSQueue", || Box::new(Queue::of(Mode { says_full: false, ..Mode::FULL_NOTE })))
        .ports("1/1")
        .processing("h/lh")
        .live();
