//! Tests of queues as drivers and devices see them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod command;
mod common;
mod hostile;
mod logged;
mod resume;
mod transfer;
