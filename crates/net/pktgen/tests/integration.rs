//! The generator and its measurements over a line in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod faults;
mod rings;
mod searches;
mod virtual_line;
