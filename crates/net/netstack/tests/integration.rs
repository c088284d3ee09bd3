//! Tests of the stack as its users see it, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod all_addresses;
mod autoconfiguration;
mod common;
mod in_place;
mod long_fat;
mod loopback;
mod matrix;
mod memory;
mod neighbors;
mod orphans;
mod overload;
mod packets;
mod ports;
mod repair;
mod sequence;
mod sharing;
mod sources;
mod standstill;
mod streams;
mod trace;
mod transcripts;
