//! Tests of the emulated cards as drivers see them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
mod device;
mod express;
mod hostile;
mod interrupts;
mod pcnet;
mod receive;
mod rtl8139;
mod transmit;
