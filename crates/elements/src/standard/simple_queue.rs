//! `SimpleQueue(CAPACITY)`: keeps packets, first in, first out, and says nothing of whether it is empty or full.
//!
//! Ports: one push input; one pull output, and optionally a push output for packets dropped.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class = Class::new("SimpleQueue", || {
    Box::new(Queue::of(Mode { patience: None, says_full: false, drops_front: false }))
})
.ports("1/1-2")
.processing("h/lh")
.live();
