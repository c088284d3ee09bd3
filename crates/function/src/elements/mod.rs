//! Elements that need an operating system, a file each.
use ringway_click::Class;

pub mod aggregate_counter;
pub mod control_socket;
pub mod from_dump;
pub mod from_ip_summary_dump;
pub mod to_dump;
pub mod to_ip_summary_dump;

/// This crate's classes, by name.
pub const CLASSES: &[&Class] = &[
    &aggregate_counter::CLASS,
    &control_socket::CLASS,
    &from_dump::CLASS,
    &from_ip_summary_dump::CLASS,
    &to_dump::CLASS,
    &to_ip_summary_dump::CLASS,
];
