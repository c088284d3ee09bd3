//! The log of a guest's console.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Attack: a guest that writes endlessly to its console would fill the disk. Largest size of its log in
/// bytes.
const LARGEST: u64 = 16 << 20;
/// Bytes at the end of a log in which its last lines are looked for.
const TAIL: u64 = 8 << 10;
/// Characters of a line that are shown.
const SHOWN: usize = 300;

/// A console's log, up to its bound.
pub struct Log {
    file: File,
    left: u64,
}

impl Log {
    pub fn new(file: File) -> Log {
        Log { file, left: LARGEST }
    }

    fn append(&mut self, bytes: &[u8]) {
        let fits = bytes
            .get(..bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)))
            .unwrap_or_default();
        self.left -= fits.len() as u64;
        // A full disk must not end a guest.
        let _ = self.file.write_all(fits);
    }
}

pub fn append(log: &Mutex<Log>, bytes: &[u8]) {
    log.lock().unwrap_or_else(PoisonError::into_inner).append(bytes);
}

/// Copies the console to its log until it is closed.
pub fn record(mut from: impl Read, log: &Mutex<Log>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        append(log, buffer.get(..length).unwrap_or_default());
    }
}

/// The last lines of a console's log that are not empty, at most `most`; none if it can't be read. Long ones are cut.
pub fn last_lines(log: &Path, most: usize) -> Vec<String> {
    let mut lines = tail(log).map(|bytes| lines(&bytes)).unwrap_or_default();
    lines.split_off(lines.len().saturating_sub(most))
}

/// The last line of a console's log, or that there is none.
pub fn last_line(log: &Path) -> String {
    last_lines(log, 1).pop().unwrap_or_else(|| "its console is empty".into())
}

fn tail(log: &Path) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::open(log)?, Vec::new());
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    // Attack: a guest that writes escape sequences would control the terminal of whoever reads its last lines.
    let plain = |line: &str| line.chars().filter(|c| !c.is_control()).take(SHOWN).collect::<String>();
    let lines = String::from_utf8_lossy(bytes).lines().map(plain).collect::<Vec<_>>();
    lines.into_iter().map(|line| line.trim().to_string()).filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown_without_escape_sequences() {
        let log = std::env::temp_dir().join(format!("ringway-console-{}", std::process::id()));
        let long = "x".repeat(SHOWN + 1);
        std::fs::write(&log, format!("{}\nfirst\r\n\n\x1b]0;title\x07last\n{long}\n \n", "y".repeat(20_000)))
            .unwrap();
        assert_eq!(last_lines(&log, 3), ["first", "]0;titlelast", &long[1..]]);
        assert_eq!(last_lines(&log, 1), [last_line(&log)]);
        std::fs::write(&log, "\n").unwrap();
        assert_eq!(last_line(&log), "its console is empty");
        std::fs::remove_file(&log).unwrap();
        assert!(last_lines(&log, 3).is_empty());
    }

    #[test]
    fn a_log_has_a_bound() {
        let path = std::env::temp_dir().join(format!("ringway-bound-{}", std::process::id()));
        let log = Mutex::new(Log { file: File::create(&path).unwrap(), left: 5 });
        record(&b"1234567"[..], &log);
        append(&log, b"8");
        assert_eq!(std::fs::read(&path).unwrap(), b"12345");
        std::fs::remove_file(&path).unwrap();
    }
}
