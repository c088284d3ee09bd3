//! QEMU's management protocol (QMP): the channel by which a guest's QEMU is told to move.
//!
//! The socket is in the folder where the guest's program may listen, so that any later process finds it by its path.

use super::{Guest, Runner};
use ringway_host::{HostError, peer, send_with};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time limit of an answer.
const ANSWER: Duration = Duration::from_secs(20);
/// Attack: a QEMU that its guest has taken over answers without end. The longest line that is read, and the most lines
/// before an answer.
const LONGEST_LINE: u64 = 1 << 20;
const MOST_LINES: usize = 10_000;
/// The longest path of a socket (unix(7)), with its terminating zero.
const LONGEST_PATH: usize = 108;

/// Why a QEMU was not told something.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The guest is not QEMU's.
    #[error("guest {0} is not run by QEMU")]
    Kind(String),
    /// There is no socket.
    #[error(
        "guest {name} has no channel to its QEMU ({source}): an older version started it, or the path of its \
         folder is too long; start it again"
    )]
    None {
        /// The guest.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another process listens.
    #[error("guest {0}: another process than its QEMU listens on its socket")]
    Foreign(String),
    /// The connection broke.
    #[error("QEMU does not answer: {0}")]
    Broken(#[from] io::Error),
    /// A descriptor can't be sent.
    #[error("QEMU does not answer: {0}")]
    Send(#[from] HostError),
    /// It said something else than QMP.
    #[error("QEMU's answer is not QMP")]
    Foreseen,
    /// It refused a command.
    #[error("QEMU refuses {command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// Its reason.
        reason: String,
    },
}

/// The path of the socket in the folder for a guest's sockets; `None` if it is too long.
pub(crate) fn socket(sockets: &Path) -> Option<PathBuf> {
    let path = sockets.join("qmp");
    (path.as_os_str().len() < LONGEST_PATH).then_some(path)
}

/// The words that make QEMU listen there.
pub(crate) fn words(socket: &Path) -> [String; 4] {
    let path = socket.display();
    let chardev = format!("socket,id=qmp,path={path},server=on,wait=off");
    ["-chardev".into(), chardev, "-mon".into(), "chardev=qmp,mode=control".into()]
}

/// A connection to a guest's QEMU. QEMU serves one at a time.
#[derive(Debug)]
pub struct Monitor {
    stream: BufReader<UnixStream>,
    stopped: Option<u64>,
    /// When the command was sent that was answered last, in nanoseconds of CLOCK_MONOTONIC. Events that are read since
    /// then came later.
    answered: u64,
    asked: u64,
}

impl Guest {
    /// Connects to the guest's QEMU. Blocks until it answers.
    ///
    /// # Errors
    /// The guest has no QEMU, or none that answers.
    pub fn monitor(&self) -> Result<Monitor, MonitorError> {
        let name = || self.spec.name.clone();
        if self.spec.kind != Runner::Qemu {
            return Err(MonitorError::Kind(name()));
        }
        let path = self.console.with_file_name("sockets").join("qmp");
        let stream =
            UnixStream::connect(path).map_err(|source| MonitorError::None { name: name(), source })?;
        // Attack: the guest's user may link the name to another process's socket.
        if peer(&stream)?.process != self.process() {
            return Err(MonitorError::Foreign(name()));
        }
        Monitor::new(stream)
    }
}

/// The time of an event, which QMP gives since 1970, by CLOCK_MONOTONIC, given both clocks' times now; now if it is not
/// given. It is not before `earliest`: a clock that is set meanwhile moves the event no further.
fn steady(timestamp: &Value, since_1970: u64, now: u64, earliest: u64) -> u64 {
    let part = |name: &str, nanoseconds: u64| Some(timestamp[name].as_u64()?.saturating_mul(nanoseconds));
    let at = part("seconds", 1_000_000_000)
        .and_then(|seconds| Some(seconds.saturating_add(part("microseconds", 1000)?)));
    let ago = since_1970.saturating_sub(at.unwrap_or(since_1970));
    now.saturating_sub(ago).max(earliest.min(now))
}

/// Nanoseconds since 1970.
fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn steady_now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Monitor {
    fn new(stream: UnixStream) -> Result<Monitor, MonitorError> {
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let mut monitor = Monitor { stream: BufReader::new(stream), stopped: None, answered: 0, asked: 0 };
        // The greeting.
        monitor.read()?;
        monitor.ask("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    fn read(&mut self) -> Result<Value, MonitorError> {
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        serde_json::from_slice(&line).map_err(|_| MonitorError::Foreseen)
    }

    /// The result of a command. Of events, STOP is noted.
    ///
    /// # Errors
    /// QEMU refuses it, or does not answer.
    pub fn ask(&mut self, command: &str, arguments: &Value) -> Result<Value, MonitorError> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.asked = steady_now();
        self.stream.get_mut().write_all(line.as_bytes())?;
        self.answer(command)
    }

    fn answer(&mut self, command: &str) -> Result<Value, MonitorError> {
        for _ in 0..MOST_LINES {
            let mut answer = self.read()?;
            if let Some(error) = answer.get("error") {
                let reason = error["desc"].as_str().unwrap_or("it does not say why").to_string();
                return Err(MonitorError::Refused { command: command.into(), reason });
            }
            if let Some(value) = answer.get_mut("return") {
                self.answered = self.asked;
                return Ok(value.take());
            }
            if answer["event"] == "STOP" {
                self.stopped = Some(steady(&answer["timestamp"], since_1970(), steady_now(), self.answered));
            }
        }
        Err(MonitorError::Foreseen)
    }

    /// Gives it a descriptor, which commands name by `name`.
    ///
    /// # Errors
    /// As [`Monitor::ask`].
    pub fn give(&mut self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), MonitorError> {
        let line = format!("{}\n", json!({ "execute": "getfd", "arguments": { "fdname": name } }));
        self.asked = steady_now();
        let sent = send_with(self.stream.get_ref(), line.as_bytes(), &[descriptor])?;
        let rest = line.as_bytes().get(sent..).unwrap_or_default();
        self.stream.get_mut().write_all(rest)?;
        self.answer("getfd").map(drop)
    }

    /// When its virtual machine stopped, while this connection was open, in nanoseconds of CLOCK_MONOTONIC. QEMU says
    /// so once its devices have stopped.
    pub fn stopped(&self) -> Option<u64> {
        self.stopped
    }

    /// The state of its virtual machine, such as `running`, `paused`, `postmigrate`.
    ///
    /// # Errors
    /// As [`Monitor::ask`].
    pub fn status(&mut self) -> Result<String, MonitorError> {
        let status = self.ask("query-status", &json!({}))?;
        Ok(status["status"].as_str().unwrap_or_default().to_string())
    }

    /// The versioned name of its machine type, such as `pc-q35-7.2`.
    ///
    /// # Errors
    /// As [`Monitor::ask`].
    pub fn machine(&mut self) -> Result<String, MonitorError> {
        let class = self.ask("qom-get", &json!({ "path": "/machine", "property": "type" }))?;
        let class = class.as_str().unwrap_or_default();
        Ok(class.strip_suffix("-machine").unwrap_or(class).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A QEMU that reads a line before each of its own, but for the greeting.
    fn qemu(
        lines: &'static [&'static str],
    ) -> Result<(Monitor, std::thread::JoinHandle<Vec<String>>), MonitorError> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let served = std::thread::spawn(move || {
            let mut stream = BufReader::new(theirs);
            let mut read = Vec::new();
            for (number, line) in lines.iter().enumerate() {
                if number > 0 {
                    let mut text = String::new();
                    stream.read_line(&mut text).unwrap();
                    read.push(text);
                }
                stream.get_mut().write_all(line.as_bytes()).unwrap();
            }
            read
        });
        Monitor::new(ours).map(|monitor| (monitor, served))
    }

    #[test]
    fn events_are_passed_over_and_refusals_have_their_reason() {
        let (mut monitor, served) = qemu(&[
            "{\"QMP\":{}}\n",
            "{\"return\":{}}\n",
            "{\"event\":\"STOP\"}\n{\"return\":{\"status\":\"running\"}}\n",
            "{\"error\":{\"class\":\"GenericError\",\"desc\":\"no such thing\"}}\n",
            "{\"return\":\"pc-q35-7.2-machine\"}\n",
            "{\"return\":{}}\n",
        ])
        .unwrap();
        assert_eq!(monitor.status().unwrap(), "running");
        let refused = monitor.ask("cont", &json!({})).unwrap_err().to_string();
        assert_eq!(refused, "QEMU refuses cont: no such thing");
        assert_eq!(monitor.machine().unwrap(), "pc-q35-7.2");
        monitor.give("way", std::io::stdin().as_fd()).unwrap();
        let read = served.join().unwrap();
        assert!(read[4].contains("getfd") && read[4].contains("way"), "{read:?}");
        assert!(monitor.status().is_err(), "it is gone");
    }

    #[test]
    fn a_clock_that_is_set_moves_no_event_before_the_last_command_or_after_now() {
        const SECOND: u64 = 1_000_000_000;
        let event = json!({ "seconds": 1000, "microseconds": 500_000 });
        let at = |since_1970| steady(&event, since_1970, 70 * SECOND, 69 * SECOND);
        assert_eq!(at(1000 * SECOND + 700_000_000), 70 * SECOND - 200_000_000);
        // It was set an hour forward, or back, since then.
        assert_eq!(at(4600 * SECOND), 69 * SECOND);
        assert_eq!(at(10), 70 * SECOND);
        assert_eq!(steady(&Value::Null, 5, 70, 60), 70);
        let huge = json!({ "seconds": u64::MAX, "microseconds": 0 });
        assert_eq!(steady(&huge, 5, 70, 60), 70);
    }

    #[test]
    fn another_protocol_is_an_error() {
        assert!(matches!(qemu(&["220 welcome\n"]), Err(MonitorError::Foreseen)));
        let long = Path::new("/").join("x".repeat(120));
        assert_eq!((socket(&long), socket(Path::new("/run/a"))), (None, Some("/run/a/qmp".into())));
    }
}
