//! `CounterRW(COUNT_CALL, BYTE_COUNT_CALL, NO_RATE, ATOMIC, BATCH_PRECISE)`: the same as Counter. FastClick's
//! uses a readers-writer lock; here each runs on one thread.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments and handlers: those of `Counter`.
use super::counter::Counter;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class = Class::new("CounterRW", || Box::<Counter>::default()).ports("1/1");
