//! `SpinlockPush(LOCK)`: holds a lock while packets are pushed on. One thread runs all elements with the same lock, so
//! it never waits, and packets pass.
//!
//! Ports: one input, one output, push.
//!
//! Arguments:
//! - `LOCK`: a name declared by a SpinlockInfo.
//!
//! No handlers.
use super::spinlock::Spinlock;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("SpinlockPush", || Box::<Spinlock>::default()).ports("1/1").processing("h");
