//! Workers, turns, reconciling: the `data` process.

mod bell;
pub mod data;
mod fabric;
mod forward;
mod link;
mod log_limit;
mod meter;
mod page;
mod patience;
pub mod proto;
mod watchdog;
mod worker;
mod world;

pub use fabric::{Fabric, FabricError, PORTS};
pub use link::{DESCRIPTORS, Link, LinkError};
pub use log_limit::LogLimit;
pub use page::SharedPage;
