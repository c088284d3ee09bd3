//! QEMU's management protocol (QMP).
use crate::eventually;
use ringway_linux_guests::Spec;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Time limit for QEMU to listen, and to answer.
pub const BOUND: Duration = Duration::from_secs(30);

/// Makes a guest's QEMU accept commands at `socket`, whose folder it can access.
pub fn managed(spec: &mut Spec, socket: &Path) {
    spec.words.extend(["-qmp".into(), format!("unix:{},server=on,wait=off", socket.display())]);
    spec.shared.extend(socket.parent().map(Path::to_path_buf));
}

/// A connection to a QEMU for commands.
pub struct Manager {
    stream: BufReader<UnixStream>,
}

impl Manager {
    /// Connects as soon as QEMU listens.
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

    /// The result of a command; events are ignored.
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

    /// Repeats a command until `done` returns a value for its answer.
    pub fn until(
        &mut self,
        bound: Duration,
        command: &str,
        arguments: &Value,
        done: impl Fn(&Value) -> Option<Result<(), String>>,
    ) -> Result<(), String> {
        let mut result = Err(format!("{command}: takes too long"));
        eventually(bound, || match self.ask(command, arguments.clone()) {
            Ok(answer) => done(&answer).is_some_and(|found| {
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
