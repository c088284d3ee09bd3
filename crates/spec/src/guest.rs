//! Guests: virtual machines that Ringway starts.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// What runs it.
    pub kind: GuestKind,
    /// Its network devices in order: names of ports.
    pub ports: Vec<String>,
    /// The network card that its ports must be, named after the driver; any if none.
    pub nic: Option<String>,
    /// The program that runs it; the installed one if none.
    pub program: Option<PathBuf>,
    /// Bytes of memory.
    pub memory: u64,
    /// Virtual processors.
    pub cpus: u32,
    /// Its kernel; one that fits the kind if none.
    pub kernel: Option<PathBuf>,
    /// Directory of the kernel's modules.
    pub modules: Option<PathBuf>,
    /// Its initial file system; a small one of Ringway's own if none.
    pub initrd: Option<PathBuf>,
    /// A script that runs in it once it is up.
    pub init: Option<PathBuf>,
    /// Words to add to its kernel's command line.
    pub append: Vec<String>,
    /// Addresses of its devices, in the order of its ports.
    pub addresses: Vec<IpNet>,
    /// Name or number of the user that runs its process; a unique one if none.
    pub user: Option<String>,
    /// Whether it starts with the fabric.
    pub start: bool,
}

/// What runs a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestKind {
    /// User-Mode Linux.
    Uml,
    /// QEMU.
    Qemu,
}
