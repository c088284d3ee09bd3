//! Opening the interface: the side of `control`.

use super::Settings;
use ringway_host::{HostError, TapAddresses, TapSettings, open_tap_with};
use std::os::fd::OwnedFd;

/// Creates an interface with `queues` queue pairs, 1 to 256, and brings it up. The interface exists as long as any of
/// its descriptors, one per queue, is open.
///
/// # Errors
/// The system refused.
pub fn open(settings: &Settings, queues: u16) -> Result<Vec<OwnedFd>, HostError> {
    let Settings { interface, mac, mtu, offloads, namespace, addresses, gateways, .. } = settings.clone();
    let mut addresses = addresses.iter().map(|address| (address.addr(), address.prefix_len()));
    let settings = TapSettings {
        name: interface,
        queues,
        mtu,
        offloads,
        mac: mac.map(|mac| mac.0),
        address: addresses.next(),
        namespace,
    };
    open_tap_with(&settings, &TapAddresses { more: addresses.collect(), gateways })
}
