//! `SpinlockAcquire(LOCK)`: takes a lock. One thread runs all that takes one lock, so it need not
//! wait, and packets pass.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `LOCK`: a name that a SpinlockInfo gave.
//!
//! No handlers.
use super::spinlock::Spinlock;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class = Class::new("SpinlockAcquire", || Box::<Spinlock>::default()).ports("1/1");
