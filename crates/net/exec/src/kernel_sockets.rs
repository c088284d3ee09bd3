//! What the kernel still sends for a program that has ended.

use rustix::process::Pid;
use std::fs::File;
use std::io::{Read, Seek};
use std::time::{Duration, Instant};

/// How long peers may take to acknowledge it.
const DRAIN: Duration = Duration::from_secs(60);
/// And how long nothing may be acknowledged meanwhile.
const SILENCE: Duration = Duration::from_secs(5);

/// The TCP sockets of a network namespace (proc_pid_net(5)). While they are open, the namespace lasts, and with it
/// connections that the program has closed.
pub struct KernelSockets {
    lists: Vec<File>,
    /// When it was first asked.
    began: Option<Instant>,
    last: Vec<String>,
    /// Since when it was so.
    since: Instant,
}

impl KernelSockets {
    /// Those of a process's namespace.
    pub fn of(process: Pid) -> KernelSockets {
        KernelSockets::at(&format!("/proc/{}/net", process.as_raw_nonzero()))
    }

    /// Those of this process's namespace.
    pub fn own() -> KernelSockets {
        KernelSockets::at("/proc/self/net")
    }

    fn at(folder: &str) -> KernelSockets {
        let lists = ["tcp", "tcp6"].iter().filter_map(|name| File::open(format!("{folder}/{name}")).ok());
        KernelSockets { lists: lists.collect(), began: None, last: Vec::new(), since: Instant::now() }
    }

    /// Whether peers have yet to acknowledge what the program wrote: for a minute at most, and not while nothing is
    /// acknowledged for five seconds.
    pub fn is_draining(&mut self, now: Instant) -> bool {
        let began = *self.began.get_or_insert(now);
        let left: Vec<String> = self.lists.iter_mut().flat_map(unacknowledged).collect();
        if left != self.last {
            (self.last, self.since) = (left, now);
        }
        !self.last.is_empty() && now < began + DRAIN && now < self.since + SILENCE
    }
}

/// The sockets of a list whose end their peers have not acknowledged (FIN-WAIT-1, CLOSING, LAST-ACK): each with its
/// address and its number of bytes.
fn unacknowledged(list: &mut File) -> Vec<String> {
    let mut text = String::new();
    if list.rewind().and_then(|()| list.read_to_string(&mut text)).is_err() {
        return Vec::new();
    }
    let fields = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (address, state) = (fields.next()?.to_string(), fields.nth(1)?);
        matches!(state, "04" | "09" | "0B")
            .then(|| format!("{address} {}", fields.next().unwrap_or_default()))
    };
    text.lines().skip(1).filter_map(fields).collect()
}
