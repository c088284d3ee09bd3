//! The `control` process: reads the fabric file, serves the control API, opens every descriptor, and starts
//! guests, functions and programs.
//!
//! [`run`] is the process. `engine` is the task that owns the running fabric and moves it to the file's
//! state; `kinds` and `lookups` have a file for each kind of port and lookup. Read `control.rs` first, then
//! `engine/mod.rs`.

pub mod api;
mod audit;
pub mod captures;
mod change;
mod control;
mod data;
mod engine;
mod events;
mod fabric_graph;
pub mod file;
pub mod function;
mod functions;
mod guests;
mod hosts;
pub mod keeper;
pub mod kinds;
pub mod lookups;
mod metrics;
mod migration;
pub mod open;
mod output_log;
mod pages;
mod placement;
mod programs;
pub mod run_dir;
mod snapshots;
mod svg;
pub mod tcp_api;
mod trace;
pub mod upgrade;

pub use control::{ControlError, Options, Program, TcpAddresses, run};
pub use engine::KeptFabric;
pub use migration::receiver::serve as receive_guest;
pub use migration::ssh::{AddressError, SCHEME as SSH, SshAddress};
