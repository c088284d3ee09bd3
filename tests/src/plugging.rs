//! Network devices that come to a QEMU guest while it runs, and go.
use crate::qmp::Manager;
use ringway_guests::Spec;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// For a guest to let a device go.
const BOUND: Duration = Duration::from_secs(60);
/// What the device, its back-end and the connection to that are called.
const NAME: &str = "plugged";

/// Gives a guest a slot for a device to come.
pub fn with_slot(spec: &mut Spec) {
    spec.words.extend(["-device".into(), "pcie-root-port,id=free,chassis=1".into()]);
}

/// Plugs a network device in whose back-end listens on `socket`.
pub fn plug(manager: &mut Manager, socket: &Path, mac: &str) -> Result<(), String> {
    let address = json!({ "type": "unix", "data": { "path": socket } });
    let connected = json!({ "type": "socket", "data": { "addr": address, "server": false } });
    manager.ask("chardev-add", json!({ "id": NAME, "backend": connected }))?;
    manager.ask("netdev_add", json!({ "type": "vhost-user", "id": NAME, "chardev": NAME }))?;
    // Without MSI-X: before version 8 QEMU stops at an assertion with it under TCG.
    let device = json!({
        "driver": "virtio-net-pci", "id": NAME, "netdev": NAME, "bus": "free", "mac": mac,
        "disable-legacy": "on", "vectors": 0,
    });
    manager.ask("device_add", device).map(drop)
}

/// Asks the guest to let its device go, and takes away its back-end once it has.
pub fn unplug(manager: &mut Manager) -> Result<(), String> {
    manager.ask("device_del", json!({ "id": NAME }))?;
    manager.until(BOUND, "qom-list", &json!({ "path": "/machine/peripheral" }), |devices| {
        let there = devices.as_array()?.iter().any(|device| device["name"] == NAME);
        (!there).then_some(Ok(()))
    })?;
    // The connection goes with it.
    manager.ask("netdev_del", json!({ "id": NAME })).map(drop)
}
