//! Tests of functions as their users see them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod conf;
#[path = "../../../click/elements/tests/any_frames/configuration.rs"]
#[allow(dead_code, reason = "a part of it is for the elements' tests")]
mod configuration;
mod control_socket;
mod dump;
mod function_test;
mod golden;
mod ipfix;
mod port;
mod reference;
mod threads;
