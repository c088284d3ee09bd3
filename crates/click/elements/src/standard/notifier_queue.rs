//! `NotifierQueue(CAPACITY)`: stores packets, first in, first out, and notifies of emptiness.
//!
//! Ports: one push input; one pull output, and optionally a push output for dropped packets.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("NotifierQueue", || Box::new(Queue::of(Mode { says_full: false, ..Mode::FULL_NOTE })))
        .ports("1/1-2")
        .processing("h/lh")
        .live();
