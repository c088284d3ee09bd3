//! TAP interfaces: made, and made again when somebody deletes them.

use super::{Desk, PAUSE};
use crate::file::Tap;
use ringway_port::tap::open::{Interface, open};
use std::io;
use std::os::fd::OwnedFd;

/// The interface that the file asks for.
pub fn interface(tap: &Tap) -> Interface {
    Interface {
        name: tap.interface.clone(),
        queues: tap.queues,
        mtu: tap.mtu,
        offloads: tap.offloads,
        mac: tap.mac.map(|mac| mac.0),
        address: tap.address.map(|cidr| (cidr.address, cidr.prefix)),
        namespace: tap.namespace.clone(),
    }
}

/// Reports the interface that `descriptors` are, then each that takes its place.
pub async fn keep(mut desk: Desk, interface: Interface, descriptors: Vec<OwnedFd>) {
    desk.arrived(descriptors, true);
    desk.wait().await;
    loop {
        // Whatever took it away may do so again; that must not keep us busy.
        tokio::time::sleep(PAUSE).await;
        let again = interface.clone();
        // It waits for the kernel, and may change its thread's network namespace.
        let opened = tokio::task::spawn_blocking(move || open(&again)).await;
        match opened.map_err(io::Error::other).and_then(|opened| opened.map_err(io::Error::other)) {
            Ok(descriptors) => {
                desk.arrived(descriptors, true);
                desk.wait().await;
            }
            Err(error) => desk.trouble(error).await,
        }
    }
}
