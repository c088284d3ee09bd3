//! `QuickNoteQueue(CAPACITY)`: keeps packets, first in, first out, and says at the first pull in vain that it is empty.
//!
//! Ports: one push input; one pull output, and optionally a push output for packets dropped.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("QuickNoteQueue", || Box::new(Queue::of(Mode { patience: Some(0), ..Mode::FULL_NOTE })))
        .ports("1/1-2")
        .processing("h/lh")
        .live();
