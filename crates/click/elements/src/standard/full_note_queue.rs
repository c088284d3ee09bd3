//! `FullNoteQueue(CAPACITY)`: stores packets, first in, first out; the same as `Queue`.
//!
//! Ports: one push input; one pull output, and optionally a push output for dropped packets.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("FullNoteQueue", || Box::new(Queue::of(Mode::FULL_NOTE)))
    .ports("1/1-2")
    .processing("h/lh")
    .live();
