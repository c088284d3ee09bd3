//! Switching hosts on and off, by a program that the fabric file names.

use ringway_place::object::HostStatus;
use ringway_spec::printable;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
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
const SHOWN: usize = 400;
/// Attack: a program that writes as fast as it is read. Largest number of reads between two checks for its end.
const AT_ONCE: usize = 64;

impl PowerHook {
    /// Switches a host. An error is why it is still as it was, in words.
    pub fn switch(&self, host: &str, on: bool) -> Result<(), String> {
        let word = if on { "on" } else { "off" };
        let failed = |what: String| format!("{} {word} {host}: {what}", self.program.display());
        let mut command = Command::new(&self.program);
        command.args([word, host]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Its own group: the programs that it starts are killed with it.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut errors = Errors::of(child.stderr.take());
        let end = Instant::now() + Duration::from_millis(self.limit_ms.into());
        let status: ExitStatus = loop {
            errors.read();
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < end => std::thread::sleep(LOOK),
                Ok(None) => {
                    kill(&mut child);
                    return Err(failed(format!("it took longer than {} ms", self.limit_ms)));
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        };
        if status.success() {
            return Ok(());
        }
        errors.read();
        let text = errors.text();
        Err(failed(if text.is_empty() { status.to_string() } else { format!("{status}: {text}") }))
    }
}

/// Kills a program that has not been waited for, and those that it started.
fn kill(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    let _ = child.kill();
    let _ = child.wait();
}

/// What a program writes to its standard error: all is read, so that it does not block, and the first part is kept.
struct Errors {
    pipe: Option<ChildStderr>,
    kept: Vec<u8>,
}

impl Errors {
    fn of(pipe: Option<ChildStderr>) -> Errors {
        // A pipe that would block is not read at all.
        let pipe = pipe.filter(|pipe| rustix::io::ioctl_fionbio(pipe, true).is_ok());
        Errors { pipe, kept: Vec::new() }
    }

    /// Reads the available bytes. The pipe's other end may stay open in a program that was left behind.
    fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut part = [0; 4096];
        for _ in 0..AT_ONCE {
            match pipe.read(&mut part) {
                Ok(count) if count > 0 => {
                    let room = SHOWN - self.kept.len();
                    self.kept.extend_from_slice(&part[..count.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    /// The kept part in one line.
    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.kept);
        let words: Vec<&str> = text.split_whitespace().collect();
        printable(&words.join(" ")).into_owned()
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
        assert!(bad.ends_with("bad on h1: exit status: 3: no\\u{1b}[1m BMC"), "{bad}");
        let marks = hook("marks", "printf 'no\\342\\200\\256 BMC' >&2; exit 3", 60_000);
        let marks = marks.switch("h1", true).unwrap_err();
        assert!(marks.ends_with("no\\u{202e} BMC"), "{marks}");
        let long = "head -c 300000 /dev/zero | tr '\\0' x >&2; exit 3";
        let long = hook("long", long, 60_000).switch("h1", true).unwrap_err();
        assert!(long.ends_with(&format!("exit status: 3: {}", "x".repeat(SHOWN))), "{long}");
        let slow = hook("slow", "exec sleep 1000", 50).switch("h1", true).unwrap_err();
        assert!(slow.ends_with("it took longer than 50 ms"), "{slow}");
        // What it started ends with it: the other end of the FIFO is closed.
        let fifo = folder.join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let (sender, ended) = std::sync::mpsc::channel();
        let end = fifo.clone();
        std::thread::spawn(move || sender.send(std::fs::read(end)));
        let child = hook("child", &format!("exec 3> {}; sleep 1000 & wait", fifo.display()), 500);
        assert!(child.switch("h1", true).unwrap_err().contains("it took longer"));
        // The program may have been killed before it opened the FIFO.
        drop(std::fs::File::options().read(true).write(true).open(&fifo).unwrap());
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)).unwrap().unwrap(), b"");
        let none = PowerHook { program: folder.join("none"), limit_ms: 1 };
        assert!(none.switch("h1", true).unwrap_err().contains("No such file"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(switches(HostStatus::Maintenance, HostStatus::Up), None);
    }
}
