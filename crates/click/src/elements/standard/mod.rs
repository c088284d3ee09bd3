//! Sources, sinks, queues, schedulers and other elements that don't look into packets.
use crate::Class;

pub mod counter;
pub mod discard;
pub mod idle;
pub mod infinite_source;
pub mod null;
pub mod print;
pub mod queue;
pub mod round_robin_sched;
pub mod strip;
pub mod switch;
pub mod tee;
pub mod unqueue;
pub mod unstrip;

/// This group's classes, by name.
pub const CLASSES: &[&Class] = &[
    &counter::CLASS,
    &discard::CLASS,
    &idle::CLASS,
    &infinite_source::CLASS,
    &null::CLASS,
    &print::CLASS,
    &queue::CLASS,
    &round_robin_sched::CLASS,
    &strip::CLASS,
    &switch::CLASS,
    &tee::CLASS,
    &unqueue::CLASS,
    &unstrip::CLASS,
];
