//! Tests of the monitor with guests that run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod boot;
mod card;
mod common;
mod fabric;
mod function;
mod hostile;
mod ports;
mod registers;
mod snapshot;
