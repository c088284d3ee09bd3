//! `SpinlockAcquire(LOCK)`: acquires a lock. One thread runs all elements with the same lock, so it never waits, and
//! packets pass.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `LOCK`: a name declared by a SpinlockInfo.
//!
//! No handlers.
use super::spinlock::Spinlock;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SpinlockAcquire", || Box::<Spinlock>::default()).ports("1/1");
