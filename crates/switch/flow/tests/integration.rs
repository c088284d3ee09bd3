//! The tests that need more than one module of the crate: random tables against a naive reference, and against Open
//! vSwitch.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
mod open_vswitch;
mod reference;
