//! Moving a guest that runs from one QEMU to another.
use crate::qmp::{BOUND, Manager};
use ringway_guests::Spec;
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Has it wait for a guest that comes by way of `socket`, instead of booting.
pub fn expecting(spec: &mut Spec, socket: &Path) {
    spec.words.extend(["-incoming".into(), format!("unix:{}", socket.display())]);
}

impl Manager {
    /// Begins to move the guest to who listens on `socket`: memory goes over, and what changed again and again, until
    /// [`Manager::let_go`].
    pub fn begin(&mut self, socket: &Path) -> Result<(), String> {
        // The two processes of the guest are different users.
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(socket, mode).map_err(|error| format!("{}: {error}", socket.display()))?;
        self.pace(30_000_000, 1)?;
        self.ask("migrate", json!({ "uri": format!("unix:{}", socket.display()) })).map(drop)
    }

    /// Bytes a second, and for how many milliseconds the guest may pause. What can't go over in that time, goes over
    /// again when it changed.
    fn pace(&mut self, bandwidth: u64, pause: u64) -> Result<(), String> {
        let pace = json!({ "max-bandwidth": bandwidth, "downtime-limit": pause });
        self.ask("migrate-set-parameters", pace).map(drop)
    }

    /// Waits until all memory, and then what changed, went over `rounds` times. From then on it goes over so slowly
    /// that a guest that writes at all is never done.
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

    /// Has the guest pause, and run where it is moved to.
    pub fn let_go(&mut self) -> Result<(), String> {
        self.pace(2_000_000_000, 20_000)?;
        self.until(4 * BOUND, "query-migrate", &json!({}), |state| match state["status"].as_str() {
            Some("completed") => Some(Ok(())),
            Some("failed" | "cancelled") | None => Some(Err(format!("the guest is not moved: {state}"))),
            Some(_) => None,
        })
    }
}
