//! `SimpleQueue(CAPACITY)`: stores packets, first in, first out, without notification of emptiness or fullness.
//!
//! Ports: one push input; one pull output, and optionally a push output for dropped packets.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SimpleQueue", || {
    Box::new(Queue::of(Mode { sleepiness_trigger: None, says_full: false, drops_front: false }))
})
.ports("1/1-2")
.processing("h/lh")
.live();
