//! Sources, sinks, queues, schedulers and other elements that don't look into packets.
use crate::Class;

pub mod counter;
pub mod discard;
pub mod idle;
pub mod infinite_source;
pub mod print;
pub mod queue;
pub mod tee;
pub mod unqueue;

/// This group's classes, by name.
pub const CLASSES: &[&Class] = &[
    &counter::CLASS,
    &discard::CLASS,
    &idle::CLASS,
    &infinite_source::CLASS,
    &print::CLASS,
    &queue::CLASS,
    &tee::CLASS,
    &unqueue::CLASS,
];
