//! `FrontDropQueue(CAPACITY)`: stores packets, first in, first out; when it is full the oldest packet is dropped.
//!
//! Ports: one push input; one pull output, and optionally a push output for dropped packets.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("FrontDropQueue", || {
    Box::new(Queue::of(Mode { drops_front: true, says_full: false, ..Mode::FULL_NOTE }))
})
.ports("1/1-2")
.processing("h/lh")
.live();
