//! Elements that need an operating system, one per file.
use crate::attachment::PortAccess;
use ringway_click::{Class, Documentation};
use ringway_elements::platform::{FromPort, ToPort, devices};

mod aggregate_counter;
mod block_thread;
mod chatter_socket;
mod control_socket;
mod device;
mod from_device;
mod from_dump;
mod from_host;
mod from_ip_summary_dump;
mod from_port;
mod intake;
mod kernel_tap;
mod kernel_tun;
mod link_type;
mod listener;
mod mcast_socket;
mod outbox;
mod raw_socket;
mod replay;
mod socket;
mod time_window;
mod to_device;
mod to_dump;
mod to_host;
mod to_host_sniffers;
mod to_ip_summary_dump;
mod to_port;
mod tun;

pub(crate) use link_type::mark_ip;
pub use ringway_elements::platform::control_socket::{Failure, Handlers, Session};

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
    &to_host_sniffers::CLASS,
    &to_ip_summary_dump::CLASS,
    &to_port::CLASS,
];

/// The classes that open sockets or devices whatever their arguments are; those of files say so when they are
/// configured.
const OPEN: &[&Class] = &[
    &chatter_socket::CLASS,
    &control_socket::CLASS,
    &from_host::CLASS,
    &kernel_tap::CLASS,
    &kernel_tun::CLASS,
    &mcast_socket::CLASS,
    &raw_socket::CLASS,
    &socket::CLASS,
    &to_host::CLASS,
    &to_host_sniffers::CLASS,
];

/// Whether a class opens sockets or devices.
pub(crate) fn opens(class: &str) -> bool {
    OPEN.iter().any(|own| own.name == class)
}

/// The classes for devices of existing configurations, in functions: each device stands for a port.
pub(crate) static DEVICES: [Class; devices::COUNT] = devices::classes(
    || Box::new(FromPort::<PortAccess>::of_device()),
    || Box::new(ToPort::<PortAccess>::of_device()),
);

/// Their documentation.
pub const DOCUMENTATION: Documentation = include!(concat!(env!("OUT_DIR"), "/documentation.rs"));
