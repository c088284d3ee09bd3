//! Tests of the scheduler through its interfaces.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod flood;
mod hostile;
mod http;
mod kubernetes;
mod plugins;
