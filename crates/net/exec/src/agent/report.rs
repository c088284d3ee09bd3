//! What `--explain` tells: how each socket is served, and what is not.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// `SOCK_RAW`.
const RAW: u64 = 3;

/// Lines that wait to be printed at most. Attack: a program that fills the standard error that it shares with the
/// agent, and reads nothing: the agent prints by another thread, and goes on.
const LINES: usize = 256;
/// How long the end of the report may take.
const END: Duration = Duration::from_secs(1);

/// Prints lines, and says at the end that all are.
fn print(lines: &Receiver<String>, mut out: impl Write) {
    for line in lines {
        // The program may have closed it, or switched off that one waits for room.
        let _ = writeln!(out, "ringway: {line}");
    }
}

/// Counts, and lines if they are wanted.
#[derive(Debug, Default)]
pub struct Report {
    lines: Option<SyncSender<String>>,
    /// Disconnected when all lines are printed.
    printed: Option<Receiver<()>>,
    lost: u64,
    pumped: u64,
    refused: u64,
    entered: u64,
    accepted: u64,
    is_lost: bool,
    unserved: BTreeMap<(i32, i32), u64>,
}

impl Report {
    /// A report that is printed to standard error, if it is wanted.
    pub fn new(tells: bool) -> Report {
        if tells { Report::to(std::io::stderr()) } else { Report::default() }
    }

    fn to(out: impl Write + Send + 'static) -> Report {
        let (lines, taken) = sync_channel(LINES);
        let (done, printed) = sync_channel(0);
        let printer = ringway_host::spawn("exec-report", None, move || {
            print(&taken, out);
            drop(done);
        });
        Report { lines: printer.is_ok().then_some(lines), printed: Some(printed), ..Report::default() }
    }

    fn tell(&mut self, thread: i32, text: &str) {
        if let Some(lines) = &self.lines
            && lines.try_send(format!("{} ({thread}): {text}", name(thread))).is_err()
        {
            self.lost += 1;
        }
    }

    /// A socket that the agent serves.
    pub fn pumped(&mut self, thread: i32, number: i32, is_tcp: bool) {
        self.pumped += 1;
        let kind = if is_tcp { "TCP" } else { "UDP" };
        self.tell(thread, &format!("socket {number}: {kind}, pumped by the agent"));
    }

    /// A connection that entered the stack that programs share.
    pub fn entered(&mut self, thread: i32, number: i32) {
        self.entered += 1;
        self.tell(thread, &format!("socket {number}: direct"));
    }

    /// A listening socket whose connections are accepted in the shared stack.
    pub fn shared(&mut self, thread: i32, number: i32) {
        self.tell(
            thread,
            &format!("socket {number}: listens in the shared stack; what it accepts is direct"),
        );
    }

    /// A connection that was accepted in the shared stack, and moves to the agent.
    pub fn adopted(&mut self, thread: i32, number: i32) {
        self.tell(thread, &format!("socket {number}: accepted as direct, now pumped by the agent"));
    }

    /// So many connections were accepted in the shared stack.
    pub fn accepted(&mut self, count: u64) {
        self.accepted = count;
    }

    /// A connection that comes back from the shared stack.
    pub fn returned(&mut self, thread: i32, number: i32, why: &str) {
        self.tell(thread, &format!("socket {number}: pumped again, {why}"));
    }

    /// The shared stack was lost.
    pub fn lost(&mut self) {
        self.is_lost = true;
    }

    /// A socket that is left to the kernel, where it reaches nobody.
    pub fn refused(&mut self, thread: i32, kind: u64, protocol: u64) {
        self.refused += 1;
        let kind = if kind == RAW { "raw socket".to_string() } else { format!("socket of type {kind}") };
        self.tell(
            thread,
            &format!("{kind}, protocol {protocol}: refused, only TCP and UDP are served; it reaches nobody"),
        );
    }

    /// An option that is not served.
    pub fn unserved(&mut self, option: (i32, i32)) {
        // A program can name 2^64 of them.
        if self.unserved.len() < 1024 || self.unserved.contains_key(&option) {
            *self.unserved.entry(option).or_default() += 1;
        }
    }

    /// The counts, for people.
    pub fn summary(&self) -> String {
        let mut text = format!("{} sockets pumped, {} refused", self.pumped, self.refused);
        if self.entered > 0 {
            text += &format!("; {} connections used the shared stack", self.entered);
        }
        if self.accepted > 0 {
            text += &format!("; {} connections were accepted in the shared stack", self.accepted);
        }
        if self.is_lost {
            text += "; the shared stack was lost; its connections were reset";
        }
        for ((level, name), count) in &self.unserved {
            text += &format!("; option {name} of level {level} not served, {count} times");
        }
        if self.lost > 0 {
            text += &format!("; {} lines not printed, since nobody read them", self.lost);
        }
        text
    }

    /// Prints the counts if they are wanted.
    pub fn close(&mut self) {
        let summary = self.summary();
        if let (Some(lines), Some(printed)) = (self.lines.take(), self.printed.take())
            && lines.try_send(summary).is_ok()
        {
            drop(lines);
            // Nothing is sent: it is the end that is waited for.
            let _ = printed.recv_timeout(END);
        }
    }
}

/// A thread's name.
fn name(thread: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
    name.trim_end().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nobody reads: it blocks at once.
    struct Full(Receiver<()>);

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            // Until the other end is dropped.
            let _ = self.0.recv();
            Err(std::io::ErrorKind::WouldBlock.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_holds_up_nobody() {
        let (reads, full) = sync_channel(0);
        let mut report = Report::to(Full(full));
        for number in 0..LINES as i32 + 10 {
            report.pumped(1, number, true);
        }
        // One line is with the one who prints.
        assert!((9..=10).contains(&report.lost), "{}", report.lost);
        drop(reads);
        report.close();
        assert!(report.summary().contains("lines not printed"));
    }

    #[test]
    fn the_summary_counts_what_was_not_served() {
        let mut report = Report::new(false);
        report.pumped(1, 3, true);
        report.refused(1, RAW, 1);
        report.unserved((6, 31));
        report.unserved((6, 31));
        let text = "1 sockets pumped, 1 refused; option 31 of level 6 not served, 2 times";
        assert_eq!(report.summary(), text);
    }
}
