//! Elements that use what the platform provides: ring ports, and connections for handlers. The platform, such as a
//! process or a tiny guest, implements [`PortAccess`] and [`Listener`](control_socket::Listener); it declares the
//! classes, since each has its own.

pub mod control_socket;
pub mod devices;
mod from_port;
mod port_access;
mod to_port;
mod uses;

pub use from_port::FromPort;
pub use port_access::{PortAccess, PortRing, Pushed};
pub use to_port::ToPort;
pub use uses::Uses;

/// Packages that `require` finds on every platform: element groups and properties of Click's user-level driver, and of
/// FastClick.
pub const PACKAGES: &[&str] = &[
    "userlevel",
    "click",
    "int64",
    "pcap",
    "analysis",
    "umultithread",
    "multithread",
    "ip6",
    "flow",
    "gtp",
    "nonatomicfp",
    "research",
    "tunnel",
];
