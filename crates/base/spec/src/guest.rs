//! Guests: virtual machines that Ringway starts.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// The name.
    pub name: String,
    /// The monitor that runs the guest.
    pub kind: GuestKind,
    /// Names of the guest's ports, in the order of its network devices.
    pub ports: Vec<String>,
    /// The model of the ports' network card, named after its driver; by default, any.
    pub nic: Option<String>,
    /// The monitor's program; by default, the installed one.
    pub program: Option<PathBuf>,
    /// Memory in bytes.
    pub memory: u64,
    /// Number of virtual processors.
    pub cpus: u32,
    /// The kernel; by default, one that fits the kind.
    pub kernel: Option<PathBuf>,
    /// Directory of the kernel's modules.
    pub modules: Option<PathBuf>,
    /// The initial file system; by default, a small one of Ringway's own.
    pub initrd: Option<PathBuf>,
    /// A script that runs in the guest after it has booted.
    pub init: Option<PathBuf>,
    /// Words to add to the kernel's command line.
    pub append: Vec<String>,
    /// IP addresses of the network devices, in the order of the ports.
    pub addresses: Vec<IpNet>,
    /// Name or number of the user that runs the guest's process; by default, a unique one.
    pub user: Option<String>,
    /// Whether the guest starts with the fabric.
    pub start: bool,
}

/// The monitor that runs a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestKind {
    /// User-Mode Linux.
    Uml,
    /// QEMU.
    Qemu,
}
