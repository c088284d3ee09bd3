//! Opening the interface: what `control` does.

use ringway_host::{HostError, TapSettings, open_tap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// What the interface is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Queue pairs, 1 to 256.
    pub queues: u16,
    /// Its MTU.
    pub mtu: u16,
    /// Whether checksums and segmentation are left to whoever can do them best.
    pub offloads: bool,
    /// Its Ethernet address; one of the kernel's choice if none.
    pub mac: Option<[u8; 6]>,
    /// Its address and the length of the prefix.
    pub address: Option<(IpAddr, u8)>,
    /// Name or path of the network namespace it lives in; ours if none.
    pub namespace: Option<String>,
}

/// Makes the interface and brings it up. It is there for as long as any of its descriptors, one a queue, is
/// open.
pub fn open(interface: &Interface) -> Result<Vec<OwnedFd>, HostError> {
    let Interface { name, queues, mtu, offloads, mac, address, namespace } = interface.clone();
    open_tap(&TapSettings { name, queues, mtu, offloads, mac, address, namespace })
}
