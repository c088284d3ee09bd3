//! Tests of placement as its users see it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod balance;
mod crash;
mod damage;
mod docs;
mod engine;
mod mirror;
mod model;
mod naive;
mod objects;
mod outside;
mod traces;
mod units;
