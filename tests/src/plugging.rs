//! Hot-plugging network devices of a QEMU guest.
use crate::qmp::Manager;
use ringway_linux_guests::Spec;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Time limit for unplugging.
const BOUND: Duration = Duration::from_secs(60);
/// Name of the device, its back-end and its connection.
const NAME: &str = "plugged";

/// Gives a guest a slot for hot-plugging.
pub fn with_slot(spec: &mut Spec) {
    spec.words.extend(["-device".into(), "pcie-root-port,id=free,chassis=1".into()]);
}

/// Plugs in a network device whose back-end listens on `socket`.
pub fn plug(manager: &mut Manager, socket: &Path, mac: &str) -> Result<(), String> {
    let address = json!({ "type": "unix", "data": { "path": socket } });
    let connected = json!({ "type": "socket", "data": { "addr": address, "server": false } });
    manager.ask("chardev-add", json!({ "id": NAME, "backend": connected }))?;
    manager.ask("netdev_add", json!({ "type": "vhost-user", "id": NAME, "chardev": NAME }))?;
    // Without MSI-X: under TCG, QEMU before version 8 fails an assertion with it.
    let device = json!({
        "driver": "virtio-net-pci", "id": NAME, "netdev": NAME, "bus": "free", "mac": mac,
        "disable-legacy": "on", "vectors": 0,
    });
    manager.ask("device_add", device).map(drop)
}

/// Asks the guest to release its device, and removes the back-end afterwards.
pub fn unplug(manager: &mut Manager) -> Result<(), String> {
    manager.ask("device_del", json!({ "id": NAME }))?;
    manager.until(BOUND, "qom-list", &json!({ "path": "/machine/peripheral" }), |devices| {
        let there = devices.as_array()?.iter().any(|device| device["name"] == NAME);
        (!there).then_some(Ok(()))
    })?;
    // This closes the connection.
    manager.ask("netdev_del", json!({ "id": NAME })).map(drop)
}
