//! Elements with per-flow state: flow statistics and load balancing.
pub(crate) mod blocks;
pub(crate) mod buckets;
pub(crate) mod connection;
mod family;
pub mod flow_monitor;
pub mod ip_health_check;
pub mod ip_load_balancer;
mod ipfix;
mod maglev;
pub(crate) mod table;
