//! Connections that move to the stack that processes share.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "integration/lab.rs"]
mod lab;
#[path = "integration/one_process.rs"]
mod one_process;
#[path = "integration/processes.rs"]
mod processes;
#[path = "integration/waiting.rs"]
mod waiting;
