//! The settings of a port.

use serde::{Deserialize, Serialize};

/// Frames that stay with the host's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keep {
    /// This Ethernet type.
    EtherType(u16),
    /// This protocol of IPv4 or IPv6, to the host.
    Protocol(u8),
    /// TCP or UDP, by its number, from or to this port of the host.
    Port(u8, u16),
}

/// Settings of a port of this kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of the interface.
    pub interface: String,
    /// Name or path of the network namespace that the interface is in; ours if none.
    pub namespace: Option<String>,
    /// Whether frames to other addresses than the interface's arrive.
    pub promiscuous: bool,
    /// Whether the program runs in the kernel's stack although the driver could run it.
    pub generic: bool,
    /// What stays with the host.
    pub keep: Vec<Keep>,
}
