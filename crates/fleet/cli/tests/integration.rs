//! Tests of the real program.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod chain;
mod clients;
mod creates;
mod detach;
mod docs;
mod exec;
mod fabric;
mod first_frame;
mod function;
mod function_hostile;
mod function_kills;
mod function_live;
mod function_vm;
mod function_worker;
mod guests;
mod hosts;
mod lab;
mod link;
mod middleboxes;
mod multiply;
mod nouns;
mod place;
mod place_docs;
mod place_fabric;
mod place_guest;
mod place_operators;
mod programs;
mod side_by_side;
mod slow_peer;
mod sockets;
mod stock_monitors;
mod tiny;
mod vm_kills;
mod vm_kvm;
mod vm_memory;
