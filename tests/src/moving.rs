//! Live migration of a guest from one QEMU to another.
use crate::qmp::{BOUND, Manager};
use ringway_linux_guests::Spec;
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Makes a guest wait for an incoming migration through `socket` instead of booting.
pub fn expecting(spec: &mut Spec, socket: &Path) {
    spec.words.extend(["-incoming".into(), format!("unix:{}", socket.display())]);
}

impl Manager {
    /// Begins to migrate the guest to the listener on `socket`: memory is transferred, and changed pages
    /// again, until [`Manager::let_go`].
    pub fn begin(&mut self, socket: &Path) -> Result<(), String> {
        // The guest's two processes run as different users.
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(socket, mode).map_err(|error| format!("{}: {error}", socket.display()))?;
        self.pace(30_000_000, 1)?;
        self.ask("migrate", json!({ "uri": format!("unix:{}", socket.display()) })).map(drop)
    }

    /// Sets bytes per second, and the permitted pause of the guest in milliseconds. Pages that change too fast for
    /// the pause are transferred again.
    fn pace(&mut self, bandwidth: u64, pause: u64) -> Result<(), String> {
        let pace = json!({ "max-bandwidth": bandwidth, "downtime-limit": pause });
        self.ask("migrate-set-parameters", pace).map(drop)
    }

    /// Waits until all memory, and then changed pages, were transferred `rounds` times. From then on the
    /// transfer is so slow that it can't finish while the guest writes to memory.
    pub fn passed(&mut self, rounds: u64) -> Result<(), String> {
        self.until(4 * BOUND, "query-migrate", &json!({}), |state| {
            let status = state["status"].as_str().unwrap_or_default();
            match state["ram"]["dirty-sync-count"].as_u64() {
                Some(count) if count > rounds && status == "active" => Some(Ok(())),
                _ if matches!(status, "" | "setup" | "active") => None,
                _ => Some(Err(format!("moving ends too soon: {state}"))),
            }
        })?;
        self.pace(4_000_000, 1)
    }

    /// Lets the guest pause, and continue at its destination.
    pub fn let_go(&mut self) -> Result<(), String> {
        self.pace(2_000_000_000, 20_000)?;
        self.until(4 * BOUND, "query-migrate", &json!({}), |state| match state["status"].as_str() {
            Some("completed") => Some(Ok(())),
            Some("failed" | "cancelled") | None => Some(Err(format!("the guest is not moved: {state}"))),
            Some(_) => None,
        })
    }
}
