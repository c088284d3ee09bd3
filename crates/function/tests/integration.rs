//! Tests of functions as their users see them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod conf;
mod control_socket;
mod dump;
mod function_test;
mod golden;
mod ipfix;
mod port;
mod reference;
mod threads;
