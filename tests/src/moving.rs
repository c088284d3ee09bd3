//! Moving a guest that runs from one QEMU to another, by QEMU's protocol for its managers (QMP).
use crate::eventually;
use ringway_control::guest::Spec;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// For QEMU to listen, and to answer.
const BOUND: Duration = Duration::from_secs(30);

/// Has a guest's QEMU take commands at `socket`.
pub fn managed(spec: &mut Spec, socket: &Path) {
    spec.words.extend(["-qmp".into(), format!("unix:{},server=on,wait=off", socket.display())]);
}

/// Has it wait for a guest that comes by way of `socket`, instead of booting.
pub fn expecting(spec: &mut Spec, socket: &Path) {
    spec.words.extend(["-incoming".into(), format!("unix:{}", socket.display())]);
}

/// A QEMU that takes commands.
pub struct Manager {
    stream: BufReader<UnixStream>,
}

impl Manager {
    /// Connects to it once it listens.
    pub fn connect(socket: &Path) -> Result<Manager, String> {
        let mut found = None;
        eventually(BOUND, || {
            found = UnixStream::connect(socket).ok();
            found.is_some()
        });
        let stream = found.ok_or_else(|| format!("no QEMU listens at {}", socket.display()))?;
        stream.set_read_timeout(Some(BOUND)).map_err(|error| error.to_string())?;
        let mut manager = Manager { stream: BufReader::new(stream) };
        manager.read()?;
        manager.ask("qmp_capabilities", json!({}))?;
        Ok(manager)
    }

    fn read(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(|error| format!("QEMU does not answer: {error}"))?;
        serde_json::from_str(&line).map_err(|error| format!("{line:?}: {error}"))
    }

    /// What a command returns; what happens meanwhile is passed over.
    pub fn ask(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|error| error.to_string())?;
        loop {
            let mut answer = self.read()?;
            if let Some(error) = answer.get("error") {
                return Err(format!("{command}: {error}"));
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    /// Begins to move the guest to who listens on `socket`: memory goes over, and what changed again and again, until
    /// [`Manager::let_go`].
    pub fn begin(&mut self, socket: &Path) -> Result<(), String> {
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
        self.until(|state| {
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
        self.until(|state| match state["status"].as_str() {
            Some("completed") => Some(Ok(())),
            Some("failed" | "cancelled") | None => Some(Err(format!("the guest is not moved: {state}"))),
            Some(_) => None,
        })
    }

    fn until(&mut self, done: impl Fn(&Value) -> Option<Result<(), String>>) -> Result<(), String> {
        let mut result = Err("moving a guest takes too long".to_string());
        eventually(4 * BOUND, || match self.ask("query-migrate", json!({})) {
            Ok(state) => done(&state).is_some_and(|found| {
                result = found;
                true
            }),
            Err(error) => {
                result = Err(error);
                true
            }
        });
        result
    }
}
