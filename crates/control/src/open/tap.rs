//! TAP interfaces: made, and made again when somebody deletes them.

use super::{Desk, PAUSE};
use ringway_port::tap::{Settings, open};
use std::io;
use std::os::fd::OwnedFd;

/// Reports the interface that `descriptors` are, then each that takes its place.
pub async fn keep(mut desk: Desk, settings: Settings, queues: u16, descriptors: Vec<OwnedFd>) {
    desk.arrived(descriptors, true);
    desk.wait().await;
    loop {
        // Whatever took it away may do so again; that must not keep us busy.
        tokio::time::sleep(PAUSE).await;
        let again = settings.clone();
        // It waits for the kernel, and may change its thread's network namespace.
        let opened = tokio::task::spawn_blocking(move || open(&again, queues)).await;
        match opened.map_err(io::Error::other).and_then(|opened| opened.map_err(io::Error::other)) {
            Ok(descriptors) => {
                desk.arrived(descriptors, true);
                desk.wait().await;
            }
            Err(error) => desk.trouble(error).await,
        }
    }
}
