//! Switching hosts on and off, by a program that the fabric file names.

use ringway_place::object::HostStatus;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The program that switches hosts: `PROGRAM on|off HOST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerHook {
    /// The program.
    pub program: PathBuf,
    /// Milliseconds after which it is killed.
    pub limit_ms: u32,
}

/// Interval between checks whether the program has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Attack: a program that writes endlessly. Largest part of its errors that is shown, in bytes.
const SHOWN: u64 = 400;

impl PowerHook {
    /// Switches a host. An error is why it is still as it was, in words.
    pub fn switch(&self, host: &str, on: bool) -> Result<(), String> {
        let word = if on { "on" } else { "off" };
        let failed = |what: String| format!("{} {word} {host}: {what}", self.program.display());
        let mut command = Command::new(&self.program);
        command.args([word, host]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let end = Instant::now() + Duration::from_millis(self.limit_ms.into());
        let status: ExitStatus = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < end => std::thread::sleep(LOOK),
                Ok(None) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(failed(format!("it took longer than {} ms", self.limit_ms)));
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        };
        if status.success() {
            return Ok(());
        }
        let mut text = Vec::new();
        // The pipe's other end may still be open in a program that it left behind: only what is there is read.
        if let Some(pipe) = child.stderr.take() {
            let _ = rustix::io::ioctl_fionbio(&pipe, true);
            let _ = pipe.take(SHOWN).read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text);
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Err(failed(if text.is_empty() { status.to_string() } else { format!("{status}: {text}") }))
    }
}

/// Whether a change of status switches a host on or off.
pub(crate) fn switches(from: HostStatus, to: HostStatus) -> Option<bool> {
    match (from, to) {
        (HostStatus::Down, HostStatus::Up) => Some(true),
        (HostStatus::Up | HostStatus::Maintenance, HostStatus::Down) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::Path;

    /// Writes an executable script in another process: one that this process has open for writing while another
    /// thread starts a program could not be executed.
    pub(crate) fn script(path: &Path, text: &str) {
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let mut shell = Command::new("sh");
        assert!(shell.args(["-c", write, "sh"]).arg(path).arg(text).status().unwrap().success());
    }

    #[test]
    fn a_program_switches_hosts_and_its_errors_are_told() {
        let folder = std::env::temp_dir().join(format!("rw-power-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let hook = |name: &str, text: &str, limit_ms: u32| {
            let program = folder.join(name);
            script(&program, text);
            PowerHook { program, limit_ms }
        };
        let log = folder.join("log");
        let good = hook("good", &format!("echo $1 $2 >> {}", log.display()), 60_000);
        assert_eq!((good.switch("h0", false), good.switch("h0", true)), (Ok(()), Ok(())));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "off h0\non h0\n");
        let bad =
            hook("bad", "printf 'no\\033[1m BMC\\n' >&2; exit 3", 60_000).switch("h1", true).unwrap_err();
        assert!(bad.ends_with("bad on h1: exit status: 3: no [1m BMC"), "{bad}");
        let slow = hook("slow", "exec sleep 1000", 50).switch("h1", true).unwrap_err();
        assert!(slow.ends_with("it took longer than 50 ms"), "{slow}");
        let none = PowerHook { program: folder.join("none"), limit_ms: 1 };
        assert!(none.switch("h1", true).unwrap_err().contains("No such file"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(switches(HostStatus::Maintenance, HostStatus::Up), None);
    }
}
