//! `QuickNoteQueue(CAPACITY)`: stores packets, first in, first out, and notifies of emptiness at the first
//! unsuccessful pull.
//!
//! Ports: one push input; one pull output, and optionally a push output for dropped packets.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("QuickNoteQueue", || {
    Box::new(Queue::of(Mode { sleepiness_trigger: Some(0), ..Mode::FULL_NOTE }))
})
.ports("1/1-2")
.processing("h/lh")
.live();
