//! The `data` process: workers forward frames between ports in turns, while ports, switches and workers are
//! added and removed.
//!
//! [`Fabric`] holds workers, ports and switches, and applies changes; [`MessageStream`] is the connection to
//! `control`, with the messages of `proto`. Read `forward.rs` first: a burst's way from its source to its
//! destinations; then `worker.rs` and `fabric.rs`.

mod antispoof;
mod arrival;
pub mod capture;
pub mod data;
mod fabric;
mod forward;
mod function;
mod instances;
mod log_limit;
mod memory_access;
mod mirror;
mod page;
mod policy;
mod profile;
pub mod proto;
mod rate;
pub mod records;
pub mod session_limit;
mod stream;
mod topology;
mod trace;
mod wait_limit;
mod wakeup;
mod watchdog;
mod worker;

pub use fabric::{
    Fabric, FabricError, PORTS, committed as committed_tables, slot as table_slot, worker_node,
};
pub use log_limit::LogLimit;
pub use page::{RUN, SERVED, SERVING, SharedPage};
pub use stream::{DESCRIPTORS, MessageStream, StreamError};
