//! Elements that need an operating system, a file each.
use ringway_click::{Class, Documentation};

pub mod aggregate_counter;
pub mod block_thread;
pub mod chatter_socket;
pub mod control_socket;
mod device;
pub mod from_device;
pub mod from_dump;
pub mod from_host;
pub mod from_ip_summary_dump;
pub mod from_port;
mod intake;
pub mod kernel_tap;
pub mod kernel_tun;
mod link_ip;
mod listener;
pub mod mcast_socket;
mod outbox;
pub mod raw_socket;
mod replay;
pub mod socket;
pub mod to_device;
pub mod to_dump;
pub mod to_host;
pub mod to_ip_summary_dump;
pub mod to_port;
mod tun;

/// This crate's classes, by name.
pub const CLASSES: &[&Class] = &[
    &aggregate_counter::CLASS,
    &block_thread::CLASS,
    &chatter_socket::CLASS,
    &control_socket::CLASS,
    &from_device::CLASS,
    &from_dump::CLASS,
    &from_host::CLASS,
    &from_ip_summary_dump::CLASS,
    &from_port::CLASS,
    &kernel_tap::CLASS,
    &kernel_tun::CLASS,
    &mcast_socket::CLASS,
    &raw_socket::CLASS,
    &socket::CLASS,
    &to_device::CLASS,
    &to_dump::CLASS,
    &to_host::CLASS,
    &to_ip_summary_dump::CLASS,
    &to_port::CLASS,
];

/// Their documentation.
pub const DOCUMENTATION: Documentation = include!(concat!(env!("OUT_DIR"), "/documentation.rs"));
