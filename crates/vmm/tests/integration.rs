//! Tests of the monitor with guests that run.

mod boot;
mod card;
mod common;
mod fabric;
mod function;
mod hostile;
mod ports;
mod registers;
mod snapshot;
