//! Copies the output of a function's process to the log, at a limited rate.

use ringway_fabric::LogLimit;
use ringway_spec::printable;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

/// Longest line in bytes; longer lines are split.
const LONGEST: u64 = 4096;
/// Number of last lines that are kept, to explain why the process ended.
const KEPT: usize = 20;
/// Lines a second that are logged. Attack: a function that fills the log.
const RATE: u32 = 100;

/// Logs the lines of `output` until its end; returns the last ones.
pub fn log(name: &str, output: impl Read) -> Vec<String> {
    let mut output = BufReader::new(output);
    let mut kept = VecDeque::new();
    let mut limit = LogLimit::new(RATE, Duration::from_secs(1));
    let say = |suppressed: u64| {
        if suppressed > 0 {
            tracing::warn!(function = name, "{suppressed} more messages suppressed");
        }
    };
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match output.by_ref().take(LONGEST).read_until(b'\n', &mut bytes) {
            Ok(1..) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = printable(&text.trim_end().replace('\t', " ")).into_owned();
        if let Some(suppressed) = limit.take(Instant::now()) {
            say(suppressed);
            tracing::info!(function = name, "{line}");
        }
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(line);
    }
    say(limit.suppressed());
    kept.into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_last_lines_are_kept() {
        let text: String = (0..1000).map(|line| format!("line {line}\n")).collect();
        let kept = super::log("test", text.as_bytes());
        assert_eq!((kept.len(), kept[0].as_str(), kept[19].as_str()), (20, "line 980", "line 999"));
        assert_eq!(super::log("test", &[b'x'; 10_000][..]).len(), 3, "a line without end is several");
        let kept = super::log("test", &b"a\tb\x1b[2J\xe2\x80\xae\n"[..]);
        assert_eq!(kept, ["a b\\u{1b}[2J\\u{202e}"], "nothing acts on a terminal");
    }
}
