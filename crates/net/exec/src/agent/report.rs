//! What `--explain` tells: how each socket is served, and what is not.

use std::collections::BTreeMap;

/// `SOCK_RAW`.
const RAW: u64 = 3;

/// Counts, and lines if they are wanted.
#[derive(Debug, Default)]
pub struct Report {
    tells: bool,
    pumped: u64,
    refused: u64,
    unserved: BTreeMap<(i32, i32), u64>,
}

impl Report {
    pub fn new(tells: bool) -> Report {
        Report { tells, ..Report::default() }
    }

    fn tell(&self, thread: i32, text: &str) {
        if self.tells {
            eprintln!("ringway: {} ({thread}): {text}", name(thread));
        }
    }

    /// A socket that the agent serves.
    pub fn pumped(&mut self, thread: i32, number: i32, is_tcp: bool) {
        self.pumped += 1;
        let kind = if is_tcp { "TCP" } else { "UDP" };
        self.tell(thread, &format!("socket {number}: {kind}, pumped by the agent"));
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
        for ((level, name), count) in &self.unserved {
            text += &format!("; option {name} of level {level} not served, {count} times");
        }
        text
    }

    /// Prints the counts if they are wanted.
    pub fn close(&self) {
        if self.tells {
            eprintln!("ringway: {}", self.summary());
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

    #[test]
    fn the_summary_counts_what_was_not_served() {
        let mut report = Report::default();
        report.pumped(1, 3, true);
        report.refused(1, RAW, 1);
        report.unserved((6, 31));
        report.unserved((6, 31));
        let text = "1 sockets pumped, 1 refused; option 31 of level 6 not served, 2 times";
        assert_eq!(report.summary(), text);
    }
}
