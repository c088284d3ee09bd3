//! A plugin host's process: started with minimal resources, and ended together with all its children.

use super::connection::{Connection, ConnectionError, LONGEST, Request, bounded};
use super::options::{Folder, Options};
use super::python;
use ringway_spec::LineLimit;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How long a host may take to start: Python, and each file's five seconds.
const START: Duration = Duration::from_secs(20);
/// Additional time for a plugin host beyond a unit's limit: it kills a hanging worker and starts another one.
const BEYOND: Duration = Duration::from_secs(10);
/// Time for a plugin host to exit on request.
const GOODBYE: Duration = Duration::from_millis(500);
/// Attack: an endless log line. Largest size in bytes.
const LONGEST_LOG: u64 = 4096;
/// Attack: a plugin that logs without an end. Largest number of its lines in our log within a period.
const LOGGED: u32 = 100;
const LOG_PERIOD: Duration = Duration::from_secs(60);
/// Number of lines that are read ahead.
const AHEAD: usize = 2;

/// A running plugin host.
pub(super) struct Process {
    child: Child,
    socket: UnixStream,
    lines: Receiver<Vec<u8>>,
    changed: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    id: u64,
}

/// The part of a line that is parsed first.
#[derive(Deserialize)]
struct Head {
    id: Option<u64>,
    event: Option<String>,
}

impl Process {
    /// Starts the host of a folder and waits until its units are loaded.
    pub fn start(options: &Options, folder: &Folder) -> Result<Process, ConnectionError> {
        let gone = |what: &str, error: std::io::Error| ConnectionError::Gone(format!("{what}: {error}"));
        let mut command = python::host(&options.python, folder)?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| gone("a socket pair", error))?;
        let theirs = OwnedFd::from(theirs);
        let output = theirs.try_clone().map_err(|error| gone("a socket pair", error))?;
        command.stdin(theirs).stdout(output).stderr(Stdio::piped());
        let spawned = command.spawn();
        drop(command);
        let mut child = spawned.map_err(|error| gone(&options.python.display().to_string(), error))?;
        let (changed, ended) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let (sender, lines) = sync_channel(AHEAD);
        let reader = ours.try_clone().map_err(|error| gone("a socket pair", error));
        let log = child.stderr.take();
        let (marked, over) = (changed.clone(), ended.clone());
        let path = folder.path.display().to_string();
        let mut process = Process { child, socket: ours, lines, changed, ended, id: 0 };
        let reader = reader?;
        std::thread::spawn(move || read_lines(reader, &sender, &marked, &over));
        std::thread::spawn(move || log.map(|log| read_log(log, &path)));
        process.hello()?;
        Ok(process)
    }

    fn hello(&mut self) -> Result<(), ConnectionError> {
        #[derive(Deserialize)]
        struct Hello {
            ringway_plugin_host: u32,
        }
        let line = self.line(Instant::now() + START, START)?;
        match serde_json::from_slice(&line) {
            Ok(Hello { ringway_plugin_host: 1 }) => Ok(()),
            _ => {
                Err(ConnectionError::Gone("the started program is not a plugin host of this version".into()))
            }
        }
    }

    fn line(&mut self, until: Instant, within: Duration) -> Result<Vec<u8>, ConnectionError> {
        match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(ConnectionError::Late(within)),
            Err(RecvTimeoutError::Disconnected) => Err(ConnectionError::Gone(match self.child.try_wait() {
                Ok(Some(status)) => format!("the plugin host ended ({status}); its log says why"),
                _ => "the plugin host closed its socket".into(),
            })),
        }
    }

    fn send(&mut self, request: &Request) -> Result<(), ConnectionError> {
        self.id += 1;
        let head = format!("{{\"id\":{},\"op\":\"{}\"", self.id, request.op);
        let rest = request.body.strip_prefix(b"{").unwrap_or(b"}");
        let separator: &[u8] = if rest == b"}" { b"" } else { b"," };
        let line = [head.as_bytes(), separator, rest, b"\n"].concat();
        let limit = request.within + BEYOND;
        self.socket
            .set_write_timeout(Some(limit))
            .map_err(|error| ConnectionError::Gone(error.to_string()))?;
        self.socket.write_all(&line).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => ConnectionError::Late(limit),
            _ => ConnectionError::Gone(format!("the plugin host: {error}")),
        })
    }

    fn answer(&mut self, id: u64, within: Duration) -> Result<Vec<u8>, ConnectionError> {
        let limit = within + BEYOND;
        let line = self.line(Instant::now() + limit, limit)?;
        // Attack: a plugin that writes invalid JSON as its answer. This is the plugin's failure, not its
        // host's.
        let is_expected = line.starts_with(format!("{{\"id\":{id},").as_bytes())
            || serde_json::from_slice::<Head>(&line).is_ok_and(|head| head.id == Some(id));
        match is_expected {
            true => Ok(line),
            false => Err(ConnectionError::Gone("the plugin host sent an unexpected answer".into())),
        }
    }
}

