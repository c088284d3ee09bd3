//! `MixedQueue(CAPACITY)`: keeps packets; those of input 0 go out last, those of input 1 first, and for
//! these the last makes room.
//!
//! Ports: two push inputs; one pull output, and optionally a push output for packets dropped.
//!
//! Arguments and handlers: those of `Queue`.
use super::queue::{Mode, Queue};
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("MixedQueue", || Box::new(Queue::of(Mode { says_full: false, ..Mode::FULL_NOTE })))
        .ports("2/1-2")
        .processing("h/lh");
