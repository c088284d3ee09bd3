//! Tests of queues as drivers and devices see them.

mod command;
mod common;
mod hostile;
mod logged;
mod transfer;