impl Connection for Process {
    fn exchange(&mut self, requests: &[Request]) -> Vec<Result<Vec<u8>, ConnectionError>> {
        let (mut answers, mut bytes) = (Vec::new(), 0);
        let first = self.id + 1;
        // All at once, so that waiting times for answers overlap.
        let sent: Result<(), ConnectionError> = requests.iter().try_for_each(|request| self.send(request));
        for (place, request) in requests.iter().enumerate() {
            let answer = sent.clone().and_then(|()| self.answer(first + place as u64, request.within));
            let answer = bounded(answer, &mut bytes);
            let is_over = answer.is_err();
            answers.push(answer);
            if is_over {
                break;
            }
        }
        answers
    }

    fn changed(&mut self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A healthy plugin host ends at the end of its input.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let Some(group) = Pid::from_raw(self.child.id().cast_signed()) else { return };
        let ended = || {
            let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            !matches!(waitid(WaitId::Pid(group), how), Ok(None))
        };
        let until = Instant::now() + GOODBYE;
        while !ended() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Its process id stays reserved until it is waited for.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Passes lines on; events only set `changed`.
fn read_lines(socket: UnixStream, lines: &SyncSender<Vec<u8>>, changed: &AtomicBool, ended: &AtomicBool) {
    let mut reader = BufReader::with_capacity(1 << 18, socket);
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(LONGEST as u64).read_until(b'\n', &mut line);
        if !matches!(read, Ok(count) if count > 0) || line.last() != Some(&b'\n') {
            break;
        }
        let is_event = line.starts_with(b"{\"event\"")
            && serde_json::from_slice::<Head>(&line).is_ok_and(|head| head.event.is_some());
        if is_event {
            changed.store(true, Ordering::Release);
        } else if lines.send(line).is_err() {
            break;
        }
    }
    ended.store(true, Ordering::Release);
}

/// Copies a plugin host's log to ours, as many lines as a log may have of it.
fn read_log(log: impl Read, folder: &str) {
    limited(log, |line| tracing::warn!(folder, "{line}"));
}

/// Tells of the lines of a log, as many as one may have within a period, and of how many there were more.
fn limited(log: impl Read, mut tell: impl FnMut(&str)) {
    let mut limit = LineLimit::new(LOGGED, LOG_PERIOD);
    let mut reader = BufReader::new(log);
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LONGEST_LOG).read_until(b'\n', &mut line) {
            Ok(count) if count > 0 => {
                let Some(before) = limit.take(Instant::now()) else { continue };
                if before > 0 {
                    tell(&format!("{before} more lines suppressed"));
                }
                tell(String::from_utf8_lossy(&line).trim_end());
            }
            _ => break,
        }
    }
    let left = limit.suppressed();
    if left > 0 {
        tell(&format!("{left} more lines suppressed"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_logs_without_an_end_is_limited() {
        let lines = "it failed\n".repeat(10_000);
        let (begun, mut told) = (Instant::now(), Vec::new());
        limited(lines.as_bytes(), |line| told.push(line.to_string()));
        // A machine that needs minutes for it begins another period.
        let most = LOGGED as usize * (1 + begun.elapsed().div_duration_f64(LOG_PERIOD) as usize) + 1;
        assert!((LOGGED as usize..=2 * most).contains(&told.len()), "{}", told.len());
        assert_eq!(told[0], "it failed");
        assert!(told.last().unwrap().ends_with(" more lines suppressed"), "{:?}", told.last());
    }
}
