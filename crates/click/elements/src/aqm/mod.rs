//! Active queue management.
pub mod adaptive_red;
pub mod co_del;
mod queues;
pub mod red;
